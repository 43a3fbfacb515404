"""Rows land in the files of their partition."""

from __future__ import annotations

import datetime as dt
import os
from collections import defaultdict

import pyarrow as pa
import pytest
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import StringType

from frazil.errors import SchemaMismatch
from frazil.write import instants

BY_DAY = (5, DayTransform(), "placed_at_day")
BY_CUSTOMER = (2, IdentityTransform(), "customer")
NEW_YEAR = dt.datetime(2026, 1, 1, 23, tzinfo=dt.UTC)
NEXT_DAY = dt.datetime(2026, 1, 2, 1, tzinfo=dt.UTC)


def test_each_file_holds_one_combination_of_values_and_nulls_are_values(shop):
    """FILE-08"""
    customers = ["a", "b", None, "a", "a", None]
    days = [NEW_YEAR, NEW_YEAR, NEW_YEAR, NEXT_DAY, NEW_YEAR, None]
    batch = shop.orders(6, customer=pa.array(customers), placed_at=shop.moments(*days))
    files = shop.write(shop.target(BY_DAY, BY_CUSTOMER), batch)
    assert {file.partition: shop.ids([file]) for file in files} == {
        ("2026-01-01", "a"): [0, 4],
        ("2026-01-01", "b"): [1],
        ("2026-01-01", None): [2],
        ("2026-01-02", "a"): [3],
        (None, None): [5],
    }
    assert all(file.spec_id == 1 for file in files)


def test_a_file_lies_in_the_folder_of_its_partition_with_its_values_escaped(shop):
    """FILE-05 in Iceberg's own layout"""
    batch = shop.orders(1, customer=pa.array(["a/b c"]), placed_at=shop.moments(NEW_YEAR))
    (file,) = shop.write(shop.target(BY_DAY, BY_CUSTOMER), batch)
    assert file.path.startswith(f"file:{shop.folder}/placed_at_day=2026-01-01/customer=a%2Fb+c/orders-e7-t0-")
    assert shop.ids([file]) == [0]


@pytest.mark.parametrize(
    ("source", "transform", "values"),
    [
        (5, YearTransform(), {56: [0, 1], None: [2]}),
        (5, MonthTransform(), {672: [0, 1], None: [2]}),
        (5, DayTransform(), {"2026-01-01": [0], "2026-01-02": [1], None: [2]}),
        (5, HourTransform(), {490919: [0], 490921: [1], None: [2]}),
        (5, IdentityTransform(), {
            "2026-01-01T23:00:00+00:00": [0], "2026-01-02T01:00:00+00:00": [1], None: [2],
        }),
        (2, TruncateTransform(2), {"äb": [0, 1], None: [2]}),
        (1, TruncateTransform(2), {0: [0, 1], 2: [2]}),
        (3, IdentityTransform(), {"0.00": [0], "1.50": [1], None: [2]}),
        (9, IdentityTransform(), {"Ulm": [0], "Bonn": [1], None: [2]}),
        (1, VoidTransform(), {None: [0, 1, 2]}),
    ],
)  # fmt: skip
def test_each_transform_gives_the_values_of_the_iceberg_spec(shop, source, transform, values):
    """FILE-08"""
    batch = shop.orders(
        3,
        customer=pa.array(["äbc", "äbd", None]),
        amount=pa.array(["0.00", "1.50", None]).cast(pa.decimal128(10, 2)),
        placed_at=shop.moments(NEW_YEAR, NEXT_DAY, None),
        address=pa.array([{"city": "Ulm"}, {"city": "Bonn"}, None]),
    )
    files = shop.write(shop.target((source, transform, "p")), batch)
    assert {file.partition[0]: shop.ids([file]) for file in files} == values


def test_buckets_are_those_of_the_row_by_row_definition(shop):
    """FILE-08"""
    customers = [f"customer {n}" for n in range(200)] + [None]
    bucket = BucketTransform(8)
    expected = defaultdict(list)
    for order, customer in enumerate(customers):
        expected[bucket.transform(StringType())(customer)].append(order)
    batch = shop.orders(201, customer=pa.array(customers))
    files = shop.write(shop.target((2, bucket, "customer_bucket")), batch)
    assert {file.partition[0]: shop.ids([file]) for file in files} == expected


def test_a_partition_keeps_one_file_open_over_many_batches(shop):
    batches = [shop.orders(4, customer=pa.array(["a", "b", "a", "b"])) for _ in range(5)]
    files = shop.write(shop.target(BY_CUSTOMER), *batches)
    assert {file.partition: file.record_count for file in files} == {("a",): 10, ("b",): 10}
    assert len(files) == 2


def test_many_partitions_in_one_batch_lose_no_row(shop):
    batch = shop.orders(500, customer=pa.array([f"c{n % 100}" for n in range(500)]))
    files = shop.write(shop.target(BY_CUSTOMER), batch, max_open_files=8)
    assert sorted(shop.ids(files)) == list(range(500))
    assert len({file.path for file in files}) == len(files) == 100


@pytest.mark.parametrize("weight", ["nan", "inf", "-inf"])
def test_a_number_that_json_cannot_hold_is_refused_as_a_partition(shop, weight):
    """Java would keep NaN apart, and then lose it to filters: Spark holds NaN for larger than any number."""
    by_weight = (4, IdentityTransform(), "weight")
    with pytest.raises(SchemaMismatch, match=weight):
        shop.write(shop.target(by_weight), shop.orders(1, weight=pa.array([float(weight)])))


def test_the_two_zeros_are_two_partitions(shop):
    """FILE-08: as in Java, whose comparison keeps them apart too."""
    batch = shop.orders(3, weight=pa.array([0.0, -0.0, 0.0]))
    files = shop.write(shop.target((4, IdentityTransform(), "weight")), batch)
    assert {str(file.partition[0]): shop.ids([file]) for file in files} == {"0.0": [0, 2], "-0.0": [1]}


@pytest.mark.parametrize(
    ("transform", "early", "late", "folders"),
    [
        (YearTransform(), -292_278, 292_277, {"p=-290308", "p=294247"}),
        (MonthTransform(), -3_507_325, 3_507_324, {"p=-290308-12", "p=294247-01"}),
        (DayTransform(), "-290308-12-22", "+294247-01-09", {"p=-290308-12-22", "p=294247-01-09"}),
    ],
)
def test_years_far_beyond_the_calendar_of_python_have_partitions(shop, transform, early, late, folders):
    """FILE-08"""
    moments = pa.array([-9_223_372_000_000_000_000, 9_223_372_000_000_000_000], pa.timestamp("us", "UTC"))
    files = shop.write(shop.target((5, transform, "p")), shop.orders(2, placed_at=moments))
    assert {file.partition[0] for file in files} == {early, late}
    assert {file.path.split("/")[-2] for file in files} == folders


def test_days_months_and_years_are_those_of_the_calendar():
    dates = [dt.date(1, 1, 1) + dt.timedelta(days=days) for days in range(0, 3_652_000, 97)]
    counts = pa.array([(date - dt.date(1970, 1, 1)).days for date in dates], pa.int32())
    months = [(date.year - 1970) * 12 + date.month - 1 for date in dates]
    assert instants.months(counts).to_pylist() == months
    assert instants.years(counts).to_pylist() == [date.year - 1970 for date in dates]
    assert [instants.iso_date(days) for days in counts.to_pylist()] == [date.isoformat() for date in dates]


def test_partitions_that_compress_differently_share_a_writer(shop):
    """FILE-04: what one partition teaches about compression may leave another's open file without room."""
    target = shop.target((2, IdentityTransform(), "customer"), target_file_size_bytes=2**20, row_group_rows=20_000)

    def batch(customer, count, city):
        address = pa.array([{"city": city()} for _ in range(count)])
        return shop.orders(count, customer=pa.array([customer] * count), address=address)

    writer = shop.writer(target)
    files = []
    for _ in range(12):
        files += writer.write(batch("soft", 3_000, lambda: "a" * 200))
        files += writer.write(batch("hard", 4_000, lambda: os.urandom(100).hex()))
    files += writer.close()
    assert sum(file.record_count for file in files) == 12 * 7_000
