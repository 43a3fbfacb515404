"""Partition fields as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from frazil.errors import ConfigError
from frazil.pipeline.partition import parse_partition
from frazil.pipeline.schema import parse_schema
from frazil.pipeline.values import split_fields

SCHEMA = parse_schema(
    "order_id BIGINT, customer STRING, amount DECIMAL(10,2), placed_at TIMESTAMP, day DATE, "
    "address STRUCT<city: STRING>, tags ARRAY<STRING>, paid_on DATE, paid_on_month STRING"
)


def refusal(*fields: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parse_partition(fields, SCHEMA)
    assert refused.value.message.startswith("table.partition: ")
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "column", "transform", "name"),
    [
        ("customer", "customer", IdentityTransform(), "customer"),
        ("identity(customer)", "customer", IdentityTransform(), "customer"),
        ("year(placed_at)", "placed_at", YearTransform(), "placed_at_year"),
        ("month(placed_at)", "placed_at", MonthTransform(), "placed_at_month"),
        ("day(placed_at)", "placed_at", DayTransform(), "placed_at_day"),
        ("DAYS( placed_at )", "placed_at", DayTransform(), "placed_at_day"),
        ("hours(placed_at)", "placed_at", HourTransform(), "placed_at_hour"),
        ("bucket(16, customer)", "customer", BucketTransform(16), "customer_bucket"),
        ("BUCKET(16,order_id)", "order_id", BucketTransform(16), "order_id_bucket"),
        (" truncate( 4 , customer ) ", "customer", TruncateTransform(4), "customer_trunc"),
        ("address.city", "address.city", IdentityTransform(), "address.city"),
        ("day", "day", IdentityTransform(), "day"),
        ("day(day)", "day", DayTransform(), "day_day"),
    ],
)
def test_a_field_becomes_what_iceberg_calls_it(
    text: str,
    column: str,
    transform: Transform,  # type: ignore[type-arg]  # pyiceberg's Transform is generic in S, T
    name: str,
) -> None:
    """CFG-23."""
    (field,) = parse_partition([text], SCHEMA).fields
    assert field == PartitionField(SCHEMA.find_field(column).field_id, 1000, transform, name)


def test_fields_keep_their_order_and_have_ids_of_their_own() -> None:
    spec = parse_partition(["day(placed_at)", "bucket(16, customer)"], SCHEMA)
    assert [(field.field_id, field.name) for field in spec.fields] == [
        (1000, "placed_at_day"),
        (1001, "customer_bucket"),
    ]


def test_no_fields_is_an_unpartitioned_table() -> None:
    assert parse_partition([], SCHEMA).is_unpartitioned()


@pytest.mark.parametrize("text", ["", "day(", "day)", "day(a(b))", "a b", "bucket 16 customer", "day(placed_at) x"])
def test_what_cannot_be_read_is_shown_with_examples(text: str) -> None:
    told = refusal(text)
    assert f"cannot read {text!r}" in told
    assert '"day(column)" or "bucket(16, column)"' in told


def test_an_unknown_transform_is_refused_with_the_nearest_known_one() -> None:
    told = refusal("bukcet(16, customer)")
    assert "unknown transform 'bukcet'" in told
    assert "year, month, day, hour, identity, bucket, truncate" in told
    assert "did you mean bucket?" in told


def test_an_unknown_column_is_refused_with_the_nearest_known_one() -> None:
    told = refusal("day(placed_on)")
    assert "there is no column 'placed_on'" in told
    assert "order_id, customer, amount" in told
    assert "did you mean placed_at?" in told


def test_columns_are_matched_with_their_case() -> None:
    assert "there is no column 'Customer'" in refusal("Customer")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("day(customer)", "day cannot be applied to customer of type string"),
        ("hour(day)", "hour cannot be applied to day of type date"),
        ("truncate(4, placed_at)", "truncate[4] cannot be applied to placed_at of type timestamptz"),
        ("bucket(4, address)", "cannot be applied to address"),
        ("address", "identity cannot be applied to address"),
        ("tags", "identity cannot be applied to tags"),
    ],
)
def test_a_transform_that_does_not_fit_the_columns_type_is_refused(text: str, problem: str) -> None:
    assert problem in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "bucket(customer)",
        "bucket(customer, 16)",
        "bucket(0, customer)",
        "bucket(-1, customer)",
        "bucket(1.5, customer)",
        "bucket(٣, customer)",
        "bucket(99999999999, customer)",
        "bucket(², customer)",
        "truncate(4)",
        "bucket(1, 2, customer)",
    ],
)
def test_bucket_and_truncate_take_a_whole_number_and_a_column(text: str) -> None:
    assert "takes a whole number and a column" in refusal(text)


@pytest.mark.parametrize("text", ["day()", "day(placed_at, customer)"])
def test_a_time_transform_takes_one_column(text: str) -> None:
    assert "takes one column" in refusal(text)


@pytest.mark.parametrize("second", ["day(placed_at)", "days(placed_at)"])
def test_the_same_field_twice_is_refused(second: str) -> None:
    assert "a second time" in refusal("day(placed_at)", second)


def test_a_field_that_would_take_the_name_of_a_column_is_refused() -> None:
    told = refusal("month(paid_on)")
    assert "would be called paid_on_month" in told
    assert "name the field: … AS name" in told


@pytest.mark.parametrize("text", ["month(paid_on) AS paid_month", "month(paid_on) as `paid_month`"])
def test_a_field_may_be_named(text: str) -> None:
    """FILE-08."""
    (field,) = parse_partition([text], SCHEMA).fields
    assert (field.name, field.transform) == ("paid_month", MonthTransform())


def test_a_field_named_like_another_field_or_column_is_refused() -> None:
    assert "there is a field called shard already" in refusal("bucket(4, order_id) AS shard", "customer AS shard")
    assert "as a column of the table is already" in refusal("bucket(4, order_id) AS customer")


def test_a_coarser_time_beside_a_finer_one_is_refused() -> None:
    """As Iceberg's own builder does."""
    assert "keep the finer one" in refusal("day(placed_at)", "hour(placed_at)")


def test_floating_numbers_are_no_partitions() -> None:
    with pytest.raises(ConfigError, match="NaN cannot be a partition value"):
        parse_partition(["weight"], parse_schema("weight DOUBLE"))


def test_a_field_inside_a_list_is_refused() -> None:
    assert "tags.element is inside tags" in refusal("tags.element")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", []),
        ("customer", ["customer"]),
        ("DAYS(placed_at), BUCKET(16, customer)", ["DAYS(placed_at)", "BUCKET(16, customer)"]),
        (
            "bucket(16,customer),truncate(4,customer) AS start",
            ["bucket(16,customer)", "truncate(4,customer) AS start"],
        ),
    ],
)
def test_one_text_is_split_outside_of_parentheses_only(text: str, fields: list[str]) -> None:
    """FILE-09, CFG-23."""
    assert split_fields(text) == fields
    assert len(parse_partition(fields, SCHEMA).fields) == len(fields)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("DAYS(placed_at), BUCKET(16", "'BUCKET(16'"),
        ("DAYS(placed_at, BUCKET(16, customer)", "'DAYS(placed_at'"),
        ("BUCKET(x, customer)", "'BUCKET(x, customer)'"),
        ("DAYS(placed_at),, customer", "''"),
        ("WEEKS(placed_at)", "'WEEKS(placed_at)'"),
    ],
)
def test_a_part_that_cannot_be_read_is_named(text: str, part: str) -> None:
    """FILE-09."""
    fields = split_fields(text)
    assert isinstance(fields, list)
    assert part in refusal(*fields)


@settings(deadline=None, max_examples=200)
@given(st.text("daybuckettruncte(), 0123456789.customer_", max_size=25))
def test_any_text_is_a_field_or_a_config_error(text: str) -> None:
    try:
        spec = parse_partition([text], SCHEMA)
    except ConfigError:
        return
    assert len(spec.fields) == 1
