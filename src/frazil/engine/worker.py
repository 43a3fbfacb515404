"""What runs inside a Spark task: read, decode, write.

Plain functions over iterators. The native lane does all three in one task; the SQL lane does the first two
before the user's query and the last one after it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode import Decoded, DecodePlan, decoder
from frazil.engine.carry import carrying
from frazil.engine.window import sift
from frazil.protocol.positions import Frontier, Partition, Slice
from frazil.protocol.resolved import TimeWindow
from frazil.records import Records
from frazil.source import Reader
from frazil.table.files import WriteTarget, WrittenFile
from frazil.write import ChangeWriter, FileName, TableWriter

ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]

REPORT_SCHEMA = pa.schema([pa.field("report", pa.string())])


@dataclass(frozen=True)
class EpochPlan:
    """Everything a worker needs for one epoch; pickled into every task."""

    writer: str
    epoch: int
    shares: Sequence[Sequence[Slice]]
    reader: Reader
    decode: DecodePlan
    target: WriteTarget
    dead_target: WriteTarget | None = None
    dead_floor: Frontier = field(default_factory=Frontier)
    """dead letters below it are in their table already"""
    shuffle: bool = False
    """whether the rows of each partition value meet in one task before they are written"""
    by_key: bool = False
    """whether the changes of each key meet in one task before they are written"""
    token: str = ""
    """chosen for this attempt at this epoch; every file's name carries it"""
    window: TimeWindow | None = None
    """of a change feed with resolved times: only changes of this time are due"""

    def file_name(self, task: int, label: str | None = None) -> FileName:
        """Who writes the task's files; its label is the offsets of its share, for people who look."""
        return FileName(self.writer, self.epoch, task, label or _label(self.shares[task]), epoch_token=self.token)


class WritePlan(Protocol):
    """What a worker must know to write rows that are there already."""

    @property
    def target(self) -> WriteTarget: ...
    @property
    def by_key(self) -> bool: ...
    def file_name(self, task: int, label: str | None = None) -> FileName: ...


@dataclass
class TaskReport:
    """What one task did: complete, or it never arrives."""

    task: int
    delivered: int = 0
    delivered_bytes: int = 0
    dead: int = 0
    decoded: int = 0
    """rows, or changes of rows, that were made of records"""
    taken: int = 0
    """of these, what came out of the query and was to be written"""
    landed: int = 0
    deleted: int = 0
    retracted: int = 0
    """of whole rows: copies that are to go"""
    missing: int = 0
    """of these, copies that the table did not have"""
    filtered: int = 0
    """records that need no place in the table: of a change feed with resolved times, marks and repetitions"""
    unknown_ops: int = 0
    truncated: bool = False
    """whether the source emptied its table"""
    key_hashes: str = ""
    """of all keys that it had, in base64; none where each key can be in one task only"""
    leader_epochs: dict[Partition, int] = field(default_factory=dict)
    lows: dict[Partition, int] = field(default_factory=dict)
    """the first offsets of changes that are not due yet"""
    files: list[WrittenFile] = field(default_factory=list)

    def keys(self) -> npt.NDArray[np.uint64]:
        """The hashes of its keys, each once."""
        return np.frombuffer(b64decode(self.key_hashes), np.uint64)

    def to_json(self) -> str:
        return json.dumps(
            {
                "task": self.task,
                "delivered": self.delivered,
                "delivered_bytes": self.delivered_bytes,
                "dead": self.dead,
                "decoded": self.decoded,
                "taken": self.taken,
                "landed": self.landed,
                "deleted": self.deleted,
                "retracted": self.retracted,
                "missing": self.missing,
                "filtered": self.filtered,
                "unknown_ops": self.unknown_ops,
                "truncated": self.truncated,
                "key_hashes": self.key_hashes,
                "leader_epochs": [[*partition, epoch] for partition, epoch in self.leader_epochs.items()],
                "lows": [[*partition, low] for partition, low in self.lows.items()],
                "files": [file.to_json() for file in self.files],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> TaskReport:
        values = json.loads(text)
        values["leader_epochs"] = {(topic, p): epoch for topic, p, epoch in values["leader_epochs"]}
        values["lows"] = {(topic, p): low for topic, p, low in values["lows"]}
        values["files"] = [WrittenFile.from_json(file) for file in values["files"]]
        return cls(**values)


def run_native(plan: EpochPlan) -> ArrowFunction:
    """The native lane: the task's whole share, from broker to files, in one process."""

    def run(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in task_numbers(tasks):
            with carrying():
                report = _run_share(plan, task)
            yield report_batch(report)

    return run


def run_source(plan: EpochPlan, tell: Callable[[str], None]) -> ArrowFunction:
    """The SQL lane, before the query: rows out, dead letters straight to their files.

    The report leaves through `tell` only after the last row was taken, so a share that the query did not
    read to its end is never reported.
    """

    def run(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in task_numbers(tasks):
            with carrying():
                report = TaskReport(task)
                dead = _Dead(plan, task)
                try:
                    for decoded in _decoded(plan, report):
                        dead.write(decoded, report)
                        yield decoded.rows
                    dead.close(report)
                except BaseException:
                    dead.abort()
                    raise
            tell(report.to_json())

    return run


def run_sink(plan: WritePlan) -> ArrowFunction:
    """The SQL lane, after the query: whatever rows come, into files."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying():
            report = TaskReport(this_task())
            rows = _Rows(plan, plan.file_name(report.task, "sql"), report)
            try:
                for batch in batches:
                    rows.write(batch)
                rows.close()
            except BaseException:
                rows.abort()
                raise
        yield report_batch(report)

    return run


def _run_share(plan: EpochPlan, task: int) -> TaskReport:
    report = TaskReport(task)
    rows = _Rows(plan, plan.file_name(task), report)
    dead = _Dead(plan, task)
    try:
        for decoded in _decoded(plan, report):
            dead.write(decoded, report)
            rows.write(decoded.rows)
        rows.close()
        dead.close(report)
    except BaseException:
        rows.abort()
        dead.abort()
        raise
    return report


def _decoded(plan: EpochPlan, report: TaskReport) -> Iterator[Decoded]:
    decode = decoder(plan.decode)
    for part in plan.shares[report.task]:
        for records in plan.reader.read(part):
            decoded = decode(records)
            if plan.window is not None:
                decoded = _due(decoded, plan.window, part, report)
            if not part.again:
                _count(records, part, report)
            report.decoded += decoded.rows.num_rows
            report.unknown_ops += decoded.unknown_ops
            yield decoded


def _due(decoded: Decoded, window: TimeWindow, part: Slice, report: TaskReport) -> Decoded:
    """What this epoch takes. A record counts once: where its change lands, or else where it was read first."""
    sifted = sift(decoded.rows, window)
    if sifted.low is not None:
        partition = (part.topic, part.partition)
        report.lows[partition] = min(sifted.low, report.lows.get(partition, sifted.low))
    if part.again:
        report.delivered += sifted.due
        return Decoded(sifted.rows, None)
    report.delivered -= sifted.waiting
    report.filtered += sifted.repeated + decoded.ignored
    return replace(decoded, rows=sifted.rows)


def _count(records: Records, part: Slice, report: TaskReport) -> None:
    """A leader epoch is reported for the record before the slice's end only.

    Offsets after the last record, transaction markers for one, may be of a later epoch, and an epoch that is
    too old for its offset looks like a truncated log.
    """
    report.delivered += len(records)
    report.delivered_bytes += sum(map(len, filter(None, records.values)))
    if records.leader_epoch is not None and records.offsets[-1] == part.end - 1:
        report.leader_epochs[records.topic, records.partition] = records.leader_epoch


class _Rows:
    """The rows of one task, or its changes of rows, on their way into files."""

    def __init__(self, plan: WritePlan, name: FileName, report: TaskReport) -> None:
        self._report = report
        self._keys_are_together = plan.by_key
        kind = TableWriter if plan.target.changes is None else ChangeWriter
        self._writer = kind(plan.target, name)

    def write(self, batch: pa.RecordBatch) -> None:
        self._report.taken += batch.num_rows
        self._report.files += self._writer.write(batch)

    def close(self) -> None:
        report = self._report
        report.files += self._writer.close()
        if isinstance(self._writer, ChangeWriter):
            report.landed, report.deleted = self._writer.landed, self._writer.deleted
            report.truncated = self._writer.truncated
            if not self._keys_are_together:
                report.key_hashes = b64encode(self._writer.key_hashes().tobytes()).decode()
        else:
            report.landed = report.taken

    def abort(self) -> None:
        self._writer.abort()


class _Dead:
    """The dead letters of one task; its writer is opened by the first one."""

    def __init__(self, plan: EpochPlan, task: int) -> None:
        self._plan = plan
        self._name = plan.file_name(task)
        self._writer: TableWriter | None = None

    def write(self, decoded: Decoded, report: TaskReport) -> None:
        if decoded.dead is None or self._plan.dead_target is None:
            return
        report.dead += decoded.dead.num_rows
        fresh = _beyond(self._plan.dead_floor, decoded.dead)
        if fresh.num_rows:
            self._writer = self._writer or TableWriter(self._plan.dead_target, self._name)
            report.files += self._writer.write(fresh)

    def close(self, report: TaskReport) -> None:
        if self._writer is not None:
            report.files += self._writer.close()

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()


def _beyond(floor: Frontier, dead: pa.RecordBatch) -> pa.RecordBatch:
    """Leaves out what the dead-letter table took before a crash; a batch is of one partition."""
    if not dead.num_rows:
        return dead
    offset = floor.offset((dead["topic"][0].as_py(), dead["partition"][0].as_py()))
    return dead if offset is None else dead.filter(pc.greater_equal(dead["offset"], offset))


def _label(share: Sequence[Slice]) -> str:
    """The offsets of the share."""
    first = share[0]
    more = f"-and-{len(share) - 1}-more" if len(share) > 1 else ""
    return f"{first.topic}-{first.partition}-{first.start}-{first.end}{more}"


def task_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The shares that a task was given, out of the one column of its rows."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def this_task() -> int:
    """The number of the task that we are in, behind a query or a shuffle."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def report_batch(report: TaskReport) -> pa.RecordBatch:
    """A report on its way to the driver."""
    return pa.RecordBatch.from_arrays([pa.array([report.to_json()])], schema=REPORT_SCHEMA)
