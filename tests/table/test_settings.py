"""How files look: the pipeline file first, then the table's properties, then the default."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import ConfigError
from frazil.pipeline.schema import parse_schema
from frazil.pipeline.spec import TableSection
from frazil.table.files import MIB, DeleteSettings, WriteTarget
from frazil.table.iceberg.settings import (
    data_location,
    new_table_properties,
    with_delete_settings,
    with_settings,
)

SCHEMA = parse_schema("order_id BIGINT, customer STRING, paid BOOLEAN, a INT, b INT").model_dump_json()


def wish(**keys: Any) -> TableSection:
    return TableSection(name="shop.orders", **keys)


def settled(section: TableSection, **properties: str) -> WriteTarget:
    """What workers are told; properties are given as write__target_file_size_bytes=…"""
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
    return with_settings(WriteTarget("shop.orders", "file:/data", SCHEMA, "{}", properties=named), section)


def test_the_defaults_are_safe_ones() -> None:
    """CFG-17, CFG-18, CFG-20."""
    target = settled(wish())
    assert (target.file_format, target.compression, target.compression_level) == ("parquet", "zstd", None)
    assert (target.target_file_size_bytes, target.page_size_bytes) == (128 * MIB, MIB)
    assert (target.distribution, dict(target.bloom_filters)) == ("auto", {})


@pytest.mark.parametrize(
    ("properties", "field", "value"),
    [
        ({"write__target_file_size_bytes": "1048576"}, "target_file_size_bytes", MIB),
        ({"write__format__default": "ORC"}, "file_format", "orc"),
        ({"write__parquet__compression_codec": "gzip"}, "compression", "gzip"),
        ({"write__parquet__compression_codec": "UNCOMPRESSED"}, "compression", "none"),
        ({"write__parquet__compression_level": "9"}, "compression_level", 9),
        ({"write__format__default": "orc", "write__orc__compression_codec": "zlib"}, "compression", "gzip"),
        ({"write__format__default": "avro", "write__avro__compression_codec": "snappy"}, "compression", "snappy"),
        ({"write__parquet__page_size_bytes": "65536"}, "page_size_bytes", 65536),
        ({"write__parquet__row_group_size_bytes": "1048576"}, "row_group_bytes", MIB),
        ({"write__parquet__row_group_size_bytes": "1073741824"}, "row_group_bytes", 64 * MIB),
        ({"write__distribution_mode": "none"}, "distribution", "none"),
        ({"write__distribution_mode": "hash"}, "distribution", "hash"),
        ({"write__distribution_mode": "range"}, "distribution", "hash"),
    ],
)
def test_a_tables_own_properties_are_honoured(properties: dict[str, str], field: str, value: object) -> None:
    assert getattr(settled(wish(), **properties), field) == value


def of_deletes(section: TableSection, **properties: str) -> DeleteSettings:
    deletes = with_delete_settings(settled(section, **properties)).deletes
    assert deletes is not None
    return deletes


def test_delete_files_look_like_data_files_unless_the_table_says_otherwise() -> None:
    """FILE-01, FILE-03, FILE-04."""
    same = of_deletes(wish(file_format="orc", compression="gzip"))
    assert (same.file_format, same.compression, same.target_file_size_bytes) == ("orc", "gzip", 64 * MIB)
    assert of_deletes(wish(target_file_size=MIB)).target_file_size_bytes == MIB
    own = of_deletes(
        wish(compression="gzip", target_file_size=MIB),
        write__delete__parquet__compression_codec="snappy",
        write__delete__target_file_size_bytes="4096",
        write__delete__parquet__page_size_bytes="8192",
        write__delete__parquet__page_row_limit="7",
        write__parquet__page_row_limit="9",
    )
    assert (own.compression, own.target_file_size_bytes, own.page_size_bytes) == ("snappy", 4096, 8192)
    assert own.properties["write.parquet.page-row-limit"] == "7"
    other = of_deletes(wish(compression="lz4"), write__delete__format__default="AVRO")
    assert (other.file_format, other.compression) == ("avro", "zstd"), "avro files know no lz4"


def test_a_property_of_delete_files_that_makes_no_sense_is_named() -> None:
    for key, value in [
        ("write__delete__format__default", "csv"),
        ("write__delete__parquet__compression_codec", "rar"),
        ("write__delete__target_file_size_bytes", "-1"),
        ("write__delete__parquet__page_row_limit", "many"),
    ]:
        with pytest.raises(ConfigError, match=key.replace("__", ".").replace("_", "-")):
            of_deletes(wish(), **{key: value})
        assert settled(wish(), **{key: value}), "where nothing is deleted it does not matter"


def test_the_pipeline_file_goes_before_the_tables_properties() -> None:
    target = settled(
        wish(
            file_format="parquet",
            target_file_size=MIB,
            compression="snappy",
            page_size=4096,
            distribution="none",
            bloom_filters=["customer"],
        ),
        write__format__default="orc",
        write__target_file_size_bytes="7",
        write__parquet__compression_codec="gzip",
        write__parquet__compression_level="9",
        write__parquet__page_size_bytes="7",
        write__distribution_mode="hash",
        **{"write.parquet.bloom-filter-enabled.column.order_id": "true"},
    )
    assert (target.file_format, target.target_file_size_bytes, target.page_size_bytes) == ("parquet", MIB, 4096)
    assert (target.compression, target.compression_level) == ("snappy", None)
    assert (target.distribution, dict(target.bloom_filters)) == ("none", {"customer": 0.01})


def test_bloom_filters_come_from_the_properties_of_the_files_format() -> None:
    """FILE-02: columns that cannot have one, or are gone by now, are passed over."""
    parquet = with_settings(
        WriteTarget(
            "shop.orders",
            "file:/data",
            SCHEMA,
            "{}",
            properties={
                "write.parquet.bloom-filter-enabled.column.order_id": "true",
                "write.parquet.bloom-filter-fpp.column.order_id": "0.05",
                "write.parquet.bloom-filter-enabled.column.customer": "false",
                "write.parquet.bloom-filter-enabled.column.paid": "true",
                "write.parquet.bloom-filter-enabled.column.gone": "true",
                "write.orc.bloom.filter.columns": "a, gone, b",
                "write.orc.bloom.filter.fpp": "0.2",
            },
        ),
        wish(),
    )
    assert dict(parquet.bloom_filters) == {"order_id": 0.05}
    orc = with_settings(parquet, wish(file_format="orc"))
    assert dict(orc.bloom_filters) == {"a": 0.2, "b": 0.2}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("write.target-file-size-bytes", "-5", "larger than zero"),
        ("write.target-file-size-bytes", "128MB", "a whole number"),
        ("write.format.default", "csv", "allowed are parquet, orc, avro"),
        ("write.distribution-mode", "some", "allowed are none, hash, range"),
        ("write.location-provider.impl", "com.example.Mine", "write.data.path"),
        ("write.parquet.compression-codec", "brotli", "frazil can write zstd, snappy, lz4, gzip, none"),
        ("write.orc.compression-strategy", "foo", "allowed are speed, compression"),
        ("write.metadata.metrics.max-inferred-column-defaults", "abc", "a whole number"),
        ("write.folder-storage.path", "s3://old", "set write.data.path instead"),
        ("write.object-storage.path", "s3://old", "set write.data.path instead"),
    ],
)
def test_a_property_that_makes_no_sense_is_named(key: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_settings(WriteTarget("shop.orders", "file:/d", SCHEMA, "{}", properties={key: value}), wish())
    assert f"shop.orders has the property {key} = {value!r}" in str(refused.value)
    assert expected in str(refused.value)


def test_a_property_that_the_pipeline_file_overrides_may_make_no_sense() -> None:
    overridden = wish(distribution="none", file_format="parquet", target_file_size=MIB, compression="zstd")
    target = settled(
        overridden,
        write__distribution_mode="foo",
        write__format__default="csv",
        write__target_file_size_bytes="x",
        write__parquet__compression_codec="brotli",
    )
    assert (target.distribution, target.file_format) == ("none", "parquet")


def test_a_level_that_the_tables_codec_does_not_have_is_ignored_as_iceberg_does() -> None:
    target = settled(wish(), write__parquet__compression_codec="snappy", write__parquet__compression_level="3")
    assert (target.compression, target.compression_level) == ("snappy", None)


def test_bloom_filters_are_refused_where_the_tables_files_have_none() -> None:
    with pytest.raises(ConfigError, match=r"table\.bloom_filters: shop\.orders has avro files"):
        settled(wish(bloom_filters=["customer"]), write__format__default="avro")


def test_what_the_pipeline_file_says_of_files_becomes_a_new_tables_properties() -> None:
    """So that compaction and other writers keep to it."""
    said = new_table_properties(
        wish(compression="none", bloom_filters=["order_id"], properties={"write.data.path": "s3://lake/data"})
    )
    assert said == {
        "write.parquet.compression-codec": "uncompressed",
        "write.parquet.bloom-filter-enabled.column.order_id": "true",
        "write.data.path": "s3://lake/data",
    }
    assert new_table_properties(wish(file_format="orc", compression="gzip", bloom_filters=["a", "b"])) == {
        "write.format.default": "orc",
        "write.orc.compression-codec": "zlib",
        "write.orc.bloom.filter.columns": "a,b",
    }
    assert new_table_properties(wish()) == {}


@pytest.mark.parametrize(
    ("properties", "folder"),
    [
        ({}, "s3://lake/orders/data"),
        ({"write.data.path": "s3://fast/"}, "s3://fast"),
    ],
)
def test_data_files_go_where_the_table_says(properties: dict[str, str], folder: str) -> None:
    assert data_location("s3://lake/orders", properties) == folder
