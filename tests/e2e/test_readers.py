"""A landed table is an ordinary Iceberg table: three readers that share no code see the same rows in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pytest
from duckdb_extensions import import_extension
from pyiceberg.catalog.sql import SqlCatalog

from frazil.spark import jvm as jvm_of

pytestmark = pytest.mark.real

COLUMNS = ("id", "name", "amount", "placed_at", "_kafka_partition", "_offset")
DEAD_COLUMNS = ("topic", "partition", "offset")

# The orders each filter means.
FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "placed_at >= '2026-03-02T00:00:00+00:00'": lambda order: order["placed_at"] >= "2026-03-02",
    "placed_at < '2026-03-02T00:00:00+00:00'": lambda order: order["placed_at"] < "2026-03-02",
    "name = 'customer-3'": lambda order: order["name"] == "customer-3",
    "name = 'customer-3' AND placed_at < '2026-03-02T00:00:00+00:00'": (
        lambda order: order["name"] == "customer-3" and order["placed_at"] < "2026-03-02"
    ),
    "name IS NULL": lambda order: order["name"] is None,
    "id > 140 AND id < 160": lambda order: 140 < order["id"] < 160,
    "amount = 7.07": lambda order: order["amount"] == "7.07",
    "name = 'nobody'": lambda order: False,
}


def order(number: int) -> dict[str, Any]:
    """Three days around a change of day, seven customers, and now and then nobody."""
    return {
        "id": number,
        "name": None if number % 50 == 49 else f"customer-{number % 7}",
        "amount": f"{number}.{number % 100:02d}",
        "placed_at": f"2026-03-0{1 + number % 3}T{'00:00:00' if number % 2 else '23:59:59.999999'}Z",
    }


def orders(first: int, count: int) -> list[Any]:
    """Every tenth is followed by a record that is none."""
    return [
        value
        for number in range(first, first + count)
        for value in ([order(number), b"{broken"] if number % 10 == 9 else [order(number)])
    ]


class Readers:
    """The same question to Spark, pyiceberg and DuckDB."""

    def __init__(self, rig: Any, name: str = "shop.orders", columns: tuple[str, ...] = COLUMNS) -> None:
        self._rig, self._name, self._columns = rig, name, columns
        self._duck = duckdb.connect()
        for extension in ("avro", "iceberg"):
            import_extension(extension)
            self._duck.execute(f"LOAD {extension}")
        self._duck.execute("SET TimeZone = 'UTC'")

    @property
    def by_pyiceberg(self) -> Any:
        catalog = self._rig.spec.catalog
        uri = f"sqlite:///{catalog.warehouse}/catalog.db"
        return SqlCatalog(catalog.name, uri=uri, warehouse=catalog.warehouse).load_table(self._name)

    def rows(self, where: str | None = None, snapshot: int | None = None) -> list[tuple[Any, ...]]:
        """What all three say; they must not differ."""
        spark, pyiceberg, duck = self._spark(where, snapshot), self._py(where, snapshot), self._db(where, snapshot)
        assert spark == pyiceberg == duck
        return spark

    def _spark(self, where: str | None, snapshot: int | None) -> list[tuple[Any, ...]]:
        table = f"{self._rig.spec.catalog.name}.{self._name}"
        version = f" VERSION AS OF {snapshot}" if snapshot else ""
        query = (
            f"SELECT {self._selected('unix_micros(placed_at)', '`')} FROM {table}{version} WHERE {where or 'true'}"
        )
        return sorted(map(tuple, self._rig.spark.sql(query).collect()), key=str)

    def _py(self, where: str | None, snapshot: int | None) -> list[tuple[Any, ...]]:
        scan = self.by_pyiceberg.scan(
            row_filter=where or "true", selected_fields=self._columns, snapshot_id=snapshot
        )
        arrow = scan.to_arrow().select(self._columns)
        columns = [arrow[name].cast("int64") if name == "placed_at" else arrow[name] for name in self._columns]
        return sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=str)

    def _db(self, where: str | None, snapshot: int | None) -> list[tuple[Any, ...]]:
        at = f", snapshot_from_id = {snapshot}" if snapshot else ""
        scan = f"iceberg_scan('{self.by_pyiceberg.metadata_location}'{at})"
        columns = self._selected("epoch_us(placed_at)", '"')
        rows = self._duck.execute(f"SELECT {columns} FROM {scan} WHERE {where or 'true'}").fetchall()
        return sorted(rows, key=str)

    def _selected(self, placed_at: str, quote: str) -> str:
        return ", ".join(placed_at if name == "placed_at" else quote + name + quote for name in self._columns)

    def files(self, where: str = "true") -> int:
        """How many files are left to read for a filter, as Spark and pyiceberg both plan it."""
        jvm = jvm_of(self._rig.spark)
        session, name = self._rig.spark._jsparkSession, f"{self._rig.spec.catalog.name}.{self._name}"
        converter = jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
        wanted = converter.convertToIcebergExpression(
            converter.collectResolvedSparkExpression(session, name, where)
        )
        scan = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, name).newScan()
        iterables = jvm.org.apache.iceberg.relocated.com.google.common.collect.Iterables
        planned = iterables.size(scan.filter(wanted).planFiles())
        assert planned == len(list(self.by_pyiceberg.scan(row_filter=where).plan_files())), where
        return planned


@pytest.fixture(scope="module")
def landed_once() -> dict[str, Any]:
    return {}


@pytest.fixture
def landed(landed_once: dict[str, Any], make_rig: Callable[..., Any]) -> Any:
    """Three epochs of orders, partitioned by day and customer, and their dead letters; only for looking at."""
    if not landed_once:
        landed_once["rig"] = land(make_rig, max_records=80)
    return landed_once["rig"]


def land(make_rig: Callable[..., Any], **epoch: Any) -> Any:
    partition = ["day(placed_at)", "bucket(2, name)"]
    rig = make_rig(partitions=2, table={"partition": partition}, epoch=epoch)
    rig.produce(orders(0, 100), partition=0)
    rig.produce(orders(100, 100), partition=1)
    rig.run()
    return rig


def test_three_readers_agree_on_rows_dead_letters_and_filters(landed: Any) -> None:
    """FILE-08, FILE-12, TEST-01: and a filter leaves them fewer files to open, and no row less."""
    readers = Readers(landed)
    every = readers.rows()
    assert sorted(row[0] for row in every) == list(range(200))
    for where, is_meant in FILTERS.items():
        assert {row[0] for row in readers.rows(where)} == {n for n in range(200) if is_meant(order(n))}, where
        assert readers.files(where) < readers.files(), where
    dead = Readers(landed, "shop.orders__dead_letters", DEAD_COLUMNS).rows()
    assert [(row[1], row[2]) for row in dead] == sorted(landed.dead_offsets(), key=str)
    assert len(dead) == 20


def test_each_epoch_can_be_read_as_it_was(landed: Any) -> None:
    """COMMIT-16: time travel; a snapshot holds the rows of its epoch's span and of those before it."""
    readers = Readers(landed)
    there: set[tuple[int, int]] = set()
    history = landed.open_table().history("orders")
    assert len(history) == 4
    for record in history:
        for (_, partition), span in record.span.ranges.items():
            there |= {(partition, offset) for offset in range(span.start, span.end)}
        rows = {(row[4], row[5]) for row in readers.rows(snapshot=record.snapshot_id)}
        assert rows == there - set(landed.dead_offsets())


def test_the_metadata_tables_add_up(landed: Any) -> None:
    """FILE-12, FILE-13"""
    names = ("files", "partitions", "entries", "all_data_files", "manifests", "snapshots", "history", "refs")
    tables = {name: landed.sql(f"SELECT * FROM {{t}}.{name}") for name in names}
    files, snapshots = tables["files"], sorted(tables["snapshots"], key=lambda row: row.committed_at)
    paths = sorted(row.file_path for row in files)

    assert sum(row.record_count for row in files) == 200
    assert {(row.spec_id, row.content, row.file_format, row.sort_order_id) for row in files} == {
        (0, 0, "PARQUET", 0)
    }
    assert sum(row.record_count for row in tables["partitions"]) == 200
    assert sum(row.file_count for row in tables["partitions"]) == len(files)
    assert {row.partition for row in tables["partitions"]} == {row.partition for row in files}
    assert sorted(row.data_file.file_path for row in tables["entries"] if row.status < 2) == paths
    assert sorted({row.file_path for row in tables["all_data_files"]}) == paths
    in_manifests = [row.added_data_files_count + row.existing_data_files_count for row in tables["manifests"]]
    assert sum(in_manifests) == len(files)
    added = [int(row.summary.get("added-records", 0)) for row in snapshots]
    assert added == [record.counts.landed for record in landed.open_table().history("orders")]
    assert (len(added), sum(added)) == (4, 200)
    assert {row.snapshot_id for row in tables["history"] if row.is_current_ancestor} == {
        row.snapshot_id for row in snapshots
    }
    assert [(row.name, row.type, row.snapshot_id) for row in tables["refs"]] == [
        ("main", "BRANCH", snapshots[-1].snapshot_id)
    ]


def test_frazil_and_all_readers_go_on_after_compaction_and_merge(make_rig: Callable[..., Any]) -> None:
    """REC-19, REC-20, LIM-03"""
    rig = land(make_rig, max_records=150)
    readers = Readers(rig)
    before = readers.rows()
    many = readers.files()

    rig.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    assert readers.rows() == before
    assert readers.files() < many

    rig.produce(orders(200, 20))
    rig.run()
    assert sorted(row[0] for row in readers.rows()) == list(range(220))

    rig.sql(
        "MERGE INTO {t} t USING (SELECT id FROM {t} WHERE id % 2 = 0 UNION ALL SELECT -1) s ON t.id = s.id "
        "WHEN MATCHED AND t.id < 10 THEN DELETE WHEN MATCHED THEN UPDATE SET amount = -1 "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    rig.produce(orders(220, 20))
    rig.run()
    amounts = {row[0]: row[2] for row in readers.rows()}
    assert sorted(amounts) == [-1, *(n for n in range(240) if n >= 10 or n % 2)]
    assert {n for n, amount in amounts.items() if amount == -1} == set(range(10, 220, 2))
    assert {row[0] for row in readers.rows("name = 'customer-3'")} == {
        n for n in amounts if n >= 0 and order(n)["name"] == "customer-3"
    }
