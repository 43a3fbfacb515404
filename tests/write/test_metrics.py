"""Metrics say what is in the file: a bound that is too narrow would hide rows from queries."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal

import pyarrow as pa
import pytest

from frazil.errors import InvalidState
from frazil.table.files import WrittenFile
from frazil.write.metrics import MetricsPlan

YEAR_10000_US = 253_402_300_800_000_000


def longs(bound: str) -> int:
    return struct.unpack("<q", bytes.fromhex(bound))[0]


def test_metrics_over_several_row_groups_equal_a_naive_count(shop):
    """FILE-12"""
    weights = [1.5, float("nan"), None, -2.0, float("nan"), 7.25]
    amounts = [Decimal("1.20"), None, Decimal("-3.00"), Decimal("0.05"), None, None]
    customers = ["b", None, "ä", "a", "c", None]
    days = [dt.datetime(2026, 1, n + 1, tzinfo=dt.UTC) for n in range(5)] + [None]
    batch = shop.orders(
        6,
        customer=pa.array(customers),
        amount=pa.array(amounts, pa.decimal128(10, 2)),
        weight=pa.array(weights),
        placed_at=shop.moments(*days),
    )
    (file,) = shop.write(shop.target(row_group_rows=2), batch)
    assert len(file.split_offsets) == 3
    assert {i: file.value_counts[i] for i in range(1, 6)} == dict.fromkeys(range(1, 6), 6)
    assert {i: file.null_value_counts[i] for i in range(1, 6)} == {1: 0, 2: 2, 3: 3, 4: 1, 5: 1}
    assert file.nan_value_counts == {4: 2}
    assert (longs(file.lower_bounds[1]), longs(file.upper_bounds[1])) == (0, 5)
    assert [bytes.fromhex(b[2]).decode() for b in (file.lower_bounds, file.upper_bounds)] == ["a", "ä"]
    assert [
        int.from_bytes(bytes.fromhex(b[3]), "big", signed=True) for b in (file.lower_bounds, file.upper_bounds)
    ] == [-300, 120]
    assert [struct.unpack("<d", bytes.fromhex(b[4]))[0] for b in (file.lower_bounds, file.upper_bounds)] == [
        -2.0,
        7.25,
    ]
    assert longs(file.lower_bounds[5]) == int(days[0].timestamp() * 1e6)
    assert longs(file.upper_bounds[5]) == int(days[4].timestamp() * 1e6)


def test_column_sizes_are_those_of_the_footer(shop):
    """FILE-12"""
    (file,) = shop.write(shop.target(row_group_rows=10), shop.orders(25))
    footer = shop.parquet(file).metadata
    chunks = [footer.row_group(n).column(0) for n in range(footer.num_row_groups)]
    assert file.column_sizes[1] == sum(chunk.total_compressed_size for chunk in chunks)


def test_long_text_gets_shortened_bounds_that_still_enclose_it(shop):
    """FILE-12"""
    (file,) = shop.write(shop.target(), shop.orders(2, customer=pa.array(["a" * 30, "z" * 30])))
    assert bytes.fromhex(file.lower_bounds[2]).decode() == "a" * 16
    assert bytes.fromhex(file.upper_bounds[2]).decode() == "z" * 15 + "{"


def test_a_row_group_whose_bounds_arrow_leaves_out_costs_the_column_its_bounds(shop):
    """Arrow writes no min and max for values over 4 KiB; the other row groups' bounds do not enclose them."""
    customers = pa.array(["m", "n", "a" * 5000, "z" * 5000])
    (file,) = shop.write(shop.target(row_group_rows=2), shop.orders(4, customer=customers))
    plan = MetricsPlan(shop.schema, shop.schema, {})
    by_footer = plan.measure(shop.parquet(file).metadata, plan.tally())
    assert 2 not in by_footer["lower_bounds"]
    assert 2 not in by_footer["upper_bounds"]
    assert 1 in by_footer["lower_bounds"]


def test_bounds_that_arrow_leaves_out_are_taken_from_the_rows(shop):
    """FILE-12: of the row groups that lack them only; the others have theirs in the footer."""
    customers = pa.array(["m", "n", "b" * 5000, None, "z" * 5000, "a"])
    (file,) = shop.write(shop.target(row_group_rows=2), shop.orders(6, customer=customers))
    assert bytes.fromhex(file.lower_bounds[2]) == b"a"
    assert bytes.fromhex(file.upper_bounds[2]) == b"z" * 15 + b"{"
    full = shop.target(row_group_rows=2, properties={"write.metadata.metrics.default": "full"})
    (file,) = shop.write(full, shop.orders(6, customer=customers))
    assert bytes.fromhex(file.upper_bounds[2]) == b"z" * 5000


def test_a_bound_is_the_zero_that_is_in_the_rows(shop):
    (file,) = shop.write(shop.target(row_group_rows=1), shop.orders(2, weight=pa.array([0.0, 0.0])))
    zero = struct.pack("<d", 0.0).hex()
    assert (file.lower_bounds[4], file.upper_bounds[4]) == (zero, zero)


@pytest.mark.parametrize(
    ("customer", "bound"),
    [
        ("z" * 17, "z" * 15 + "{"),
        ("z" * 15 + "\U0010ffff" * 5, "z" * 14 + "{"),
        ("z" * 15 + "\ud7ff!", "z" * 15 + "\ue000"),
        ("\U0010ffff" * 17, None),
        ("\U0010ffff" * 16, "\U0010ffff" * 16),
    ],
)
def test_an_upper_bound_is_shortened_to_the_next_text_that_is_higher(shop, customer, bound):
    (file,) = shop.write(shop.target(), shop.orders(1, customer=pa.array([customer])))
    found = file.upper_bounds.get(2)
    assert (None if found is None else bytes.fromhex(found).decode()) == bound
    assert bytes.fromhex(file.lower_bounds[2]).decode() == customer[:16]


def test_a_row_group_of_nulls_costs_no_bounds(shop):
    customers = pa.array(["m", "n", None, None])
    (file,) = shop.write(shop.target(row_group_rows=2), shop.orders(4, customer=customers))
    assert bytes.fromhex(file.lower_bounds[2]) == b"m"
    assert bytes.fromhex(file.upper_bounds[2]) == b"n"


def test_a_moment_past_the_year_9999_has_bounds_as_well(shop):
    moments = pa.array([0, YEAR_10000_US], pa.timestamp("us", "UTC"))
    (file,) = shop.write(shop.target(), shop.orders(2, placed_at=moments))
    assert longs(file.upper_bounds[5]) == YEAR_10000_US


def test_the_tables_metrics_properties_are_followed(shop):
    properties = {
        "write.metadata.metrics.default": "counts",
        "write.metadata.metrics.column.customer": "none",
        "write.metadata.metrics.column.placed_at": "full",
    }
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    batch = shop.orders(1, customer=pa.array(["a"]), placed_at=shop.moments(noon))
    (file,) = shop.write(shop.target(properties=properties), batch)
    assert set(file.lower_bounds) == {5}
    assert 2 not in file.value_counts
    assert 1 in file.value_counts
    assert 7 not in file.value_counts, "inside a list there are no counts"
    assert 7 in file.column_sizes


def test_a_description_survives_the_trip_to_the_driver(shop):
    """FILE-13, FILE-16"""
    (file,) = shop.write(shop.target(sort_order_json='{"order-id": 2, "fields": []}', schema_id=4), shop.orders(3))
    again = WrittenFile.from_json(file.to_json())
    assert again == file
    assert (again.table, again.content, again.format) == ("shop.orders", "data", "parquet")
    assert (again.schema_id, again.spec_id, again.sort_order_id) == (4, 0, 2)


def test_a_description_that_changed_on_its_way_is_refused(shop):
    """FILE-14"""
    (file,) = shop.write(shop.target(), shop.orders(3))
    damaged = file.to_json().replace('"record_count": 3', '"record_count": 4')
    with pytest.raises(InvalidState, match="changed on its way"):
        WrittenFile.from_json(damaged)


def test_the_content_checksum_is_that_of_the_bytes_on_disk(shop):
    """FILE-14"""
    import zlib

    (file,) = shop.write(shop.target(checksum=True), shop.orders(1000))
    (path,) = shop.files_on_disk()
    assert file.checksum == f"crc32:{zlib.crc32(path.read_bytes()):08x}"
