"""More partitions than files may be open: still one file for each, and every row in it."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType

from frazil.errors import StorageUnavailable
from tests.write.test_files import files_no_larger_than
from tests.write.test_sort import ASC, FIRST, by

pytestmark = pytest.mark.thorough

BY_CUSTOMER = (2, IdentityTransform(), "customer")
BY_CITY = (9, IdentityTransform(), "city")
CUSTOMERS = 100


def wide_batches(shop, seed: int, customers: int = CUSTOMERS, batches: int = 30, rows: int = 500):
    """Orders numbered through, of customers in random order; one of them is nobody."""
    chance = random.Random(seed)
    names = [None, *(f"customer {number}" for number in range(customers - 1))]
    for start in range(0, batches * rows, rows):
        yield pa.record_batch(
            {
                "order_id": pa.array(range(start, start + rows), pa.int64()),
                "customer": pa.array(chance.choices(names, k=rows), pa.string()),
            }
        )


def orders_by_customer(batches) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {}
    for batch in batches:
        for order, customer in zip(batch["order_id"].to_pylist(), batch["customer"].to_pylist(), strict=True):
            found.setdefault(customer, []).append(order)
    return found


@pytest.mark.parametrize("max_waiting_bytes", [100_000, 2**26])
@pytest.mark.parametrize("max_open_files", [1, 8, 64, 500])
def test_each_partition_gets_one_file_with_its_rows_as_they_came(shop, max_open_files, max_waiting_bytes):
    """FILE-08"""
    batches = list(wide_batches(shop, seed=1))
    files = shop.write(
        shop.target(BY_CUSTOMER), *batches, max_open_files=max_open_files, max_waiting_bytes=max_waiting_bytes
    )
    assert len(files) == CUSTOMERS
    assert {file.partition[0]: shop.ids([file]) for file in files} == orders_by_customer(batches)


def test_with_a_sort_order_the_rows_of_each_partition_are_sorted(shop):
    """FILE-08 and FILE-11"""
    batches = list(wide_batches(shop, seed=2))
    order = by((1, BucketTransform(2), ASC, FIRST), (1, IdentityTransform(), ASC, FIRST))
    files = shop.write(shop.target(BY_CUSTOMER, sort_order_json=order), *batches, max_waiting_bytes=100_000)
    assert len(files) == CUSTOMERS
    bucket = BucketTransform(2).transform(LongType())
    expected = {
        customer: sorted(orders, key=lambda number: (bucket(number), number))
        for customer, orders in orders_by_customer(batches).items()
    }
    assert {file.partition[0]: shop.ids([file]) for file in files} == expected


def test_no_more_files_are_open_than_allowed(shop):
    """FILE-08"""
    writer = shop.writer(shop.target(BY_CUSTOMER), max_open_files=5, max_waiting_bytes=100_000)
    folder = str(shop.folder)

    def open_files() -> int:
        descriptors = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
        return sum(os.readlink(each).startswith(folder) for each in descriptors if os.path.lexists(each))

    for batch in wide_batches(shop, seed=3):
        writer.write(batch)
        assert open_files() == 5
    assert len(writer.close()) == CUSTOMERS
    assert open_files() == 0


def test_a_partition_that_outgrows_a_file_goes_on_in_the_next_one(shop):
    """FILE-04: among partitions that are written as they come, and among those that wait."""
    target = shop.target(BY_CUSTOMER, target_file_size_bytes=100_000)
    chance = random.Random(4)
    batches = [
        shop.orders(
            1_000,
            customer=pa.array([f"customer {number % 4}" for number in range(1_000)]),
            address=pa.array([{"city": chance.randbytes(50).hex()} for _ in range(1_000)]),
        )
        for _ in range(20)
    ]
    files = shop.write(target, *batches, max_open_files=2, max_waiting_bytes=200_000)
    for number in range(4):
        rolled = [file for file in files if file.partition == (f"customer {number}",)]
        assert sum(file.record_count for file in rolled) == 5_000
        assert len(rolled) > 2
        assert all(90_000 <= file.file_size_bytes <= 110_000 for file in rolled[:-1])


def test_many_tiny_batches_make_one_row_group_in_the_order_they_came(shop):
    batches = list(wide_batches(shop, seed=5, customers=2, batches=300, rows=3))
    files = shop.write(shop.target(BY_CUSTOMER), *batches)
    assert {file.partition[0]: shop.ids([file]) for file in files} == orders_by_customer(batches)
    assert [shop.parquet(file).metadata.num_row_groups for file in files] == [1, 1]


def test_rows_whose_partition_values_are_all_null_land_in_one_file(shop):
    batches = [shop.orders(100) for _ in range(3)]
    (file,) = shop.write(shop.target(BY_CUSTOMER, BY_CITY), *batches, max_open_files=1)
    assert file.partition == (None, None)
    assert shop.ids([file]) == [*range(100)] * 3


def test_a_disk_that_fills_up_under_the_last_partitions_leaves_no_file(shop):
    writer = shop.writer(shop.target(BY_CUSTOMER), max_open_files=1, max_waiting_bytes=2**24)
    for _ in range(4):
        cities = pa.array([{"city": os.urandom(500).hex()} for _ in range(300)])
        writer.write(shop.orders(300, customer=pa.array([f"c{n % 3}" for n in range(300)]), address=cities))
    assert len(shop.files_on_disk()) == 1
    with files_no_larger_than(100_000), pytest.raises(StorageUnavailable, match="cannot write"):
        writer.close()
    assert shop.files_on_disk() == []
