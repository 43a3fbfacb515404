"""The coordinator's only ways to touch the world besides its tables: clock, sleep, chance, processes."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil


class StopRequested(Exception):
    """The user asked to stop while nothing was under way."""


def this_process() -> str:
    """Host, process id and start time: enough to tell later whether this very process is still there."""
    process = psutil.Process()
    return f"{socket.gethostname()}/{process.pid}/{process.create_time():.2f}"


def process_is_dead(text: str) -> bool:
    """Known to be dead: it ran on this host and is there no longer. Another host's process may live."""
    try:
        host, pid, created = text.rsplit("/", 2)
        if host != socket.gethostname():
            return False
        return bool(abs(psutil.Process(int(pid)).create_time() - float(created)) > 1.0)
    except psutil.NoSuchProcess:
        return True
    except (ValueError, psutil.Error):
        return False


def _never() -> threading.Event:
    return threading.Event()


@dataclass(frozen=True, slots=True)
class World:
    """Replaceable, so that a simulation can run the same coordinator under a clock of its own."""

    stop: threading.Event = field(default_factory=_never)
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    process: str = ""
    is_dead: Callable[[str], bool] = process_is_dead

    def wait(self, seconds: float) -> None:
        """Sleeps, unless somebody asks to stop."""
        if self.stop.wait(seconds):
            raise StopRequested
