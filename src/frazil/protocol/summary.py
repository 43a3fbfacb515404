"""The snapshot summary: the history of a pipeline, written beside the data.

The register is the truth about now; summaries are the account of how it came about. They are read by people,
by `frazil history` and by proofs, never to decide where to go on; but for one case: when a user has rolled the
table back, the register speaks of what is gone, and the newest summary in the head's history tells what is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Literal

from frazil.protocol.commit import Held, Sign
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Span
from frazil.protocol.register import Register

Action = Literal["start", "append", "row-delta", "merge", "overwrite", "heartbeat"]
"""What a commit does: begins a generation · adds rows · adds and deletes rows · the same by MERGE · replaces them
all · nothing."""

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
    unknown_ops: int = 0
    """records whose operation nobody knows, whatever became of them"""
    missing: int = 0
    """of whole rows: retractions that found no row to take away; they are among the filtered"""

    @property
    def add_up(self) -> bool:
        return self.delivered == self.landed + self.deleted + self.collapsed + self.filtered + self.dead

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


NO_COUNTS = Counts()


@dataclass(frozen=True, slots=True)
class Merged:
    """What a MERGE did to the table's rows, as the one who made it counts them: landed = inserted + updated."""

    inserted: int
    updated: int
    removed: int

    def facts(self) -> dict[str, str]:
        return {f"{PREFIX}rows.{each.name}": str(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def parse(cls, summary: Mapping[str, str]) -> Merged | None:
        """None of a commit that was no MERGE."""
        told = [summary.get(f"{PREFIX}rows.{each.name}") for each in fields(cls)]
        return None if None in told else cls(*(int(text or 0) for text in told))


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
    read: Span = EMPTY_SPAN
    """of a side table: what was read for its rows; its span begins earlier, at its own frontier"""
    rewound_from: Frontier | None = None
    """of a start that goes back on the user's word: where the register had stood"""
    given_up: Span = EMPTY_SPAN
    """of a start that goes on behind a rollback on the user's word: what the table may lack"""

    def properties(self) -> dict[str, str]:
        facts = {
            "writer": self.writer,
            "action": self.action,
            "generation": str(self.register.generation),
            "coordinator": self.register.coordinator,
            "epoch": str(self.register.epoch),
            "batch-id": self.register.batch_id,
            "span": self.span.encode(),
            "frontier": _dumps(self.register.frontier),
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
        if self.register.frontier.resolved is not None:
            facts["resolved"] = self.register.frontier.resolved
        if self.counts.deleted or self.counts.collapsed:
            facts["rows.deleted"] = str(self.counts.deleted)
            facts["rows.collapsed"] = str(self.counts.collapsed)
        if self.counts.unknown_ops:
            facts["rows.unknown-ops"] = str(self.counts.unknown_ops)
        if self.counts.missing:
            facts["rows.missing"] = str(self.counts.missing)
        for key, span in (("skipped", self.skipped), ("read", self.read), ("given-up", self.given_up)):
            if span:
                facts[key] = span.encode()
        if self.rewound_from is not None:
            facts["rewound-from"] = _dumps(self.rewound_from)
        return {PREFIX + key: value for key, value in facts.items()}


def read_sign(timestamp_ms: int, look_up: Callable[[str], str | None]) -> Sign:
    """The sign of life that a snapshot of ours is; `look_up` finds a key of its summary."""
    interval_ms = int(look_up(PREFIX + "interval-ms") or 0)
    return Sign(timestamp_ms, look_up(PREFIX + "process") or "", interval_ms / 1000)


@dataclass(frozen=True, slots=True)
class Kin:
    """A snapshot among the ancestors of another one."""

    snapshot_id: int
    parent_id: int | None
    look_up: Callable[[str], str | None]
    """finds a key of its summary"""

    def is_by(self, writer: str) -> bool:
        return self.look_up(PREFIX + "writer") == writer


def read_held(writer: str, head: Iterable[Kin], register: Iterable[Kin]) -> Held:
    """What a rollback left and what it took; both lines go from a snapshot back, as far as they are listed.

    `head` is the line of the head, `register` that of the snapshot that the register points at.
    """
    line = list(head)
    return Held(_frontier_held(writer, line), _lost(writer, {kin.snapshot_id for kin in line}, register))


def _frontier_held(writer: str, line: list[Kin]) -> Frontier | None:
    newest = next((kin for kin in line if kin.is_by(writer)), None)
    if newest is None:
        return Frontier() if not line or line[-1].parent_id is None else None
    text = newest.look_up(PREFIX + "frontier")
    return None if text is None else Frontier.decode(json.loads(text), newest.look_up(PREFIX + "resolved"))


def _lost(writer: str, left: set[int], register: Iterable[Kin]) -> Span | None:
    """From the first offset to the last that was read for commits which the head does not descend from."""
    lost = EMPTY_SPAN
    for kin in register:
        if kin.snapshot_id in left:
            return lost
        text = kin.look_up(PREFIX + "read") or kin.look_up(PREFIX + "span")
        if kin.is_by(writer) and text:
            lost = lost.with_skipped(Span.decode(text))
        if kin.parent_id is None or kin.parent_id in left:
            return lost
    return None


def _dumps(frontier: Frontier) -> str:
    return json.dumps(frontier.encode(), separators=(",", ":"), sort_keys=True)


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
    rewound_from: Frontier | None = None
    given_up: Span = EMPTY_SPAN
    resolved: str | None = None
    """up to which time of the change feed the table is complete with it"""
    merged: Merged | None = None

    @classmethod
    def parse(cls, snapshot_id: int, timestamp_ms: int, summary: Mapping[str, str]) -> CommitRecord:
        def number(key: str) -> int:
            return int(summary.get(PREFIX + key, "0"))

        def span(key: str) -> Span:
            text = summary.get(PREFIX + key)
            return Span.decode(text) if text else EMPTY_SPAN

        rewound = summary.get(PREFIX + "rewound-from")
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
                unknown_ops=number("rows.unknown-ops"),
                missing=number("rows.missing"),
            ),
            data_files=number("files.data"),
            delete_files=number("files.delete"),
            duration_ms=number("duration-ms"),
            rewound_from=Frontier.decode(json.loads(rewound)) if rewound else None,
            given_up=span("given-up"),
            resolved=summary.get(PREFIX + "resolved"),
            merged=Merged.parse(summary),
        )
