"""Tending Delta tables, by delta-spark's own commands.

Neither disturbs a pipeline. OPTIMIZE changes no rows, so an append behind it is judged, and sent again on the
version that it made. VACUUM deletes only what no version of the retention refers to; files that a pipeline has
written and not yet committed are younger than that by far, which is why the retention has a floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from frazil.errors import ConfigError, StorageUnavailable
from frazil.pipeline.terms import quoted
from frazil.spark import first_line, own_session
from frazil.table.delta import DeltaLakeTable, live_sizes, require_spark_writes, teach

RETENTION_FLOOR_H = 168
"""A week, as Delta's own: readers and writers of older versions are then done."""

_FILE_SIZE = "spark.databricks.delta.optimize.maxFileSize"
_SMALL = "spark.databricks.delta.optimize.minFileSize"
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_LISTERS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""How many tasks list folders: thousands by default, which a small machine spends minutes on."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Optimized:
    """What came of an OPTIMIZE."""

    table: str
    files: int
    """before it"""
    removed: int = 0
    added: int = 0
    skipped: str = ""
    """why nothing was done; empty if it was"""


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What came of a VACUUM."""

    table: str
    files: int
    """deleted, or with a dry run, to be deleted"""
    dry_run: bool


def optimize(
    spark: SparkSession, table: DeltaLakeTable, *, z_order: Sequence[str], target_bytes: int, min_files: int
) -> Optimized:
    """Packs small files together, or clusters all rows by columns; too few files are left alone."""
    sizes = live_sizes(table.loaded())
    count = len(sizes) if z_order else sum(size < target_bytes for size in sizes)
    if count < min_files:
        why = f"{count} small files are fewer than {min_files}, and left alone"
        log.debug("optimize skipped", table=table.name, reason=why)
        return Optimized(table.name, len(sizes), skipped=why)
    _require_columns(table, z_order)
    session = _session(spark, table)
    for key in (_FILE_SIZE, _SMALL):
        session.conf.set(key, target_bytes)
    by = f" ZORDER BY ({', '.join(map(quoted, z_order))})" if z_order else ""
    log.info("optimize started", table=table.name, files=len(sizes))
    metrics = _run(session, table, f"OPTIMIZE {_relation(table)}{by}")[0]["metrics"]
    done = Optimized(table.name, len(sizes), int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"]))
    log.info("optimize done", table=table.name, files_removed=done.removed, files_added=done.added)
    return done


def vacuum(spark: SparkSession, table: DeltaLakeTable, *, retention_h: float, dry_run: bool) -> Vacuumed:
    """Deletes files that no version of the retention refers to."""
    if retention_h < RETENTION_FLOOR_H:
        raise ConfigError(
            f"--retention: {retention_h:g} hours are too few: readers of older versions, and epochs that are being "
            "written, would lose files",
            f"give {RETENTION_FLOOR_H} hours (7d) or more",
        )
    session = _session(spark, table)
    session.conf.set(_CHECK, "true")
    session.conf.set(_LISTERS, 2 * spark.sparkContext.defaultParallelism)
    listing = " DRY RUN" if dry_run else ""
    before = _files_below(table)
    told = _run(session, table, f"VACUUM {_relation(table)} RETAIN {retention_h:g} HOURS{listing}")
    files = len(told) if dry_run else before - _files_below(table)
    log.info("vacuum done", table=table.name, files=files, dry_run=dry_run)
    return Vacuumed(table.name, files, dry_run)


def _session(spark: SparkSession, table: DeltaLakeTable) -> SparkSession:
    """A session of its own that reaches the table."""
    require_spark_writes(table.name, table.place, spark)
    return teach(own_session(spark), table.place)


def _files_below(table: DeltaLakeTable) -> int:
    return len(table.find_files(table.uri, lambda path: "/_" not in path.removeprefix(table.uri)))


def _relation(table: DeltaLakeTable) -> str:
    return f"delta.{quoted(table.place.spark_uri)}"


def _require_columns(table: DeltaLakeTable, z_order: Sequence[str]) -> None:
    known = [field.name for field in table.loaded().schema().fields]
    for column in z_order:
        if column not in known:
            raise ConfigError(f"--z-order: {table.name} has no column {column}", f"known are {', '.join(known)}")


def _run(session: SparkSession, table: DeltaLakeTable, statement: str) -> list[dict[str, Any]]:
    try:
        return [row.asDict(recursive=True) for row in session.sql(statement).collect()]
    except (Py4JJavaError, PySparkException) as error:
        raise StorageUnavailable(
            f"{table.name}: {statement.split(' ', 1)[0]} failed: {first_line(error)}",
            "the table is as it was, or has what was done so far; it can be run again",
        ) from error
