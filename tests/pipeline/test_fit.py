"""What `[table]` says about columns, held against the columns there are."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import ConfigError
from frazil.pipeline.fit import require_fit
from frazil.pipeline.schema import parse_schema
from frazil.pipeline.spec import TableSection

SCHEMA = parse_schema(
    "order_id BIGINT, placed_at TIMESTAMP, address STRUCT<city: STRING>, tags ARRAY<STRING>, paid BOOLEAN"
)


def table(**keys: Any) -> TableSection:
    return TableSection(name="shop.orders", **keys)


def test_columns_that_are_there_fit() -> None:
    require_fit(
        table(partition=["day(placed_at)"], sort=["order_id desc"], bloom_filters=["order_id", "address.city"]),
        SCHEMA,
    )


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"partition": ["hour(order_id)"]}, "table.partition: 'hour(order_id)': hour cannot be applied"),
        ({"sort": ["placed_on"]}, "table.sort: 'placed_on': there is no column"),
        ({"bloom_filters": ["orderid"]}, "did you mean order_id?"),
        ({"bloom_filters": ["address"]}, "table.bloom_filters: address is struct"),
        ({"bloom_filters": ["paid"]}, "table.bloom_filters: paid is boolean, which cannot have a bloom filter"),
        ({"compression": "lz4", "file_format": "avro"}, "table.compression = 'lz4': avro files have no such codec"),
        ({"compression_level": 99}, "table.compression_level = 99: zstd in parquet files has levels 1 to 22"),
        ({"bloom_filters": ["order_id"], "file_format": "avro"}, "table.bloom_filters: avro files have none"),
    ],
)
def test_what_the_columns_do_not_allow_is_refused_by_its_key(keys: dict[str, Any], problem: str) -> None:
    """FILE-08, FILE-11."""
    with pytest.raises(ConfigError) as refused:
        require_fit(table(**keys), SCHEMA)
    assert problem in str(refused.value)
