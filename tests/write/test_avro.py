"""Avro data files: what goes in comes out, in the form that Iceberg's readers expect."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.file import AvroFile
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UnknownType,
)

from frazil.errors import SchemaMismatch
from frazil.write.avro.rows import encode_rows
from frazil.write.avro.schema import avro_schema


def records(path: Path) -> list[Any]:
    """As pyiceberg's own Avro reader has them."""
    with AvroFile(PyArrowFileIO().new_input(str(path))) as reader:
        return list(reader)


def header(path: Path) -> dict[str, str]:
    with AvroFile(PyArrowFileIO().new_input(str(path))) as reader:
        return dict(reader.header.meta)


def encoded(kind, values, *, required=False):
    """The bytes of each row of a table with one column."""
    field = NestedField(1, "value", kind, required=required)
    (column,) = schema_to_pyarrow(Schema(field))
    batch = pa.RecordBatch.from_arrays([pa.array(values, column.type)], schema=pa.schema([column]))
    return encode_rows([field], batch).to_pylist()


def zigzag(number: int) -> bytes:
    """The textbook form, one byte at a time."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest & ~0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_whole_numbers_are_zigzag_varints_behind_their_branch(numbers):
    """FILE-01"""
    assert encoded(LongType(), numbers) == [b"\x00" if n is None else b"\x02" + zigzag(n) for n in numbers]


@given(st.lists(st.floats(), min_size=1))
def test_a_double_is_its_eight_bytes(numbers):
    """FILE-01"""
    assert encoded(DoubleType(), numbers, required=True) == [struct.pack("<d", number) for number in numbers]


@given(st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]))), min_size=1))
def test_text_is_its_length_and_its_bytes(texts):
    """FILE-01"""
    expected = [b"\x00" if t is None else b"\x02" + zigzag(len(t.encode())) + t.encode() for t in texts]
    assert encoded(StringType(), texts) == expected


@given(st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-9, 9)))), min_size=1))
def test_a_list_is_a_counted_block_and_an_empty_one_a_zero(lists):
    """FILE-01"""

    def spelled(items):
        inside = b"".join(b"\x00" if item is None else b"\x02" + zigzag(item) for item in items)
        return zigzag(len(items)) + inside + b"\x00" if items else b"\x00"

    kind = ListType(2, IntegerType(), element_required=False)
    assert encoded(kind, lists) == [b"\x00" if each is None else b"\x02" + spelled(each) for each in lists]


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.integers(-9, 9))), min_size=1))
def test_a_map_is_a_counted_block_of_keys_and_values(maps):
    """FILE-01"""

    def spelled(pairs):
        values = [b"\x00" if value is None else b"\x02" + zigzag(value) for value in pairs.values()]
        inside = b"".join(b"\x02" + key.encode() + value for key, value in zip(pairs, values, strict=True))
        return zigzag(len(pairs)) + inside + b"\x00" if pairs else b"\x00"

    kind = MapType(2, StringType(), 3, IntegerType(), value_required=False)
    assert encoded(kind, [list(each.items()) for each in maps], required=True) == [spelled(each) for each in maps]


@given(st.lists(st.integers(-(10**20) + 1, 10**20 - 1), min_size=1))
def test_a_decimal_is_its_unscaled_number_in_as_few_bytes_as_the_precision_needs(numbers):
    """FILE-01"""
    from decimal import Context

    scaled = [Context(prec=38).create_decimal(number).scaleb(-4, Context(prec=38)) for number in numbers]
    expected = [number.to_bytes(9, "big", signed=True) for number in numbers]
    assert encoded(DecimalType(20, 4), scaled, required=True) == expected


def test_a_slice_of_a_batch_is_encoded_alone(zoo):
    """What stands before and behind the slice in memory is not written."""
    schema = zoo.schema(rare=True)
    batch = zoo.rows(schema_to_pyarrow(schema))
    whole = encode_rows(schema.fields, batch).to_pylist()
    sliced = [encode_rows(schema.fields, batch.slice(row, 1)).to_pylist() for row in range(3)]
    assert [row for rows in sliced for row in rows] == whole


def test_every_type_comes_back_as_it_went_in(shop, zoo):
    """FILE-01, DEC-02; Java reads the rest: pyiceberg rounds doubles, and knows no maps or types by their name"""
    skipped = {"again", "by_number", "double", "map"}
    columns = [(field, values) for field, values in zoo.columns if field.name not in skipped]
    shop.schema = Schema(*[field for field, _ in columns])
    batch = zoo.rows(schema_to_pyarrow(zoo.schema())).drop_columns(sorted(skipped))
    shop.write(shop.target(file_format="avro"), batch)
    back = records(shop.files_on_disk()[0])
    assert len(back) == 3
    for position, (field, values) in enumerate(columns):
        assert [plain(record[position], field.field_type) for record in back] == values, field.name


def plain(value, kind):
    """pyiceberg has records for structs and objects for UUIDs."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return tuple(plain(value[n], each.field_type) for n, each in enumerate(kind.fields))
    if isinstance(kind, ListType):
        return [plain(each, kind.element_type) for each in value]
    return value.bytes if hasattr(value, "bytes") else value


@pytest.mark.parametrize("codec", ["gzip", "zstd", "none"])
def test_each_codec_is_the_one_in_the_header(shop, codec):
    """FILE-03"""
    shop.write(shop.target(file_format="avro", compression=codec), shop.orders(20_000))
    (path,) = shop.files_on_disk()
    assert header(path)["avro.codec"] == {"gzip": "deflate", "zstd": "zstandard", "none": "null"}[codec]
    assert [record[0] for record in records(path)] == list(range(20_000))


def test_the_header_carries_the_tables_schema_and_its_field_ids(shop):
    """DEC-05"""
    target = shop.target(file_format="avro")
    shop.write(target, shop.orders(1))
    meta = header(shop.files_on_disk()[0])
    assert json.loads(meta["iceberg.schema"]) == json.loads(target.schema_json)
    fields = json.loads(meta["avro.schema"])["fields"]
    assert [field["field-id"] for field in fields] == [1, 2, 3, 4, 5, 6, 8]


def test_rows_come_in_blocks_of_about_64_kilobytes(shop):
    rows = 50_000
    shop.write(shop.target(file_format="avro", compression="none"), shop.orders(rows))
    data = shop.files_on_disk()[0].read_bytes()
    blocks = data.count(data[-16:]) - 1
    assert len(data) / 70_000 <= blocks <= len(data) / 30_000


def test_avro_files_roll_at_the_target_size(shop):
    """FILE-04"""
    import os

    batches = [
        shop.orders(4000, customer=pa.array([os.urandom(100).hex() for _ in range(4000)])) for _ in range(10)
    ]
    files = shop.write(shop.target(file_format="avro", target_file_size_bytes=2**20), *batches)
    assert len(files) > 3
    assert all(0.9 * 2**20 <= file.file_size_bytes <= 1.1 * 2**20 for file in files[:-1])
    assert sum(file.record_count for file in files) == 40_000
    assert {file.format for file in files} == {"avro"}


def test_metrics_are_those_of_the_rows(shop):
    """FILE-12"""
    batch = shop.orders(3, customer=pa.array(["b", None, "a"]), weight=pa.array([float("nan"), 2.5, None]))
    (file,) = shop.write(shop.target(file_format="avro"), batch)
    assert (file.value_counts[2], file.null_value_counts[2]) == (3, 1)
    assert (file.nan_value_counts, file.null_value_counts[4]) == ({4: 1}, 1)
    assert (file.lower_bounds[2], file.upper_bounds[2]) == (b"a".hex(), b"b".hex())
    assert file.lower_bounds[4] == struct.pack("<d", 2.5).hex()
    assert file.column_sizes == {}


def test_a_null_in_a_required_nested_field_is_refused(shop, zoo):
    shop.schema = Schema(NestedField(34, "items", ListType(35, zoo.item, element_required=True)))
    kind = pa.list_(pa.struct([("a", pa.int32())]))
    for wrong in ([{"a": None}], [None]):
        with pytest.raises(SchemaMismatch, match=r"required|has nulls"):
            shop.write(shop.target(file_format="avro"), pa.record_batch({"items": pa.array([wrong], kind)}))
    shop.write(shop.target(file_format="avro"), pa.record_batch({"items": pa.array([None, [], [{"a": 1}]], kind)}))


def test_a_type_that_avro_cannot_hold_is_named():
    with pytest.raises(SchemaMismatch, match="column nothing is of type unknown"):
        avro_schema(Schema(NestedField(1, "nothing", UnknownType())))
