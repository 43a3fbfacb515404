"""Two lanes through Spark, made of the same functions.

The native lane runs read, decode and write in one task; no record crosses into the JVM. The SQL lane puts the
user's query between decoding and writing. Either may have Spark bring the rows of a partition together first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import pyarrow as pa
from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam, _accumulatorRegistry
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from frazil.changes import OP, ORDER, WEIGHT
from frazil.decode import DecodePlan, decoded_schema
from frazil.decode.spark import as_spark, spark_schema
from frazil.engine.bag import Retraction, write_bag
from frazil.engine.distribute import gathered, gathered_by_key
from frazil.engine.reports import reported
from frazil.engine.worker import ArrowFunction, EpochPlan, TaskReport, run_native, run_sink, run_source
from frazil.errors import ConfigError
from frazil.spark import own_session

_VIEW = "source"


class Lane(Protocol):
    """Takes an epoch through Spark and returns what its tasks reported."""

    @property
    def can_shuffle(self) -> bool:
        """Whether Spark has types for all columns, so that rows may go from task to task."""
        ...

    def run(self, plan: EpochPlan, retraction: Retraction | None = None) -> list[TaskReport]:
        """`retraction` takes rows away that are their own keys; a table of other rows needs none."""
        ...


class NativeLane:
    """For pipelines without a transform."""

    def __init__(self, spark: SparkSession, decode: DecodePlan) -> None:
        self._spark = spark
        self._rows_schema = _known_to_spark(decode)

    @property
    def can_shuffle(self) -> bool:
        return self._rows_schema is not None

    def run(self, plan: EpochPlan, retraction: Retraction | None = None) -> list[TaskReport]:
        shuffles = (plan.shuffle or plan.by_key) and len(plan.shares) > 1
        if (shuffles or retraction is not None) and self._rows_schema is not None:
            return _through_spark(self._spark, plan, self._rows_schema, lambda _, source: source, retraction)
        return reported(_tasks(self._spark, plan), run_native(plan))


class SqlLane:
    """For pipelines with `transform.sql`."""

    can_shuffle = True

    def __init__(self, spark: SparkSession, sql: str, decode: DecodePlan) -> None:
        self._spark = spark
        self._sql = sql
        self._changes = decode.changes
        self._rows_schema = spark_schema(decoded_schema(decode))

    def result_schema(self) -> StructType:
        """The columns of the query, found without running it."""
        session = own_session(self._spark)
        try:
            rows = self._query(session, session.createDataFrame([], _struct(self._rows_schema)))
            self._require_unlimited(rows)
            return self._without_change_columns(rows.schema)
        except PySparkException as error:
            reason = (error.getMessage() or str(error)).strip().splitlines()[0]
            raise ConfigError(f"transform.sql: {reason}", f"it may select from the view `{_VIEW}`") from error

    def run(self, plan: EpochPlan, retraction: Retraction | None = None) -> list[TaskReport]:
        return _through_spark(self._spark, plan, self._rows_schema, self._query, retraction)

    def _query(self, session: SparkSession, source: DataFrame) -> DataFrame:
        source.createOrReplaceTempView(_VIEW)
        return session.sql(self._sql)

    def _without_change_columns(self, schema: StructType) -> StructType:
        """What the table keeps of the query's columns; a query over changes must hand on what they are."""
        if self._changes is None:
            return schema
        needed = [OP, ORDER, *([WEIGHT] if self._changes.whole else [])]
        missing = [name for name in needed if name not in schema.names]
        if missing:
            raise ConfigError(
                f"transform.sql drops {', '.join(missing)}: nobody could tell what happens to its rows",
                f"select {' and '.join(needed)} too; they do not become columns of the table",
            )
        return StructType([each for each in schema.fields if each.name not in needed])

    def _require_unlimited(self, rows: DataFrame) -> None:
        plan = rows._jdf.queryExecution().analyzed().toString()
        if re.search(r"^\W*(GlobalLimit|LocalLimit)\b", plan, re.MULTILINE):
            raise ConfigError(
                "transform.sql has a LIMIT: every epoch would lose the records beyond it", "remove it"
            )


def _known_to_spark(decode: DecodePlan) -> pa.Schema | None:
    try:
        return spark_schema(decoded_schema(decode))
    except ConfigError:
        return None


def _struct(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _through_spark(
    spark: SparkSession,
    plan: EpochPlan,
    schema: pa.Schema,
    query: Callable[[SparkSession, DataFrame], DataFrame],
    retraction: Retraction | None = None,
) -> list[TaskReport]:
    """Decoded rows become a DataFrame of a session of their own, the query's rows are written.

    A share may be read more than once, by a retried task or a query that uses the view twice. Any complete
    report of it says the same, so one per share counts; the files of the others are never referenced.
    """
    told = spark.sparkContext.accumulator([], _Collect())
    session = own_session(spark)
    try:
        decoded = _for_spark(run_source(plan, _Tell(told)), schema)
        source = _tasks(session, plan).mapInArrow(decoded, _struct(schema))
        rows = query(session, source)
        if retraction is not None:
            return write_bag(rows, plan, retraction) + _one_per_share(plan, told.value)
        if plan.by_key and plan.target.changes is not None:
            rows = gathered_by_key(rows, plan.target.changes.keys)
        elif plan.shuffle:
            rows = gathered(session, rows, plan.target)
        sinks = reported(rows, run_sink(plan))
        return sinks + _one_per_share(plan, told.value)
    finally:
        # PySpark keeps every accumulator for good; a pipeline that runs for months makes many.
        _accumulatorRegistry.pop(told.aid, None)


def _for_spark(decode: ArrowFunction, schema: pa.Schema) -> ArrowFunction:
    """The same rows in types that Spark knows."""

    def run(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in decode(tasks):
            yield as_spark(rows, schema)

    return run


def _tasks(spark: SparkSession, plan: EpochPlan) -> DataFrame:
    """One row, one partition, one task for each share."""
    return spark.range(0, len(plan.shares), 1, numPartitions=len(plan.shares))


def _one_per_share(plan: EpochPlan, told: list[str]) -> list[TaskReport]:
    reports = {report.task: report for report in map(TaskReport.from_json, told)}
    unread = len(plan.shares) - len(reports)
    if unread:
        raise ConfigError(
            f"transform.sql did not read all of `{_VIEW}`: {unread} of {len(plan.shares)} tasks did not finish",
            "a query with LIMIT, or with a condition that is always false, would lose records: remove it",
        )
    return [reports[task] for task in sorted(reports)]


class _Collect(AccumulatorParam[list[str]]):
    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:  # noqa: N802  # PySpark's name
        value1.extend(value2)
        return value1


class _Tell:
    """Sends a report to the driver, with the task's success and not before."""

    def __init__(self, accumulator: Accumulator[list[str]]) -> None:
        self._accumulator = accumulator

    def __call__(self, report: str) -> None:
        self._accumulator.add([report])


def job_group(pipeline: str, epoch: int) -> str:
    """The name under which an epoch's jobs can be cancelled."""
    return f"frazil-{pipeline}-{epoch}"


def describe_job(context: SparkContext, pipeline: str, epoch: int, records: int) -> None:
    """Names the epoch's jobs in Spark's UI."""
    description = f"{pipeline} · epoch {epoch} · {records:,} records"
    context.setJobGroup(job_group(pipeline, epoch), description, interruptOnCancel=True)
