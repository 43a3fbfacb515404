"""What happens in a running pipeline, for whoever watches: console, logs, metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frazil.commit import Landed
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Span


@dataclass(frozen=True, slots=True)
class PipelineStarted:
    generation: int
    epoch: int
    frontier: Frontier
    ui: str | None


@dataclass(frozen=True, slots=True)
class BacklogSeen:
    records: int


@dataclass(frozen=True, slots=True)
class EpochPlanned:
    epoch: int
    span: Span
    skipped: Span = EMPTY_SPAN
    """lost by the source, and the user allows it"""


@dataclass(frozen=True, slots=True)
class EpochWritten:
    epoch: int
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EpochLanded:
    landed: Landed
    seconds: float


@dataclass(frozen=True, slots=True)
class EpochCarried:
    """It had no rows; its span goes on with the next one."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Retrying:
    reason: str
    attempt: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class Stopping:
    reason: str


Event = (
    PipelineStarted | BacklogSeen | EpochPlanned | EpochWritten | EpochLanded | EpochCarried | Retrying | Stopping
)
Observer = Callable[[Event], None]
