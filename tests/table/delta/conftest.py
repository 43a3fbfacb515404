"""Readers of Delta tables that the tests share, and a place for a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.table.delta.landing import Readers

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def duck_delta() -> Iterator[duckdb.DuckDBPyConnection]:
    import duckdb
    from duckdb_extensions import import_extension

    with duckdb.connect() as connection:
        import_extension("delta")
        connection.execute("LOAD delta")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture(scope="session")
def delta_spark(spark: SparkSession) -> SparkSession:
    """Spark, set up for many questions about few rows."""
    from frazil.spark import own_session

    session = own_session(spark)
    for key in (
        "spark.databricks.delta.snapshotPartitions",
        "spark.sql.shuffle.partitions",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism",
    ):
        session.conf.set(key, "1")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session


@pytest.fixture(scope="session")
def readers(delta_spark: SparkSession, duck_delta: duckdb.DuckDBPyConnection) -> Readers:
    return Readers(delta_spark, duck_delta)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a table may be."""
    return tmp_path / "orders"
