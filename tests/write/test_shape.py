"""A batch takes the table's shape, or is refused with the column's name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from frazil.errors import SchemaMismatch

NOON_UTC = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def test_a_moment_from_another_time_zone_is_stored_as_the_same_moment(shop):
    there = NOON_UTC.astimezone(dt.timezone(dt.timedelta(hours=9)))
    (file,) = shop.write(shop.target(), shop.orders(1, placed_at=shop.moments(there, zone="Asia/Tokyo")))
    column = shop.parquet(file).read()["placed_at"]
    assert column.to_pylist() == [NOON_UTC]
    assert column.type.tz == "UTC"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_every_arrow_string_is_a_string(shop, kind):
    (file,) = shop.write(shop.target(), shop.orders(2, customer=pa.array(["ä", None], kind)))
    assert shop.parquet(file).read()["customer"].to_pylist() == ["ä", None]


def test_a_dictionary_column_is_written_as_its_values(shop):
    (file,) = shop.write(shop.target(), shop.orders(3, customer=pa.array(["a", "b", "a"]).dictionary_encode()))
    assert shop.parquet(file).read()["customer"].to_pylist() == ["a", "b", "a"]


def test_columns_are_matched_by_name_not_by_position(shop):
    batch = pa.record_batch({"weight": [1.5], "order_id": pa.array([9], pa.int32())})
    (file,) = shop.write(shop.target(), batch)
    assert shop.parquet(file).read().select(["order_id", "weight"]).to_pylist() == [{"order_id": 9, "weight": 1.5}]


def test_batches_of_different_shapes_may_follow_each_other(shop):
    files = shop.write(
        shop.target(),
        shop.orders(1, customer=pa.array(["a"])),
        shop.orders(1, weight=pa.array([1.0])),
        shop.orders(1, customer=pa.array(["b"], pa.large_string())),
    )
    assert shop.parquet(files[0]).read()["customer"].to_pylist() == ["a", None, "b"]


@pytest.mark.parametrize(
    ("batch", "named"),
    [
        ({"customer": ["a"]}, "order_id.*required and missing"),
        ({"order_id": pa.array([1, None])}, "order_id.*required.*1 nulls"),
        ({"order_id": [1], "colour": ["red"]}, "colour"),
        ({"order_id": ["1"]}, "order_id.*another type"),
        ({"order_id": [1], "customer": [5]}, "customer.*another type"),
        (
            {"order_id": [1], "placed_at": pa.array([NOON_UTC.replace(tzinfo=None)])},
            "placed_at.*another type",
        ),
        ({"order_id": [1], "amount": [Decimal("1.234")]}, "amount.*does not fit"),
        ({"order_id": pa.array([2**63], pa.uint64())}, "order_id.*does not fit"),
        ({"order_id": [1], "tags": pa.array([[1]])}, "tags.*another type"),
        ({"order_id": [1], "address": [{"town": "Ulm"}]}, "address.*another type"),
    ],
)
def test_what_does_not_fit_the_table_is_refused_by_name(shop, batch, named):
    with pytest.raises(SchemaMismatch, match=named) as error:
        shop.write(shop.target(), pa.record_batch(batch))
    assert error.value.remedy
    assert shop.files_on_disk() == []


def test_a_column_that_comes_twice_is_refused(shop):
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["order_id", "order_id"])
    with pytest.raises(SchemaMismatch, match="order_id more than once"):
        shop.write(shop.target(), batch)
