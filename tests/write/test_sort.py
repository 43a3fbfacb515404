"""Rows come out in the table's sort order, also when they do not fit into memory."""

from __future__ import annotations

import datetime as dt
import os
import struct
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.errors import InvalidState, StorageUnavailable
from frazil.table.files import WriteTarget, WrittenFile
from frazil.write import FileName, TableWriter
from frazil.write.sort import Ordering, Sorter, SortKey
from tests.write.conftest import Shop
from tests.write.test_files import files_no_larger_than

MIB = 1024 * 1024
NAN, INFINITY = float("nan"), float("inf")
NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0000))[0]
FLOATS_IN_ORDER = [NEGATIVE_NAN, -INFINITY, -1.5, -0.0, 0.0, 1e-300, 2.5, INFINITY, NAN]

# A type, and values of it in ascending order.
KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), [-5, 0, 7]),
    (pa.int64(), [-(2**62), -1, 0, 2**62]),
    (pa.float64(), FLOATS_IN_ORDER),
    (pa.float32(), [-INFINITY, -2.5, -0.0, 0.0, 1.5, NAN]),
    (pa.bool_(), [False, True]),
    (pa.large_string(), ["", "Z", "a", "ab", "ä", "\uffee", "😀"]),
    (pa.large_binary(), [b"", b"\x00", b"a", b"\x7f", b"\x80", b"\xff"]),
    (pa.binary(2), [b"\x00a", b"a\x00", b"\x80a", b"\xff\xff"]),
    (pa.uuid(), [bytes(16), b"\x7f" * 16, b"\x80" * 16, b"\xff" * 16]),
    (pa.decimal128(10, 2), [Decimal("-10.00"), Decimal("-0.01"), Decimal("0.00"), Decimal("2.50")]),
    (pa.date32(), [dt.date(1900, 1, 1), dt.date(1970, 1, 1), dt.date(2026, 1, 1)]),
    (pa.timestamp("us", "UTC"), [dt.datetime(y, 1, 1, tzinfo=dt.UTC) for y in (1900, 1970, 2026)]),
]


@dataclass(frozen=True)
class Case:
    """Columns as positions in their kind's list of values; None is a null."""

    kinds: list[int]
    rows: list[tuple[int | None, ...]]
    ways: list[tuple[bool, bool]]
    """per column, whether descending and whether nulls come first"""
    batch_rows: int
    max_bytes: int
    fan_in: int

    def batches(self) -> list[pa.RecordBatch]:
        columns = [
            pa.array([None if row[n] is None else KINDS[kind][1][row[n]] for row in self.rows], KINDS[kind][0])
            for n, kind in enumerate(self.kinds)
        ]
        arrival = pa.array(range(len(self.rows)), pa.int64())
        whole = pa.RecordBatch.from_arrays([*columns, arrival], names=[*map(str, self.kinds_at()), "arrival"])
        return [whole.slice(start, self.batch_rows) for start in range(0, max(1, len(self.rows)), self.batch_rows)]

    def kinds_at(self) -> range:
        return range(len(self.kinds))

    def ordering(self) -> Ordering:
        return Ordering(
            [
                SortKey(lambda rows, n=n: rows.column(n), descending=descending, nulls_first=nulls_first)
                for n, (descending, nulls_first) in enumerate(self.ways)
            ]
        )

    def expected(self) -> list[int]:
        """Sorted the plain way: by the last key first, each sort being stable."""
        order = list(range(len(self.rows)))
        for n in reversed(self.kinds_at()):
            descending, nulls_first = self.ways[n]
            nulls = [row for row in order if self.rows[row][n] is None]
            values = [row for row in order if self.rows[row][n] is not None]
            values.sort(key=lambda row: self.rows[row][n], reverse=descending)
            order = nulls + values if nulls_first else values + nulls
        return order


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kinds = draw(st.lists(st.integers(0, len(KINDS) - 1), min_size=1, max_size=3))
    row = st.tuples(*[st.none() | st.integers(0, len(KINDS[kind][1]) - 1) for kind in kinds])
    return Case(
        kinds,
        draw(st.lists(row, max_size=200)),
        draw(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=len(kinds), max_size=len(kinds))),
        batch_rows=draw(st.integers(1, 40)),
        max_bytes=draw(st.sampled_from([1, 100, 1_000, 10_000, MIB])),
        fan_in=draw(st.integers(2, 70)),
    )


def sorted_by(case: Case) -> list[int]:
    batches = case.batches()
    sorter = Sorter(batches[0].schema, case.ordering(), case.max_bytes, fan_in=case.fan_in)
    for batch in batches:
        sorter.add(batch)
    return [arrival for rows in sorter.rows() for arrival in rows.column("arrival").to_pylist()]


@settings(max_examples=300, deadline=None)
@given(cases())
def test_whatever_the_rows_keys_and_memory_the_order_is_that_of_a_plain_stable_sort(case: Case) -> None:
    """FILE-11"""
    assert sorted_by(case) == case.expected()


@pytest.mark.parametrize("pattern", ["disjoint", "interleaved", "all equal", "backwards"])
def test_runs_of_every_shape_are_merged_in_several_passes(pattern: str) -> None:
    """FILE-11: more runs than are merged at a time"""
    shapes = {
        "disjoint": lambda n: n // 10,
        "interleaved": lambda n: n % 10,
        "all equal": lambda _: 1,
        "backwards": lambda n: 99 - n // 10,
    }
    numbers = [shapes[pattern](n) for n in range(1_000)]
    whole = pa.record_batch({"number": pa.array(numbers), "arrival": pa.array(range(1_000))})
    ordering = Ordering([SortKey(lambda rows: rows.column("number"))])
    sorter = Sorter(whole.schema, ordering, max_bytes=100, fan_in=4)
    for start in range(0, 1_000, 10):
        sorter.add(whole.slice(start, 10))
    arrivals = [arrival for rows in sorter.rows() for arrival in rows.column("arrival").to_pylist()]
    assert arrivals == sorted(range(1_000), key=lambda n: numbers[n])


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where spilled rows go, all by themselves."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/does/not/exist,{folder}")
    return folder


def spilled(folder: Path) -> int:
    """How many files of this folder the process holds open; they have no name any more."""
    descriptors = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    links = [os.readlink(each) for each in descriptors if os.path.lexists(each)]
    assert list(folder.iterdir()) == []
    return sum(link.startswith(str(folder)) for link in links)


def by(*fields: tuple[int, Transform[Any, Any], SortDirection, NullOrder], order_id: int = 3) -> str:
    return SortOrder(*[SortField(*field) for field in fields], order_id=order_id).model_dump_json()


ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST
BY_CUSTOMER = by((2, IdentityTransform(), DESC, LAST), (1, IdentityTransform(), ASC, FIRST))


def customers_of(shop: Shop, file: WrittenFile) -> list[str | None]:
    return shop.parquet(file).read()["customer"].to_pylist()


def test_a_file_obeys_the_tables_sort_order_and_records_it(shop):
    """FILE-11"""
    first = shop.orders(4, customer=pa.array(["b", None, "c", "a"]))
    second = shop.orders(3, customer=pa.array(["c", "a", None]))
    (file,) = shop.write(shop.target(sort_order_json=BY_CUSTOMER), first, second)
    assert customers_of(shop, file) == ["c", "c", "b", "a", "a", None, None]
    assert shop.ids([file]) == [0, 2, 0, 1, 3, 1, 2]
    assert file.sort_order_id == 3


def test_the_files_of_a_table_without_an_order_record_none(shop):
    """FILE-11"""
    (file,) = shop.write(shop.target(), shop.orders(2))
    assert file.sort_order_id == 0


def test_an_order_with_an_unknown_transform_is_neither_kept_nor_claimed(shop):
    """FILE-11"""
    order = '{"order-id": 4, "fields": [{"source-id": 1, "transform": "zorder", "direction": "desc"}]}'
    (file,) = shop.write(shop.target(sort_order_json=order), shop.orders(3))
    assert shop.ids([file]) == [0, 1, 2]
    assert file.sort_order_id == 0


def test_a_field_of_a_struct_and_a_transform_can_be_sorted_by(shop):
    """FILE-11: as after WRITE ORDERED BY bucket(4, order_id), address.city"""
    order = by((1, BucketTransform(4), ASC, FIRST), (9, IdentityTransform(), ASC, LAST))
    cities = [None if n % 7 == 0 else {"city": None if n % 5 == 0 else f"city {n % 3}"} for n in range(100)]
    (file,) = shop.write(shop.target(sort_order_json=order), shop.orders(100, address=pa.array(cities)))
    bucket = BucketTransform(4).transform(LongType())
    rows = shop.parquet(file).read().select(["order_id", "address"]).to_pylist()
    keys = [
        (bucket(row["order_id"]), (city := (row["address"] or {}).get("city")) is None, city or "") for row in rows
    ]
    assert keys == sorted(keys)
    assert len({key[0] for key in keys}) == 4


def test_rows_that_share_a_truncated_key_keep_the_order_they_came_in(shop):
    """FILE-11"""
    order = by((2, TruncateTransform(1), ASC, FIRST))
    batch = shop.orders(5, customer=pa.array(["b2", "a9", "b1", "a1", None]))
    (file,) = shop.write(shop.target(sort_order_json=order), batch)
    assert customers_of(shop, file) == [None, "a9", "a1", "b2", "b1"]


PRIMITIVES = [
    (BooleanType(), [False, True]),
    (IntegerType(), [-1, 0, 1]),
    (LongType(), [-(2**40), 0, 2**40]),
    (FloatType(), [-INFINITY, -0.5, -0.0, 0.0, INFINITY, NAN]),
    (DoubleType(), FLOATS_IN_ORDER),
    (DecimalType(38, 3), [Decimal("-1.000"), Decimal("0.001"), Decimal("1" + "0" * 30)]),
    (DateType(), [dt.date(1969, 12, 31), dt.date(1970, 1, 1)]),
    (TimeType(), [dt.time(0, 0, 1), dt.time(23, 59)]),
    (TimestampType(), [dt.datetime(1969, 12, 31), dt.datetime(2026, 1, 1)]),
    (TimestamptzType(), [dt.datetime(1969, 12, 31, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
    (TimestampNanoType(), [-1, 0, 1]),
    (StringType(), ["A", "a", "é", "\uffee", "😀"]),
    (UUIDType(), [uuid.UUID(int=0), uuid.UUID(int=2**127 - 1), uuid.UUID(int=2**127)]),
    (FixedType(3), [b"\x00\x00\x01", b"\x7f\x00\x00", b"\x80\x00\x00"]),
    (BinaryType(), [b"", b"\x7f", b"\x80\x00"]),
]


@pytest.mark.parametrize(("kind", "values"), PRIMITIVES, ids=[str(kind) for kind, _ in PRIMITIVES])
@pytest.mark.parametrize("max_waiting_bytes", [1, MIB])
def test_every_primitive_type_can_be_sorted_by(tmp_path, kind, values, max_waiting_bytes):
    """FILE-11"""
    schema = Schema(NestedField(1, "place", IntegerType()), NestedField(2, "value", kind))
    order = by((2, IdentityTransform(), DESC, FIRST))
    target = WriteTarget(
        "t", f"file:{tmp_path}", schema.model_dump_json(), PartitionSpec().model_dump_json(), sort_order_json=order
    )
    writer = TableWriter(target, FileName("w", 1, 0), max_waiting_bytes=max_waiting_bytes)
    held = schema_to_pyarrow(schema).field("value").type
    stored = [value.bytes if isinstance(value, uuid.UUID) else value for value in [*values, None]]
    for place, value in enumerate(stored):
        writer.write(pa.record_batch({"place": pa.array([place], pa.int32()), "value": pa.array([value], held)}))
    (file,) = writer.close()
    places = pq.read_table(file.path.removeprefix("file:"))["place"].to_pylist()
    assert places == [len(values), *reversed(range(len(values)))]


def test_each_of_several_rolled_files_is_sorted_and_they_follow_each_other(shop, scratch):
    """FILE-04 and FILE-11"""
    order = by((2, IdentityTransform(), ASC, FIRST))
    batches = [
        shop.orders(2_000, customer=pa.array([os.urandom(100).hex() for _ in range(2_000)])) for _ in range(20)
    ]
    target = shop.target(sort_order_json=order, target_file_size_bytes=MIB)
    files = shop.write(target, *batches, max_waiting_bytes=MIB)
    assert len(files) > 3
    names = [name for file in files for name in customers_of(shop, file)]
    assert names == sorted(name for batch in batches for name in batch["customer"].to_pylist())
    assert all(0.9 * MIB < file.file_size_bytes < 1.1 * MIB for file in files[:-1])
    assert spilled(scratch) == 0


def test_rows_that_fit_into_memory_touch_no_disk(shop, scratch):
    writer = shop.writer(shop.target(sort_order_json=BY_CUSTOMER))
    writer.write(shop.orders(1_000))
    assert spilled(scratch) == 0
    writer.close()


@pytest.mark.parametrize("ending", ["close", "abort"])
def test_spilled_rows_leave_the_disk_with_the_writer(shop, scratch, ending):
    writer = shop.writer(shop.target(sort_order_json=BY_CUSTOMER), max_waiting_bytes=1_000)
    for _ in range(5):
        writer.write(shop.orders(1_000))
    assert spilled(scratch) == 5
    getattr(writer, ending)()
    assert spilled(scratch) == 0
    with pytest.raises(InvalidState, match="new TableWriter"):
        writer.write(shop.orders(1))


def test_a_full_disk_under_the_spilled_rows_names_the_folder(shop, scratch):
    writer = shop.writer(shop.target(sort_order_json=BY_CUSTOMER), max_waiting_bytes=10_000)
    noise = pa.array([os.urandom(100).hex() for _ in range(10_000)])
    with files_no_larger_than(100_000), pytest.raises(StorageUnavailable, match=str(scratch)):
        writer.write(shop.orders(10_000, customer=noise))
    assert spilled(scratch) == 0
    assert shop.files_on_disk() == []
    with pytest.raises(InvalidState, match="aborted"):
        writer.write(shop.orders(1))


def test_a_disk_that_fills_up_while_merging_leaves_nothing_behind(shop, scratch):
    noise = [pa.array([os.urandom(100).hex() for _ in range(1_000)]) for _ in range(20)]
    target = shop.target(sort_order_json=BY_CUSTOMER, row_group_rows=1_000, target_file_size_bytes=MIB)
    writer = shop.writer(target, max_waiting_bytes=300_000)
    for each in noise:
        writer.write(shop.orders(1_000, customer=each))
    assert spilled(scratch)
    with files_no_larger_than(900_000), pytest.raises(StorageUnavailable, match="cannot write"):
        writer.close()
    assert spilled(scratch) == 0
    assert shop.files_on_disk() == []


def test_a_sort_column_of_nulls_only_keeps_the_order_rows_came_in(shop):
    batches = [shop.orders(100, customer=pa.nulls(100, pa.string())) for _ in range(3)]
    order = by((2, IdentityTransform(), DESC, LAST))
    (file,) = shop.write(shop.target(sort_order_json=order), *batches, max_waiting_bytes=1_000)
    assert shop.ids([file]) == [*range(100)] * 3


def test_a_row_wider_than_the_memory_bound_is_sorted_as_well(shop):
    wide = [letter * 100_000 for letter in "cab"]
    (file,) = shop.write(
        shop.target(sort_order_json=by((2, IdentityTransform(), ASC, FIRST))),
        *[shop.orders(1, customer=pa.array([text])) for text in wide],
        shop.orders(0, customer=pa.array([], pa.string())),
        max_waiting_bytes=1_000,
    )
    assert customers_of(shop, file) == sorted(wide)


def test_a_sorted_writer_without_rows_makes_no_file(shop):
    assert shop.write(shop.target(sort_order_json=BY_CUSTOMER), shop.orders(0)) == []
    assert shop.files_on_disk() == []
