"""What servers on this machine need: ports that nobody else has, and an end when we end."""

from __future__ import annotations

import random
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

# Below the range from which the system lends ports to outgoing connections: nobody takes a killed server's
# port before it is back.
_PORTS = range(20_000, 32_000)


class Served(ABC):
    """A server that runs while one is inside of it, and is gone for good afterwards, also if it did not start."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watch(pid: int, leftovers: Iterable[Path] = (), signal: str = "KILL") -> subprocess.Popen[bytes]:
    """A shell that ends `pid` as soon as this Python process is gone, however it ended, and deletes `leftovers`.

    It blocks on a pipe whose only writer we are; the system closes it with us.
    """
    script = 'read _; kill -s "$0" "$1"; shift; [ $# = 0 ] || { sleep 1; rm -rf "$@"; }'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, signal, str(pid), *map(str, leftovers)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 on which nobody listens."""
    ports: list[int] = []
    # The system's randomness rather than the seeded one: a test that fixes its seed still gets ports of its
    # own.
    chooser = random.SystemRandom()
    while len(ports) < count:
        port = chooser.choice(_PORTS)
        if port not in ports and _is_free(port):
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
