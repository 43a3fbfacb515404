"""Whether what `[table]` says about columns is true of the columns there are."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType

from frazil.errors import ConfigError
from frazil.pipeline.codecs import check_codec
from frazil.pipeline.keys import keyed
from frazil.pipeline.partition import parse_partition
from frazil.pipeline.sort import parse_sort
from frazil.pipeline.spec import TableSection
from frazil.pipeline.terms import unknown_column

_BLOOM_KEY = "table.bloom_filters"


def require_fit(table: TableSection, schema: Schema) -> None:
    """Refuses a key, a partition field, a sort field, a bloom filter or a codec that cannot be."""
    if table.compression or table.compression_level is not None:
        check_codec(table.file_format or "parquet", table.compression or "zstd", table.compression_level)
    if table.mode == "upsert" and table.keys:
        keyed(schema, table.keys)
    parse_partition(table.partition, schema)
    parse_sort(table.sort, schema)
    for column in table.bloom_filters or []:
        _require_bloom_filter(column, schema)
    if table.bloom_filters and table.file_format == "avro":
        raise ConfigError(f"{_BLOOM_KEY}: avro files have none", "use parquet or orc, or leave the key out")


def can_have_bloom_filter(column: str, schema: Schema) -> bool:
    """Whether the column is there, is no nested one, and has more than two values."""
    if column not in schema.column_names:
        return False
    kind = schema.find_type(column)
    return kind.is_primitive and not isinstance(kind, BooleanType)


def _require_bloom_filter(column: str, schema: Schema) -> None:
    if column not in schema.column_names:
        raise unknown_column(_BLOOM_KEY, column, column, schema)
    if not can_have_bloom_filter(column, schema):
        raise ConfigError(
            f"{_BLOOM_KEY}: {column} is {schema.find_type(column)}, which cannot have a bloom filter",
            "name a column of numbers, text, bytes or times; inside a struct or a list with a dot, address.city",
        )
