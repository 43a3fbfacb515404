from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest

from frazil.demo.broker import Broker
from tests.services.connect import Connect
from tests.services.postgres import Postgres
from tests.services.server import ServerFailed

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def becomes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_a_postgres_decodes_its_log_and_leaves_nothing_behind() -> None:
    with Postgres() as postgres:
        with postgres.connect() as connection:
            assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
            connection.execute("SELECT pg_create_logical_replication_slot('feed', 'pgoutput')")
            slots = connection.execute("SELECT slot_name, plugin FROM pg_replication_slots").fetchall()
            assert slots == [("feed", "pgoutput")]
        pid = postgres.pid
    assert not is_alive(pid)
    assert not postgres.folder.exists()


def test_a_postgres_does_not_outlive_the_process_that_started_it() -> None:
    script = (
        "from tests.services.postgres import Postgres;"
        "postgres = Postgres(); postgres.start(); print(postgres.pid, postgres.folder, flush=True); input()"
    )
    command = [sys.executable, "-c", script]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    pid, folder = parent.stdout.readline().split()
    assert is_alive(int(pid))
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    assert becomes_true(lambda: not is_alive(int(pid)))
    assert becomes_true(lambda: not Path(folder).exists())


def test_a_connector_that_cannot_work_is_reported_with_its_own_words(broker: Broker) -> None:
    with (
        Connect(broker.bootstrap) as connect,
        Postgres() as postgres,
        pytest.raises(ServerFailed, match='database "nowhere" does not exist'),
    ):
        connect.follow(postgres, "nowhere", prefix="nobody", tables=["public.t"])
    assert not connect.folder.exists()
    with pytest.raises(psycopg.OperationalError):
        postgres.connect()
