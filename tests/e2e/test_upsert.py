"""Keyed tables, from Kafka to Iceberg: the last change of each key, and no other."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from frazil.engine.verify import verify_pipeline
from frazil.errors import ChangesUnordered, ConfigError, OldRowUnknown, UndecodableRecord
from frazil.protocol.verify import Level
from frazil.table.iceberg import IcebergCatalog

pytestmark = pytest.mark.real

UPSERT = {"mode": "upsert", "keys": ["id"]}


def customer(number: int, **values: Any) -> dict[str, Any]:
    return {"id": number, "name": f"n{number}", "amount": "1.00", "placed_at": "2026-03-01T10:00:00Z"} | values


def rows(rig: Any) -> dict[int, tuple[Any, ...]]:
    """The table by key; a key that is there twice is an error of its own."""
    found = rig.sql("SELECT id, name, CAST(amount AS STRING), date_format(placed_at, 'dd') FROM {t}")
    table = {row[0]: tuple(row[1:]) for row in found}
    assert len(table) == len(found), "a key has several rows"
    return table


def holds(rig: Any) -> None:
    verdict = verify_pipeline(rig.spec, rig.spark, deep=True)
    assert verdict.level is Level.HOLDS, [finding.message for _, finding in verdict.findings]


def test_the_last_value_of_a_key_is_its_row_and_no_value_deletes_it(make_rig: Callable[..., Any]) -> None:
    """CHG-08, CHG-10: a plain keyed topic; insert, update and delete in one epoch and over several."""
    rig = make_rig(table=UPSERT)
    rig.produce_keyed([(1, customer(1)), (2, customer(2)), (3, customer(3)), (2, customer(2, name="two"))])
    first = rig.epochs(rig.run())
    assert rows(rig) == {1: ("n1", "1.00", "01"), 2: ("two", "1.00", "01"), 3: ("n3", "1.00", "01")}
    assert [(e.landed.counts.landed, e.landed.counts.collapsed) for e in first] == [(3, 1)]
    rig.produce_keyed([(1, None), (3, customer(3, amount="9.50")), (4, customer(4)), (4, None), (4, customer(4))])
    rig.produce_keyed([(5, customer(5)), (5, None)])
    (second,) = rig.epochs(rig.run())
    assert rows(rig).keys() == {2, 3, 4}
    assert rows(rig)[3][1] == "9.50"
    counts = second.landed.counts
    assert (counts.landed, counts.deleted, counts.collapsed, counts.delivered) == (2, 2, 3, 7)
    holds(rig)
    history = rig.open_table().history("orders")
    assert [record.action for record in history if record.epoch] == ["row-delta", "start", "row-delta"]


@pytest.mark.parametrize(
    "partition",
    [["bucket(3, id)"], ["day(placed_at)"], ["name", "bucket(2, id)"]],
    ids=["by key", "by day", "both"],
)
def test_a_row_that_moves_to_another_partition_leaves_the_old_one(
    make_rig: Callable[..., Any], partition: list[str]
) -> None:
    """CHG-11: the same history under every way of partitioning leaves the same rows."""
    rig = make_rig(table={**UPSERT, "partition": partition})
    chance = random.Random(7)
    model: dict[int, tuple[Any, ...]] = {}
    for _ in range(3):
        changes = []
        for _ in range(60):
            key = chance.randrange(12)
            if chance.random() < 0.3:
                changes.append((key, None))
                model.pop(key, None)
                continue
            day, name = chance.randrange(1, 28), chance.choice("abc")
            changes.append((key, customer(key, name=name, placed_at=f"2026-03-{day:02d}T10:00:00Z")))
            model[key] = (name, "1.00", f"{day:02d}")
        rig.produce_keyed(changes)
        rig.run()
        assert rows(rig) == model
    holds(rig)


def test_keys_in_two_partitions_are_noticed_and_need_an_order(make_rig: Callable[..., Any]) -> None:
    """CHG-10: verified, not assumed; with an order, Spark brings the changes of a key together."""
    rig = make_rig(partitions=2, table=UPSERT)
    many = [(n, customer(n)) for n in range(30_000)]
    rig.produce_keyed(many, partition=0)
    rig.produce_keyed([(n, customer(n, name="newer", amount="2.00")) for n in range(29_000, 59_000)], partition=1)
    with pytest.raises(ChangesUnordered, match="several Kafka partitions"):
        rig.run()
    rig.tree["changes"] = {"sequence_by": "amount"}
    (epoch,) = rig.epochs(rig.run())
    counts = epoch.landed.counts
    assert (counts.landed, counts.collapsed) == (59_000, 1_000)
    found = rig.sql("SELECT name, count(*) FROM {t} GROUP BY name HAVING name = 'newer'")
    assert [row[1] for row in found] == [30_000]
    holds(rig)


def test_a_topic_that_grows_is_an_error_without_an_order(make_rig: Callable[..., Any]) -> None:
    rig = make_rig(table=UPSERT)
    rig.produce_keyed([(1, customer(1))])
    rig.run()
    rig.grow(2)
    rig.produce_keyed([(1, customer(1, name="moved"))], partition=1)
    with pytest.raises(ChangesUnordered, match=r"\[1\] is new"):
        rig.run()
    rig.tree["changes"] = {"sequence_by": "_timestamp"}
    rig.run()
    assert rows(rig)[1][0] == "moved"


def test_trusted_inserts_need_no_deletes(make_rig: Callable[..., Any]) -> None:
    """Known-new keys: an append, until something is changed."""
    rig = make_rig(
        table=UPSERT,
        decode={
            "format": "json",
            "schema": "id BIGINT, name STRING, amount DECIMAL(10,2), placed_at TIMESTAMP",
            "envelope": "op-column",
        },
        changes={"trust_inserts": True},
    )
    rig.produce_keyed([(n, customer(n, _op="I")) for n in range(5)])
    rig.run()
    rig.produce_keyed([(1, customer(1, _op="U", name="u")), (2, customer(2, _op="D")), (9, customer(9, _op="I"))])
    rig.run()
    assert {key: row[0] for key, row in rows(rig).items()} == {0: "n0", 1: "u", 3: "n3", 4: "n4", 9: "n9"}
    actions = [(r.action, r.delete_files) for r in rig.open_table().history("orders") if r.span]
    assert actions == [("append", 0), ("row-delta", 1)]
    holds(rig)


def test_a_query_over_changes_hands_on_what_they_are(make_rig: Callable[..., Any]) -> None:
    sql = "SELECT id, upper(name) AS name, amount, placed_at, _op, _order FROM source WHERE id <> 2"
    rig = make_rig(table=UPSERT, transform={"sql": sql})
    rig.produce_keyed([(1, customer(1)), (2, customer(2)), (3, customer(3)), (1, None)])
    (epoch,) = rig.epochs(rig.run())
    assert {key: row[0] for key, row in rows(rig).items()} == {3: "N3"}
    counts = epoch.landed.counts
    assert (counts.landed, counts.deleted, counts.filtered, counts.collapsed) == (1, 1, 1, 1)
    rig.tree["transform"] = {"sql": "SELECT id, name, amount, placed_at FROM source"}
    with pytest.raises(ConfigError, match="drops _op, _order"):
        rig.run()


def test_null_keys_are_dead_letters(make_rig: Callable[..., Any]) -> None:
    rig = make_rig(table=UPSERT)
    rig.produce_keyed([(1, customer(1)), (None, customer(2, id=None)), (None, None)])
    rig.run()
    assert rows(rig).keys() == {1}
    assert rig.dead_offsets() == [(0, 1), (0, 2)]
    holds(rig)


def event(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after}


DEBEZIUM = {
    "envelope": "debezium",
    "schema": "id BIGINT, name STRING, amount DECIMAL(10,2), placed_at TIMESTAMP",
}


def test_an_emptied_source_empties_the_table_if_told_so(make_rig: Callable[..., Any]) -> None:
    """CHG-10: what came after the truncate stays, in one snapshot with it."""
    rig = make_rig(table=UPSERT, decode=DEBEZIUM, changes={"decimals": "plain", "truncate": "apply"})
    rig.produce_keyed([({"id": n}, event("c", None, customer(n))) for n in range(5)])
    rig.run()
    rig.produce_keyed([({"id": 1}, event("u", None, customer(1, name="void"))), (None, event("t", None, None))])
    rig.produce_keyed([({"id": 9}, event("c", None, customer(9)))])
    rig.run()
    assert rows(rig).keys() == {9}
    holds(rig)
    assert [r.action for r in rig.open_table().history("orders") if r.span] == ["row-delta", "overwrite"]
    rig.tree["changes"]["truncate"] = "fail"
    rig.produce_keyed([(None, event("t", None, None))])
    with pytest.raises(UndecodableRecord, match="truncate"):
        rig.run()


def test_old_rows_tell_where_they_are_in_a_table_that_others_partitioned(make_rig: Callable[..., Any]) -> None:
    """CHG-11: by before images; without one, a change that needs it stops the pipeline and lands nothing."""
    rig = make_rig(table=UPSERT, decode=DEBEZIUM, changes={"decimals": "plain"})
    IcebergCatalog(rig.spark, rig.spec.catalog)
    rig.spark.sql(f"CREATE NAMESPACE {rig.table.rpartition('.')[0]}")
    rig.sql(
        "CREATE TABLE {t} (id BIGINT NOT NULL, name STRING, amount DECIMAL(10,2), placed_at TIMESTAMP, "
        "_topic STRING, _kafka_partition INT, _offset BIGINT, _timestamp TIMESTAMP, _key BINARY) "
        "USING iceberg PARTITIONED BY (days(placed_at))"
    )
    first, moved = customer(1), customer(1, name="moved", placed_at="2026-03-09T10:00:00Z")
    rig.produce_keyed([({"id": 1}, event("c", None, first)), ({"id": 2}, event("c", None, customer(2)))])
    rig.run()
    rig.produce_keyed([({"id": 1}, event("u", first, moved)), ({"id": 2}, event("d", customer(2), None))])
    rig.run()
    assert rows(rig) == {1: ("moved", "1.00", "09")}
    holds(rig)
    rig.produce_keyed([({"id": 1}, event("u", None, customer(1)))])
    with pytest.raises(OldRowUnknown, match="REPLICA IDENTITY FULL"):
        rig.run()
    assert rows(rig) == {1: ("moved", "1.00", "09")}


def test_a_table_whose_rows_could_never_be_deleted_is_refused(make_rig: Callable[..., Any]) -> None:
    """CHG-11: plain topics say nothing of old rows."""
    rig = make_rig(table=UPSERT, decode={"metadata": False})
    IcebergCatalog(rig.spark, rig.spec.catalog)
    rig.spark.sql(f"CREATE NAMESPACE {rig.table.rpartition('.')[0]}")
    rig.sql(
        "CREATE TABLE {t} (id BIGINT NOT NULL, name STRING, amount DECIMAL(10,2), placed_at TIMESTAMP) "
        "USING iceberg PARTITIONED BY (name)"
    )
    with pytest.raises(ConfigError, match="could not be deleted from the old one"):
        rig.run()


def test_an_emptied_source_whose_changes_a_query_spreads_over_tasks_stops(make_rig: Callable[..., Any]) -> None:
    """CHG-10: a task that does not have the truncate cannot know which of its changes it made void."""
    sql = "SELECT /*+ REPARTITION(4, id) */ * FROM source"
    changes = {"decimals": "plain", "truncate": "apply"}
    rig = make_rig(table=UPSERT, decode=DEBEZIUM, changes=changes, transform={"sql": sql})
    rig.produce_keyed([({"id": n}, event("c", None, customer(n))) for n in range(8)])
    rig.produce_keyed([(None, event("t", None, None)), ({"id": 9}, event("c", None, customer(9)))])
    with pytest.raises(ChangesUnordered, match="several tasks"):
        rig.run()
    rig.tree["transform"] = {"sql": "SELECT * FROM source"}
    rig.run()
    assert rows(rig).keys() == {9}
    holds(rig)
