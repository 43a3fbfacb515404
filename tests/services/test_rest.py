"""The REST catalog that tests start: it is there for them, and gone with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parent.parent.parent


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_rest_catalog_listens_on_this_machine_only_and_does_not_outlive_the_process_that_started_it() -> None:
    script = (
        "from tests.services.rest import RestCatalog; running = RestCatalog().__enter__();"
        "print(running.pid, flush=True); input()"
    )
    command = [sys.executable, "-c", script]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    listening = [c for c in psutil.Process(pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert {c.laddr.ip.removeprefix("::ffff:") for c in listening} == {"127.0.0.1"}
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid)
