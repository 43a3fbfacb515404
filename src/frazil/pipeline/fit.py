"""Whether what `[table]` says about columns is true of the columns there are."""

from __future__ import annotations

from pyiceberg.schema import Schema

from frazil.errors import ConfigError
from frazil.pipeline.partition import parse_partition
from frazil.pipeline.sort import parse_sort
from frazil.pipeline.spec import TableSection
from frazil.pipeline.terms import unknown_column

_BLOOM_KEY = "table.bloom_filters"


def require_fit(table: TableSection, schema: Schema) -> None:
    """Refuses a partition field, a sort field or a bloom filter that these columns do not allow."""
    parse_partition(table.partition, schema)
    parse_sort(table.sort, schema)
    for column in table.bloom_filters or []:
        _require_primitive(column, schema)
    if table.bloom_filters and table.file_format == "avro":
        raise ConfigError(f"{_BLOOM_KEY}: avro files have none", "use parquet or orc, or leave the key out")


def _require_primitive(column: str, schema: Schema) -> None:
    try:
        kind = schema.find_type(column)
    except ValueError:
        raise unknown_column(_BLOOM_KEY, column, column, schema) from None
    if not kind.is_primitive:
        raise ConfigError(f"{_BLOOM_KEY}: {column} is {kind}", "name a field inside it, such as address.city")
