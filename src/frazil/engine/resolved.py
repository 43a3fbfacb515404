"""Epochs of a changefeed: its resolved times are looked for in the source, and each of them closes an epoch.

An epoch cannot be cut before the marks in its partitions are known, so what is new in the source is looked through
once for them, on the workers, before it is read a second time for its changes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

import pyarrow as pa
import structlog
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from frazil.engine.carry import carrying, unpacking
from frazil.engine.worker import ArrowFunction, task_numbers
from frazil.errors import ConfigError, UndecodableRecord
from frazil.pipeline import PipelineSpec
from frazil.protocol.plan import SourceObserved
from frazil.protocol.positions import Frontier, Partition, Slice, Span, name_partition
from frazil.protocol.resolved import Mark, Marks, Policy, ResolvedEpoch, parse_time, time_text
from frazil.source import Reader, Source, Wants

log = structlog.get_logger()

Scan = Callable[[Span], Mapping[Partition, Sequence[Mark]]]

_PATIENCE_INTERVALS = 10
_TASK_RECORDS_MIN = 100_000
"""Looking for marks is quick; fewer records than this are not worth a second task."""
_LOOKS_LIKE_MARK = re.compile(rb'\s*\{\s*"resolved"')
_FOUND = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("time", StringType()),
    ]
)
_FOUND_ARROW = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("time", pa.string())]
)


class Resolving:
    """Says what the next epoch of a changefeed takes."""

    def __init__(
        self, policy: Policy, scan: Scan, interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._policy = policy
        self._scan = scan
        self._patience_s = _PATIENCE_INTERVALS * interval_s
        self._clock = clock
        self._marks = Marks()
        self._stalled_since: float | None = None
        self._has_warned = False

    def forget(self) -> None:
        """What was found is looked for again: after a fault, offsets may have been given anew."""
        self._marks = Marks()

    def next_epoch(self, base: Frontier, seen: SourceObserved, waiting: int) -> ResolvedEpoch | None:
        """The next epoch, as soon as every partition tells that a time is over; `waiting` offsets are not read."""
        if unscanned := self._marks.unscanned(base, seen):
            self._marks.add(unscanned, self._scan(unscanned))
        found = self._marks.next_epoch(base, self._policy)
        if found is not None or not waiting:
            self._stalled_since = None
        else:
            self._watch(base, waiting)
        return found

    def _watch(self, base: Frontier, waiting: int) -> None:
        """Says once that a feed does not tell its times: nothing of it would ever be published."""
        if self._stalled_since is None:
            self._stalled_since = self._clock()
        if self._has_warned or self._clock() - self._stalled_since < self._patience_s:
            return
        self._has_warned = True
        log.warning(
            "changes wait for a resolved message, and none comes: create the changefeed WITH updated, resolved; "
            'or set changes.resolved = "off"',
            offsets=waiting,
            partitions=", ".join(map(name_partition, self._marks.lacking(base))),
            resolved=base.resolved,
        )


def require_settled(spec: PipelineSpec, frontier: Frontier) -> None:
    """Refuses to go on without resolved times while changes wait for one: their offsets are behind the frontier."""
    waiting = {p: position for p, position in frontier.positions.items() if position.low is not None}
    if spec.resolved is None and waiting:
        names = ", ".join(f"{name_partition(p)} from offset {at.low}" for p, at in sorted(waiting.items()))
        raise ConfigError(
            f"changes later than {frontier.resolved} were read and wait for the next resolved time: {names}",
            'set changes.resolved = "each" or "latest" again; without resolved times they would be lost',
        )


def scan_marks(spark: SparkSession, source: Source, pipeline: str, span: Span) -> dict[Partition, list[Mark]]:
    """The marks in the span, per partition in their order."""
    context = spark.sparkContext
    tasks = max(1, min(context.defaultParallelism, -(-span.records // _TASK_RECORDS_MIN)))
    shares = span.split(tasks, Frontier())
    find = _find(source.reader(Wants(keys=False, timestamps=False), span), shares)
    context.setJobGroup(f"frazil-{pipeline}-marks", f"{pipeline} · resolved times", interruptOnCancel=True)
    with unpacking():
        rows = spark.range(0, len(shares), 1, numPartitions=len(shares)).mapInArrow(find, _FOUND).collect()
    found: dict[Partition, list[Mark]] = {}
    for topic, partition, offset, text in sorted(map(tuple, rows)):
        found.setdefault((topic, partition), []).append(Mark(offset, parse_time(text)))
    return found


def _find(reader: Reader, shares: Sequence[Sequence[Slice]]) -> ArrowFunction:
    def run(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in task_numbers(tasks):
            with carrying():
                found = [mark for part in shares[task] for mark in _marks_in(reader, part)]
            yield pa.RecordBatch.from_pylist(found, schema=_FOUND_ARROW)

    return run


def _marks_in(reader: Reader, part: Slice) -> Iterator[dict[str, str | int]]:
    for records in reader.read(part):
        for offset, value in zip(records.offsets, records.values, strict=True):
            if value is not None and (found := resolved_time(value)) is not None:
                yield {
                    "topic": records.topic,
                    "partition": records.partition,
                    "offset": offset,
                    "time": time_text(found),
                }


def resolved_time(value: bytes) -> Decimal | None:
    """The time of a resolved message; None of anything else, and of one that is unreadable."""
    if not _LOOKS_LIKE_MARK.match(value):
        return None
    try:
        fields = json.loads(value)
        return parse_time(fields["resolved"]) if fields.get("after") is None else None
    except (ValueError, TypeError, RecursionError, UndecodableRecord):
        return None
