"""A Parquet file has what Java's writer puts in: page index, checksums, bloom filters, the table's schema."""

from __future__ import annotations

import json
import os

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, UUIDType

from frazil.errors import ConfigError
from frazil.pipeline.schema import parse_schema
from frazil.table.files import WriteTarget
from frazil.write import FileName, TableWriter

MIB = 1024 * 1024


def chunks(shop, file, group=0):
    row_group = shop.parquet(file).metadata.row_group(group)
    columns = [row_group.column(position) for position in range(row_group.num_columns)]
    return {column.path_in_schema: column for column in columns}


def test_every_column_has_a_page_index(shop):
    """FILE-02"""
    (file,) = shop.write(shop.target(), shop.orders(1000, tags=pa.array([["a"]] * 1000)))
    assert all(chunk.has_column_index and chunk.has_offset_index for chunk in chunks(shop, file).values())


def test_a_flipped_bit_in_a_page_is_noticed(shop):
    """FILE-02"""
    (file,) = shop.write(shop.target(compression="none", dictionary=False), shop.orders(1000))
    (path,) = shop.files_on_disk()
    damaged = bytearray(path.read_bytes())
    damaged[chunks(shop, file)["order_id"].data_page_offset + 500] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(OSError, match=r"(?i)checksum|crc"):
        pq.read_table(path, page_checksum_verification=True)


def test_the_footer_carries_the_tables_schema(shop):
    target = shop.target()
    (file,) = shop.write(target, shop.orders(1))
    footer = shop.parquet(file).metadata.metadata
    assert json.loads(footer[b"iceberg.schema"]) == json.loads(target.schema_json)
    assert b"ARROW:schema" not in footer


def test_only_the_chosen_columns_get_a_bloom_filter(shop):
    """FILE-02"""
    wanted = {"customer": 0.01, "tags.element": 0.05, "address.city": 0.01}
    batch = shop.orders(
        3,
        customer=pa.array(["a", "b", None]),
        tags=pa.array([["x", "y"], None, []]),
        address=pa.array([{"city": "Ulm"}, None, {"city": None}]),
    )
    (file,) = shop.write(shop.target(bloom_filters=wanted), batch)
    filtered = {path for path, chunk in chunks(shop, file).items() if chunk.bloom_filter_length}
    assert filtered == {"customer", "tags.list.element", "address.city"}


def test_a_bloom_filter_is_as_large_as_its_values_need_and_never_over_a_mebibyte(shop):
    """FILE-02"""
    rows = 60_000
    customers = pa.array([os.urandom(8).hex() for _ in range(rows)])
    few = shop.orders(rows, customer=pa.array(["new", "paid", "sent"] * (rows // 3)))
    many = shop.orders(rows, customer=customers)
    sizes = []
    for batch, share in ((few, 0.01), (many, 0.01), (many, 1e-9)):
        (file,) = shop.write(shop.target(bloom_filters={"customer": share}), batch)
        sizes.append(chunks(shop, file)["customer"].bloom_filter_length)
    assert sizes[0] < 100
    assert rows < sizes[1] < 3 * rows
    assert sizes[1] < sizes[2] <= MIB + 100


def test_another_engine_finds_and_uses_the_bloom_filter(shop):
    """FILE-02"""
    customers = pa.array([f"{n * 2:06d}" for n in range(1000)])
    shop.write(shop.target(bloom_filters={"customer": 0.01}), shop.orders(1000, customer=customers))
    (path,) = shop.files_on_disk()

    def excludes(customer):
        probe = f"FROM parquet_bloom_probe('{path}', 'customer', '{customer}')"
        return [row[0] for row in duckdb.sql(f"SELECT bloom_filter_excludes {probe}").fetchall()] == [True]

    assert not any(excludes(f"{n * 2:06d}") for n in range(0, 1000, 50))
    assert sum(excludes(f"{n * 2 + 1:06d}") for n in range(0, 1000, 50)) >= 16


def test_a_level_that_the_codec_lacks_is_refused_before_a_file_is_opened(shop):
    """FILE-03"""
    with pytest.raises(ConfigError, match=r"table\.compression_level"):
        shop.writer(shop.target(compression="gzip", compression_level=12))
    assert shop.files_on_disk() == []


def test_a_higher_level_makes_a_smaller_file(shop):
    """FILE-03"""
    batch = shop.orders(20_000, customer=pa.array([f"{n:x}" * 3 for n in range(20_000)]))
    low, high = (
        shop.write(shop.target(compression="zstd", compression_level=level, dictionary=False), batch)[0]
        for level in (1, 19)
    )
    assert high.file_size_bytes < low.file_size_bytes


def ids(*values):
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))


def test_unique_values_of_any_type_go_without_a_dictionary(shop):
    """FILE-02"""
    shop.schema = Schema(NestedField(1, "id", UUIDType()))
    (file,) = shop.write(shop.target(), pa.record_batch({"id": ids(*[os.urandom(16) for _ in range(500)])}))
    assert not chunks(shop, file)["id"].has_dictionary_page


def test_uuids_have_counts_but_nothing_that_readers_would_order_them_by(shop):
    """FILE-12"""
    shop.schema = Schema(NestedField(1, "id", UUIDType()), NestedField(2, "number", LongType()))
    batch = pa.record_batch({"id": ids(b"\xff" * 16, b"\x00" * 16, None), "number": [1, 2, 3]})
    (file,) = shop.write(shop.target(row_group_rows=2), batch)
    found = chunks(shop, file)
    assert found["number"].is_stats_set
    assert not found["id"].is_stats_set
    assert not found["id"].has_column_index
    assert (file.value_counts, file.null_value_counts) == ({1: 3, 2: 3}, {1: 1, 2: 0})
    assert set(file.lower_bounds) == set(file.upper_bounds) == {2}


def test_fields_inside_of_columns_keep_names_that_are_no_plain_words(tmp_path):
    """Columns themselves are renamed as Java does it; readers find both by their ids."""
    schema = parse_schema("`user-agent` STRING, st STRUCT<`user-agent`: STRING, l: ARRAY<STRUCT<`a b`: INT>>>")
    target = WriteTarget("shop.t", f"file:{tmp_path}", schema.model_dump_json(), PartitionSpec().model_dump_json())
    writer = TableWriter(target, FileName("w", 1, 0))
    row = {"user-agent": "x", "st": {"user-agent": "y", "l": [{"a b": 1}]}}
    writer.write(pa.RecordBatch.from_pylist([row], schema=schema_to_pyarrow(schema, include_field_ids=False)))
    (file,) = writer.close()
    read = pq.read_table(file.path.removeprefix("file:")).to_pylist()
    assert read == [{"user_x2Dagent": "x", "st": row["st"]}]
