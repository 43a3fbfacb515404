"""From Kafka to Delta and back, with real parts: the promises are those of Iceberg."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field
from structlog.testing import capture_logs

from frazil.engine.inspect import inspect_pipeline, pipeline_history
from frazil.engine.lakehouse import open_lakehouse
from frazil.engine.verify import verify_pipeline
from frazil.errors import ConfigError, Fenced, TableChanged
from frazil.protocol.start import OnRollback
from frazil.protocol.verify import Level
from tests.e2e.conftest import order, place

pytestmark = pytest.mark.real


@pytest.fixture
def make_delta(make_rig: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """A rig whose table is a Delta table in a folder."""

    def make(partitions: int = 1, table: dict[str, Any] | None = None, **sections: Any) -> Any:
        return make_rig(partitions=partitions, table={**place("delta", tmp_path), **(table or {})}, **sections)

    return make


def load(rig: Any) -> DeltaTable:
    return DeltaTable(rig.spec.table.path)


def holds(rig: Any, *, deep: bool = True) -> None:
    verdict = verify_pipeline(rig.spec, rig.spark, deep=deep)
    told = [f"{check.name}: {finding.message}" for check in verdict.checks for finding in check.findings]
    assert verdict.level is not Level.BROKEN, told


def test_every_record_lands_once_and_three_readers_agree(
    make_delta: Callable[..., Any], delta_duck: duckdb.DuckDBPyConnection
) -> None:
    """CHG-01, COMMIT-21, COMMIT-23, FILE-10, TEST-01, TEST-03: Spark, delta-rs and DuckDB; one version an epoch."""
    rig = make_delta(2, table={"partition": ["day(placed_at)", "name"]}, epoch={"max_records": 100})
    rig.produce_orders(0, 300, partition=0)
    rig.produce_orders(300, 200, partition=1)
    rig.produce([b"not json"], partition=1)

    epochs = rig.epochs(rig.run())

    assert rig.offsets() == rig.every(300) + rig.every(200, partition=1)
    assert rig.dead_offsets() == [(1, 200)]
    by_spark = {tuple(r) for r in rig.sql("SELECT id, name, amount, date_format(placed_at, 'yyyy-MM-dd') FROM {t}")}
    assert (42, "customer-8", Decimal("42.42"), "2026-03-15") in by_spark
    assert len(by_spark) == 500

    table = load(rig)
    rows = table.to_pyarrow_table().to_pylist()
    assert {(r["id"], r["name"], r["amount"], f"{r['placed_at']:%Y-%m-%d}") for r in rows} == by_spark
    assert all(f"{r['placed_at']:%Y-%m-%d}" == str(r["placed_at_day"]) for r in rows)
    assert (Path(rig.spec.table.path) / "placed_at_day=2026-03-15" / "name=customer-8").is_dir()

    found = delta_duck.execute(
        "SELECT id, name, amount, strftime(placed_at::TIMESTAMP, '%Y-%m-%d') "
        f"FROM delta_scan('{rig.spec.table.path}')"
    ).fetchall()
    assert {tuple(row) for row in found} == by_spark

    versions = [r for r in pipeline_history(rig.spec, rig.spark) if r.action == "append"]
    assert [r.epoch for r in versions] == [each.landed.epoch for each in epochs] == list(range(1, len(epochs) + 1))
    assert table.version() == len(epochs) + 1, "version 0 creates the table, version 1 is the start"
    holds(rig)


def test_a_restart_goes_on_from_the_table_whatever_others_did_to_it_meanwhile(
    make_delta: Callable[..., Any],
) -> None:
    """REC-21, COMMIT-23, TEST-17: foreign rows, OPTIMIZE, a checkpoint, a log cleaned up behind it, VACUUM."""
    rig = make_delta(table={"partition": ["day(placed_at)"]}, epoch={"max_records": 20})
    rig.produce_orders(0, 100)
    rig.run()
    stranger = {"id": [-1], "placed_at": [None], "placed_at_day": [None], "_offset": [None]}
    kinds = [("id", pa.int64()), ("placed_at", pa.timestamp("us", "UTC")), ("placed_at_day", pa.date32())]
    schema = pa.schema([*kinds, ("_offset", pa.int64())])
    write_deltalake(load(rig), pa.table(stranger, schema=schema), mode="append", schema_mode="merge")
    holds(rig)
    load(rig).optimize.compact()
    holds(rig)
    table = load(rig)
    table.create_checkpoint()
    for version in range(table.version()):
        (Path(rig.spec.table.path) / "_delta_log" / f"{version:020d}.json").unlink()
    load(rig).vacuum(0, dry_run=False, enforce_retention_duration=False)

    status = inspect_pipeline(rig.spec, rig.spark)
    assert status.lag == {(rig.topic, 0): 0}
    assert status.tables[0].epoch == 5
    rig.produce_orders(100, 30)
    rig.run()

    offsets = [r[0] for r in rig.sql("SELECT _offset FROM {t} WHERE id >= 0 ORDER BY 1")]
    assert offsets == list(range(130))
    holds(rig, deep=False)


def test_overwriting_replaces_the_partitions_that_an_epoch_has_rows_for(make_delta: Callable[..., Any]) -> None:
    """CHG-13: and no others; the rows of one epoch do not replace each other."""
    rig = make_delta(2, table={"mode": "overwrite", "partition": ["name", "day(placed_at)"]})
    rig.produce([order(n) for n in range(40)])
    rig.run()
    again = [{**order(3), "id": 100}, {**order(3), "id": 101}]
    rig.produce(again[:1], partition=0)
    rig.produce(again[1:], partition=1)
    rig.run()

    kept = [
        n
        for n in range(40)
        if (order(n)["name"], order(n)["placed_at"]) != (order(3)["name"], order(3)["placed_at"])
    ]
    assert len(kept) < 40
    assert [r[0] for r in rig.sql("SELECT id FROM {t} ORDER BY id")] == [*kept, 100, 101]
    (newest,) = [r for r in pipeline_history(rig.spec, rig.spark) if r.epoch == 2]
    assert (newest.action, newest.counts.landed) == ("overwrite", 2)
    holds(rig, deep=False)


def test_a_restored_table_stops_and_names_the_choice(make_delta: Callable[..., Any]) -> None:
    """FAULT-18-like: RESTORE takes rows away that the register speaks of; rewind lands them again."""
    rig = make_delta(epoch={"max_records": 10})
    rig.produce_orders(0, 30)
    rig.run()
    load(rig).restore(load(rig).version() - 2)
    assert len(rig.offsets()) == 10
    rig.produce_orders(30, 10)

    with pytest.raises(TableChanged, match="rolled back"):
        rig.run()
    assert inspect_pipeline(rig.spec, rig.spark).tables[0].trouble is not None
    rig.run(on_rollback=OnRollback.REWIND)

    assert rig.offsets() == rig.every(40)
    holds(rig)


def test_a_restore_by_spark_and_back_is_followed(make_delta: Callable[..., Any]) -> None:
    """A table that was restored to where it had been is as good as untouched."""
    rig = make_delta(epoch={"max_records": 10})
    rig.produce_orders(0, 30)
    rig.run()
    newest = load(rig).version()
    rig.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {newest - 1}")
    rig.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {newest}")
    rig.produce_orders(30, 10)

    rig.run()

    assert rig.offsets() == rig.every(40)
    holds(rig)


def test_an_error_after_the_version_landed_lands_nothing_twice(make_delta: Callable[..., Any]) -> None:
    """COMMIT-11, FAULT-08: a checkpoint that cannot be written fails the call, not the commit."""
    rig = make_delta(table={"properties": {"delta.checkpointInterval": "1"}}, epoch={"max_records": 10})
    rig.produce_orders(0, 10)
    rig.run()
    log = Path(rig.spec.table.path) / "_delta_log"
    # A folder where a checkpoint's file belongs: delta-rs lands the version, and then fails.
    newest = load(rig).version()
    obstacles = [log / f"{version:020d}.checkpoint.parquet" for version in range(newest + 1, newest + 4)]
    for obstacle in obstacles:
        obstacle.mkdir()
    rig.produce_orders(10, 20)

    with capture_logs() as logs:
        rig.run()

    assert sum(line["event"] == "commit had landed" for line in logs) == len(obstacles)
    for obstacle in obstacles:
        obstacle.rmdir()

    assert rig.offsets() == rig.every(30)
    holds(rig)


def test_a_column_added_while_an_epoch_is_written_makes_it_write_again(make_delta: Callable[..., Any]) -> None:
    """COMMIT-04, FAULT-20-like: no file of the schema before lands."""
    rig = make_delta()
    rig.produce_orders(0, 10)
    rig.run()
    rig.produce_orders(10, 10)
    altered = []

    def alter(event: Any) -> None:
        if type(event).__name__ == "EpochWritten" and not altered:
            altered.append(event)
            load(rig).alter.add_columns([Field("more", "string")])

    rig.run(observer=alter)

    assert altered
    assert rig.offsets() == rig.every(20)
    holds(rig)


def test_two_drivers_fence_each_other_on_delta(make_delta: Callable[..., Any]) -> None:
    """FAULT-05, FAULT-06: the older of two stops, and nothing is lost or doubled."""
    rig = make_delta(epoch={"max_records": 10})
    rig.produce_orders(0, 40)
    taken = []

    def take_over(event: Any) -> None:
        if type(event).__name__ == "EpochLanded" and not taken:
            taken.append(event)
            rig.run()

    with pytest.raises(Fenced):
        rig.run(observer=take_over)

    assert rig.offsets() == rig.every(40)
    holds(rig)


def test_a_table_that_forgets_registers_is_refused(make_delta: Callable[..., Any]) -> None:
    """FAULT-24: also when somebody sets it on a table that was fine."""
    rig = make_delta()
    rig.produce_orders(0, 10)
    rig.run()
    load(rig).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 7 days"})
    with pytest.raises(ConfigError, match="setTransactionRetentionDuration"):
        rig.run()


def test_a_table_of_sparks_own_catalog_is_found_by_its_name(make_delta: Callable[..., Any], tmp_path: Path) -> None:
    """CAT-09-like: created where its database lies, known to SQL, and found again by the next start."""
    rig = make_delta(table={"name": "deltas.orders", "path": None})
    database = tmp_path / "deltas"
    rig.spark.sql(f"CREATE DATABASE deltas LOCATION '{database.as_uri()}'")
    try:
        rig.produce_orders(0, 10)
        rig.run()
        rig.produce_orders(10, 10)
        rig.run()
        assert rig.spark.sql("SELECT count(*) FROM spark_catalog.deltas.orders").collect()[0][0] == 20
        assert DeltaTable(str(database / "orders")).version() > 2
        holds(rig)
    finally:
        rig.spark.sql("DROP DATABASE deltas CASCADE")


def test_the_state_tells_everybody_the_next_offsets(make_delta: Callable[..., Any]) -> None:
    """COMMIT-21: a txn for the epoch and one for each partition, in the version of the rows."""
    rig = make_delta(2)
    rig.produce_orders(0, 30, partition=0)
    rig.produce_orders(30, 12, partition=1)
    rig.run()
    table = load(rig)
    newest = Path(rig.spec.table.path) / "_delta_log" / f"{table.version():020d}.json"
    actions = [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]
    told = {action["txn"]["appId"]: action["txn"] for action in actions if "txn" in action}
    assert any("add" in action for action in actions)
    assert told[f"frazil:orders:{rig.topic}:0"]["version"] == 30
    assert told[f"frazil:orders:{rig.topic}:1"]["version"] == 12
    assert told["frazil:orders"]["lastUpdated"] > 1_700_000_000_000
    found = open_lakehouse(rig.spec, rig.spark).find(rig.spec.table.name)
    assert found is not None
    register = found.observe("orders").register
    assert register is not None
    assert told["frazil:orders"]["version"] == register.generation << 40 | register.epoch
