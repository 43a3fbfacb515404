"""Which columns get a bloom filter, and how large it may be."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from frazil.write.nested import leaf_values, plain

# As much as Iceberg's own writer spends by default on one filter.
BLOOM_BYTES_MAX = 2**20

# A value sets one bit in each of the eight words of a block.
_WORDS = 8


def bloom_columns(schema: Schema, wanted: Mapping[str, float]) -> dict[int, float]:
    """The share of false positives by field id."""
    return {schema.find_field(name).field_id: share for name, share in wanted.items()}


def distinct_values(schema: Schema, rows: pa.Table, field_id: int) -> int:
    """How many different values a column has in these rows."""
    batches = plain(rows).to_batches()
    values = [leaf_values(schema.fields, batch.columns, field_id) for batch in batches]
    return int(pc.count_distinct(pa.chunked_array(values)).as_py()) if values else 0


def distinct_values_max(share: float, size_max: int = BLOOM_BYTES_MAX) -> int:
    """For how many distinct values the largest filter still keeps its share of false positives."""
    bits_per_value = -_WORDS / math.log(1 - share ** (1 / _WORDS))
    return max(1, int(size_max * 8 / bits_per_value))
