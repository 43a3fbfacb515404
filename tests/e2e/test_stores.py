"""From Kafka to Delta tables in an object store: the promises are those of a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError

from frazil.engine.inspect import inspect_pipeline, pipeline_history
from frazil.engine.lakehouse import dead_letter_section
from frazil.engine.verify import verify_pipeline
from frazil.protocol.verify import Level
from frazil.spark import LOG_STORE, jvm
from frazil.table.delta.log import log_file
from frazil.table.delta.place import Place
from tests.e2e.conftest import order
from tests.services.s3 import S3, storage_at
from tests.services.store_proxy import StoreProxy

pytestmark = pytest.mark.real


@pytest.fixture
def make_stored(make_rig: Callable[..., Any], s3: S3, tmp_path: Path) -> Callable[..., Any]:
    """A rig whose table is a Delta table in a bucket of its own."""

    def make(partitions: int = 1, table: dict[str, Any] | None = None, **sections: Any) -> Any:
        place = {"format": "delta", "name": None, "path": f"{s3.make_bucket()}/orders", "storage": s3.storage}
        journal = {"dir": str(tmp_path / "journal")}
        return make_rig(partitions=partitions, table={**place, **(table or {})}, journal=journal, **sections)

    return make


def load(rig: Any, path: str | None = None) -> DeltaTable:
    return Place.at(path or rig.spec.table.path, rig.spec.table.storage).load()


def offsets(rig: Any) -> list[tuple[int, int]]:
    rows = load(rig).to_pyarrow_table(columns=["_kafka_partition", "_offset"]).to_pylist()
    return sorted((row["_kafka_partition"], row["_offset"]) for row in rows)


def files_in(s3: S3, rig: Any) -> set[str]:
    bucket = s3.buckets / rig.spec.table.path.split("/")[2]
    return {path.name for path in bucket.rglob("orders/**/*.parquet") if "_delta_log" not in path.parts}


def test_a_killed_pipeline_goes_on_in_a_bucket_and_leaves_nothing_behind(
    make_stored: Callable[..., Any], s3: S3
) -> None:
    """STORE-01, STORE-03, SQL-05, REC-18: S3, append by date; read by delta-rs, and by pyarrow alone."""
    rig = make_stored(2, table={"partition": ["day(placed_at)"]}, epoch={"max_records": 60})
    rig.produce_orders(0, 50, partition=0)
    rig.produce_orders(50, 50, partition=1)
    rig.run()
    rig.produce_orders(100, 50, partition=0)
    rig.produce([b"not json"], partition=1)
    rig.run_killed()
    live = {uri.rpartition("/")[2] for uri in load(rig).file_uris()}
    assert files_in(s3, rig) - live, "files that are nobody's"

    rig.run()

    assert offsets(rig) == rig.every(100) + rig.every(50, partition=1)
    assert files_in(s3, rig) == {uri.rpartition("/")[2] for uri in load(rig).file_uris()}
    found = ds.dataset(s3.buckets / rig.spec.table.path.removeprefix("s3://"), partitioning="hive").to_table()
    assert sorted(found["id"].to_pylist()) == list(range(150))
    assert all(row["placed_at"].date().isoformat() == row["placed_at_day"] for row in found.to_pylist())
    assert load(rig, dead_letter_section(rig.spec).path).to_pyarrow_table()["offset"].to_pylist() == [50]
    assert inspect_pipeline(rig.spec, rig.spark).lag == {(rig.topic, 0): 0, (rig.topic, 1): 0}
    landed = [each for each in pipeline_history(rig.spec, rig.spark) if each.action == "append"]
    assert sum(each.counts.landed for each in landed) == 150
    verdict = verify_pipeline(rig.spec, rig.spark)
    assert verdict.level is Level.HOLDS, [finding.message for _, finding in verdict.findings]


def test_two_columns_and_files_of_64_megabytes(make_stored: Callable[..., Any]) -> None:
    """SQL-05: the table that other tools declare so."""
    rig = make_stored(table={"partition": ["name", "day(placed_at)"], "target_file_size": "64MB"})
    rig.produce_orders(0, 30)
    rig.run()
    assert load(rig).metadata().partition_columns == ["name", "placed_at_day"]
    assert offsets(rig) == rig.every(30)
    assert rig.open_table().write_target(rig.spec.table).target_file_size_bytes == 64 * 2**20


def test_changes_are_merged_in_a_bucket(make_stored: Callable[..., Any], s3: S3) -> None:
    """SQL-05, CHG-12: S3, upsert; Spark writes its versions on the condition that they are not there."""
    rig = make_stored(table={"mode": "upsert", "keys": ["id"]}, decode={"on_error": "fail"})
    rig.produce_keyed([(number, order(number)) for number in range(4)])
    rig.run()
    rig.produce_keyed([(1, {**order(1), "name": "changed"}), (2, None)])
    rig.run()
    found = {row["id"]: row["name"] for row in load(rig).to_pyarrow_table().to_pylist()}
    assert found == {0: "customer-0", 1: "changed", 3: "customer-3"}
    verdict = verify_pipeline(rig.spec, rig.spark, deep=True)
    assert verdict.level is Level.HOLDS, [finding.message for _, finding in verdict.findings]


def test_spark_is_told_when_another_driver_was_first(make_stored: Callable[..., Any], s3: S3) -> None:
    """FAULT-25: the store decides with the write itself, not somebody's look before it."""
    rig = make_stored()
    rig.produce_orders(0, 3)
    rig.run()
    table, java, asked = rig.open_table(), jvm(rig.spark), []
    version = java.org.apache.hadoop.fs.Path(table.place.for_spark(log_file(table.uri, load(rig).version())))

    def noting(request: Any) -> None:
        asked.append((request.command, request.headers["If-None-Match"]))
        request.relay()

    with StoreProxy(s3, noting) as proxy:
        conf = java.org.apache.hadoop.conf.Configuration()
        conf.set("fs.s3a.impl.disable.cache", "true")
        for key, value in Place.at(table.uri, storage_at(proxy.endpoint)).address.hadoop_settings().items():
            conf.set(key, value)
        store = java.org.apache.spark.sql.delta.storage.LogStore.createLogStoreWithClassName(
            LOG_STORE, rig.spark.sparkContext._jsc.sc().getConf(), conf
        )
        with pytest.raises(Py4JJavaError, match="FileAlreadyExists"):
            store.write(version, java.scala.collection.Iterator.single("{}"), False, conf)
    assert ("PUT", "*") in asked
    assert offsets(rig) == rig.every(3)
