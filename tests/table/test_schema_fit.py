"""Whether rows as declared fit into a table as it is."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, MapType, NestedField, StringType, UnknownType

from frazil.errors import ConfigError, SchemaMismatch
from frazil.pipeline.partition import parse_partition
from frazil.pipeline.schema import parse_schema
from frazil.table.iceberg.schema import require_compatible, require_same_partition, require_unreserved


def fit(declared: str | Schema, actual: str | Schema) -> None:
    left = parse_schema(declared) if isinstance(declared, str) else declared
    right = parse_schema(actual) if isinstance(actual, str) else actual
    require_compatible("shop.orders", left, right)


def mismatch(declared: str | Schema, actual: str | Schema) -> SchemaMismatch:
    with pytest.raises(SchemaMismatch) as refused:
        fit(declared, actual)
    return refused.value


def problems(declared: str | Schema, actual: str | Schema) -> list[str]:
    lines = mismatch(declared, actual).message.splitlines()
    return [line.removeprefix("  - ") for line in lines if line.startswith("  - ")]


@pytest.mark.parametrize(
    ("declared", "actual"),
    [
        ("a INT, b STRING", "a INT, b STRING"),
        ("a INT", "b STRING, a INT"),  # order does not matter, optional columns may be left out
        ("b INT, a INT", "a INT, b INT"),
        ("a INT", "a BIGINT"),
        ("a FLOAT", "a DOUBLE"),
        ("a DECIMAL(10,2)", "a DECIMAL(38,2)"),
        ("a INT NOT NULL", "a INT"),
        ("a INT NOT NULL", "a INT NOT NULL"),
        ("a STRUCT<x: INT, y: STRING>", "a STRUCT<y: STRING, x: BIGINT, z: STRING>"),
        ("a ARRAY<INT>", "a ARRAY<BIGINT>"),
        ("a MAP<STRING, FLOAT>", "a MAP<STRING, DOUBLE>"),
        ("a INT COMMENT 'one'", "a INT COMMENT 'another'"),
        ("a ARRAY<STRUCT<x: INT>>", "a ARRAY<STRUCT<x: INT, y: INT>>"),
        ("a STRING, b BINARY", "a UUID, b FIXED(4)"),  # as Spark shows them
    ],
)
def test_what_fits_is_accepted(declared: str, actual: str) -> None:
    fit(declared, actual)


@pytest.mark.parametrize(
    ("declared", "actual", "problem"),
    [
        ("a INT, b INT", "a INT", "column b is not in the table"),
        ("A INT", "a INT", "column A is not in the table"),
        ("a INT", "a INT NOT NULL", "column a may be null as declared, but not in the table"),
        ("a INT", "a INT, b STRING NOT NULL", "column b is required by the table, but not declared"),
        ("a BIGINT", "a INT", "column a is long as declared, but int in the table"),
        ("a DOUBLE", "a FLOAT", "column a is double as declared, but float in the table"),
        ("a INT", "a DOUBLE", "column a is int as declared, but double in the table"),
        ("a STRING", "a INT", "column a is string as declared, but int in the table"),
        (
            "a DECIMAL(10,2)",
            "a DECIMAL(9,2)",
            "column a is decimal(10, 2) as declared, but decimal(9, 2) in the table",
        ),
        (
            "a DECIMAL(10,2)",
            "a DECIMAL(12,3)",
            "column a is decimal(10, 2) as declared, but decimal(12, 3) in the table",
        ),
        (
            "a TIMESTAMP",
            "a TIMESTAMP_NTZ",
            "column a is timestamptz as declared, but timestamp in the table",
        ),
        ("a STRUCT<x: INT>", "a STRUCT<y: INT>", "column a.x is not in the table"),
        (
            "a STRUCT<x: INT>",
            "a STRUCT<x: INT NOT NULL>",
            "column a.x may be null as declared, but not in the table",
        ),
        (
            "a STRUCT<x: INT>",
            "a STRUCT<x: INT, y: INT NOT NULL>",
            "column a.y is required by the table, but not declared",
        ),
        (
            "a ARRAY<STRUCT<x: STRING>>",
            "a ARRAY<STRUCT<x: INT>>",
            "column a.element.x is string as declared, but int in the table",
        ),
        ("a MAP<INT, INT>", "a MAP<STRING, INT>", "column a.key is int as declared, but string in the table"),
        (
            "a MAP<STRING, STRING>",
            "a MAP<STRING, INT>",
            "column a.value is string as declared, but int in the table",
        ),
        ("a STRUCT<x: INT>", "a INT", "column a is struct<2: x: optional int> as declared, but int in the table"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(declared: str, actual: str, problem: str) -> None:
    """SINK-10."""
    assert problems(declared, actual) == [problem]


def test_nulls_inside_lists_and_maps_do_not_fit_where_the_table_has_none() -> None:
    strict = Schema(
        NestedField(1, "tags", ListType(2, StringType(), element_required=True)),
        NestedField(3, "counts", MapType(4, StringType(), 5, LongType(), value_required=True)),
    )
    assert problems("tags ARRAY<STRING>, counts MAP<STRING, BIGINT>", strict) == [
        "column tags.element may be null as declared, but not in the table",
        "column counts.value may be null as declared, but not in the table",
    ]
    fit(strict, strict)


def test_a_type_that_only_iceberg_has_is_shown_as_iceberg_writes_it() -> None:
    foreign = Schema(NestedField(1, "id", UnknownType()))
    refused = mismatch("id STRING", foreign)
    assert "column id is string as declared, but unknown in the table" in refused.message
    assert refused.actual == "id UNKNOWN"


def test_all_problems_are_told_at_once_and_both_schemas_side_by_side() -> None:
    """SINK-10: expected and actual travel with the error."""
    refused = mismatch(
        "order_id STRING, amount DECIMAL(10,2), note STRING COMMENT 'a, <b'", "order_id BIGINT, day DATE NOT NULL"
    )
    assert refused.message.splitlines() == [
        "the declared schema does not fit the table shop.orders:",
        "  - column order_id is string as declared, but long in the table",
        "  - column amount is not in the table",
        "  - column note is not in the table",
        "  - column day is required by the table, but not declared",
        "  declared                     |  in the table",
        "  order_id STRING              |  order_id BIGINT",
        "  amount DECIMAL(10,2)         |  day DATE NOT NULL",
        "  note STRING COMMENT 'a, <b'  |",
    ]
    assert refused.expected == "order_id STRING, amount DECIMAL(10,2), note STRING COMMENT 'a, <b'"
    assert refused.actual == "order_id BIGINT, day DATE NOT NULL"
    assert "decode.schema" in refused.remedy


class TestPartitioning:
    WISHED = parse_schema("a STRING, ts TIMESTAMP")
    # The same columns under other ids, as a table has them that evolved.
    ACTUAL = Schema(NestedField(7, "ts", WISHED.find_type("ts")), NestedField(9, "a", StringType()))

    def check(self, wished: list[str], actual: list[str]) -> None:
        require_same_partition(
            "shop.orders",
            parse_partition(wished, self.WISHED),
            self.WISHED,
            parse_partition(actual, self.ACTUAL),
            self.ACTUAL,
        )

    @pytest.mark.parametrize("fields", [[], ["a"], ["day(ts)", "bucket(4, a)"]])
    def test_the_same_one_is_accepted_whatever_ids_its_columns_have(self, fields: list[str]) -> None:
        self.check(fields, fields)

    @pytest.mark.parametrize(
        ("wished", "actual"),
        [
            (["day(ts)"], ["hour(ts)"]),
            (["day(ts)"], []),
            (["bucket(4, a)"], ["bucket(8, a)"]),
            (["a", "day(ts)"], ["day(ts)", "a"]),
        ],
    )
    def test_another_one_is_refused_with_both(self, wished: list[str], actual: list[str]) -> None:
        with pytest.raises(SchemaMismatch) as refused:
            self.check(wished, actual)
        assert refused.value.expected in refused.value.message
        assert refused.value.actual in refused.value.message
        assert refused.value.expected != refused.value.actual
        assert "table.partition" in str(refused.value)


def test_names_that_iceberg_keeps_for_itself_are_refused() -> None:
    require_unreserved("shop.orders", Schema(NestedField(1, "partition", IntegerType())))
    reserved = Schema(NestedField(1, "_partition", IntegerType()), NestedField(2, "_pos", LongType()))
    with pytest.raises(ConfigError, match="reserves the column names _partition, _pos"):
        require_unreserved("shop.orders", reserved)
