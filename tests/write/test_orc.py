"""ORC data files: what goes in comes out, and what Arrow would get wrong is refused."""

from __future__ import annotations

import gc
import os
import resource
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.orc
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UnknownType,
)

from frazil.errors import SchemaMismatch, StorageUnavailable

MIB = 1024 * 1024


def random_text(rows: int, width: int) -> pa.Array:
    return pa.array([os.urandom(width // 2).hex() for _ in range(rows)])


def orc_file(shop, path=None) -> pa.orc.ORCFile:
    return pa.orc.ORCFile(path or shop.files_on_disk()[0])


def test_every_type_comes_back_as_it_went_in(shop, zoo):
    """FILE-01, DEC-02; Arrow reads ORC's timestamps as nanoseconds, which end in 2262: Java reads those"""
    late = {"moment", "local", "nanos", "zoned"}
    columns = [(field, values) for field, values in zoo.columns + zoo.rare if field.name not in late]
    batch = zoo.rows(schema_to_pyarrow(zoo.schema(rare=True))).drop_columns(sorted(late))
    shop.schema = Schema(*[field for field, _ in columns])
    shop.write(shop.target(file_format="orc"), batch)
    back = orc_file(shop).read()
    for field, values in columns:
        column = back[field.name]
        column = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
        assert [plain(value) for value in column.to_pylist()] == values, field.name


def plain(value):
    if isinstance(value, dict):
        return tuple(plain(each) for each in value.values())
    return [plain(each) for each in value] if isinstance(value, list) else value


def test_every_column_carries_its_field_id_as_an_attribute(shop):
    """DEC-05"""
    shop.write(shop.target(file_format="orc"), shop.orders(3))
    schema = orc_file(shop).schema
    ids = {each.name: each.metadata[b"iceberg.id"] for each in schema}
    assert ids["order_id"] == b"1"
    assert ids["address"] == b"8"
    assert schema.field("order_id").metadata[b"iceberg.required"] == b"true"
    assert schema.field("tags").type.value_field.metadata[b"iceberg.id"] == b"7"
    assert schema.field("address").type.field(0).metadata[b"iceberg.id"] == b"9"


@pytest.mark.parametrize(
    ("codec", "named"),
    [("zstd", "ZSTD"), ("gzip", "ZLIB"), ("snappy", "SNAPPY"), ("lz4", "LZ4"), ("none", "UNCOMPRESSED")],
)
def test_each_codec_is_the_one_in_the_file(shop, codec, named):
    """FILE-03"""
    shop.write(shop.target(file_format="orc", compression=codec), shop.orders(1000))
    assert orc_file(shop).compression == named
    assert orc_file(shop).read()["order_id"].to_pylist() == list(range(1000))


def test_a_row_group_becomes_a_stripe(shop):
    """FILE-02"""
    target = shop.target(file_format="orc", row_group_rows=20_000)
    (file,) = shop.write(target, *[shop.orders(15_000, customer=random_text(15_000, 20)) for _ in range(4)])
    stripes = orc_file(shop)
    assert [stripes.read_stripe(n).num_rows for n in range(stripes.nstripes)] == [20_000] * 3
    assert len(file.split_offsets) == 3
    assert file.split_offsets[0] == 3


def test_few_rows_are_one_stripe_whose_place_is_known(shop):
    (file,) = shop.write(shop.target(file_format="orc", row_group_rows=10), shop.orders(25))
    assert orc_file(shop).nstripes == 1
    assert file.split_offsets == (3,)


def test_full_files_are_within_a_tenth_of_the_target_size(shop):
    """FILE-04"""
    batches = [shop.orders(4000, customer=random_text(4000, 200)) for _ in range(20)]
    files = shop.write(shop.target(file_format="orc", target_file_size_bytes=MIB), *batches)
    assert len(files) > 3
    assert all(0.9 * MIB <= file.file_size_bytes <= 1.1 * MIB for file in files[:-1])
    assert {file.format for file in files} == {"orc"}
    back = [orc_file(shop, path).read() for path in sorted(shop.files_on_disk())]
    assert sum(table.num_rows for table in back) == 80_000


@contextmanager
def files_no_larger_than(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_is_an_error_and_not_the_end_of_the_process(shop):
    """ORC's writer ends the process when it sees an error of its sink."""
    batches = [shop.orders(2000, customer=random_text(2000, 200)) for _ in range(20)]
    with files_no_larger_than(1_000_000), pytest.raises(StorageUnavailable, match="cannot write"):
        shop.write(shop.target(file_format="orc", row_group_rows=2000), *batches)
    gc.collect()
    assert shop.files_on_disk() == []


def test_an_aborted_writer_leaves_nothing_behind(shop):
    writer = shop.writer(shop.target(file_format="orc", row_group_rows=1000))
    writer.write(shop.orders(4000, customer=random_text(4000, 200)))
    assert shop.files_on_disk()
    writer.abort()
    del writer
    gc.collect()
    assert shop.files_on_disk() == []


REQUIRED = StructType(NestedField(11, "a", LongType(), required=True))


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        (REQUIRED, [{"a": None}], [None, {"a": 1}]),
        (ListType(12, LongType(), element_required=True), [[1, None]], [None, [], [1]]),
        (ListType(12, REQUIRED, element_required=False), [[{"a": None}]], [[None, {"a": 1}], None]),
        (MapType(12, StringType(), 13, LongType(), value_required=True), [[("k", None)]], [None, [("k", 1)]]),
    ],
)
def test_a_null_in_a_required_nested_field_is_refused(shop, kind, wrong, right):
    shop.schema = Schema(NestedField(10, "value", kind))
    arrow = loose(schema_to_pyarrow(shop.schema).field("value").type)
    target = shop.target(file_format="orc")
    with pytest.raises(SchemaMismatch, match=r"required|null"):
        shop.write(target, pa.record_batch({"value": pa.array(wrong, arrow)}))
    (file,) = shop.write(target, pa.record_batch({"value": pa.array(right, arrow)}))
    assert file.record_count == len(right)


def loose(kind):
    """The same type with every field optional, as a query's result has it."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, loose(each.type)) for each in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(loose(kind.value_type))
    return pa.map_(kind.key_type, loose(kind.item_type)) if pa.types.is_map(kind) else kind


@pytest.mark.parametrize("nested", [False, True])
def test_a_fraction_of_a_second_before_1970_is_refused(shop, nested):
    """Arrow writes it in a way that Iceberg reads a second too early."""
    kind = TimestamptzType()
    shop.schema = Schema(NestedField(1, "at", ListType(2, kind, element_required=False) if nested else kind))
    target = shop.target(file_format="orc")

    def moments(*micros):
        values = pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))
        return pa.record_batch({"at": pa.ListArray.from_arrays([0, len(values)], values) if nested else values})

    with pytest.raises(SchemaMismatch, match="before 1970") as error:
        shop.write(target, moments(5, -1_500_000))
    assert "parquet" in error.value.remedy
    (file,) = shop.write(target, moments(-2_000_000, -86_400_000_000, 1, None))
    assert file.record_count == (1 if nested else 4)


def test_a_type_that_orc_cannot_hold_is_named(shop):
    shop.schema = Schema(NestedField(1, "nothing", UnknownType()))
    with pytest.raises(SchemaMismatch, match="column nothing is of type unknown"):
        shop.writer(shop.target(file_format="orc"))


def test_metrics_are_those_of_the_rows(shop):
    """FILE-12"""
    batch = shop.orders(3, customer=pa.array(["b", None, "a"]), weight=pa.array([float("nan"), 2.5, None]))
    (file,) = shop.write(shop.target(file_format="orc", row_group_rows=2), batch)
    assert set(file.value_counts.values()) == {3}
    assert (file.null_value_counts[2], file.nan_value_counts) == (1, {4: 1})
    assert (file.lower_bounds[2], file.upper_bounds[2]) == (b"a".hex(), b"b".hex())
    assert file.column_sizes == {}


def test_a_bloom_filter_makes_the_file_larger_by_its_size(shop):
    """FILE-02"""
    batch = shop.orders(20_000, customer=random_text(20_000, 20))
    without, with_one = (
        shop.write(shop.target(file_format="orc", bloom_filters=wanted), batch)[0].file_size_bytes
        for wanted in ({}, {"customer": 0.01})
    )
    assert 20_000 <= with_one - without <= 60_000
