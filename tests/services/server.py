"""What the servers of the tests have in common: a process, a folder, a log, and an end."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from frazil.demo.servers import Served, watch

_START_TIMEOUT_S = 90.0
_LOG_LINES_SHOWN = 25


class ServerFailed(Exception):
    """A server did not start, or not as it should; carries the last lines of its log."""


class Server(Served):
    """A process with a temporary folder, both of which go when the test goes, however it ends."""

    name = "server"
    end_signal = "KILL"
    """what a process understands as: at once, and leave nothing behind"""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"frazil-{self.name}-"))
        self.log_file = self.folder / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        """Ends the server for good; its folder goes with it."""
        if self._watchdog is not None:
            # It goes first: once the server is reaped, its process id may belong to somebody else.
            self._watchdog.kill()
            self._watchdog.communicate()
        if self._process is not None:
            self._end(self._process)
        self._process = self._watchdog = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def _launch(self, command: Iterable[str], user: str | None = None) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
                **identity(user),
            )
        self._watchdog = watch(self._process.pid, [self.folder], self.end_signal)

    def _await(self, what: str, answered: Callable[[], bool], timeout_s: float = _START_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not answered():
            if self._process is not None and self._process.poll() is not None:
                raise self._failure(f"ended while it was asked for {what}")
            if time.monotonic() > deadline:
                raise self._failure(f"did not give {what} in {timeout_s:.0f} s")
            time.sleep(0.05)

    def _failure(self, happened: str) -> ServerFailed:
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return ServerFailed(f"{self.name} {happened}:\n" + "\n".join(lines[-_LOG_LINES_SHOWN:]))


def identity(user: str | None) -> dict[str, object]:
    """Arguments of `subprocess` that run a command as somebody else, with nobody's groups."""
    return {} if user is None else {"user": user, "group": _group_of(user), "extra_groups": []}


def _group_of(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_gid
