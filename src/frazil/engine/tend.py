"""Tending the tables of a pipeline, when its user asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from frazil.engine.lakehouse import open_lakehouse
from frazil.errors import ConfigError
from frazil.maintain import Optimized, Vacuumed, optimize, vacuum
from frazil.pipeline import PipelineSpec
from frazil.table.delta import DeltaLakeTable


def optimize_tables(
    spec: PipelineSpec, spark: SparkSession, *, z_order: list[str], target_bytes: int, min_files: int
) -> Iterator[Optimized]:
    """Packs the files of the main table and of its dead letters; only the main table is clustered."""
    for table in _tables(spec, spark):
        by = z_order if table.name == spec.table.name else []
        yield optimize(spark, table, z_order=by, target_bytes=target_bytes, min_files=min_files)


def vacuum_tables(
    spec: PipelineSpec, spark: SparkSession, *, retention_h: float, dry_run: bool
) -> Iterator[Vacuumed]:
    for table in _tables(spec, spark):
        yield vacuum(spark, table, retention_h=retention_h, dry_run=dry_run)


def _tables(spec: PipelineSpec, spark: SparkSession) -> list[DeltaLakeTable]:
    if spec.table.format != "delta":
        raise ConfigError(
            f"{spec.table.name} is an Iceberg table: frazil maintain tends Delta tables",
            "use Iceberg's own procedures in Spark: rewrite_data_files, expire_snapshots",
        )
    lakehouse = open_lakehouse(spec, spark)
    found = map(lakehouse.find, spec.table_names)
    return [table for table in found if isinstance(table, DeltaLakeTable)]
