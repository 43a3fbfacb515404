"""Keyed tables are ordinary Iceberg tables: other readers see the rows of every epoch, and no row that went."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.services.trino import CATALOG, Trino

if TYPE_CHECKING:
    import duckdb

    from tests.services.rest import RestCatalog

pytestmark = pytest.mark.real

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "by key": {"partition": ["bucket(3, id)"]},
    "by day": {"partition": ["day(placed_at)"]},
    "two columns": {"partition": ["name"], "keys": ["name", "id"], "sort": ["amount desc"]},
    "version 3": {"partition": ["name"], "properties": {"format-version": "3"}},
}
NOT_FOR_DUCKDB: dict[str, dict[str, Any]] = {
    "avro": {"file_format": "avro"},
    "orc": {"file_format": "orc", "partition": ["truncate(5, id)"]},
}
KEYS = 30
CHANGES = 90

Row = tuple[int, str, str, int]


class Shop:
    """A landed table, and what it held after each change."""

    def __init__(self, rig: Any, keys: list[str]) -> None:
        self.rig = rig
        self._keys = keys
        self._log: dict[int, list[tuple[Any, dict[str, Any] | None]]] = {}

    def produce(self, changes: int, seed: int) -> None:
        """Rows that come, change, move and go; the changes of a key are all in one partition."""
        chance = random.Random(seed)
        for partition in (0, 1):
            log = [self._change(chance, 2 * chance.randrange(KEYS // 2) + partition) for _ in range(changes)]
            self._log[partition] = log
            self.rig.produce_keyed(log, partition)

    def _change(self, chance: random.Random, number: int) -> tuple[Any, dict[str, Any] | None]:
        row = {"id": number, "name": chance.choice("abc"), "amount": f"{chance.randrange(-99, 99)}.50"}
        row["placed_at"] = f"2026-03-{chance.randrange(1, 9):02d}T10:00:00Z"
        key = [row[name] for name in self._keys]
        return key, None if chance.random() < 0.3 else row

    def epochs(self) -> Iterator[tuple[int, list[Row]]]:
        """Each snapshot, and what the table must hold in it: what the changes up to its end came to."""
        held: dict[tuple[Any, ...], dict[str, Any]] = {}
        for record in self.rig.open_table().history("orders"):
            for (_, partition), span in record.span.ranges.items():
                for key, row in self._log[partition][span.start : span.end]:
                    held.pop(tuple(key), None)
                    if row is not None:
                        held[tuple(key)] = row
            yield record.snapshot_id, sorted(map(_as_read, held.values()))

    @property
    def table(self) -> str:
        return str(self.rig.spec.table.name)


def _as_read(row: dict[str, Any]) -> Row:
    return row["id"], row["name"], row["amount"], int(row["placed_at"][8:10])


@pytest.fixture(scope="module")
def shops(make_shared_rig: Callable[..., Any], rest_catalog: RestCatalog) -> Callable[[str], Shop]:
    """`shops(layout)` lands several epochs in a table of this layout, once; they are only for looking at."""
    landed: dict[str, Shop] = {}

    def shop(layout: str) -> Shop:
        if layout not in landed:
            name = f"keyed_{layout.replace(' ', '_')}.orders"
            table = {"name": name, "mode": "upsert", "keys": ["id"], **(LAYOUTS | NOT_FOR_DUCKDB)[layout]}
            catalog = {"type": "rest", "uri": rest_catalog.uri, "warehouse": None}
            rig = make_shared_rig(2, table=table, catalog=catalog, epoch={"max_records": CHANGES // 2})
            landed[layout] = Shop(rig, table["keys"])
            landed[layout].produce(CHANGES, seed=len(landed))
            rig.run()
        return landed[layout]

    return shop


def agrees(shop: Shop, read: Callable[[int | None, str], list[Any]]) -> None:
    """A reader sees what each snapshot held, with and without a filter, and counts as many."""
    epochs = list(shop.epochs())
    assert len(epochs) > 4
    for snapshot, rows in epochs:
        assert sorted(map(tuple, read(snapshot, "true"))) == rows
    last = epochs[-1][1]
    assert sorted(map(tuple, read(None, "true"))) == last
    assert sorted(map(tuple, read(None, "id > 11 AND name <> 'a'"))) == [
        row for row in last if row[0] > 11 and row[1] != "a"
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_spark_sees_each_epoch_as_it_was(shops: Callable[[str], Shop], layout: str) -> None:
    """TEST-02, TEST-03, TEST-10, CHG-11"""
    shop = shops(layout)

    def read(snapshot: int | None, where: str) -> list[Any]:
        version = f" VERSION AS OF {snapshot}" if snapshot else ""
        return list(
            shop.rig.sql(
                f"SELECT id, name, CAST(amount AS STRING), day(placed_at) FROM {{t}}{version} WHERE {where}"
            )
        )

    agrees(shop, read)
    assert shop.rig.sql("SELECT count(*) FROM {t}.delete_files WHERE content = 2")[0][0] > 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_duckdb_sees_each_epoch_as_it_was(
    shops: Callable[[str], Shop], duck: duckdb.DuckDBPyConnection, layout: str
) -> None:
    """TEST-02, TEST-03, TEST-10, CHG-11"""
    shop = shops(layout)
    location = shop.rig.open_table().loaded().operations().current().metadataFileLocation()

    def read(snapshot: int | None, where: str) -> list[Any]:
        scan = f"iceberg_scan('{location}'{f', snapshot_from_id => {snapshot}' if snapshot else ''})"
        return duck.execute(
            f"SELECT id, name, amount::VARCHAR, day(placed_at AT TIME ZONE 'UTC') FROM {scan} WHERE {where}"
        ).fetchall()

    agrees(shop, read)


@pytest.mark.big
@pytest.mark.timeout(900)
@pytest.mark.parametrize("layout", LAYOUTS | NOT_FOR_DUCKDB)
def test_trino_sees_each_epoch_as_it_was(shops: Callable[[str], Shop], trino: Trino, layout: str) -> None:
    """TEST-02, TEST-03, TEST-10, CHG-11"""
    shop = shops(layout)

    def read(snapshot: int | None, where: str) -> list[Any]:
        version = f" FOR VERSION AS OF {snapshot}" if snapshot else ""
        return trino.query(
            "SELECT id, name, CAST(amount AS VARCHAR), day(placed_at) "
            f"FROM {CATALOG}.{shop.table}{version} WHERE {where}"
        )

    agrees(shop, read)
