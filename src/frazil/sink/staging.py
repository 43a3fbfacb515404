"""The epoch that is being written: rows on their way into files that no table knows yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from frazil.changes import DELETE, INSERT, OP, ORDER, TRUNCATE, UPDATE
from frazil.engine.worker import TaskReport
from frazil.errors import FrazilError, InvalidState, SchemaMismatch
from frazil.protocol.summary import Counts
from frazil.sink.facts import Tally
from frazil.table.files import WriteTarget, WrittenFile
from frazil.write import ChangeWriter, FileName, TableWriter, new_token

_OPERATIONS = pa.array([INSERT, UPDATE, DELETE, TRUNCATE])


@dataclass(frozen=True)
class Limits:
    """How many rows wait in memory, and for how long, before they go into files."""

    max_records: int = 0
    max_bytes: int = 0
    max_age_s: float | None = None


@dataclass
class Staged:
    """What an epoch has in files."""

    files: list[WrittenFile] = field(default_factory=list)
    taken: int = 0
    landed: int = 0
    deleted: int = 0
    truncated: bool = False

    def counts(self) -> Counts:
        """Every row that was handed over is a row of the table, a delete, or made void by a later change."""
        collapsed = self.taken - self.landed - self.deleted
        return Counts(delivered=self.taken, landed=self.landed, deleted=self.deleted, collapsed=collapsed)


class OpenEpoch:
    """One epoch between its begin and its commit.

    Appended rows are flushed into files by the limits, again and again. Changes are not: of each key only the last
    one of the whole epoch counts, so they wait, on disk if need be, until the epoch is complete.
    """

    def __init__(self, number: int, writer: str, tally: Tally, *, skipped: bool = False) -> None:
        self.number = number
        self.skipped = skipped
        """whether it has landed before, so that its rows are dropped"""
        self.target: WriteTarget | None = None
        self.ordinal = number
        """its number in the names of files: that of the writer's commits, by which a start knows what is over"""
        self.staged = Staged()
        self.failed: FrazilError | None = None
        """why it lacks rows, and can only be rolled back"""
        self.sent = False
        """whether a commit of it was tried: its files may be in the table"""
        self.frames = 0
        self.token = new_token()
        self.began_ms = time.time_ns() // 1_000_000
        self._writer_name = writer
        self._tally = tally
        self._limits = Limits()
        self._writer: TableWriter | ChangeWriter | None = None
        self._writers = 0
        self._full: list[WrittenFile] = []
        """files that the writer finished before its time; it removes them if it is aborted"""
        self._waiting_records = 0
        self._waiting_bytes = 0
        self._alarm: threading.Timer | None = None

    @property
    def has_rows(self) -> bool:
        return self.staged.taken > 0

    def prepare(self, target: WriteTarget, limits: Limits, ordinal: int) -> None:
        """Where its rows go, which is known once there is a table."""
        self.target, self._limits, self.ordinal = target, limits, ordinal

    def write(self, batches: Sequence[pa.RecordBatch], overdue: Callable[[], None]) -> None:
        """Takes rows. `overdue` is called on another thread when appended ones have waited for too long."""
        assert self.target is not None
        is_keyed = self.target.changes is not None
        if is_keyed and self.frames:
            raise InvalidState(
                f"{self.target.table}: changes of one key may be in both this batch and the DataFrame before it",
                "hand over all changes of an epoch in one DataFrame, or all of them as Arrow batches",
                actual="a batch after a DataFrame",
                expected="one DataFrame in an epoch",
            )
        for batch in batches:
            if not batch.num_rows:
                continue
            self._take(self._ordered(batch) if is_keyed else batch)
            if is_keyed:
                continue
            if self._is_full():
                self.flush()
            elif self._alarm is None and self._limits.max_age_s is not None:
                self._set_alarm(self._limits.max_age_s, overdue)

    def add(self, reports: Sequence[TaskReport]) -> None:
        """Takes over what workers wrote."""
        staged = self.staged
        for report in reports:
            staged.files += report.files
            staged.taken += report.taken
            staged.landed += report.landed
            staged.deleted += report.deleted
            staged.truncated |= report.truncated
        self.frames += 1
        self._tally.flushes += 1

    def flush(self) -> None:
        """Puts appended rows that wait into finished files."""
        if isinstance(self._writer, TableWriter):
            self._close_writer()

    def complete(self) -> Staged:
        """Everything is in files."""
        if self._writer is not None:
            self._close_writer()
        return self.staged

    def abort(self) -> None:
        """Removes what is not in finished files yet; those that are stay in `staged`."""
        self._silence()
        if self._writer is not None:
            self._writer.abort()
            self._writer, self._full = None, []

    def _take(self, batch: pa.RecordBatch) -> None:
        assert self.target is not None
        if self._writer is None:
            self._writers += 1
            name = FileName(self._writer_name, self.ordinal, 0, f"{self._writers}", epoch_token=self.token)
            kind = TableWriter if self.target.changes is None else ChangeWriter
            self._writer = kind(self.target, name)
        self._full += self._writer.write(batch)
        self.staged.taken += batch.num_rows
        self._waiting_records += batch.num_rows
        self._waiting_bytes += batch.nbytes

    def _close_writer(self) -> None:
        assert self._writer is not None
        self._silence()
        writer, self._writer = self._writer, None
        self.staged.files += [*self._full, *writer.close()]
        self._full = []
        if isinstance(writer, ChangeWriter):
            self.staged.landed += writer.landed
            self.staged.deleted += writer.deleted
            self.staged.truncated |= writer.truncated
        else:
            self.staged.landed += self._waiting_records
        self._waiting_records = self._waiting_bytes = 0
        self._tally.flushes += 1

    def _is_full(self) -> bool:
        full = self._waiting_records >= self._limits.max_records
        return full or self._waiting_bytes >= self._limits.max_bytes

    def _set_alarm(self, seconds: float, overdue: Callable[[], None]) -> None:
        self._alarm = threading.Timer(seconds, overdue)
        self._alarm.daemon = True
        self._alarm.start()

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ordered(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Numbers changes in the order in which they were handed over; refuses operations that nobody knows."""
        place = changes.schema.get_field_index(OP)
        if place < 0:
            raise self._no_operation("no such column", changes.schema)
        known = pc.is_in(changes.column(place), _OPERATIONS)
        if not pc.all(known, min_count=0).as_py():
            unknown = changes.column(place).filter(pc.invert(known))[0].as_py()
            raise self._no_operation(repr(unknown), changes.schema)
        if ORDER in changes.schema.names:
            return changes
        numbers = range(self.staged.taken, self.staged.taken + changes.num_rows)
        return changes.append_column(ORDER, pa.array(numbers, pa.int64()))

    def _no_operation(self, found: str, schema: pa.Schema) -> SchemaMismatch:
        assert self.target is not None
        return SchemaMismatch(
            f"{self.target.table}: a change needs its operation in {OP}, and there is {found}",
            f"{INSERT} for a row that is new, {UPDATE} for one that may be, {DELETE} for one that goes, {TRUNCATE} "
            "for all",
            expected=", ".join(_OPERATIONS.to_pylist()),
            actual=", ".join(schema.names),
        )


def batches_of(rows: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows of either, in batches."""
    if isinstance(rows, pa.Table):
        yield from rows.to_batches()
    else:
        yield rows


def with_changes(target: WriteTarget, sequence_by: str | None) -> WriteTarget:
    """The target, its changes ordered as the sink was told."""
    if target.changes is None:
        return target
    return replace(target, changes=replace(target.changes, sequence_by=sequence_by))
