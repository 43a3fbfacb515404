"""Sort fields as people write them."""

from __future__ import annotations

import pytest
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform

from frazil.errors import ConfigError
from frazil.pipeline.schema import parse_schema
from frazil.pipeline.sort import parse_sort

SCHEMA = parse_schema(
    "order_id BIGINT, customer STRING, placed_at TIMESTAMP, address STRUCT<city: STRING>, tags ARRAY<STRING>"
)
ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST


def refusal(*fields: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parse_sort(fields, SCHEMA)
    assert refused.value.message.startswith("table.sort: ")
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "column", "transform", "direction", "nulls"),
    [
        ("placed_at", "placed_at", IdentityTransform(), ASC, FIRST),
        ("placed_at asc", "placed_at", IdentityTransform(), ASC, FIRST),
        ("placed_at ASC NULLS LAST", "placed_at", IdentityTransform(), ASC, LAST),
        (" placed_at  desc ", "placed_at", IdentityTransform(), DESC, LAST),
        ("placed_at desc nulls first", "placed_at", IdentityTransform(), DESC, FIRST),
        ("placed_at nulls last", "placed_at", IdentityTransform(), ASC, LAST),
        ("address.city", "address.city", IdentityTransform(), ASC, FIRST),
        ("`customer` desc", "customer", IdentityTransform(), DESC, LAST),
        ("bucket(16, order_id) desc", "order_id", BucketTransform(16), DESC, LAST),
        ("days(placed_at)", "placed_at", DayTransform(), ASC, FIRST),
    ],
)
def test_a_field_says_what_direction_and_where_nulls_go(
    text: str,
    column: str,
    transform: Transform,  # type: ignore[type-arg]  # pyiceberg's Transform is generic in S, T
    direction: SortDirection,
    nulls: NullOrder,
) -> None:
    """FILE-11, CFG-22: nulls go where Iceberg and Spark put them unless told otherwise."""
    order = parse_sort([text], SCHEMA)
    assert order.fields == [SortField(SCHEMA.find_field(column).field_id, transform, direction, nulls)]
    assert order.order_id == 1


def test_no_fields_is_no_order() -> None:
    assert parse_sort([], SCHEMA).is_unsorted


@pytest.mark.parametrize(
    "text", ["", "placed_at down", "placed_at nulls", "placed_at desc last", "desc nulls first x"]
)
def test_what_cannot_be_read_is_shown_with_the_grammar(text: str) -> None:
    told = refusal(text)
    assert f"cannot read {text!r}" in told
    assert '"asc" or "desc"' in told


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("placed_on desc", "there is no column 'placed_on'"),
        ("placed_on desc", "did you mean placed_at?"),
        ("address", "identity cannot be applied to address"),
        ("tags", "identity cannot be applied to tags"),
        ("tags.element", "is inside tags"),
        ("hour(customer)", "hour cannot be applied to customer of type string"),
        ("hour(customer)", "hour takes a timestamp"),
    ],
)
def test_a_field_that_the_columns_do_not_allow_is_refused(text: str, problem: str) -> None:
    """FILE-11."""
    assert problem in refusal(text)


def test_the_same_field_twice_is_refused() -> None:
    assert "a second time" in refusal("placed_at", "placed_at desc")
