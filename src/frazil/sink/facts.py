"""What a sink says of itself and of what it did: plain values."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

_LATENCIES_KEPT = 1024


class State(Enum):
    """A sink goes through these once, in this order."""

    CREATED = "Created"
    RUNNING = "Running"
    STOPPED = "Stopped"


@dataclass(frozen=True, slots=True)
class Written:
    """What one batch came to; nothing of an epoch that has landed before."""

    records: int
    bytes: int
    """of Arrow batches in memory, of DataFrames in files"""


@dataclass(frozen=True, slots=True)
class Committed:
    """An epoch that is in the table."""

    epoch: int
    version: int | None
    """the snapshot's id, or the version of a Delta table"""
    records: int
    files: int
    commit_ms: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the sink can do, as it is configured."""

    exactly_once: bool
    partitioned: bool
    changelog: bool
    schema_evolution: bool
    transactional: bool
    idempotent: bool
    two_phase_commit: bool


@dataclass(frozen=True, slots=True)
class Health:
    """How the sink is, told without asking the table."""

    healthy: bool
    message: str
    last_success: datetime | None
    """when an epoch was committed last, or the table was claimed"""
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Counts since the sink was opened."""

    records_total: int
    bytes_total: int
    errors_total: int
    records_per_sec: float
    avg_batch_latency_us: float
    p99_batch_latency_us: float
    """of the latest 1,024 batches"""
    lag: int
    """rows that were taken and are not committed yet"""
    custom: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One option of a sink."""

    name: str
    description: str
    required: bool
    default: str | None
    example: str


@dataclass(frozen=True, slots=True)
class ConnectorInfo:
    """What a sink is, for people and for tools that list connectors."""

    connector_type: str
    description: str
    config_keys: tuple[ConfigKey, ...]
    supported_formats: tuple[str, ...]


@dataclass
class Tally:
    """Adds up what becomes metrics."""

    records: int = 0
    bytes: int = 0
    errors: int = 0
    commits: int = 0
    flushes: int = 0
    began: float = field(default_factory=time.monotonic)
    _latencies_us: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES_KEPT))

    def took(self, written: Written, seconds: float) -> None:
        self.records += written.records
        self.bytes += written.bytes
        self._latencies_us.append(seconds * 1e6)

    def metrics(self, lag: int, custom: Mapping[str, int]) -> Metrics:
        latencies = sorted(self._latencies_us)
        return Metrics(
            records_total=self.records,
            bytes_total=self.bytes,
            errors_total=self.errors,
            records_per_sec=self.records / max(time.monotonic() - self.began, 1e-9),
            avg_batch_latency_us=sum(latencies) / len(latencies) if latencies else 0.0,
            p99_batch_latency_us=latencies[(len(latencies) * 99) // 100] if latencies else 0.0,
            lag=lag,
            custom={"commits": self.commits, "flush_count": self.flushes, **custom},
        )
