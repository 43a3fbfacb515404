"""Rows that bring columns, or types, that the table does not have yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from frazil.errors import SchemaMismatch
from frazil.sink import Sink, SinkConfig
from frazil.table.iceberg import spark_catalog_conf
from tests.sink.conftest import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVOLVING = {"schema": {"evolution": True}}


def rows(**columns: Any) -> pa.Table:
    return pa.table(columns)


def ints(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


def land(sink: Sink, epoch: int, *batches: pa.Table) -> None:
    sink.begin_epoch(epoch)
    for batch in batches:
        sink.write_batch(batch)
    sink.commit_epoch(epoch)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_the_first_batch_of_an_epoch_brings_new_columns(lake: Lake, guarantee: str) -> None:
    """SINK-04, SINK-08, SCHEMA-03, SQL-05, TEST-13: added by a version of their own; old rows have null in them."""
    sink = lake.opened(**EVOLVING, delivery={"guarantee": guarantee})
    assert sink.capabilities().schema_evolution
    land(sink, 1, rows(id=ints(1)))
    land(sink, 2, rows(id=ints(2), word=["two"]), rows(id=ints(3)))
    found = DeltaTable(lake.path).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["word"]) for row in found) == [(1, None), (2, "two"), (3, None)]
    assert lake.files() == lake.live()


def test_the_first_batch_of_an_epoch_brings_wider_types(lake: Lake, delta_duck: duckdb.DuckDBPyConnection) -> None:
    """SINK-04, SCHEMA-04, TEST-13"""
    sink = lake.opened(**EVOLVING)
    land(sink, 1, rows(id=ints(1)))
    land(sink, 2, rows(id=pa.array([2**40], pa.int64())))
    land(sink, 3, rows(id=ints(3)))
    found = delta_duck.sql(f"SELECT id FROM delta_scan('{lake.path}') ORDER BY id").fetchall()
    assert found == [(1,), (3,), (2**40,)]


def test_what_is_declared_is_added_when_the_sink_opens(lake: Lake) -> None:
    """SCHEMA-03: and nothing but that; rows with more are refused as ever."""
    lake.opened(columns={"schema": "id INT"}).close()
    sink = lake.opened(columns={"schema": "id INT, word STRING"}, **EVOLVING)
    land(sink, 1, rows(id=ints(1), word=["one"]))
    assert DeltaTable(lake.path).to_pyarrow_table().to_pylist() == [{"id": 1, "word": "one"}]
    sink.begin_epoch(2)
    with pytest.raises(SchemaMismatch, match="more"):
        sink.write_batch(rows(id=ints(2), more=["?"]))


def test_a_later_batch_cannot_bring_new_columns(lake: Lake) -> None:
    """SCHEMA-07: files of one commit have one layout; once the epoch is rolled back, it can."""
    sink = lake.opened(**EVOLVING)
    wider = rows(id=ints(2), word=["two"])
    sink.begin_epoch(1)
    sink.write_batch(rows(id=ints(1)))
    with pytest.raises(SchemaMismatch, match="epoch 1 has rows without word"):
        sink.write_batch(wider)
    sink.rollback_epoch(1)
    land(sink, 1, wider, rows(id=ints(1)))
    found = DeltaTable(lake.path).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["word"]) for row in found) == [(1, None), (2, "two")]


def test_without_evolution_such_rows_are_refused_and_the_table_stays(lake: Lake) -> None:
    """SCHEMA-07, TEST-13"""
    sink = lake.opened()
    assert not sink.capabilities().schema_evolution
    land(sink, 1, rows(id=ints(1)))
    version = lake.version()
    for stranger in (rows(id=ints(2), word=["two"]), rows(id=pa.array([2**40], pa.int64()))):
        sink.begin_epoch(2)
        with pytest.raises(SchemaMismatch):
            sink.write_batch(stranger)
        sink.rollback_epoch(2)
    assert (lake.version(), lake.ids()) == (version, [1])


@pytest.mark.real
def test_changes_of_an_iceberg_table_bring_new_columns(spark: SparkSession, tmp_path: Path) -> None:
    """SINK-04, SCHEMA-03, SCHEMA-04: a DataFrame of changes, keyed rows."""
    table = {"name": "shop.orders", "mode": "upsert", "keys": ["id"]}
    catalog = {"warehouse": str(tmp_path), "name": "evolving_sink"}
    config = SinkConfig.parse({"table": table, "catalog": catalog, **EVOLVING})
    with Sink(config, spark) as sink:
        for epoch, changes in enumerate(
            (
                "SELECT 1 AS id, CAST(1 AS INT) AS amount, 'I' AS _op, 1L AS _order",
                "SELECT 2 AS id, 5000000000 AS amount, 'two' AS word, 'I' AS _op, 1L AS _order",
                "SELECT 1 AS id, 7L AS amount, 'one' AS word, 'U' AS _op, 1L AS _order",
            ),
            start=1,
        ):
            sink.begin_epoch(epoch)
            sink.write_batch(spark.sql(changes))
            sink.commit_epoch(epoch)
        found = sink.schema()
    assert found is not None
    assert [(each.name, str(each.field_type)) for each in found.fields] == [
        ("id", "int"),
        ("amount", "long"),
        ("word", "string"),
    ]
    for key, value in spark_catalog_conf(config.catalog).items():
        spark.conf.set(key, value)
    told = spark.sql("SELECT * FROM evolving_sink.shop.orders ORDER BY id").collect()
    assert [tuple(row) for row in told] == [(1, 7, "one"), (2, 5_000_000_000, "two")]
