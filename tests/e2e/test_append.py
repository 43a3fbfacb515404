"""From Kafka to Iceberg and back, with real parts, in both lanes."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from duckdb_extensions import import_extension
from pyiceberg.catalog.sql import SqlCatalog

from frazil.engine.events import EpochLanded, EpochWritten, Event, PipelineStarted

pytestmark = pytest.mark.real


def test_every_record_lands_once_and_three_readers_agree(make_rig: Callable[..., Any]) -> None:
    """SRC-01, DEC-01, FILE-12, COMMIT-01, COMMIT-14, CAT-09, SCHEMA-01, TEST-01: Spark, pyiceberg and DuckDB."""
    rig = make_rig(partitions=2, table={"partition": ["day(placed_at)", "name"]})
    rig.produce_orders(0, 300, partition=0)
    rig.produce_orders(300, 200, partition=1)

    rig.run()

    assert rig.offsets() == rig.every(300) + rig.every(200, partition=1)
    spark_rows = {
        tuple(r) for r in rig.sql("SELECT id, name, amount, date_format(placed_at, 'yyyy-MM-dd') FROM {t}")
    }
    assert (42, "customer-8", Decimal("42.42"), "2026-03-15") in spark_rows
    assert len(spark_rows) == 500

    warehouse = rig.spec.catalog.warehouse
    catalog = SqlCatalog(rig.spec.catalog.name, uri=f"sqlite:///{warehouse}/catalog.db", warehouse=warehouse)
    table = catalog.load_table("shop.orders")
    by_pyiceberg = {
        (r["id"], r["name"], r["amount"], f"{r['placed_at']:%Y-%m-%d}") for r in table.scan().to_arrow().to_pylist()
    }
    assert by_pyiceberg == spark_rows
    pruned = table.scan(row_filter="name == 'customer-8'")
    assert len(list(pruned.plan_files())) < len(list(table.scan().plan_files()))
    assert {r["name"] for r in pruned.to_arrow().to_pylist()} == {"customer-8"}

    for extension in ("avro", "iceberg"):
        import_extension(extension)
    engine = duckdb.connect()
    engine.execute("LOAD avro; LOAD iceberg; SET TimeZone = 'UTC'")
    by_duckdb = {
        tuple(row)
        for row in engine.execute(
            "SELECT id, name, amount, strftime(placed_at::TIMESTAMP, '%Y-%m-%d') "
            f"FROM iceberg_scan('{table.metadata_location}')"
        ).fetchall()
    }
    assert by_duckdb == spark_rows


def test_the_sql_lane_filters_and_reshapes_and_accounts_for_every_record(make_rig: Callable[..., Any]) -> None:
    """LIM-07: a transform runs before the sink; delivered = landed + filtered + dead is in the summary."""
    rig = make_rig(
        partitions=2,
        transform={
            "sql": "SELECT id, upper(name) AS shout, amount * 2 AS twice, _kafka_partition, _offset FROM source "
            "WHERE id % 10 <> 0"
        },
    )
    rig.produce_orders(0, 100, partition=0)
    rig.produce_orders(100, 100, partition=1)
    rig.produce([b"not json"], partition=1)

    (landed,) = rig.epochs(rig.run())

    rows = rig.sql("SELECT id, shout, twice FROM {t} ORDER BY id")
    assert len(rows) == 180
    assert tuple(rows[0]) == (1, "CUSTOMER-1", Decimal("2.02"))
    counts = landed.landed.counts
    assert (counts.delivered, counts.landed, counts.filtered, counts.dead) == (201, 180, 20, 1)
    assert rig.dead_offsets() == [(1, 100)]


def test_a_query_that_uses_the_source_twice_makes_no_dead_letter_twice(make_rig: Callable[..., Any]) -> None:
    rig = make_rig(
        transform={
            "sql": "SELECT id, _kafka_partition, _offset FROM source UNION ALL "
            "SELECT -id, _kafka_partition, _offset FROM source"
        }
    )
    rig.produce([{"id": 1}, b"{broken", {"id": 2}])

    rig.run()

    assert [r[0] for r in rig.sql("SELECT id FROM {t} ORDER BY id")] == [-2, -1, 1, 2]
    assert rig.dead_offsets() == [(0, 1)]


def test_a_query_that_leaves_records_unread_is_refused(make_rig: Callable[..., Any]) -> None:
    from frazil.errors import ConfigError

    rig = make_rig(transform={"sql": "SELECT id, _kafka_partition, _offset FROM source WHERE 1 = 0"})
    rig.produce_orders(0, 10)

    with pytest.raises(ConfigError, match="did not read all of `source`"):
        rig.run()


def test_raw_keeps_key_value_and_headers_as_bytes(make_rig: Callable[..., Any]) -> None:
    from confluent_kafka import Producer

    rig = make_rig(decode={"format": "raw", "schema": None})
    producer = Producer({"bootstrap.servers": rig.bootstrap})
    producer.produce(rig.topic, b"\x00\xff", key=b"k", headers=[("h", b"\x01"), ("n", None)])
    producer.produce(rig.topic, None, key=None)
    producer.flush(10)

    rig.run()

    rows = rig.sql("SELECT key, value, headers, _offset FROM {t} ORDER BY _offset")
    assert bytes(rows[0].key) == b"k"
    assert bytes(rows[0].value) == b"\x00\xff"
    assert [(h.key, h.value and bytes(h.value)) for h in rows[0].headers] == [("h", b"\x01"), ("n", None)]
    assert (rows[1].key, rows[1].value) == (None, None)


def test_a_restart_goes_on_from_the_table_with_no_local_state(make_rig: Callable[..., Any]) -> None:
    """SRC-06, REC-18, FAULT-22: nothing but the table remembers, not even the consumer group."""
    rig = make_rig()
    rig.produce_orders(0, 100)
    rig.run()
    rig.produce_orders(100, 50)

    events = rig.run()

    started = next(e for e in events if isinstance(e, PipelineStarted))
    assert (started.generation, started.epoch) == (2, 1)
    assert rig.offsets() == rig.every(150)
    assert not rig.epochs(rig.run()), "a third run finds nothing to do"


def test_latest_is_decided_once_even_if_the_first_start_dies(make_rig: Callable[..., Any]) -> None:
    """The start commit records the resolved offsets: what arrives after it is not skipped by the next start."""
    rig = make_rig(source={"starting_offsets": "latest"})
    rig.produce_orders(0, 10)
    rig.run()
    rig.produce_orders(10, 5)

    rig.run()

    assert rig.offsets() == rig.every(5, first=10)


def test_catching_up_takes_bounded_epochs_in_order(make_rig: Callable[..., Any]) -> None:
    """EPOCH-01, EPOCH-06, EPOCH-11, COMMIT-16, FAULT-15: max_records bounds each span; spans have no gaps."""
    rig = make_rig(partitions=2, epoch={"max_records": 40})
    rig.produce_orders(0, 100, partition=0)
    rig.produce_orders(0, 60, partition=1)

    events = rig.run()

    assert len(rig.epochs(events)) == 4
    assert rig.offsets() == rig.every(100) + rig.every(60, partition=1)
    history = rig.open_table().history("orders")
    assert [record.epoch for record in history] == [0, 1, 2, 3, 4]
    ends: dict[Any, int] = {}
    for record in history[1:]:
        for partition, span in record.span.ranges.items():
            assert span.start == ends.get(partition, 0)
            ends[partition] = span.end
        assert record.counts.delivered == record.counts.landed == record.span.records
    assert len(rig.sql("SELECT snapshot_id FROM {t}.snapshots")) == 5, "one snapshot an epoch, and one start"


def test_records_that_come_while_it_runs_land_on_the_interval_and_a_stop_finishes_the_epoch(
    make_rig: Callable[..., Any],
) -> None:
    """EPOCH-12, CLI-01, LIM-08: the clock closes an epoch although nothing more arrives."""
    rig = make_rig(epoch={"interval": "500ms"})
    stop = threading.Event()
    landed = 0

    def watch(event: Event) -> None:
        nonlocal landed
        match event:
            case PipelineStarted():
                rig.produce_orders(0, 10)
            case EpochLanded():
                landed += event.landed.counts.landed
                rig.produce_orders(landed, 10) if landed < 30 else stop.set()

    rig.run(available_now=False, observer=watch, stop=stop)

    assert rig.offsets() == rig.every(30)


def test_the_snapshot_says_append_in_icebergs_words_and_in_ours(make_rig: Callable[..., Any]) -> None:
    """COMMIT-02, COMMIT-14, COMMIT-15: a legal operation; the kind of action is a key of ours."""
    rig = make_rig()
    rig.produce_orders(0, 5)
    rig.run()
    start, epoch = rig.sql("SELECT operation, summary FROM {t}.snapshots ORDER BY committed_at")
    assert (start.operation, start.summary["frazil.action"]) == ("append", "start")
    assert (epoch.operation, epoch.summary["frazil.action"]) == ("append", "append")
    assert epoch.summary["frazil.span"] == f'{{"{rig.topic}":"0:0-5"}}'
    assert epoch.summary["added-records"] == epoch.summary["frazil.rows.landed"] == "5"
    assert rig.sql("SELECT count(*) FROM {t}.delete_files")[0][0] == 0


def test_a_new_table_lies_where_the_catalog_puts_it_unless_told_otherwise(
    make_rig: Callable[..., Any], tmp_path: Path
) -> None:
    """SCHEMA-02."""
    rig = make_rig()
    rig.produce_orders(0, 5)
    rig.run()
    assert list((Path(rig.spec.catalog.warehouse) / "shop" / "orders" / "data").glob("*.parquet"))

    rig.tree["table"] = {"name": "shop.elsewhere", "location": (tmp_path / "elsewhere").as_uri()}
    rig.run()
    assert list((tmp_path / "elsewhere" / "data").glob("*.parquet"))
    assert rig.offsets() == rig.every(5)


def test_a_commit_neither_lists_nor_reads_data_files(make_rig: Callable[..., Any]) -> None:
    """COMMIT-18, TEST-11: they are out of reach while it is made, and it is made all the same."""
    rig = make_rig()
    rig.produce_orders(0, 5)
    data = Path(rig.spec.catalog.warehouse) / "shop" / "orders" / "data"

    def watch(event: Event) -> None:
        if isinstance(event, EpochWritten):
            data.rename(data.with_name("hidden"))
        elif isinstance(event, EpochLanded):
            data.with_name("hidden").rename(data)

    rig.run(observer=watch)
    assert rig.offsets() == rig.every(5)


def test_each_epoch_is_a_job_group_with_a_name_for_people(make_rig: Callable[..., Any]) -> None:
    rig = make_rig(pipeline={"name": f"orders-{uuid.uuid4().hex[:6]}"})
    rig.produce_orders(0, 1234)
    rig.run()
    jobs = rig.spark.sparkContext.statusTracker().getJobIdsForGroup(f"frazil-{rig.spec.pipeline.name}-1")
    assert jobs
    store = rig.spark._jsparkSession.sparkContext().statusStore()
    assert store.job(jobs[0]).description().get() == f"{rig.spec.pipeline.name} · epoch 1 · 1,234 records"


def test_offsets_are_committed_to_a_group_for_lag_monitors_only(make_rig: Callable[..., Any]) -> None:
    """SRC-05, COMMIT-20: after the table, never before."""
    from confluent_kafka import Consumer, TopicPartition

    rig = make_rig(source={"group_id": "monitors"})
    rig.produce_orders(0, 25)
    rig.run()

    consumer = Consumer({"bootstrap.servers": rig.bootstrap, "group.id": "monitors"})
    (position,) = consumer.committed([TopicPartition(rig.topic, 0)], timeout=10)
    consumer.close()
    assert position.offset == 25


def test_poison_records_go_to_the_dead_letter_table_alone(make_rig: Callable[..., Any]) -> None:
    """FAULT-45: each with its origin and the reason; its neighbours land."""
    rig = make_rig()
    rig.produce([{"id": 1}, b"\xff\xfe", {"id": "two"}, b"", {"id": 5}])

    rig.run()

    assert [r[0] for r in rig.sql("SELECT id FROM {t} ORDER BY id")] == [1, 5]
    dead = rig.sql("SELECT * FROM {dead} ORDER BY offset")
    assert [(r.topic, r.partition, r.offset) for r in dead] == [(rig.topic, 0, n) for n in (1, 2, 3)]
    assert bytes(dead[0].value) == b"\xff\xfe"
    assert bytes(dead[0].key) == b"k1"
    assert all(r.error and r.schema and r.timestamp for r in dead)


def test_on_error_fail_stops_and_names_the_record(make_rig: Callable[..., Any]) -> None:
    from frazil.errors import UndecodableRecord

    rig = make_rig(decode={"on_error": "fail"})
    rig.produce([{"id": 1}, b"oops"])

    with pytest.raises(UndecodableRecord, match=r"offset 1"):
        rig.run()
    assert rig.offsets() == []
