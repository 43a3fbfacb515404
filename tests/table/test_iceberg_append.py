"""Rows alone into an Iceberg table; with a real one: tests/sink/test_at_least_once.py."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from frazil.errors import CatalogUnavailable
from frazil.table.iceberg.append import append_rows


def test_a_catalog_that_says_yes_and_does_not_show_the_rows_is_not_believed() -> None:
    """COMMIT-24: at least once is not "perhaps"."""
    table = MagicMock()
    table.newTransaction().table().currentSnapshot().snapshotId.return_value = 7
    current = table.operations().current()
    current.snapshot.return_value = None
    with pytest.raises(CatalogUnavailable, match="does not show"):
        append_rows(None, "shop.orders", table, [], lambda _, file: file, {}, None)
    current.snapshot.return_value = object()
    assert append_rows(None, "shop.orders", table, [], lambda _, file: file, {}, None) == 7
    current.snapshot.assert_called_with(7)
