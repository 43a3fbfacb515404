"""Which kind of tables a pipeline lands in: the only place that knows them all."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import SparkSession

from frazil.pipeline.spec import CatalogSection, TableSection
from frazil.table import Lakehouse
from frazil.table.delta import DeltaLake
from frazil.table.iceberg import IcebergCatalog, spark_catalog_conf


class Destination(Protocol):
    """Who says where rows land: a pipeline, or a sink."""

    @property
    def table(self) -> TableSection: ...
    @property
    def catalog(self) -> CatalogSection: ...
    @property
    def dead_letters(self) -> str | None: ...


def open_lakehouse(spec: Destination, spark: SparkSession | None) -> Lakehouse:
    """Where its tables are; rows can be appended to Delta tables without a Spark."""
    if spec.table.format == "delta":
        told = spec.table
        return DeltaLake(_paths(spec), spark, storage=told.storage, unsafe=told.unsafe_rename)
    assert spark is not None, "catalogs of Iceberg are asked through Spark's JVM"
    return IcebergCatalog(spark, spec.catalog)


def lakehouse_conf(spec: Destination) -> dict[str, str]:
    """What makes its tables visible to Spark SQL."""
    return {} if spec.table.format == "delta" else spark_catalog_conf(spec.catalog)


def dead_letter_section(spec: Destination) -> TableSection:
    """The table of dead letters as a pipeline file would declare it; it lies beside the rows."""
    assert spec.dead_letters is not None
    path = None if spec.table.path is None else f"{spec.table.path.rstrip('/')}__dead_letters"
    return TableSection(format=spec.table.format, name=spec.dead_letters, path=path, storage=spec.table.storage)


def _paths(spec: Destination) -> dict[str, str]:
    tables = [spec.table, *([dead_letter_section(spec)] if spec.dead_letters else [])]
    return {table.name: table.path for table in tables if table.path is not None}
