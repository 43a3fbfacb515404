"""Tables that changes were committed to read the same everywhere: Spark, DuckDB and a dictionary agree."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from frazil.changes import ChangeTarget
from frazil.commit import Coordinator, EpochOutcome, World
from frazil.errors import ConfigError
from frazil.pipeline.schema import parse_schema
from frazil.pipeline.spec import CatalogSection, TableSection
from frazil.protocol.positions import Frontier, Position, Range, Span
from frazil.protocol.register import Epoch
from frazil.protocol.summary import Counts
from frazil.table.files import WriteTarget, WrittenFile
from frazil.table.iceberg import IcebergCatalog, spark_catalog_conf, with_delete_settings
from frazil.table.wish import TableWish
from frazil.write import ChangeWriter, FileName
from tests.services.trino import CATALOG, Trino

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import SparkSession

    from tests.services.rest import RestCatalog

pytestmark = pytest.mark.real

PARTITION = ("orders", 0)
SECTION = TableSection(name="shop.orders")
REGIONS = ["eu", "us", "asia"]


class Shop:
    """One table, and a coordinator that lands epochs in it."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        schema: str,
        partition: Sequence[str] = (),
        catalog: CatalogSection | None = None,
        name: str = "shop.orders",
    ) -> None:
        section = catalog or CatalogSection(warehouse=str(folder), name=f"c{abs(hash(str(folder))):x}")
        for key, value in spark_catalog_conf(section).items():
            spark.conf.set(key, value)
        self._spark = spark
        self.name = f"{section.name}.{name}"
        self.table: Any = IcebergCatalog(spark, section).open(TableWish(name, parse_schema(schema), partition))
        self._coordinator = Coordinator("pipe", self.table, interval_s=0.0, world=World())
        self._coordinator.start(lambda: Frontier({PARTITION: Position(0)}, {"orders": "topic-id"}))
        self.epoch = 0

    def target(self, **changes: Any) -> WriteTarget:
        return replace(self.table.write_target(SECTION), changes=ChangeTarget(**changes))

    def land(self, target: WriteTarget, *tasks: pa.RecordBatch) -> list[WrittenFile]:
        """One epoch; each batch is written by a task of its own."""
        files = []
        for task, batch in enumerate(tasks):
            writer = ChangeWriter(target, FileName("pipe", self.epoch + 1, task))
            writer.write(batch)
            files += writer.close()
        span = Span({PARTITION: Range(self.epoch, self.epoch + 1)})
        self.epoch += 1
        self._coordinator.commit(EpochOutcome(Epoch(self.epoch), span, Counts(), {self.table.name: files}))
        return files

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._spark.sql(text.format(table=self.name)).collect()]

    def by_duckdb(self, duck: DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
        location = self.table.loaded().operations().current().metadataFileLocation()
        return duck.execute(query.format(table=f"iceberg_scan('{location}')")).fetchall()

    def spec_json(self, number: int) -> str:
        parser = self._spark._jvm.org.apache.iceberg.PartitionSpecParser
        return str(parser.toJson(self.table.loaded().specs().get(number)))


class Feed:
    """A source whose rows come, change, move between regions and go; it knows what it holds."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._order = 0
        self.rows: dict[int, tuple[str, str]] = {}

    def changes(self, count: int) -> list[pa.RecordBatch]:
        """Changes of one epoch in any order, for two tasks that share no key."""
        changes = [self._change() for _ in range(count)]
        self._dice.shuffle(changes)
        return [_batch([each for each in changes if each["id"] % 2 == odd]) for odd in (0, 1)]

    def _change(self) -> dict[str, Any]:
        self._order += 1
        id, region = self._dice.randrange(40), self._dice.choice(REGIONS)
        old = self.rows.pop(id, None)
        op = "I" if old is None else self._dice.choice("UUD")
        row = {"id": id, "region": None, "text": None} if op == "D" else {"id": id, "region": region}
        if op != "D":
            row["text"] = f"{op}{self._order}"
            self.rows[id] = (region, row["text"])
        before = None if old is None else {"region": old[0]}
        return {**row, "_op": op, "_order": self._order, "_before": before}

    @property
    def content(self) -> list[tuple[int, str, str]]:
        return sorted((id, *row) for id, row in self.rows.items())


def _batch(changes: list[dict[str, Any]]) -> pa.RecordBatch:
    text = pa.string()
    kinds = {"id": pa.int64(), "region": text, "text": text, "_op": text, "_order": pa.int64()}
    columns = {name: pa.array([each[name] for each in changes], kind) for name, kind in kinds.items()}
    before = pa.struct([("region", text)])
    return pa.record_batch({**columns, "_before": pa.array([each["_before"] for each in changes], before)})


@pytest.mark.parametrize(
    ("scope", "trusted"), [("unpartitioned", False), ("partition", True), ("before", True), ("global", False)]
)
def test_readers_agree_with_the_source_after_every_epoch(
    spark: SparkSession, duck: DuckDBPyConnection, tmp_path: Path, scope: str, trusted: bool
) -> None:
    """CHG-08, CHG-09, CHG-10, CHG-11, COMMIT-02, COMMIT-15, TEST-01."""
    by = {"partition": ["bucket(3, id)"], "before": ["region", "bucket(2, id)"]}.get(scope, [])
    shop = Shop(spark, tmp_path, "id BIGINT, region STRING, text STRING", by)
    how: dict[str, Any] = {"keys": ("id",), "trust_inserts": trusted}
    if scope == "global":
        shop.sql("ALTER TABLE {table} ADD PARTITION FIELD region")
        how |= {"scope": "global", "delete_spec_json": shop.spec_json(0)}
    elif scope == "before":
        how |= {"scope": "before"}
    feed = Feed(seed=len(scope))
    files = []
    for _ in range(4):
        files += shop.land(shop.target(**how), *feed.changes(30))
        assert sorted(shop.by_duckdb(duck, "SELECT id, region, text FROM {table}")) == feed.content
    assert sorted(shop.sql("SELECT id, region, text FROM {table}")) == feed.content
    assert [file for file in files if file.content == "equality-deletes"]
    operations = shop.sql("SELECT DISTINCT operation FROM {table}.snapshots WHERE operation != 'append'")
    assert operations == [("overwrite",)]


KEYED = "id BIGINT, price DECIMAL(10,2), day DATE, at TIMESTAMP, name STRING, `the blob` BINARY, text STRING"


def test_iceberg_reads_deletes_of_every_format_and_type(spark: SparkSession, tmp_path: Path) -> None:
    """CHG-10, FILE-01, FILE-03: keys of six columns; a null in one of them is a value like any other."""
    shop = Shop(spark, tmp_path, KEYED)

    def changes(op: str, *ids: int) -> pa.RecordBatch:
        at = [dt.datetime(1969, 12, 31, 23, 59, 50 + id, tzinfo=dt.UTC) for id in ids]
        return pa.record_batch(
            {
                "id": ids,
                "price": pa.array([Decimal(f"-{id}.50") for id in ids], pa.decimal128(10, 2)),
                "day": pa.array([dt.date(2026, 3, id + 1) for id in ids]),
                "at": pa.array(at, pa.timestamp("us", "UTC")),
                "name": pa.array([None if id == 3 else f"ä{id}" for id in ids], pa.string()),
                "the blob": pa.array([bytes([id, 255]) for id in ids]),
                "text": [f"{op}{shop.epoch}"] * len(ids),
                "_op": [op] * len(ids),
                "_order": list(ids),
            }
        )

    keys = ("name", "id", "price", "day", "at", "the blob")
    shop.land(shop.target(keys=keys), changes("I", *range(9)))
    for first, file_format in enumerate(["parquet", "orc", "avro"]):
        shop.sql(f"ALTER TABLE {{table}} SET TBLPROPERTIES ('write.delete.format.default' = '{file_format}')")
        target = with_delete_settings(shop.target(keys=keys))
        files = shop.land(target, changes("U", first * 3), changes("D", first * 3 + 1))
        assert {(file.content, file.format) for file in files} == {
            ("data", "parquet"),
            ("equality-deletes", file_format),
        }
    expected = [(0, "U1"), (2, "I0"), (3, "U2"), (5, "I0"), (6, "U3"), (8, "I0")]
    assert sorted(shop.sql("SELECT id, text FROM {table}")) == expected
    footprint = shop.sql("SELECT equality_ids, sum(record_count) FROM {table}.delete_files GROUP BY equality_ids")
    assert [(list(ids), count) for ids, count in footprint] == [([1, 2, 3, 4, 5, 6], 6 + 9)]


LONG, LAST = "x" * 16, "\U0010ffff"
TEXTS = ["", "a", "A", "0", "1.5", "true", "2026-01-01", "a b", "k=v/w", "é", "e\u0301", "\uffff", LAST]
# The same in all characters that bounds have, or nothing above.
LONG_TEXTS = [LONG, LONG + "a", LONG + "b", LONG + LAST, LAST * 16, LAST * 17, "\ud7ff" * 20, LONG * 300]
BYTES = [b"", b"\0", b"\xff", b"\x80", b"abcd", b"abce", b"a" * 17, b"\xff" * 16, b"\xff" * 17, b"ab" * 8 + b"c"]
DAYS = [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date.min, dt.date.max, dt.date(1582, 10, 10)]
MICROSECONDS = [0, 1, -1, 10**15, -(10**15), 1_772_359_200_000_001, 253_402_300_799_999_999]
MOMENTS = [dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=n) for n in MICROSECONDS]
CENTS = [Decimal(n).scaleb(-2) for n in (0, -1, 1, 127, -128, 128, 10**9 - 1)]
HUGE = [Decimal(n) for n in (0, -1, 255, -256, 10**38 - 1, 1 - 10**38, 2**64)]
UUIDS = [uuid.UUID(int=n).bytes for n in (0, 1, 2**127, 2**127 - 1, 2**128 - 1, 2**63, 7**40)]
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "STRING": (pa.string(), TEXTS + LONG_TEXTS),
    "BIGINT": (pa.int64(), [0, -1, 1, -(2**63), 2**63 - 1, 2**31, -(2**31) - 1, 255, -256]),
    "INT": (pa.int32(), [0, -1, 1, -(2**31), 2**31 - 1, 255, -256]),
    "DECIMAL(9,2)": (pa.decimal128(9, 2), CENTS),
    "DECIMAL(38,0)": (pa.decimal128(38, 0), HUGE),
    "DATE": (pa.date32(), DAYS),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), MOMENTS),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), MOMENTS),
    "BINARY": (pa.binary(), BYTES),
    "BOOLEAN": (pa.bool_(), [True, False]),
    "UUID": (pa.binary(16), UUIDS),
}


def _land_keys(shop: Shop, kind: str, *, in_paths: bool) -> list[int]:
    """Lands a row of each key, deletes most of them, and tells which are left."""
    arrow, values = KEYS[kind]
    rows = list(enumerate(v for v in values if not (in_paths and v in LONG_TEXTS)))
    random.Random(kind).shuffle(rows)
    middle, target = len(rows) // 2, shop.target(keys=("k",))
    shop.land(target, *(_of_keys("I", some, arrow) for some in (rows[:middle], rows[middle:])))
    shop.land(target, *(_of_keys("D", [row], arrow) for row in rows[:2]), _of_keys("D", rows[2::2], arrow))
    return sorted(n for n, _ in rows[3::2])


def _of_keys(op: str, rows: list[tuple[int, Any]], kind: pa.DataType) -> pa.RecordBatch:
    numbers = pa.array([n for n, _ in rows], pa.int64())
    keys = pa.array([key for _, key in rows], kind)
    return pa.record_batch({"k": keys, "n": numbers, "_op": [op] * len(rows), "_order": numbers})


@pytest.mark.parametrize("partition", [[], ["k"]], ids=["plain", "by key"])
def test_deletes_find_keys_of_every_type(
    spark: SparkSession, duck: DuckDBPyConnection, tmp_path: Path, partition: list[str]
) -> None:
    """CHG-08, FILE-05: readers leave out delete files by their bounds, and hold the keys of many rows at once."""
    shops, left = {}, {}
    for number, kind in enumerate(KEYS):
        shop = shops[kind] = Shop(spark, tmp_path / str(number), f"k {kind}, n BIGINT", partition)
        left[kind] = _land_keys(shop, kind, in_paths=bool(partition))
        assert sorted(n for (n,) in shop.by_duckdb(duck, "SELECT n FROM {table}")) == left[kind], kind
    every = " UNION ALL ".join(f"SELECT '{kind}', n FROM {shop.name}" for kind, shop in shops.items())
    found = [tuple(row) for row in spark.sql(every).collect()]
    assert {kind: sorted(n for of, n in found if of == kind) for kind in KEYS} == left


def test_a_table_whose_key_spark_could_not_delete_by_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """CHG-08: whatever the pipeline calls the type, it is the table's own that readers go by."""
    section = CatalogSection(warehouse=str(tmp_path), name=f"c{abs(hash(str(tmp_path))):x}")
    catalog = IcebergCatalog(spark, section)
    catalog.open(TableWish("shop.codes", parse_schema("k FIXED(4) NOT NULL, n BIGINT")))
    with pytest.raises(ConfigError, match=r"k is fixed\[4\]"):
        catalog.open(TableWish("shop.codes", parse_schema("k BINARY NOT NULL, n BIGINT"), keys=("k",)))


def test_a_table_of_a_format_without_deletes_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """CHG-08: before anything is written for it, not by every commit."""
    section = CatalogSection(warehouse=str(tmp_path), name=f"c{abs(hash(str(tmp_path))):x}")
    catalog = IcebergCatalog(spark, section)
    for key, value in spark_catalog_conf(section).items():
        spark.conf.set(key, value)
    spark.sql(f"CREATE NAMESPACE {section.name}.shop")
    spark.sql(
        f"CREATE TABLE {section.name}.shop.old (k BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '1')"
    )
    old = TableWish("shop.old", parse_schema("k BIGINT"), keys=("k",))
    with pytest.raises(ConfigError, match="format version 1"):
        catalog.open(old)
    spark.sql(f"ALTER TABLE {section.name}.shop.old SET TBLPROPERTIES ('format-version' = '2')")
    catalog.open(old)


@pytest.mark.big
@pytest.mark.timeout(900)
@pytest.mark.parametrize("partition", [[], ["k"]], ids=["plain", "by key"])
def test_deletes_find_keys_of_every_type_in_trino(
    spark: SparkSession, trino: Trino, rest_catalog: RestCatalog, tmp_path: Path, partition: list[str]
) -> None:
    """CHG-08, TEST-10"""
    catalog = CatalogSection(type="rest", uri=rest_catalog.uri, name=f"c{abs(hash(str(tmp_path))):x}")
    found, left = {}, {}
    for number, kind in enumerate(KEYS):
        name = f"keys.{'by_key' if partition else 'plain'}_{number}"
        shop = Shop(spark, tmp_path, f"k {kind}, n BIGINT", partition, catalog, name)
        left[kind] = _land_keys(shop, kind, in_paths=bool(partition))
        found[kind] = sorted(n for (n,) in trino.query(f"SELECT n FROM {CATALOG}.{name}"))
    assert found == left
