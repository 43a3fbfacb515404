"""One stream of statuses of something that runs in the background, whatever stage of it they come from."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from frazil.errors import FrazilError

_KEPT = 10_000
"""Nobody need read them: the oldest ones are forgotten."""


class Stage(Enum):
    """What runs, in this order."""

    INIT = "init table"
    MINT = "mint"
    WRITE = "write"
    COMMIT = "commit"


class Condition(Enum):
    """How it is."""

    STARTING = "starting"
    RUNNING = "running"
    STALLED = "stalled"
    """something transient is waited out"""
    STOPPED = "stopped"
    HALTING = "halting"
    """an error ended it"""


@dataclass(frozen=True, slots=True)
class Status:
    """One thing that happened."""

    stage: Stage
    condition: Condition
    message: str
    epoch: int | None = None


class StatusStream:
    """Told by one thread, read by another; iterating ends when it has ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Status] = deque(maxlen=_KEPT)
        self._ended = False
        self.latest = Status(Stage.INIT, Condition.STARTING, "not begun yet")

    def tell(self, status: Status) -> None:
        with self._changed:
            self._waiting.append(status)
            self.latest = status
            self._changed.notify_all()

    def halt(self, error: BaseException) -> None:
        """An error ended it, in the stage that it was in."""
        told = f"{error.label}: {error.message}" if isinstance(error, FrazilError) else repr(error)
        self.tell(Status(self.latest.stage, Condition.HALTING, told))

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Status]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    return
                status = self._waiting.popleft()
            yield status
