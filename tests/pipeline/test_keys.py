"""Which columns may name a row, and what that says about partitions."""

from __future__ import annotations

import pytest

from frazil.errors import ConfigError
from frazil.pipeline.keys import keyed, partitions_by_key
from frazil.pipeline.partition import parse_partition
from frazil.pipeline.schema import parse_schema

SCHEMA = parse_schema(
    "region STRING, id BIGINT, amount DOUBLE, tags ARRAY<STRING>, placed_at TIMESTAMP, code FIXED(4)"
)


def test_keys_are_identifier_fields_and_never_null() -> None:
    """CHG-02: in the order in which they were named."""
    table = keyed(SCHEMA, ["id", "region"])
    assert table.identifier_field_names() == {"id", "region"}
    assert [field.required for field in table.fields] == [True, True, *[False] * 4]
    assert [field.field_id for field in table.fields] == [field.field_id for field in SCHEMA.fields]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ([], "table.keys is empty"),
        (["ids"], "there is no column 'ids'"),
        (["amount"], "amount is double"),
        (["tags"], "tags is list<string>"),
        (["code"], "code is fixed[4]"),
        (["id", "id"], "id is named twice"),
    ],
)
def test_what_cannot_name_a_row_is_refused(keys: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        keyed(SCHEMA, keys)
    assert problem in str(refused.value)
    assert refused.value.remedy


def test_the_whole_row_may_be_the_key_and_changes_no_column() -> None:
    """LIM-04: of any type that Spark can tell apart, floats and lists too."""
    assert keyed(SCHEMA, ["*"]) == SCHEMA


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ("m MAP<STRING, INT>", "m is map<string, int>"),
        ("s STRUCT<l: ARRAY<MAP<STRING, INT>>>", "s is struct"),
        ("at TIME", "at is time"),
        ("ns TIMESTAMP_NS", "ns is timestamp"),
        ("`a.b` INT", "column a.b"),
    ],
)
def test_a_column_that_rows_cannot_be_found_by_is_refused(declared: str, problem: str) -> None:
    """LIM-04"""
    with pytest.raises(ConfigError) as refused:
        keyed(parse_schema(f"id BIGINT, {declared}"), ["*"])
    assert problem in refused.value.message
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("partition", "keys", "known"),
    [
        ([], ["id"], True),
        (["bucket(4, id)"], ["id"], True),
        (["region", "bucket(4, id)"], ["id"], False),
        (["region", "bucket(4, id)"], ["id", "region"], True),
        (["day(placed_at)"], ["id"], False),
    ],
)
def test_a_key_tells_the_partition_when_it_has_all_of_its_columns(
    partition: list[str], keys: list[str], known: bool
) -> None:
    """CHG-11."""
    assert partitions_by_key(parse_partition(partition, SCHEMA), SCHEMA, keys) is known
