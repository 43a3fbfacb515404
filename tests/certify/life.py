"""One life of the pipeline: a `frazil run`, all processes that it started, and what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
_LOOK_S = 0.05
_PATIENCE_S = 240.0
LONG_S = 1800.0
"""For what has to go through the whole topic."""


class Broken(Exception):
    """A promise was not kept."""


class Life:
    """A process in a session of its own, whose output goes to a file."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        self._heard: list[dict[str, Any]] = []
        self._read_to = 0
        self._kin: dict[int, psutil.Process] = {}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=log.parent,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **environment},
            )
        self.driver = psutil.Process(self.process.pid)

    @property
    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def tail(self) -> str:
        return "\n".join(self.text.splitlines()[-15:])

    def said(self, message: str) -> list[dict[str, Any]]:
        """Every log line so far with this message."""
        with self.log.open("rb") as file:
            file.seek(self._read_to)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):
                break
            self._read_to += len(line)
            with suppress(ValueError):  # Spark writes to the same file, and not always to the end of a line
                self._heard.append(json.loads(line[line.index(b'{"') :]))
        return [entry for entry in self._heard if entry.get("message") == message]

    def await_said(self, message: str, more_than: int = 0) -> None:
        self.await_true(lambda: len(self.said(message)) > more_than, f"no {message!r}")

    def await_commit(self) -> None:
        """One that begins after now: two epochs may be under way, and what is in flight proves nothing."""
        begun = len(self.said("epoch begun"))
        self.await_said("epoch begun", begun)
        number = self.said("epoch begun")[-1]["epoch"]

        def landed() -> bool:
            return any(entry["epoch"] >= number for entry in self.said("epoch committed"))

        self.await_true(landed, "no commit")

    def await_true(self, happened: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not happened():
            if self.process.poll() is not None and not happened():
                raise Broken(f"{otherwise}: frazil ended with {self.process.returncode}\n{self.tail}")
            if time.monotonic() > deadline:
                raise Broken(f"{otherwise} in {_PATIENCE_S:.0f} s\n{self.tail}")
            time.sleep(_LOOK_S)

    def kin(self) -> list[psutil.Process]:
        """The driver and all its descendants that live now."""
        with suppress(psutil.NoSuchProcess):
            self._kin |= {each.pid: each for each in [self.driver, *self.driver.children(recursive=True)]}
        return [each for each in self._kin.values() if _is_alive(each)]

    @property
    def jvm(self) -> psutil.Process | None:
        return next((each for each in self.kin() if _runs(each, "java")), None)

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers: the children of its daemon."""
        daemons = [each for each in self.kin() if _runs(each, "tests.certify.daemon") and _is_child_of_java(each)]
        return [worker for daemon in daemons for worker in _children(daemon)]

    def send(self, number: signal.Signals) -> None:
        """To every process of the life, the driver first."""
        for each in self.kin():
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def await_end(self, patience_s: float = _PATIENCE_S) -> int:
        """The exit code; nothing that the life started outlives it for long."""
        self.kin()
        try:
            code = self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise Broken(f"frazil did not end in {patience_s:.0f} s\n{self.tail}") from None
        deadline = time.monotonic() + _PATIENCE_S
        while left := self.kin():
            if time.monotonic() > deadline:
                raise Broken(f"outlived their driver: {left}")
            time.sleep(_LOOK_S)
        return code

    def close(self) -> None:
        """Whatever is left of it goes."""
        for each in self.kin():
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait(30)


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _runs(process: psutil.Process, what: str) -> bool:
    with suppress(psutil.Error):
        return any(what in part for part in process.cmdline()[:3])
    return False


def _is_child_of_java(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        parent = process.parent()
        return parent is not None and _runs(parent, "java")
    return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return list(process.children())
    return []
