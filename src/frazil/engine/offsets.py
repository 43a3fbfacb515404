"""A table and its dead letters against the topic, offset by offset, in Spark.

The topic is read once more by the reader that the pipeline itself uses, as a `read_committed` consumer sees it.
Spark brings what belongs to one offset together, spilling to disk where it has to; each task then tallies its
part, so that neither a task nor the driver ever holds more than one batch and a few numbers a partition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # what everybody calls it

from frazil.engine.assemble import open_source
from frazil.engine.carry import carrying, unpacking
from frazil.engine.worker import ArrowFunction, task_numbers
from frazil.pipeline import KafkaSource, PipelineSpec
from frazil.protocol.positions import Frontier, Partition, Slice
from frazil.protocol.verify import Check, TableSeen
from frazil.protocol.verify.offsets import (
    SAMPLE,
    Comparison,
    Tally,
    Window,
    check_offsets,
    plan_comparison,
)
from frazil.source import Reader, Source, Wants
from frazil.source.kafka import compacted_topics
from frazil.table.contents import Contents

Tell = Callable[[str, int, int], None]
Answer = TypeVar("Answer")

_TASK_OFFSETS = 250_000
_OFFSETS_DDL = "slot INT, offset BIGINT"
_OFFSETS = pa.schema([pa.field("slot", pa.int32()), pa.field("offset", pa.int64())])
_TALLIES_DDL = "tallies STRING"
_STRANGER = -1
"""The slot of rows that are of no topic of the pipeline."""
_POLL_S = 0.2


def compare_offsets(
    spec: PipelineSpec,
    spark: SparkSession,
    contents: Contents,
    anchor: TableSeen,
    dead: tuple[Contents, TableSeen] | None,
    tell: Tell,
) -> Check:
    """Compares what can be compared, and says what that proves."""
    source = open_source(spec, to_read_again=True)
    try:
        source.resume(anchor.register.frontier)
        from_earliest = not isinstance(spec.source, KafkaSource) or spec.source.starting_offsets == "earliest"
        seen = source.observe()
        comparison = plan_comparison(anchor, dead[1] if dead else None, seen, from_earliest=from_earliest)
        compacted = compacted_topics(spec.source) if isinstance(spec.source, KafkaSource) else frozenset[str]()
        partitions = [window.partition for window in comparison.windows]
        rows = _rows(spark, contents, partitions)
        letters = _dead_rows(spark, dead[0], partitions) if dead else None
        tallies = _tally(spark, source, comparison, rows, letters, tell)
    finally:
        source.close()
    strangers = tallies.pop(_STRANGER, Tally())
    return check_offsets(
        anchor,
        comparison,
        {partitions[slot]: tally for slot, tally in tallies.items()},
        has_query=spec.transform is not None,
        has_origin=rows is not None,
        strangers=strangers.rows,
        compacted=compacted,
        is_keyed=spec.table.mode == "upsert",
    )


def _rows(spark: SparkSession, contents: Contents, partitions: Sequence[Partition]) -> DataFrame | None:
    """The origin of every row; None if the table does not tell it."""
    if not {"_kafka_partition", "_offset"} <= set(contents.columns):
        return None
    topics = {topic for topic, _ in partitions}
    if "_topic" in contents.columns:
        topic = "`_topic`"
    elif len(topics) == 1:
        topic = f"'{topics.pop()}'"
    else:
        return None
    return _slots(spark, contents, partitions, (topic, "`_kafka_partition`", "`_offset`"))


def _dead_rows(spark: SparkSession, contents: Contents, partitions: Sequence[Partition]) -> DataFrame:
    return _slots(spark, contents, partitions, ("topic", "partition", "offset"))


def _slots(
    spark: SparkSession, contents: Contents, partitions: Sequence[Partition], columns: tuple[str, str, str]
) -> DataFrame:
    """Numbers stand for partitions: names would be shuffled with every row."""
    topic, partition, offset = columns
    rows = spark.sql(
        f"SELECT CAST({topic} AS STRING) AS topic, TRY_CAST({partition} AS INT) AS partition, "
        f"TRY_CAST({offset} AS BIGINT) AS offset FROM {contents.relation}"
    )
    numbered = [(topic, number, slot) for slot, (topic, number) in enumerate(partitions)]
    slots = spark.createDataFrame(numbered, "topic STRING, partition INT, slot INT")
    known = F.col("slot").isNotNull() & F.col("offset").isNotNull()
    return rows.join(F.broadcast(slots), ["topic", "partition"], "left").select(
        F.when(known, F.col("slot")).otherwise(F.lit(_STRANGER)).alias("slot"),
        F.when(known, F.col("offset")).otherwise(F.lit(0)).cast("long").alias("offset"),
    )


def _tally(
    spark: SparkSession,
    source: Source,
    comparison: Comparison,
    rows: DataFrame | None,
    letters: DataFrame | None,
    tell: Tell,
) -> dict[int, Tally]:
    numbers = {window.partition: slot for slot, window in enumerate(comparison.windows)}
    parts: list[DataFrame] = []
    span = comparison.span
    _spread(spark, span.records)
    if span:
        reader = source.reader(Wants(keys=False, timestamps=False), span)
        tasks = max(spark.sparkContext.defaultParallelism, -(-span.records // _TASK_OFFSETS))
        shares = span.split(tasks, Frontier())
        tasks_frame = spark.range(0, len(shares), 1, numPartitions=len(shares))
        topic = tasks_frame.mapInArrow(read_offsets(reader, shares, numbers), _OFFSETS_DDL)
        parts.append(_marked(topic, "records"))
    parts += [_marked(rows, "rows")] if rows is not None else []
    parts += [_marked(letters, "dead")] if letters is not None else []
    if not parts:
        return {}
    everything = parts[0]
    for part in parts[1:]:
        everything = everything.unionByName(part)
    sums = [F.sum(name).alias(name) for name in ("records", "rows", "dead")]
    met = everything.groupBy("slot", "offset").agg(*sums)
    judged = met.mapInArrow(tally_offsets(comparison.windows), _TALLIES_DDL)
    tallies: dict[int, Tally] = {}
    for (text,) in _watched(spark, judged.collect, tell):
        for slot, values in json.loads(text).items():
            tallies[int(slot)] = tallies.get(int(slot), Tally()) + Tally(**values)
    return tallies


def _spread(spark: SparkSession, offsets: int) -> None:
    """So many parts that each fits into a task's memory."""
    parts = max(2 * spark.sparkContext.defaultParallelism, -(-offsets // _TASK_OFFSETS))
    spark.conf.set("spark.sql.shuffle.partitions", str(parts))


def _marked(frame: DataFrame, what: str) -> DataFrame:
    marks = [F.lit(int(name == what)).alias(name) for name in ("records", "rows", "dead")]
    return frame.select("slot", "offset", *marks)


def read_offsets(reader: Reader, shares: Sequence[Sequence[Slice]], numbers: dict[Partition, int]) -> ArrowFunction:
    """The offsets of a share, as a task reads them from the source."""

    def run(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in task_numbers(tasks):
            with carrying():
                for part in shares[task]:
                    slot = pa.scalar(numbers[part.topic, part.partition], pa.int32())
                    for records in reader.read(part):
                        offsets = pa.array(records.offsets, pa.int64())
                        yield pa.RecordBatch.from_arrays([pa.repeat(slot, len(offsets)), offsets], schema=_OFFSETS)

    return run


def tally_offsets(windows: Sequence[Window]) -> ArrowFunction:
    """Tallies a task's offsets, of which each comes once with all that is known of it."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tallies: dict[int, Tally] = {}
        for batch in batches:
            for slot in pc.unique(batch["slot"]).to_pylist():
                some = batch.filter(pc.equal(batch["slot"], slot))
                tally = _strangers(some) if slot == _STRANGER else _Some(some, windows[slot]).tally()
                tallies[slot] = tallies.get(slot, Tally()) + tally
        text = json.dumps({slot: tally.to_json() for slot, tally in tallies.items()})
        yield pa.RecordBatch.from_pydict({"tallies": [text]})

    return run


def _strangers(batch: pa.RecordBatch) -> Tally:
    return Tally(rows=_sum(batch["rows"]))


@dataclass(frozen=True)
class _Some:
    """Some offsets of one partition, each with how often it is in the topic, the table and the dead letters."""

    batch: pa.RecordBatch
    window: Window

    def tally(self) -> Tally:
        batch, window = self.batch, self.window
        offset, records = batch["offset"], batch["records"]
        landed = pc.add(batch["rows"], batch["dead"])
        here = pc.greater(landed, 0)
        compared = pc.and_(pc.greater_equal(offset, window.low), pc.less(offset, window.high))
        counted = pc.and_(compared, pc.greater_equal(offset, window.counted))
        surplus = pc.max_element_wise(pc.subtract(landed, 1), 0)
        missing, given_up = pc.and_(compared, pc.invert(here)), self._given_up(offset)
        kinds = {
            "missing": pc.and_(missing, pc.invert(given_up)),
            "given_up": pc.and_(missing, given_up),
            "doubled": pc.greater(landed, 1),
            "strangers": pc.and_(compared, pc.and_(here, pc.equal(records, 0))),
            "beyond": pc.or_(
                pc.and_(pc.greater(batch["rows"], 0), pc.greater_equal(offset, window.high)),
                pc.and_(pc.greater(batch["dead"], 0), pc.greater_equal(offset, window.dead_high)),
            ),
        }
        return Tally(
            records=_sum(records),
            rows=_sum(batch["rows"]),
            dead=_sum(batch["dead"]),
            below=_sum(pc.if_else(pc.less(offset, window.low), landed, 0)),
            records_counted=_sum(pc.if_else(counted, records, 0)),
            missing_counted=_sum(pc.and_(counted, kinds["missing"])),
            surplus_counted=_sum(pc.if_else(counted, surplus, 0)),
            missing=_sum(kinds["missing"]),
            doubled=_sum(kinds["doubled"]),
            surplus=_sum(surplus),
            strangers=_sum(kinds["strangers"]),
            beyond=_sum(kinds["beyond"]),
            given_up=_sum(kinds["given_up"]),
            samples={kind: first for kind, mask in kinds.items() if (first := _first(offset, mask))},
        )

    def _given_up(self, offset: pa.Array) -> pa.Array:
        found = pa.repeat(pa.scalar(False), len(offset))
        for r in self.window.given_up:
            found = pc.or_(found, pc.and_(pc.greater_equal(offset, r.start), pc.less(offset, r.end)))
        return found


def _sum(values: pa.Array) -> int:
    return int(pc.sum(values).as_py() or 0)


def _first(offsets: pa.Array, mask: pa.Array) -> list[int]:
    wrong = offsets.filter(mask)
    return [int(each) for each in wrong.take(pc.bottom_k_unstable(wrong, SAMPLE)).to_pylist()] if len(wrong) else []


def _watched(spark: SparkSession, action: Callable[[], Answer], tell: Tell) -> Answer:
    """Runs a Spark action and tells how many of its tasks are done."""
    context = spark.sparkContext
    group = f"frazil-verify-{id(action)}"

    def run() -> Answer:
        context.setJobGroup(group, "verify · offsets", interruptOnCancel=True)
        return action()

    with ThreadPoolExecutor(1) as beside:
        future = beside.submit(run)
        try:
            with unpacking():
                while not _is_done(future):
                    tell("offsets, in tasks", *_tasks(spark, group))
                return future.result()
        finally:
            if not future.done():
                context.cancelJobGroup(group)


def _is_done(future: Future[Answer]) -> bool:
    try:
        future.exception(timeout=_POLL_S)
    except TimeoutError:
        return False
    return True


def _tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)
