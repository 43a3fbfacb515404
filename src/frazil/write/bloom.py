"""Which columns get a bloom filter, and how large it may be."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, PrimitiveType

from frazil.errors import ConfigError
from frazil.write.nested import leaf_values, plain

# As much as Iceberg's own writer spends by default on one filter.
BLOOM_BYTES_MAX = 2**20

# A value sets one bit in each of the eight words of a block.
_WORDS = 8


def bloom_columns(schema: Schema, wanted: Mapping[str, float], wishes: Mapping[str, float]) -> dict[int, float]:
    """The share of false positives by field id.

    A column that the pipeline wants and that cannot have a filter is refused. One that the table's properties
    wish for is passed over, as Iceberg's own writer does: it may have been dropped or renamed since.
    """
    possible = {name: share for name, share in wishes.items() if _is_possible(schema, name) and 0 < share < 1}
    by_table = {schema.find_field(name).field_id: share for name, share in possible.items()}
    return by_table | {_field_id(schema, name): _share(name, share) for name, share in wanted.items()}


def parquet_wishes(properties: Mapping[str, str]) -> dict[str, float]:
    """What the table's `write.parquet.bloom-filter-*` properties ask for."""
    enabled = "write.parquet.bloom-filter-enabled.column."
    names = [
        key.removeprefix(enabled) for key, value in properties.items() if key.startswith(enabled) and _true(value)
    ]
    return {name: float(properties.get(f"write.parquet.bloom-filter-fpp.column.{name}", "0.01")) for name in names}


def orc_wishes(properties: Mapping[str, str]) -> dict[str, float]:
    """What the table's `write.orc.bloom.filter.*` properties ask for."""
    names = properties.get("write.orc.bloom.filter.columns", "").split(",")
    share = float(properties.get("write.orc.bloom.filter.fpp", "0.05"))
    return {name.strip(): share for name in names if name.strip()}


def _true(value: str) -> bool:
    return value.strip().lower() == "true"


def distinct_values(schema: Schema, rows: pa.Table, field_id: int) -> int:
    """How many different values a column has in these rows."""
    batches = plain(rows).to_batches()
    values = [leaf_values(schema.fields, batch.columns, field_id) for batch in batches]
    return int(pc.count_distinct(pa.chunked_array(values)).as_py()) if values else 0


def distinct_values_max(share: float) -> int:
    """For how many distinct values the largest filter still keeps its share of false positives."""
    bits_per_value = -_WORDS / math.log(1 - share ** (1 / _WORDS))
    return max(1, int(BLOOM_BYTES_MAX * 8 / bits_per_value))


def _field_id(schema: Schema, name: str) -> int:
    if name not in schema.column_names:
        raise ConfigError(
            f"table.bloom_filters names {name!r}, which is not a column of the table",
            f"its columns are {', '.join(schema.column_names)}",
        )
    field = schema.find_field(name)
    if not _is_possible(schema, name):
        raise ConfigError(
            f"table.bloom_filters names {name!r}, and a {field.field_type} cannot have a bloom filter",
            "name a column of numbers, text, bytes or times; inside a struct or a list with a dot, address.city",
        )
    return field.field_id


def _is_possible(schema: Schema, name: str) -> bool:
    if name not in schema.column_names:
        return False
    kind = schema.find_field(name).field_type
    return isinstance(kind, PrimitiveType) and not isinstance(kind, BooleanType)


def _share(name: str, share: float) -> float:
    if 0 < share < 1:
        return share
    raise ConfigError(
        f"table.bloom_filters gives {name!r} the share {share} of false positives",
        "give a number between 0 and 1, such as 0.01",
    )
