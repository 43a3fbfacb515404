"""The declared schema: DDL text to Iceberg and back, and mistakes pointed at."""

from __future__ import annotations

import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.errors import ConfigError
from frazil.pipeline.schema import format_version_needed, parse_schema, render_schema

ORDERS = (
    "order_id BIGINT NOT NULL, customer STRING, amount DECIMAL(10,2), placed_at TIMESTAMP, "
    "tags ARRAY<STRING>, address STRUCT<city: STRING, zip: INT NOT NULL>, attrs MAP<STRING, DOUBLE>, "
    "note STRING COMMENT 'it\\'s'"
)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parse_schema(text)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("boolean", BooleanType()),
        ("TINYINT", IntegerType()),
        ("SmallInt", IntegerType()),
        ("INT", IntegerType()),
        ("integer", IntegerType()),
        ("BIGINT", LongType()),
        ("LONG", LongType()),
        ("FLOAT", FloatType()),
        ("REAL", FloatType()),
        ("DOUBLE", DoubleType()),
        ("DECIMAL", DecimalType(10, 0)),
        ("NUMERIC(12)", DecimalType(12, 0)),
        ("dec( 38 , 38 )", DecimalType(38, 38)),
        ("STRING", StringType()),
        ("VARCHAR(20)", StringType()),
        ("CHAR(3)", StringType()),
        ("BINARY", BinaryType()),
        ("DATE", DateType()),
        ("TIMESTAMP", TimestamptzType()),
        ("TIMESTAMP_LTZ", TimestamptzType()),
        ("TIMESTAMP_NTZ", TimestampType()),
        ("timestamp_ns", TimestampNanoType()),
        ("TIMESTAMPTZ_NS", TimestamptzNanoType()),
        ("time", TimeType()),
        ("TIME(6)", TimeType()),
        ("Uuid", UUIDType()),
        ("FIXED(16)", FixedType(16)),
    ],
)
def test_every_type_name_has_its_iceberg_type(name: str, kind: IcebergType) -> None:
    """DEC-04"""
    assert parse_schema(f"a {name}").find_type("a") == kind


def test_field_ids_count_from_one_with_the_top_level_columns_first() -> None:
    """DEC-05"""
    schema = parse_schema("a STRUCT<x: INT, y: ARRAY<INT>>, b MAP<STRING, INT>, c INT")
    assert [field.field_id for field in schema.fields] == [1, 2, 3]
    assert schema.find_field("a.x").field_id == 4
    assert schema.highest_field_id == 8


def test_a_rendered_schema_parses_to_itself() -> None:
    assert render_schema(parse_schema(ORDERS)) == ORDERS
    odd = parse_schema("`two words` INT COMMENT 'a \\\\ b', `tick``ed` STRUCT<`x y`: INT COMMENT \"q\">")
    assert parse_schema(render_schema(odd)) == odd


def test_every_iceberg_type_renders_to_what_was_declared() -> None:
    """DEC-04"""
    ddl = "a TIME, b UUID, c FIXED(3), d ARRAY<TIMESTAMP_NS>, e MAP<UUID, TIMESTAMPTZ_NS>, f STRUCT<g: BINARY>"
    assert render_schema(parse_schema(ddl)) == ddl


@pytest.mark.parametrize(
    ("ddl", "version"),
    [
        ("a TIME, b UUID, c TIMESTAMP", 2),
        ("a TIMESTAMP_NS", 3),
        ("a STRUCT<b: ARRAY<MAP<STRING, TIMESTAMPTZ_NS>>>", 3),
    ],
)
def test_a_schema_knows_the_format_version_that_its_types_need(ddl: str, version: int) -> None:
    assert format_version_needed(parse_schema(ddl)) == version


def test_only_columns_marked_not_null_are_required() -> None:
    schema = parse_schema("a INT not null, b INT, c STRUCT<d: INT NOT NULL, e INT>")
    assert [name for name in ("a", "b", "c", "c.d", "c.e") if schema.find_field(name).required] == [
        "a",
        "c.d",
    ]


def test_a_misspelt_type_is_pointed_at_and_the_nearest_named() -> None:
    """DEC-04"""
    message = refusal("id BIGINT,\n  amount DECIML(10,2)")
    assert "DECIML is not a type (column amount)" in message
    assert "    amount DECIML(10,2)\n           ^ line 2, column 10" in message
    assert "did you mean DECIMAL" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected a column name"),
        ("a", "expected the type of a"),
        ("a INT,", "expected a column name"),
        ("a INT b INT", 'expected "," or the end of the text, got b'),
        ("a ARRAY<INT", 'expected ">" to close ARRAY'),
        ("a MAP<INT>", 'expected ","'),
        ("a STRUCT<>", "expected a column name, got >"),
        ("a INT NOT", "expected NULL after NOT"),
        ("a INT COMMENT x", "expected a quoted text"),
        ("a DECIMAL(39,2)", "DECIMAL(39,2) is not possible"),
        ("a DECIMAL(2,3)", "DECIMAL(2,3) is not possible"),
        ("a DECIMAL(x)", "expected a number, got x"),
        ("s STRUCT<a: DECIMAL(39)>", "DECIMAL(39,0) is not possible (column a)"),
        ("a FIXED", "FIXED needs a length of 1 to 1,048,576 (column a)"),
        ("a FIXED(0)", "FIXED needs a length of 1 to 1,048,576 (column a)"),
        ("a TIME(3)", "TIME(3) is not possible (column a)"),
        ("a VARIANT", "VARIANT cannot be written (column a)"),
        ("a VARIANT", "decode.catch_all"),
        ("a INT; b INT", 'expected "," or the end of the text, got ;'),
        ("a GEOMETRY", "known types: "),
    ],
)
def test_a_refusal_says_what_was_expected_and_where(text: str, expected: str) -> None:
    message = refusal(text)
    assert expected in message
    assert "^ line 1, column " in message


@pytest.mark.parametrize("text", ["a INT, a STRING", "a INT, A INT", "s STRUCT<x: INT, X: INT>"])
def test_a_column_declared_twice_is_refused(text: str) -> None:
    assert "declared twice" in refusal(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("`a.b` INT, a STRUCT<b: INT>", "multiple fields for name a.b"),
        ("a " + "ARRAY<" * 400 + "INT" + ">" * 400, "nested more than 50 levels deep"),
        ("a FIXED(99999999999)", "FIXED needs a length of 1 to 1,048,576"),
    ],
)
def test_a_schema_that_no_table_can_have_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_schema(text)
