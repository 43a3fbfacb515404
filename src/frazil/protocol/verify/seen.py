"""A table as a verification sees it: its register, and the snapshots from which its head descends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from frazil.errors import FrazilError, TableChanged
from frazil.protocol.positions import Frontier, Partition, Position, Range, Span
from frazil.protocol.register import Register
from frazil.protocol.summary import PREFIX, CommitRecord
from frazil.protocol.verify.finding import Finding, Level

COPIED = "copied-records"
"""In the summary of a MERGE: rows that it left as they were, in files that it wrote again."""


@dataclass(frozen=True)
class SnapshotSeen:
    """One snapshot, whoever made it."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    operation: str
    summary: Mapping[str, str]

    def number(self, key: str) -> int:
        """A count of Iceberg's own; what it leaves out is zero."""
        return int(self.summary.get(key, "0"))

    @property
    def added(self) -> int:
        return self.number("added-records")

    @property
    def removed(self) -> int:
        return self.number("deleted-records")

    @property
    def total(self) -> int | None:
        """Rows in all data files after it, where the writer keeps count."""
        text = self.summary.get("total-records")
        return None if text is None else int(text)

    @property
    def is_merge(self) -> bool:
        """Whether rows were changed in place, so that it removes rows, and adds files that hold others as well."""
        return COPIED in self.summary

    @property
    def hides_rows(self) -> bool:
        """Whether it came with delete files, which leave rows in their data files but out of sight."""
        return self.number("added-delete-files") > 0 or self.number("added-dvs") > 0


@dataclass(frozen=True)
class Commit:
    """A snapshot of this pipeline."""

    snapshot: SnapshotSeen
    record: CommitRecord
    since: Frontier
    """where the commits before it leave off, as far as they are known"""

    @property
    def is_start(self) -> bool:
        return self.record.action == "start"

    @property
    def coordinator(self) -> str:
        return self.snapshot.summary.get(PREFIX + "coordinator", "")

    @property
    def covered(self) -> Span:
        """What it takes the frontier over: read, or lost or given up with the user's consent.

        Of a changefeed, changes that were read before and waited may be lost too; the frontier is past those.
        """
        record = self.record
        skipped = record.skipped if record.resolved is None else self.since.reach(record.skipped)
        return record.span.with_skipped(skipped).with_skipped(record.given_up)

    def broken(self, message: str, partition: Partition | None = None) -> Finding:
        """A finding about it."""
        return Finding(Level.BROKEN, message, self.record.snapshot_id, self.record.epoch, partition)


@dataclass(frozen=True)
class TableSeen:
    """One load of one table, as far as a verification cares."""

    table: str
    uuid: str
    writer: str
    register: Register
    history: Sequence[SnapshotSeen]
    """the head and its ancestors, oldest first"""
    listed: frozenset[int] = frozenset()
    """the ids of all snapshots, also of those that are no ancestors of the head"""

    @property
    def head(self) -> SnapshotSeen | None:
        return self.history[-1] if self.history else None

    @property
    def is_whole(self) -> bool:
        """Whether no snapshot has expired: the oldest one has no parent."""
        return not self.history or self.history[0].parent_id is None

    @cached_property
    def commits(self) -> list[Commit]:
        """This pipeline's snapshots."""
        commits: list[Commit] = []
        ends: dict[Partition, Position] = {}
        for snapshot in self.history:
            if snapshot.summary.get(PREFIX + "writer") == self.writer:
                commits.append(self._read(snapshot, Frontier(dict(ends))))
                ends |= {partition: Position(r.end) for partition, r in commits[-1].covered.ranges.items()}
        return commits

    def _read(self, snapshot: SnapshotSeen, since: Frontier) -> Commit:
        try:
            record = CommitRecord.parse(snapshot.snapshot_id, snapshot.timestamp_ms, snapshot.summary)
        except (ValueError, AttributeError, FrazilError) as error:
            raise TableChanged(
                f"{self.table}: the summary of snapshot {snapshot.snapshot_id} cannot be read: {error!r}",
                "no frazil wrote it like that: find out who else sets frazil.* in snapshot summaries",
            ) from error
        return Commit(snapshot, record, since)

    @property
    def epochs(self) -> list[Commit]:
        """Those that cover a span."""
        return [commit for commit in self.commits if not commit.is_start]

    @property
    def others(self) -> list[SnapshotSeen]:
        ours = {commit.snapshot.snapshot_id for commit in self.commits}
        return [s for s in self.history if s.snapshot_id not in ours]

    @cached_property
    def known(self) -> dict[Partition, Range]:
        """Per partition, from where to where the history that is left takes it."""
        ranges: dict[Partition, Range] = {}
        for commit in self.commits:
            for partition, r in commit.covered.ranges.items():
                before = ranges.get(partition, r)
                ranges[partition] = Range(min(before.start, r.start), max(before.end, r.end))
        return ranges

    @cached_property
    def given_up(self) -> dict[Partition, list[Range]]:
        """What it may lack since a rollback, on the user's word."""
        ranges: dict[Partition, list[Range]] = {}
        for commit in self.commits:
            for partition, r in commit.record.given_up.ranges.items():
                ranges.setdefault(partition, []).append(r)
        return ranges

    def gave_up(self, span: Span) -> bool:
        """Whether it may lack some of it."""
        return any(
            r.start < given.end and given.start < r.end
            for partition, r in span.ranges.items()
            for given in self.given_up.get(partition, ())
        )

    @property
    def expired_rows(self) -> int:
        """How many rows the table had before the oldest snapshot that is left."""
        oldest = self.history[0] if self.history else None
        return 0 if oldest is None or oldest.total is None else oldest.total - oldest.added + oldest.removed
