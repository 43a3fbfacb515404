"""Tables without a key: the row is its own, and the table is a bag of rows, as a counter has it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from frazil.engine.events import EpochWritten, Event, Retrying
from frazil.engine.verify import verify_pipeline
from frazil.protocol.verify import Level

pytestmark = pytest.mark.real

WHOLE = {"mode": "upsert", "keys": ["*"]}
SCHEMA = "id BIGINT, name STRING, amount DECIMAL(10,2), placed_at TIMESTAMP"
ZSET = {"envelope": "op-column", "schema": SCHEMA, "metadata": False}
DEBEZIUM = {"envelope": "debezium", "schema": SCHEMA, "metadata": False}
FORMATS = {"version 2": {}, "version 3": {"properties": {"format-version": "3"}}}

Key = tuple[Any, ...]


def row(number: int | None, name: str | None = "a", day: int = 1) -> dict[str, Any]:
    return {"id": number, "name": name, "amount": "1.00", "placed_at": f"2026-03-{day:02d}T10:00:00Z"}


def key(row: dict[str, Any]) -> Key:
    return row["id"], row["name"], row["amount"], row["placed_at"][8:10]


def held(rig: Any) -> Counter[Key]:
    query = "SELECT id, name, CAST(amount AS STRING), date_format(placed_at, 'dd') FROM {t}"
    return Counter(tuple(found) for found in rig.sql(query))


def holds(rig: Any) -> None:
    verdict = verify_pipeline(rig.spec, rig.spark, deep=True)
    assert verdict.level is Level.HOLDS, [finding.message for _, finding in verdict.findings]


class Bag:
    """A source without keys; it knows what it holds."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.rows: list[dict[str, Any]] = []

    @property
    def content(self) -> Counter[Key]:
        return Counter(map(key, self.rows))

    def _new(self) -> dict[str, Any]:
        number = self._chance.choice([None, *range(6)])
        return row(number, self._chance.choice(["a", "b", None]), self._chance.randrange(1, 4))

    def come(self) -> dict[str, Any]:
        self.rows.append(self._new())
        return self.rows[-1]

    def go(self) -> dict[str, Any]:
        return self.rows.pop(self._chance.randrange(len(self.rows)))

    def weights(self, count: int) -> list[tuple[None, dict[str, Any]]]:
        """What happens, as a Z-set: two rows come for each one that goes, often within the same epoch."""
        goes = [len(self.rows) > 2 and self._chance.random() < 0.4 for _ in range(count)]
        return [
            (None, {"__op": -1, **self.go()} if gone and self.rows else {"__op": 1, **self.come()}) for gone in goes
        ]

    def events(self, count: int) -> list[tuple[None, dict[str, Any]]]:
        """The same as Debezium tells it of a table under REPLICA IDENTITY FULL."""
        events = []
        for _ in range(count):
            kind = self._chance.choice("ccud") if len(self.rows) > 2 else "c"
            before = None if kind == "c" else self.go()
            after = None if kind == "d" else self.come()
            events.append((None, {"op": kind, "before": before, "after": after}))
        return events


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("feed", ["zset", "debezium"])
def test_a_table_without_a_key_holds_the_bag_of_its_source(
    make_rig: Callable[..., Any], feed: str, version: str
) -> None:
    """LIM-04, CHG-07: equal rows, nulls, rows that come and go within one epoch, in every epoch and partition."""
    table = {**WHOLE, **FORMATS[version], "partition": ["day(placed_at)", "name"] if feed == "zset" else []}
    decode, changes = (ZSET, {}) if feed == "zset" else (DEBEZIUM, {"decimals": "plain"})
    rig = make_rig(table=table, decode=decode, changes=changes)
    bag = Bag(seed=7)
    for _ in range(4):
        rig.produce_keyed(bag.weights(40) if feed == "zset" else bag.events(40))
        rig.run()
        assert held(rig) == bag.content
    holds(rig)
    formats = {found[0] for found in rig.sql("SELECT DISTINCT file_format FROM {t}.delete_files")}
    assert formats == ({"PUFFIN"} if version == "version 3" else {"PARQUET"})
