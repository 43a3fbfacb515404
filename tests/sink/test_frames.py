"""Sinks with a real Spark: Iceberg tables, and DataFrames that workers write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from frazil.engine.lakehouse import lakehouse_conf
from frazil.errors import Fenced, InvalidState, SchemaMismatch
from frazil.sink import Sink, SinkConfig
from tests.sink.conftest import Lake, batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.real


class House:
    """A catalog of its own in the shared session."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.catalog = {"warehouse": str(folder), "name": f"c{abs(hash(str(folder))):x}"}
        self.table = f"{self.catalog['name']}.shop.orders"

    def opened(self, **sections: Any) -> Sink:
        table = {"name": "shop.orders", **sections.pop("table", {})}
        config = SinkConfig.parse(
            {"table": table, "catalog": self.catalog, "writer": {"name": "loader"}, **sections}
        )
        for key, value in lakehouse_conf(config).items():
            self.spark.conf.set(key, value)
        return Sink(config, self.spark).open()

    def rows(self, columns: str = "id") -> list[Any]:
        found = self.spark.sql(f"SELECT {columns} FROM {self.table} ORDER BY ALL").collect()
        return [row[0] if len(row) == 1 else tuple(row) for row in found]

    def actions(self) -> list[str]:
        query = f"SELECT summary['frazil.action'] FROM {self.table}.snapshots ORDER BY committed_at"
        return [row[0] for row in self.spark.sql(query).collect()]

    def frame(self, *ids: int) -> DataFrame:
        return self.spark.createDataFrame([(each, f"n{each}") for each in ids], "id BIGINT, name STRING")


@pytest.fixture
def house(spark: SparkSession, tmp_path: Path) -> House:
    return House(spark, tmp_path)


def land(sink: Sink, epoch: int, *batches: Any) -> Any:
    sink.begin_epoch(epoch)
    for each in batches:
        sink.write_batch(each)
    return sink.commit_epoch(epoch)


def test_an_iceberg_table_takes_arrow_and_dataframes_in_one_snapshot(house: House) -> None:
    """SINK-04, EPOCH-13, EPOCH-15"""
    sink = house.opened(table={"partition": ["bucket(4, id)"]})
    committed = land(sink, 1, batch(1, 2), house.frame(3, 4), pa.Table.from_batches([batch(5)]))
    assert committed.records == 5
    assert land(sink, 2).records == 0
    assert land(sink, 1, house.frame(99)) is None
    sink.begin_epoch(3)
    sink.write_batch(house.frame(98))
    sink.rollback_epoch(3)
    assert house.rows() == [1, 2, 3, 4, 5]
    assert house.actions() == ["start", "append", "heartbeat"]
    assert sink.health_check().details["snapshot"] == str(sink.metrics().custom["snapshot_id"])


def test_a_second_sink_of_an_iceberg_table_fences_the_first(house: House) -> None:
    """FAULT-05, FAULT-06"""
    first = house.opened()
    land(first, 1, batch(1))
    first.begin_epoch(2)
    first.write_batch(house.frame(2))
    second = house.opened()
    with pytest.raises(Fenced):
        first.commit_epoch(2)
    land(second, 2, batch(22))
    house.spark.sql(f"INSERT INTO {house.table} VALUES (100, 'somebody else')")
    land(second, 3, batch(3))
    assert house.rows() == [1, 3, 22, 100]


def test_a_mismatch_on_a_worker_is_told_as_such(house: House) -> None:
    """SINK-10"""
    sink = house.opened(columns={"schema": "id BIGINT NOT NULL"})
    sink.begin_epoch(1)
    with pytest.raises(SchemaMismatch, match="stranger"):
        sink.write_batch(house.spark.sql("SELECT 1L AS id, 2 AS stranger"))
    sink.rollback_epoch(1)
    land(sink, 1, house.spark.sql("SELECT 1L AS id"))
    assert house.rows() == [1]


KEYED = {"mode": "upsert", "keys": ["id"]}


def changes(*told: tuple[str, int, str]) -> pa.RecordBatch:
    ops, ids, names = zip(*told, strict=True)
    return pa.RecordBatch.from_pydict({"_op": ops, "id": pa.array(ids, pa.int64()), "name": names})


def test_changes_keep_a_table_current_and_of_each_key_the_last_one_counts(house: House) -> None:
    """SINK-08: changelog; the order is that in which they are handed over, over all batches of the epoch."""
    sink = house.opened(table=KEYED)
    assert sink.capabilities().changelog
    land(sink, 1, changes(("I", 1, "a"), ("I", 2, "b"), ("U", 1, "c")), changes(("U", 2, "d"), ("I", 3, "e")))
    assert house.rows("id, name") == [(1, "c"), (2, "d"), (3, "e")]
    land(sink, 2, changes(("D", 1, ""), ("U", 2, "f")), changes(("D", 3, ""), ("I", 3, "g")))
    assert house.rows("id, name") == [(2, "f"), (3, "g")]
    assert house.actions() == ["start", "row-delta", "row-delta"]
    sink.begin_epoch(3)
    with pytest.raises(SchemaMismatch, match="'X'"):
        sink.write_batch(changes(("X", 1, "a")))


def test_changes_in_a_dataframe_bring_their_order_with_them(house: House) -> None:
    """The changes of a key meet in one task; a second batch could have other changes of the same key."""
    sink = house.opened(table=KEYED)
    told = [
        ("D" if key < 5 and turn == 4 else "U", key, f"v{turn}", turn) for turn in range(5) for key in range(40)
    ]
    frame = house.spark.createDataFrame(told, "_op STRING, id BIGINT, name STRING, _order BIGINT").repartition(4)
    land(sink, 1, frame)
    assert house.rows("id, name") == [(key, "v4") for key in range(5, 40)]
    sink.begin_epoch(2)
    with pytest.raises(SchemaMismatch, match="_order"):
        sink.write_batch(frame.drop("_order"))
    sink.rollback_epoch(2)
    sink.begin_epoch(2)
    sink.write_batch(frame)
    for more in (frame, changes(("U", 1, "a"))):
        with pytest.raises(InvalidState):
            sink.write_batch(more)
        sink.rollback_epoch(2)
        sink.begin_epoch(2)
        sink.write_batch(frame)


def test_a_delta_table_takes_dataframes(spark: SparkSession, lake: Lake) -> None:
    """SINK-04"""
    sink = lake.opened(table={"partition": ["name"]})
    frame = spark.range(10).selectExpr("id", "concat('n', id % 2) AS name", "timestamp_seconds(id) AS at")
    land(sink, 1, frame)
    land(sink, 2, frame.where("id < 2"))
    assert lake.ids() == [0, 0, 1, 1, *range(2, 10)]
    at = DeltaTable(lake.path).to_pyarrow_table().sort_by("id")["at"][-1].as_py()
    assert at.isoformat() == "1970-01-01T00:00:09+00:00"


def test_times_are_the_same_in_whatever_zone_the_session_lives(
    spark: SparkSession, lake: Lake, make_session: Callable[[str], SparkSession]
) -> None:
    session = make_session("America/New_York")
    land(lake.opened(), 1, session.sql("SELECT 1L AS id, timestamp_seconds(0) AS at"))
    at = DeltaTable(lake.path).to_pyarrow_table()["at"][0].as_py()
    assert at.isoformat() == "1970-01-01T00:00:00+00:00"


@pytest.fixture
def make_session(spark: SparkSession) -> Callable[[str], SparkSession]:
    def make(zone: str) -> SparkSession:
        session = spark.newSession()
        session.conf.set("spark.sql.session.timeZone", zone)
        return session

    return make
