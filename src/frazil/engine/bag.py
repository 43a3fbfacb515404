"""Epochs of a table whose rows are their own keys: a bag of rows, in Spark.

Of each distinct row the weights of its changes are added up. If the sum is positive, so many copies are written, as
rows of any other table are. If it is negative, so many copies are looked for in the table, whichever they are, and
go by their places in its data files:

    changes ─▶ sum by row ┬▶ copies that come ─▶ data files
                          └▶ copies that go ──▶ join with the table ─▶ places ─▶ position deletes (format 2)
                                                                             └─▶ deletion vectors (format 3)

Rows are equal when all columns are, and a null equals a null, NaN equals NaN and -0.0 equals 0.0, as Spark has it.

This is the only kind of epoch that reads its table. It reads the rows within the bounds of those that go, so that
files and partitions outside of them are not opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  # what everybody calls it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from frazil.changes import OP, ORDER, TRUNCATE, WEIGHT
from frazil.engine.carry import carrying
from frazil.engine.reports import reported
from frazil.engine.worker import ArrowFunction, EpochPlan, TaskReport, report_batch, this_task
from frazil.pipeline.spec import CatalogSection
from frazil.pipeline.terms import quoted
from frazil.protocol.commit import Lookup
from frazil.protocol.register import Register
from frazil.spark import jvm
from frazil.table.files import PartitionShapes, RowPlaces, WriteTarget
from frazil.table.iceberg import IcebergTable, PinnedTable, spark_catalog_conf, sql_name
from frazil.write import TableWriter
from frazil.write.locations import Locations
from frazil.write.partition import UNPARTITIONED
from frazil.write.positions import FILE, POSITION, SPEC, PositionDeletes, gathered_places

log = structlog.get_logger()

_NET, _CHANGES = "__frazil_net", "__frazil_changes"
_WANTED, _NUMBER = "__frazil_wanted", "__frazil_number"
_ROWS_AT_ONCE = 65_536
_PLACES = StructType(
    [
        StructField("path", StringType()),
        StructField("spec_id", IntegerType()),
        StructField("partition", StringType()),
        StructField("positions", BinaryType()),
    ]
)
_PLACES_ARROW = pa.schema(
    [("path", pa.string()), ("spec_id", pa.int32()), ("partition", pa.string()), ("positions", pa.binary())]
)
_BOUNDED = (IntegralType, DecimalType, DateType, StringType, TimestampType, TimestampNTZType)
"""Types of columns whose least and greatest values tell Iceberg which files need not be opened."""


class Retraction:
    """Takes rows out of one table in one epoch; what that rests on is known when it is done."""

    def __init__(self, catalog: CatalogSection, table: IcebergTable, plan: EpochPlan, register: Register) -> None:
        """`register` is what the last commit before it left in the table."""
        self._catalog = catalog
        self._table = table
        self._plan = plan
        self._register = register
        self.lookup: Lookup | None = None

    def of(self, net: DataFrame, wanted: int) -> list[TaskReport]:
        """Deletes as many copies as are wanted, or as there are, of each row whose net weight is negative."""
        session = net.sparkSession
        for key, value in spark_catalog_conf(self._catalog).items():
            session.conf.set(key, value)
        name = sql_name(self._catalog.name, self._table.name)
        pinned = PinnedTable(session, self._table, name)
        pinned.require_register(self._plan.writer, self._register)
        if pinned.snapshot_id is None:
            return [self.missing(wanted)]
        self.lookup = Lookup(pinned.snapshot_id)
        shapes = pinned.shapes()
        places = _places(session, net, name, shapes)
        changes = self._plan.target.changes
        if changes is not None and changes.vectors:
            reports = self._vectors(pinned, places, shapes)
        else:
            reports = reported(places, _write_deletes(self._plan, shapes))
        return [*reports, self.missing(wanted - sum(report.deleted for report in reports))]

    def _vectors(self, pinned: PinnedTable, places: DataFrame, shapes: PartitionShapes) -> list[TaskReport]:
        rows = places.mapInArrow(_pack_places(shapes), _PLACES).collect()
        gone = [
            RowPlaces(row.path, row.spec_id, tuple(json.loads(row.partition)), bytes(row.positions)) for row in rows
        ]
        if not gone:
            return []
        target = self._plan.target
        name = replace(self._plan.file_name(0, "vectors"), kind="deletes").numbered(1, "puffin")
        locations = Locations(target.location, target.properties, target.table_location, of_deletes=True)
        vectors = pinned.write_vectors(locations.path(UNPARTITIONED, name), gone, target.schema_id)
        assert self.lookup is not None
        self.lookup = replace(self.lookup, superseded=vectors.superseded)
        return [TaskReport(0, deleted=sum(each.count for each in gone), files=list(vectors.files))]

    def missing(self, rows: int) -> TaskReport:
        """Counts copies that were to go and are not there, and says so."""
        if rows:
            log.warning(
                "rows that were to go are not in the table",
                table=self._plan.target.table,
                epoch=self._plan.epoch,
                rows=rows,
                hint="the source tells of rows that it never sent, or another Kafka partition is to bring them yet",
            )
        return TaskReport(0, missing=rows)


def write_bag(changes: DataFrame, plan: EpochPlan, retraction: Retraction) -> list[TaskReport]:
    """Writes what an epoch's changes come to, and takes out what is to go."""
    session = changes.sparkSession
    session.conf.set("spark.sql.shuffle.partitions", str(session.sparkContext.defaultParallelism))
    kept = []
    try:
        truncated = False
        if plan.decode.changes is not None and plan.decode.changes.truncate == "apply":
            kept.append(changes.persist(StorageLevel.MEMORY_AND_DISK))
            changes, truncated = _since_truncate(changes)
        net = _net(session, changes, plan.target).persist(StorageLevel.MEMORY_AND_DISK)
        kept.append(net)
        reports = reported(net, _write_copies(plan))
        wanted = sum(report.retracted for report in reports)
        if truncated:
            return [*reports, replace(retraction.missing(wanted), truncated=True)]
        return reports + retraction.of(net, wanted) if wanted else reports
    finally:
        for each in kept:
            each.unpersist()


def _since_truncate(changes: DataFrame) -> tuple[DataFrame, bool]:
    """Changes that stand before the last truncation, and that itself, have no weight."""
    latest = changes.where(F.col(OP) == TRUNCATE).agg(F.max(ORDER)).first()
    if latest is None or latest[0] is None:
        return changes, False
    counts = F.when(F.col(ORDER) > latest[0], F.col(WEIGHT)).otherwise(F.lit(0))
    return changes.withColumn(WEIGHT, counts), True


def _net(session: SparkSession, changes: DataFrame, target: WriteTarget) -> DataFrame:
    """Each distinct row once, in the table's own columns and types, with the sum of its weights."""
    java = jvm(session).org.apache.iceberg
    struct = java.spark.SparkSchemaUtil.convert(java.SchemaParser.fromJson(target.schema_json))
    columns = _nullable(StructType.fromJson(json.loads(struct.json())))
    assert isinstance(columns, StructType)
    shape = StructType([*columns.fields, StructField(WEIGHT, LongType())])
    weight = F.sum(WEIGHT).alias(_NET)
    return changes.to(shape).groupBy(*map(_column, columns.names)).agg(weight, F.count(F.lit(1)).alias(_CHANGES))


def _nullable(kind: DataType) -> DataType:
    """The same type with no word on nulls, on any level: a row that goes need not be one that could come."""
    match kind:
        case StructType():
            return StructType([StructField(each.name, _nullable(each.dataType)) for each in kind.fields])
        case ArrayType():
            return ArrayType(_nullable(kind.elementType))
    return kind


def _places(session: SparkSession, net: DataFrame, table: str, shapes: PartitionShapes) -> DataFrame:
    """Where the rows are that go, sorted by file and position, those of one file in one task."""
    names = [name for name in net.columns if name not in (_NET, _CHANGES)]
    going = net.where(F.col(_NET) < 0)
    mine = [f"mine_{number}" for number in range(len(names))]
    theirs = [f"theirs_{number}" for number in range(len(names))]
    wanted = going.select(
        *(_column(name).alias(alias) for name, alias in zip(names, mine, strict=True)),
        (-F.col(_NET)).alias(_WANTED),
    )
    fields = [field["name"] for field in json.loads(shapes.fields_json)["fields"]]
    parts = [F.col("_partition").getField(name).alias(f"part_{number}") for number, name in enumerate(fields)]
    there = (
        session.table(table)
        .where(_within(going, names))
        .select(
            *(_column(name).alias(alias) for name, alias in zip(names, theirs, strict=True)),
            F.col("_file").alias(FILE),
            F.col("_spec_id").alias(SPEC),
            F.col("_pos").alias(POSITION),
            *parts,
        )
    )
    equal = reduce(and_, (F.col(one).eqNullSafe(F.col(other)) for one, other in zip(mine, theirs, strict=True)))
    copies = Window.partitionBy(*mine).orderBy(FILE, POSITION)
    found = wanted.join(there, equal).withColumn(_NUMBER, F.row_number().over(copies))
    places = found.where(F.col(_NUMBER) <= F.col(_WANTED))
    return (
        places.select(FILE, SPEC, POSITION, *(f"part_{number}" for number in range(len(fields))))
        .repartition(session.sparkContext.defaultParallelism, FILE)
        .sortWithinPartitions(FILE, POSITION)
    )


def _within(going: DataFrame, names: list[str]) -> Column:
    """A condition that all rows meet which may equal one of those that go; Iceberg leaves out files by it."""
    bounded = [name for name in names if isinstance(going.schema[name].dataType, _BOUNDED)]
    ends = [
        bound
        for name in bounded
        for bound in (
            F.min(_text(going, name)),
            F.max(_text(going, name)),
            F.count(F.when(_column(name).isNull(), 1)),
        )
    ]
    condition = F.lit(True)
    found = going.agg(*ends).first() if ends else None
    if found is None:
        return condition
    for number, name in enumerate(bounded):
        least, greatest, nulls = found[3 * number : 3 * number + 3]
        if not nulls and least is not None:
            kind = going.schema[name].dataType
            condition &= _column(name).between(_literal(least, kind), _literal(greatest, kind))
    return condition


def _text(rows: DataFrame, name: str) -> Column:
    """What the least and the greatest of a column are found by: itself, or what Python can tell of a time."""
    kind = rows.schema[name].dataType
    match kind:
        case TimestampType():
            return F.unix_micros(_column(name))
        case TimestampNTZType():
            return F.unix_micros(_column(name).cast(TimestampType()))
    return _column(name)


def _literal(value: Any, kind: DataType) -> Column:
    match kind:
        case TimestampType():
            return F.timestamp_micros(F.lit(value))
        case TimestampNTZType():
            return F.timestamp_micros(F.lit(value)).cast(kind)
    return F.lit(value).cast(kind)


def _column(name: str) -> Column:
    return F.col(quoted(name))


def _write_copies(plan: EpochPlan) -> ArrowFunction:
    """In a task: the copies of each row that come, into data files; those that go are counted."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying():
            report = TaskReport(this_task())
            writer = TableWriter(plan.target, plan.file_name(report.task, "bag"))
            try:
                for batch in batches:
                    net = batch.column(_NET)
                    report.taken += pc.sum(batch.column(_CHANGES)).as_py() or 0
                    report.retracted -= pc.sum(pc.min_element_wise(net, 0)).as_py() or 0
                    for rows in copies(batch.drop_columns([_NET, _CHANGES]), net):
                        report.landed += rows.num_rows
                        report.files += writer.write(rows)
                report.files += writer.close()
            except BaseException:
                writer.abort()
                raise
        yield report_batch(report)

    return run


def copies(rows: pa.RecordBatch, times: pa.Array) -> Iterator[pa.RecordBatch]:
    """Each row as often as it is said, in pieces; a row that is said to go is not among them."""
    ends = np.cumsum(np.maximum(times.to_numpy(zero_copy_only=False), 0))
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, _ROWS_AT_ONCE):
        numbers = np.arange(start, min(start + _ROWS_AT_ONCE, total))
        yield rows.take(pa.array(np.searchsorted(ends, numbers, side="right")))


def _write_deletes(plan: EpochPlan, shapes: PartitionShapes) -> ArrowFunction:
    """In a task: the places of rows that go, into a file of position deletes for each data file."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying():
            report = TaskReport(this_task())
            writer = PositionDeletes(plan.target, plan.file_name(report.task, "bag"))
            try:
                for places in gathered_places(batches, shapes):
                    report.files.append(writer.write(places))
                    report.deleted += places.count
            except BaseException:
                writer.abort()
                raise
        yield report_batch(report)

    return run


def _pack_places(shapes: PartitionShapes) -> ArrowFunction:
    """In a task: the same, for the driver to make deletion vectors of."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying():
            for places in gathered_places(batches, shapes):
                values = [places.path, places.spec_id, json.dumps(places.partition), places.positions]
                columns = [pa.array([value], each.type) for value, each in zip(values, _PLACES_ARROW, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=_PLACES_ARROW)

    return run
