"""The feed itself, without frazil: what a plain fold of the events makes of them is what PostgreSQL has."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from tests.e2e.cdc.compare import differences, postgres_rows, require_same
from tests.e2e.cdc.feed import Shop, fold
from tests.e2e.cdc.tables import ORDERS, SESSIONS, TABLES
from tests.e2e.cdc.workload import BIG

ROW = ("nord", 1, None, Decimal("1.10"), None, b"", True)


@pytest.mark.real
def test_the_events_of_a_workload_fold_into_the_rows_of_its_tables(open_shop: Callable[[int], Shop]) -> None:
    """TEST-14: rows from before the feed, small and big transactions, changed keys, all types."""
    shop = open_shop(20261115)
    shop.workload.fill(300)
    shop.follow()
    shop.workload.run(60)
    require_folded(shop)
    shop.workload.insert_many(ORDERS)
    shop.workload.change_many(ORDERS)
    shop.workload.run(40)
    require_folded(shop)
    assert len(postgres_rows(shop.connection, ORDERS)) > BIG // 2
    assert all(count > 1 for count in shop.ends(SESSIONS).values())


def require_folded(shop: Shop) -> None:
    shop.settle()
    for table in TABLES:
        require_same(table, postgres_rows(shop.connection, table), fold(table, shop.events(table)))


def test_rows_that_agree_have_no_differences() -> None:
    assert differences(ORDERS, [ROW], [ROW]) == []


def test_a_difference_names_the_key_and_the_columns() -> None:
    other = (*ROW[:3], Decimal("1.20"), *ROW[4:])
    expected = ["different ('nord', 1): amount is Decimal('1.20'), not Decimal('1.10')"]
    assert differences(ORDERS, [ROW], [other]) == expected


def test_missing_extra_and_doubled_rows_are_told_apart() -> None:
    second, third = ("nord", 2, *ROW[2:]), ("nord", 3, *ROW[2:])
    found = differences(ORDERS, [ROW, second], [ROW, ROW, third])
    assert found == ["doubled   ('nord', 1)", "missing   ('nord', 2)", "extra     ('nord', 3)"]


def test_a_failure_shows_the_first_differences_and_counts_the_rest() -> None:
    rows = [("nord", number, *ROW[2:]) for number in range(15)]
    with pytest.raises(AssertionError, match=r"15 differences\n  missing   \('nord', 0\)[\s\S]*and 5 more"):
        require_same(ORDERS, rows, [])
