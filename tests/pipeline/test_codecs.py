"""A codec or level that a format does not have is refused before anything runs."""

from __future__ import annotations

import pytest

from frazil.errors import ConfigError
from frazil.pipeline.codecs import check_codec, codec_name


@pytest.mark.parametrize(
    ("file_format", "compression", "level"),
    [
        ("parquet", "zstd", 22),
        ("parquet", "gzip", 9),
        ("parquet", "lz4", 12),
        ("parquet", "snappy", None),
        ("parquet", "uncompressed", None),
        ("parquet", "ZSTD", None),
        ("orc", "gzip", None),
        ("orc", "none", None),
        ("avro", "gzip", 1),
        ("avro", "zstd", 1),
    ],
)
def test_what_a_format_can_do_is_accepted(file_format, compression, level):
    """FILE-03"""
    check_codec(file_format, compression, level)


@pytest.mark.parametrize(
    ("file_format", "compression", "level", "named"),
    [
        ("parquet", "brotli", None, "table.compression = 'brotli'"),
        ("parquet", "zstd", 23, "levels 1 to 22"),
        ("parquet", "zstd", 0, "levels 1 to 22"),
        ("parquet", "gzip", 12, "levels 1 to 9"),
        ("parquet", "snappy", 1, "snappy in parquet files has no levels"),
        ("parquet", "none", 1, "table.compression_level"),
        ("orc", "zstd", 3, "zstd in orc files has no levels"),
        ("avro", "lz4", None, "avro files have no such codec"),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_key_and_a_way_out(file_format, compression, level, named):
    """FILE-03"""
    with pytest.raises(ConfigError, match=named) as error:
        check_codec(file_format, compression, level)
    assert error.value.remedy


def test_uncompressed_and_none_are_one_codec():
    assert codec_name("uncompressed") == codec_name("none") == "none"
