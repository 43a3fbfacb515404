"""Metrics counted from rows: every bound encloses what was written, in the order that Java compares by."""

from __future__ import annotations

import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from frazil.table.files import UNSORTED
from frazil.write.bounds import raised
from frazil.write.measure import Measure, measured_columns

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def measured(schema, *tables, properties=None, sort_order_json=UNSORTED):
    """The metrics of a file of these tables, each a mapping of columns to values."""
    measure = Measure(measured_columns(schema, properties or {}, sort_order_json))
    for columns in tables:
        arrow = schema_to_pyarrow(schema)
        measure.add(pa.table([pa.array(columns[each.name], each.type) for each in arrow], schema=arrow))
    return measure.metrics()


def one(kind, *tables, **settings):
    """The metrics of a table with one column, whose id is 1."""
    schema = Schema(NestedField(1, "value", kind))
    return measured(schema, *[{"value": values} for values in tables], **settings)


def bounds(metrics):
    return bytes.fromhex(metrics["lower_bounds"][1]), bytes.fromhex(metrics["upper_bounds"][1])


def doubles(metrics):
    return [struct.unpack("<d", bound)[0] for bound in bounds(metrics)]


@given(st.lists(st.lists(TEXT, min_size=1), min_size=1))
def test_bounds_of_text_enclose_every_value(tables):
    """FILE-12"""
    metrics = one(StringType(), *tables)
    values = [value.encode() for values in tables for value in values]
    assert bytes.fromhex(metrics["lower_bounds"][1]) <= min(values)
    if 1 in metrics["upper_bounds"]:
        assert bytes.fromhex(metrics["upper_bounds"][1]) >= max(values)
    else:
        assert max(values).decode()[:16] == "\U0010ffff" * 16


@pytest.mark.parametrize(
    ("text", "above"),
    [("zz", "z{"), ("a\U0010ffff", "b"), ("\ud7ff", "\ue000"), ("\U0010ffff\U0010ffff", None), ("aä", "aå")],
)
def test_text_is_raised_in_its_last_character_that_can_be(text, above):
    """FILE-12"""
    assert raised(text) == above


def test_only_text_longer_than_sixteen_characters_is_shortened():
    """FILE-12"""
    assert bounds(one(StringType(), ["z" * 16])) == (b"z" * 16, b"z" * 16)
    assert bounds(one(StringType(), ["ä" * 17])) == ("ä".encode() * 16, ("ä" * 15 + "å").encode())
    full = {"write.metadata.metrics.column.value": "full"}
    assert bounds(one(StringType(), ["z" * 40], properties=full)) == (b"z" * 40, b"z" * 40)


@given(st.lists(st.lists(st.one_of(st.none(), st.floats())), min_size=1))
def test_bounds_of_numbers_enclose_every_value_but_nan(tables):
    """FILE-12"""
    metrics = one(DoubleType(), *tables)
    values = [value for values in tables for value in values if value is not None]
    numbers = [value for value in values if value == value]
    assert metrics["nan_value_counts"] == {1: len(values) - len(numbers)}
    if not numbers:
        assert metrics["lower_bounds"] == metrics["upper_bounds"] == {}
        return
    assert doubles(metrics) == [min(numbers), max(numbers)]


@pytest.mark.parametrize("zeros", [[0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0]])
def test_zero_is_negative_below_and_positive_above(zeros):
    """FILE-12: Java orders -0.0 below 0.0, Arrow holds them equal"""
    assert [str(bound) for bound in doubles(one(DoubleType(), zeros))] == ["-0.0", "0.0"]


def test_dates_and_moments_beyond_the_year_9999_have_exact_bounds():
    """FILE-12"""
    days, micros = [-(2**31), 2**31 - 1], [-(2**63), 2**63 - 1]
    dates = pa.array(days, pa.int32()).cast(pa.date32())
    moments = pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert bounds(one(DateType(), dates)) == (struct.pack("<i", days[0]), struct.pack("<i", days[1]))
    assert bounds(one(TimestamptzType(), moments)) == (struct.pack("<q", micros[0]), struct.pack("<q", micros[1]))


def test_wide_decimals_keep_all_their_digits():
    """FILE-12"""
    unscaled = [-(10**38) + 1, 10**38 - 1]
    values = [Decimal(number).scaleb(-10) for number in (-1, 1)]
    exact = [Decimal(("-" if n < 0 else "") + f"{str(abs(n))[:28]}.{str(abs(n))[28:]}") for n in unscaled]
    found = [int.from_bytes(bound, "big", signed=True) for bound in bounds(one(DecimalType(38, 10), values, exact))]
    assert found == unscaled


def test_booleans_have_bounds_and_bytes_have_none():
    """FILE-12"""
    assert bounds(one(BooleanType(), [True], [False, None])) == (b"\x00", b"\x01")
    metrics = one(BinaryType(), [b"a", None])
    assert (metrics["lower_bounds"], metrics["null_value_counts"]) == ({}, {1: 1})


NESTED = Schema(
    NestedField(1, "address", StructType(NestedField(2, "city", StructType(NestedField(3, "name", StringType()))))),
    NestedField(4, "tags", ListType(5, StringType(), element_required=False)),
)


def test_fields_of_structs_are_measured_with_the_nulls_around_them():
    """FILE-12"""
    rows = {
        "address": [{"city": {"name": "Ulm"}}, {"city": {"name": None}}, {"city": None}, None],
        "tags": [["a", None], [], None, None],
    }
    metrics = measured(NESTED, rows)
    assert metrics["value_counts"] == dict.fromkeys((1, 2, 3, 4), 4)
    assert metrics["null_value_counts"] == {1: 1, 2: 2, 3: 3, 4: 2}
    assert metrics["lower_bounds"] == metrics["upper_bounds"] == {3: b"Ulm".hex()}


@pytest.mark.parametrize(
    ("properties", "counted", "bounded"),
    [
        ({}, {1, 2, 3}, {1, 2, 3}),
        ({"default": "counts"}, {1, 2, 3}, set()),
        ({"default": "none", "column.b": "full"}, {2}, {2}),
        ({"default": "full", "column.b": "none"}, {1, 3}, {1, 3}),
        ({"max-inferred-column-defaults": "2"}, {1, 2}, {1, 2}),
        ({"max-inferred-column-defaults": "1", "column.c": "counts"}, {1, 3}, {1}),
        ({"max-inferred-column-defaults": "1", "default": "counts"}, {1, 2, 3}, set()),
    ],
)
def test_the_tables_metrics_properties_are_followed(properties, counted, bounded):
    """FILE-12"""
    schema = Schema(*[NestedField(n, name, LongType()) for n, name in enumerate("abc", 1)])
    given = {f"write.metadata.metrics.{key}": value for key, value in properties.items()}
    metrics = measured(schema, {"a": [1], "b": [2], "c": [3]}, properties=given)
    assert (set(metrics["value_counts"]), set(metrics["lower_bounds"])) == (counted, bounded)


def test_a_column_that_rows_are_sorted_by_has_bounds_in_any_case():
    """FILE-11, FILE-12"""
    order = (
        '{"order-id": 1, "fields": [{"transform": "identity", "source-id": 1, "direction": "asc",'
        ' "null-order": "nulls-first"}]}'
    )
    counts = {"write.metadata.metrics.default": "counts"}
    assert 1 in one(LongType(), [1], properties=counts, sort_order_json=order)["lower_bounds"]
    own = counts | {"write.metadata.metrics.column.value": "none"}
    assert one(LongType(), [1], properties=own, sort_order_json=order)["value_counts"] == {}
