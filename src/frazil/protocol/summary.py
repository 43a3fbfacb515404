"""The snapshot summary: the history of a pipeline, written beside the data.

The register is the truth about now; summaries are the account of how it came about. They are read by people,
by `frazil history` and by proofs, never to decide where to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Literal

from frazil.protocol.commit import Sign
from frazil.protocol.positions import EMPTY_SPAN, Span
from frazil.protocol.register import Register

Action = Literal["start", "append", "row-delta", "overwrite", "heartbeat"]
"""What a commit does: begins a generation · adds rows · adds and deletes rows · replaces them all · nothing."""

PREFIX = "frazil."


@dataclass(frozen=True, slots=True)
class Counts:
    """Where the records of a span went: delivered = landed + deleted + collapsed + filtered + dead."""

    delivered: int = 0
    landed: int = 0
    filtered: int = 0
    dead: int = 0
    deleted: int = 0
    """keys whose last change took their row away"""
    collapsed: int = 0
    """changes that a later one of the same key made void"""

    @property
    def add_up(self) -> bool:
        return self.delivered == self.landed + self.deleted + self.collapsed + self.filtered + self.dead

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


NO_COUNTS = Counts()


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """One commit of ours, as its snapshot tells it."""

    writer: str
    action: Action
    register: Register
    span: Span = EMPTY_SPAN
    skipped: Span = EMPTY_SPAN
    counts: Counts = NO_COUNTS
    data_files: int = 0
    delete_files: int = 0
    duration_ms: int = 0
    interval_ms: int = 0
    process: str = ""

    def properties(self) -> dict[str, str]:
        facts = {
            "writer": self.writer,
            "action": self.action,
            "generation": str(self.register.generation),
            "coordinator": self.register.coordinator,
            "epoch": str(self.register.epoch),
            "batch-id": self.register.batch_id,
            "span": self.span.encode(),
            "rows.delivered": str(self.counts.delivered),
            "rows.landed": str(self.counts.landed),
            "rows.filtered": str(self.counts.filtered),
            "rows.dead-lettered": str(self.counts.dead),
            "files.data": str(self.data_files),
            "files.delete": str(self.delete_files),
            "duration-ms": str(self.duration_ms),
            "interval-ms": str(self.interval_ms),
            "process": self.process,
        }
        if self.counts.deleted or self.counts.collapsed:
            facts["rows.deleted"] = str(self.counts.deleted)
            facts["rows.collapsed"] = str(self.counts.collapsed)
        if self.skipped:
            facts["skipped"] = self.skipped.encode()
        return {PREFIX + key: value for key, value in facts.items()}


def read_sign(timestamp_ms: int, look_up: Callable[[str], str | None]) -> Sign:
    """The sign of life that a snapshot of ours is; `look_up` finds a key of its summary."""
    interval_ms = int(look_up(PREFIX + "interval-ms") or 0)
    return Sign(timestamp_ms, look_up(PREFIX + "process") or "", interval_ms / 1000)


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One line of a pipeline's history, read back from a summary."""

    snapshot_id: int
    timestamp_ms: int
    action: str
    generation: int
    epoch: int
    batch_id: str
    span: Span
    skipped: Span
    counts: Counts
    data_files: int
    duration_ms: int
    delete_files: int = 0

    @classmethod
    def parse(cls, snapshot_id: int, timestamp_ms: int, summary: Mapping[str, str]) -> CommitRecord:
        def number(key: str) -> int:
            return int(summary.get(PREFIX + key, "0"))

        def span(key: str) -> Span:
            text = summary.get(PREFIX + key)
            return Span.decode(text) if text else EMPTY_SPAN

        return cls(
            snapshot_id=snapshot_id,
            timestamp_ms=timestamp_ms,
            action=summary.get(PREFIX + "action", ""),
            generation=number("generation"),
            epoch=number("epoch"),
            batch_id=summary.get(PREFIX + "batch-id", ""),
            span=span("span"),
            skipped=span("skipped"),
            counts=Counts(
                delivered=number("rows.delivered"),
                landed=number("rows.landed"),
                filtered=number("rows.filtered"),
                dead=number("rows.dead-lettered"),
                deleted=number("rows.deleted"),
                collapsed=number("rows.collapsed"),
            ),
            data_files=number("files.data"),
            delete_files=number("files.delete"),
            duration_ms=number("duration-ms"),
        )
