"""Which kind of tables a pipeline lands in: the only place that knows them all."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import SparkSession

from frazil.pipeline.spec import CatalogSection, TableSection
from frazil.pipeline.stores import Address, is_on_store, parse_address
from frazil.spark import LOG_STORE, LOG_STORE_KEY
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
    """What makes its tables visible to a session of Spark SQL."""
    if spec.table.format == "iceberg":
        return spark_catalog_conf(spec.catalog)
    address = _address(spec)
    return {} if address is None else address.hadoop_settings()


def start_conf(spec: Destination) -> dict[str, str]:
    """The same for a Spark that is about to start; what is Hadoop's has another name there."""
    conf = {f"spark.hadoop.{key}" if key.startswith("fs.") else key: v for key, v in lakehouse_conf(spec).items()}
    return {**conf, LOG_STORE_KEY: LOG_STORE} if jar_sets(spec) else conf


def jar_sets(spec: Destination) -> list[str]:
    """The jars that Spark needs to reach its tables, beyond those that it always has."""
    address = _address(spec)
    return ["s3"] if address is not None and address.store.hadoop_scheme == "s3a" else []


def dead_letter_section(spec: Destination) -> TableSection:
    """The table of dead letters as a pipeline file would declare it; it lies beside the rows."""
    assert spec.dead_letters is not None
    path = None if spec.table.path is None else f"{spec.table.path.rstrip('/')}__dead_letters"
    return TableSection(format=spec.table.format, name=spec.dead_letters, path=path, storage=spec.table.storage)


def _address(spec: Destination) -> Address | None:
    table = spec.table
    return parse_address(table.path, table.storage) if table.path and is_on_store(table.path) else None


def _paths(spec: Destination) -> dict[str, str]:
    tables = [spec.table, *([dead_letter_section(spec)] if spec.dead_letters else [])]
    return {table.name: table.path for table in tables if table.path is not None}
