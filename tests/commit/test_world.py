"""Whether another process is known to be dead: only what is certain counts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from frazil.commit import StopRequested, World
from frazil.commit.world import process_is_dead, this_process


def test_this_process_is_alive() -> None:
    assert not process_is_dead(this_process())


def test_a_process_that_has_ended_on_this_host_is_dead() -> None:
    child = subprocess.run(
        [sys.executable, "-c", "from frazil.commit.world import this_process; print(this_process())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process_is_dead(child.stdout.strip())


def test_a_process_id_that_was_given_out_again_is_not_the_same_process() -> None:
    host, pid, created = this_process().rsplit("/", 2)
    assert process_is_dead(f"{host}/{pid}/{float(created) - 3600:.2f}")


def test_a_process_of_another_host_may_be_alive() -> None:
    _, pid, created = this_process().rsplit("/", 2)
    assert not process_is_dead(f"elsewhere/{pid}/{created}")


@pytest.mark.parametrize("text", ["", "host", "host/1", "{host}/x/1.0", "{host}/{pid}/x", "a/b/c"])
def test_what_cannot_be_read_may_be_alive(text: str) -> None:
    assert not process_is_dead(text.format(host=socket.gethostname(), pid=os.getpid()))


def test_waiting_ends_with_a_wish_to_stop() -> None:
    world = World()
    world.wait(0)
    world.stop.set()
    with pytest.raises(StopRequested):
        world.wait(3600)
