"""A small shop whose orders the writer's tests write and read back."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.table.files import WriteTarget, WrittenFile
from frazil.write import FileName, TableWriter


class Shop:
    """The orders table in a folder of its own."""

    schema = Schema(
        NestedField(1, "order_id", LongType(), required=True),
        NestedField(2, "customer", StringType()),
        NestedField(3, "amount", DecimalType(10, 2)),
        NestedField(4, "weight", DoubleType()),
        NestedField(5, "placed_at", TimestamptzType()),
        NestedField(6, "tags", ListType(7, StringType(), element_required=False)),
        NestedField(8, "address", StructType(NestedField(9, "city", StringType()))),
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def target(self, *partition: tuple[int, Transform[Any, Any], str], **settings: Any) -> WriteTarget:
        """The table as a worker sees it, partitioned by (source id, transform, name)."""
        fields = [PartitionField(source, 1000 + n, how, name) for n, (source, how, name) in enumerate(partition)]
        spec = PartitionSpec(*fields, spec_id=1 if partition else 0)
        plain = WriteTarget(
            "shop.orders", f"file:{self.folder}", self.schema.model_dump_json(), spec.model_dump_json()
        )
        return replace(plain, **settings)

    def orders(self, count: int, **columns: Any) -> pa.RecordBatch:
        """Orders 0, 1, 2 …; other columns as given, the rest left out."""
        return pa.record_batch({"order_id": pa.array(range(count), pa.int64()), **columns})

    def moments(self, *values: dt.datetime | None, zone: str = "UTC") -> pa.Array:
        return pa.array(values, pa.timestamp("us", zone))

    def write(self, target: WriteTarget, *batches: pa.RecordBatch, **limits: int) -> list[WrittenFile]:
        writer = self.writer(target, **limits)
        closed = [file for batch in batches for file in writer.write(batch)]
        return closed + writer.close()

    def writer(self, target: WriteTarget, **limits: int) -> TableWriter:
        return TableWriter(target, FileName("orders", epoch=7, task=0, label="0-100"), **limits)

    def parquet(self, file: WrittenFile) -> pq.ParquetFile:
        return pq.ParquetFile("/" + file.path.removeprefix("file:").lstrip("/"))

    def ids(self, files: Iterable[WrittenFile]) -> list[int]:
        return [order for file in files for order in self.parquet(file).read()["order_id"].to_pylist()]

    def files_on_disk(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "data")


MIDDAY_US = 43_200_000_000
YEAR_1_US = -62_135_596_800_000_000
YEAR_9999_END_US = 253_402_300_799_999_999
YEAR_1_DAYS = -719_162
YEAR_9999_END_DAYS = 2_932_896


class Zoo:
    """One column of every type with the extremes of its range; row 1 is null wherever it may be.

    Values are what Iceberg stores: days, micros and nanos as integers, a UUID as its 16 bytes.
    """

    address = StructType(
        NestedField(30, "x", IntegerType()),
        NestedField(31, "y y", StructType(NestedField(32, "z", StringType(), required=True))),
    )
    item = StructType(NestedField(36, "a", IntegerType(), required=True))

    # (field, the three values)
    columns: tuple[tuple[NestedField, list[Any]], ...] = (
        (NestedField(1, "id", LongType(), required=True), [2**63 - 1, 0, -(2**63)]),
        (NestedField(2, "yes", BooleanType()), [True, None, False]),
        (NestedField(3, "number", IntegerType()), [2**31 - 1, None, -(2**31)]),
        (NestedField(4, "single", FloatType()), [1.5, None, -0.0]),
        (NestedField(5, "double", DoubleType()), [1e300, None, float("-inf")]),
        (NestedField(6, "small", DecimalType(9, 2)), [Decimal("9999999.99"), None, Decimal("-9999999.99")]),
        (NestedField(7, "again", DecimalType(9, 2)), [Decimal("0.01"), None, Decimal("-0.01")]),
        (NestedField(8, "medium", DecimalType(18, 4)), [Decimal("9" * 14 + ".9999"), None, Decimal("-1.0000")]),
        (
            NestedField(9, "wide", DecimalType(38, 10)),
            [Decimal("9" * 28 + "." + "9" * 10), None, Decimal("-1.0000000000")],
        ),
        (NestedField(10, "odd", DecimalType(20, 0)), [Decimal("9" * 20), None, Decimal("-" + "9" * 20)]),
        (NestedField(11, "day", DateType()), [YEAR_9999_END_DAYS, None, YEAR_1_DAYS]),
        (NestedField(12, "moment", TimestamptzType()), [YEAR_9999_END_US, None, YEAR_1_US]),
        (NestedField(13, "local", TimestampType()), [YEAR_9999_END_US, None, YEAR_1_US]),
        (NestedField(14, "text", StringType()), ["z" * 40, None, "ä𝄞 \x00"]),
        (NestedField(15, "bytes", BinaryType()), [b"\x00\xff", None, b""]),
        (NestedField(16, "we ird-1", StringType()), ["w", None, ""]),
        (NestedField(17, "straße", StringType()), ["s", None, ""]),
        (NestedField(18, "uuid", UUIDType()), [b"\xff" * 16, None, uuid.UUID(int=1).bytes]),
        (NestedField(19, "fixed", FixedType(5)), [b"12345", None, b"\x00" * 5]),
        (NestedField(20, "list", ListType(21, IntegerType(), element_required=False)), [[1, None, 3], None, []]),
        (
            NestedField(22, "map", MapType(23, StringType(), 24, LongType(), value_required=False)),
            [[("a", 1), ("b", None)], None, []],
        ),
        (
            NestedField(25, "by_number", MapType(26, IntegerType(), 27, StringType(), value_required=True)),
            [[(7, "seven"), (-8, "")], None, []],
        ),
        (NestedField(29, "address", address), [(1, ("q",)), None, (None, None)]),
        (NestedField(34, "items", ListType(35, item, element_required=True)), [[(1,), (2,)], None, []]),
    )
    # Spark reads neither of these.
    rare: tuple[tuple[NestedField, list[Any]], ...] = (
        (NestedField(40, "clock", TimeType()), [86_399_999_999, None, 0]),
        (NestedField(41, "nanos", TimestampNanoType()), [2**63 - 1, None, -1_000_000_000]),
        (NestedField(42, "zoned", TimestamptzNanoType()), [1, None, 0]),
        (
            NestedField(43, "clocks", ListType(44, TimeType(), element_required=False)),
            [[MIDDAY_US, None], None, []],
        ),
        (
            NestedField(45, "ids", MapType(46, UUIDType(), 47, UUIDType(), value_required=False)),
            [[(b"\x01" * 16, b"\x02" * 16)], None, []],
        ),
    )

    def schema(self, *, rare: bool = False) -> Schema:
        return Schema(*[field for field, _ in self.columns + (self.rare if rare else ())])

    def rows(self, arrow: pa.Schema) -> pa.RecordBatch:
        """The three rows as a batch; `arrow` is how the files spell the columns."""
        columns = (self.columns + self.rare)[: len(arrow)]
        arrays = [
            pa.array(values, stored(each.type)).cast(each.type)
            for (_, values), each in zip(columns, arrow, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=[field.name for field, _ in columns])


def stored(kind: pa.DataType) -> pa.DataType:
    """The type of the integers and bytes that a type is stored as."""
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(stored(each.type)) for each in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(stored(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(stored(kind.key_type), kind.item_field.with_type(stored(kind.item_type)))
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) else kind


@pytest.fixture(scope="session")
def zoo() -> Zoo:
    return Zoo()
