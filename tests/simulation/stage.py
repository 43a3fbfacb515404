"""Puts the made-up clock, pool and workers where the engine looks for the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

import pytest
import structlog

from frazil.commit import Coordinator, coordinator
from frazil.commit import World as Around
from frazil.engine import run as running
from frazil.protocol.retry import Backoff
from tests.simulation.process import Pool, Process

if TYPE_CHECKING:
    from tests.simulation.world import World

PATIENCE = Backoff(base_s=0.1, max_s=5.0, attempts=4)
"""Shorter than the product's, so that its end is reached too."""


@contextmanager
def staged(world: World) -> Iterator[None]:
    """Nothing of the product changes but its ways to reach the world."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "time", SimpleNamespace(monotonic=lambda: world.now_ms / 1000))
        patch.setattr(running, "random", SimpleNamespace(random=world.random.random))
        patch.setattr(running, "wait", lambda writes, timeout: Process.await_any(world.process, writes, timeout))
        patch.setattr(running, "ThreadPoolExecutor", lambda _size, _name: Pool(world.process))
        patch.setattr(running, "write_epoch", world.workers.write_epoch)
        patch.setattr(running, "this_process", lambda: world.process.name)
        patch.setattr(running, "World", partial(_around, world))
        patch.setattr(running, "Coordinator", partial(Coordinator, backoff=PATIENCE))
        patch.setattr(running, "SOURCE", PATIENCE)
        patch.setattr(running, "START", PATIENCE)
        patch.setattr(coordinator, "secrets", SimpleNamespace(token_hex=lambda _bytes: world.process.name))
        yield


def _around(world: World, stop: object, process: str) -> Around:
    me = world.process
    return Around(
        stop=me.stop,
        now_ms=lambda: world.now_ms + world.skew_ms(me.name),
        sleep=me.sleep,
        chance=world.random.random,
        process=process,
        is_dead=world.is_known_dead,
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Coordinators log every fault they meet, and here they meet thousands."""
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()


def _drop(_logger: object, _method: str, _entry: object) -> NoReturn:
    raise structlog.DropEvent
