"""Readers of Delta tables that the tests share, and a place for a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.table.delta.landing import Readers

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession


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
def readers(delta_spark: SparkSession, delta_duck: duckdb.DuckDBPyConnection) -> Readers:
    return Readers(delta_spark, delta_duck)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a table may be."""
    return tmp_path / "orders"
