"""Keyed Delta tables, from Kafka by one MERGE an epoch: the last change of each key, and no other."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from frazil.engine.verify import verify_pipeline
from frazil.protocol.verify import Level
from tests.e2e.conftest import place

if TYPE_CHECKING:
    import duckdb

pytestmark = pytest.mark.real

SCHEMA = "id BIGINT, name STRING, amount DECIMAL(10,2), placed_at TIMESTAMP"
COLUMNS = "id, name, CAST(amount AS VARCHAR(12)) AS amount, EXTRACT(DAY FROM placed_at) AS day"

Rows = dict[int, tuple[str, str, int]]


@pytest.fixture
def make_delta_rig(make_rig: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """A rig whose table is a Delta table with a key."""

    def make(table: dict[str, Any] | None = None, **sections: Any) -> Any:
        told = {**place("delta", tmp_path), "mode": "merge", "keys": ["id"]}
        return make_rig(table={**told, **(table or {})}, **sections)

    return make


def customer(number: int, **values: Any) -> dict[str, Any]:
    return {"id": number, "name": f"n{number}", "amount": "1.00", "placed_at": "2026-03-01T10:00:00Z"} | values


def by_key(found: list[tuple[Any, ...]]) -> Rows:
    rows = {row[0]: (row[1], row[2], int(row[3])) for row in found}
    assert len(rows) == len(found), "a key has several rows"
    return rows


def read_by_spark(rig: Any) -> Rows:
    return by_key([tuple(row) for row in rig.sql(f"SELECT {COLUMNS} FROM {{t}}")])


def read_by_delta_rs(rig: Any) -> Rows:
    query = QueryBuilder().register("t", DeltaTable(rig.spec.table.path))
    found = pa.table(query.execute(f"SELECT {COLUMNS} FROM t")).to_pylist()
    return by_key([tuple(row.values()) for row in found])


def read_by_duckdb(rig: Any, duck: duckdb.DuckDBPyConnection) -> Rows:
    return by_key(duck.execute(f"SELECT {COLUMNS} FROM delta_scan('{rig.spec.table.path}')").fetchall())


def verified(rig: Any, *, deep: bool = True) -> Level:
    verdict = verify_pipeline(rig.spec, rig.spark, deep=deep)
    assert verdict.level is not Level.BROKEN, [finding.message for _, finding in verdict.findings]
    return verdict.level


def clean_up_log(rig: Any) -> None:
    """As Delta does after a month: nothing before the checkpoint is left."""
    table = DeltaTable(rig.spec.table.path)
    table.create_checkpoint()
    for version in range(table.version()):
        (Path(rig.spec.table.path) / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)


class Model:
    """Changes at random, and what they come to."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.rows: Rows = {}

    def changes(self, count: int) -> list[tuple[int, dict[str, Any] | None]]:
        return [self._change() for _ in range(count)]

    def _change(self) -> tuple[int, dict[str, Any] | None]:
        chance, key = self._chance, self._chance.randrange(20)
        if chance.random() < 0.3:
            self.rows.pop(key, None)
            return key, None
        name, day = chance.choice("abc"), chance.randrange(1, 5)
        self.rows[key] = (name, "1.00", day)
        return key, customer(key, name=name, placed_at=f"2026-03-{day:02d}T10:00:00Z")


@pytest.mark.parametrize("vectors", [False, True], ids=["files written again", "deletion vectors"])
def test_rows_that_come_change_move_and_go_are_what_every_reader_sees(
    make_delta_rig: Callable[..., Any], delta_duck: duckdb.DuckDBPyConnection, vectors: bool
) -> None:
    """CHG-12, CHG-14, COMMIT-22, TEST-14: over starts, partitions, others' commits and the clean-up of the log."""
    properties = {"delta.enableDeletionVectors": str(vectors).lower()}
    rig = make_delta_rig(table={"partition": ["day(placed_at)"], "properties": properties})
    model = Model(7)
    for number in (1, 2, 3):
        rig.produce_keyed([*model.changes(30), (None, customer(99, id=None))])
        (epoch,) = rig.epochs(rig.run())
        assert read_by_delta_rs(rig) == read_by_duckdb(rig, delta_duck) == model.rows
        counts = epoch.landed.counts
        assert (counts.delivered, counts.dead, counts.add_up) == (31, 1, True)
        if number == 1:
            rig.sql("INSERT INTO {t} (id, name, amount, placed_at) VALUES (99, 'x', 1, TIMESTAMP'2026-03-01')")
            model.rows[99] = ("x", "1.00", 1)
        if number == 2:
            assert verified(rig) is Level.NOTED, "somebody else has added a row"
            hidden = [pa.record_batch(some) for some in DeltaTable(rig.spec.table.path).deletion_vectors()]
            assert bool(hidden) is vectors
            clean_up_log(rig)
    assert read_by_spark(rig) == model.rows
    assert verified(rig, deep=False) is Level.HOLDS, "as far as the log goes back"
    history = rig.open_table().history("orders")
    assert [(record.epoch, record.action) for record in history] == [(2, "merge"), (2, "start"), (3, "merge")]
    merged = history[-1].merged
    assert (merged.inserted + merged.updated, history[-1].data_files > 0) == (counts.landed, True)
    assert len(rig.dead_offsets()) == 3
    assert list((Path(rig.spec.table.path) / "_frazil").glob("*.parquet")) == []


def event(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after}


def test_debezium_events_and_an_emptied_source(make_delta_rig: Callable[..., Any]) -> None:
    """CHG-10, TEST-14: a row that gets another key is two changes; a truncate leaves what came after it."""
    rig = make_delta_rig(
        decode={"envelope": "debezium", "schema": SCHEMA}, changes={"decimals": "plain", "truncate": "apply"}
    )
    rig.produce_keyed([({"id": n}, event("c", None, customer(n))) for n in range(4)])
    rig.produce_keyed(
        [
            ({"id": 1}, event("u", customer(1), customer(1, name="one"))),
            ({"id": 2}, event("d", customer(2), None)),
            ({"id": 8}, event("u", customer(3), customer(8))),
        ]
    )
    rig.run()
    assert {key: row[0] for key, row in read_by_delta_rs(rig).items()} == {0: "n0", 1: "one", 8: "n8"}
    rig.produce_keyed([({"id": 1}, event("u", None, customer(1, name="void"))), (None, event("t", None, None))])
    rig.produce_keyed([({"id": 9}, event("c", None, customer(9)))])
    rig.run()
    assert read_by_delta_rs(rig).keys() == {9}
    assert verified(rig) is Level.HOLDS
    actions = [record.action for record in rig.open_table().history("orders")]
    assert actions == ["start", "merge", "start", "overwrite"]


def test_a_version_is_the_source_at_its_resolved_time(make_delta_rig: Callable[..., Any]) -> None:
    """EPOCH-02: a change beyond it waits, over a start and the clean-up of the log."""
    rig = make_delta_rig(decode={"envelope": "cockroachdb", "schema": "id BIGINT, name STRING"})

    def change(time: int, key: int, name: str | None) -> tuple[Any, dict[str, Any]]:
        after = None if name is None else {"id": key, "name": name}
        return [key], {"after": after, "updated": f"{time}.0000000000"}

    def mark(time: int) -> tuple[None, bytes]:
        return None, json.dumps({"resolved": f"{time}.0000000000"}).encode()

    def names() -> dict[int, str]:
        found = DeltaTable(rig.spec.table.path).to_pyarrow_table(columns=["id", "name"]).to_pylist()
        return {row["id"]: row["name"] for row in found}

    rig.produce_keyed([change(1, 1, "a"), change(15, 1, "later"), change(2, 2, "b"), mark(10)])
    rig.run()
    assert names() == {1: "a", 2: "b"}
    clean_up_log(rig)
    rig.produce_keyed([change(2, 2, "b"), change(12, 2, None), mark(20)])
    rig.run()
    assert names() == {1: "later"}
    assert rig.open_table().history("orders")[-1].resolved == "20.0000000000"
    assert verified(rig) is Level.HOLDS
