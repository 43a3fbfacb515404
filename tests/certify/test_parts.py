"""The certification's own tools do what they say, and its oracle can fail."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.certify import oracle
from tests.certify.life import ROOT, Broken
from tests.certify.points import FOLDER, POINTS
from tests.certify.proxy import Proxy


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that answers with what it was told; its port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):
            while data := connection.recv(1024):
                connection.sendall(data)

    def accept() -> None:
        try:
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
        except OSError:
            return

    threading.Thread(target=accept, daemon=True).start()
    yield server.getsockname()[1]
    server.close()


@contextmanager
def connected(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client:
        yield client


def answer(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(1024)


def converse(client: socket.socket) -> None:
    """A reset may be noticed only by the second word."""
    for word in (b"one", b"two"):
        answer(client, word)


def test_the_proxy_passes_on_until_it_cuts_and_new_connections_are_welcome(echo: int) -> None:
    with Proxy() as proxy:
        proxy.target = echo
        with connected(proxy) as client:
            assert answer(client, b"one") == b"one"
            proxy.cut()
            with pytest.raises(ConnectionError):
                converse(client)
        with connected(proxy) as client:
            assert answer(client, b"four") == b"four"


def test_the_proxy_refuses_until_it_is_healed(echo: int) -> None:
    with Proxy() as proxy:
        proxy.target = echo
        proxy.refuse()
        with pytest.raises(ConnectionError), connected(proxy) as client:  # connecting may fail too
            converse(client)
        proxy.heal()
        with connected(proxy) as client:
            assert answer(client, b"three") == b"three"


def test_what_the_proxy_swallows_arrives_after_it_is_healed(echo: int) -> None:
    with Proxy() as proxy:
        proxy.target = echo
        with connected(proxy) as client:
            proxy.swallow()
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                answer(client, b"one")
            proxy.heal()
            client.settimeout(5)
            assert client.recv(1024) == b"one"


@pytest.mark.thorough
def test_an_armed_point_kills_the_next_one_who_passes_and_nobody_after(tmp_path: Path) -> None:
    """FAULT-01: by SIGKILL, before the function has done anything."""
    (point,) = (point for point in POINTS if point.name == "before the journal entry")
    code = "from tests.certify.points import watch; from frazil.journal import Journal; watch('driver')"
    command = [sys.executable, "-c", f"{code}; Journal().append(None); print('passed')"]
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"

    def passing() -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, FOLDER: str(tmp_path), "PYTHONPATH": path}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    point.arm(tmp_path)
    killed, passed = passing(), passing()

    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
    assert (passed.returncode, passed.stdout) == (0, "passed\n")
    assert not point.is_armed(tmp_path)


GOOD, BAD = [(0, 0, 7), (0, 2, 8)], [(0, 1)]


@pytest.mark.parametrize(
    ("rows", "dead", "why"),
    [
        (GOOD[:1], BAD, "1 missing"),
        ([*GOOD, GOOD[1]], BAD, "1 doubled"),
        ([*GOOD, (0, 3, 9)], BAD, "1 too many"),
        ([GOOD[0], (0, 2, 9)], BAD, "1 missing"),
        (GOOD, [], "dead letters: 1 in the topic, 0 in the table"),
    ],
    ids=["lost", "doubled", "invented", "changed", "dead letter lost"],
)
def test_the_oracle_finds_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, rows: list[Any], dead: list[Any], why: str
) -> None:
    class AnyStage:
        bootstrap = ""

    monkeypatch.setattr(oracle, "_topic", lambda _: (GOOD, BAD))
    monkeypatch.setattr(oracle, "_tables", lambda _: (sorted(rows), dead, 0))
    with pytest.raises(Broken, match=why):
        oracle.compare(AnyStage())  # type: ignore[arg-type]
    monkeypatch.setattr(oracle, "_tables", lambda _: (GOOD, BAD, 3))
    found = oracle.compare(AnyStage())  # type: ignore[arg-type]
    assert found == {"records": 3, "rows": 2, "dead_letters": 1, "foreign_rows": 3}
