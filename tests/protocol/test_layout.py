"""Which files still fit a table that was altered since they were written: each rule, broken once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.protocol.layout import Deletes, Former, Layout, Shape

OLD, NOW = Layout(1, 2, 3), Layout(4, 5, 6)
ROWS = Shape(frozenset({OLD}))
EVERYWHERE = Deletes(Layout(1, 0, 0), frozenset({7}), reach_all=True)
"""under a spec of their own, without partitions"""
IN_PARTITIONS = Deletes(Layout(1, 2, 0), frozenset({7}), reach_all=False)
KNOWN = [Former(OLD), Former(EVERYWHERE.layout), Former(IN_PARTITIONS.layout)]


def changes(deletes: Deletes, *, with_rows: bool = True) -> Shape:
    return Shape(frozenset({OLD}) if with_rows else frozenset(), frozenset({deletes}))


def test_rows_that_can_still_be_read_land_as_they_were_written() -> None:
    """SCHEMA-08: schema, partition spec and sort order may all be others."""
    assert ROWS.misfit(NOW, KNOWN) == ""


def test_with_next_epoch_nothing_of_an_earlier_layout_lands() -> None:
    """SCHEMA-08, CFG-31."""
    for written in (ROWS, changes(EVERYWHERE, with_rows=False)):
        assert "next-epoch" in replace(written, mixed="next-epoch").misfit(NOW, KNOWN)
        assert replace(written, mixed="next-epoch").misfit(OLD, []) == ""


def test_what_the_table_says_against_them_counts() -> None:
    assert ROWS.misfit(NOW, [Former(OLD, "a column is required now")]) == "a column is required now"


def test_a_layout_that_the_table_says_nothing_of_is_not_trusted() -> None:
    assert "no longer knows" in ROWS.misfit(NOW, [])


@pytest.mark.parametrize("other", [NOW, Layout(1, 2, 9)])
def test_files_of_two_layouts_are_written_again(other: Layout) -> None:
    assert "not all" in Shape(frozenset({OLD, other})).misfit(NOW, [*KNOWN, Former(other)])


def test_deletes_that_reach_every_partition_land_under_another_spec() -> None:
    """SCHEMA-10: wherever somebody has rewritten a row to, they find it."""
    assert changes(EVERYWHERE).misfit(NOW, KNOWN) == ""


@pytest.mark.parametrize("with_rows", [True, False])
def test_deletes_of_partitions_of_a_former_spec_are_written_again(with_rows: bool) -> None:
    """SCHEMA-10: a row that was rewritten to the new spec would outlive its delete; with and without rows."""
    for table in (NOW, replace(OLD, spec_id=5)):
        assert "former partition spec" in changes(IN_PARTITIONS, with_rows=with_rows).misfit(table, KNOWN)


def test_deletes_of_partitions_land_while_the_spec_is_the_same() -> None:
    assert changes(IN_PARTITIONS).misfit(Layout(4, 2, 6), KNOWN) == ""


@pytest.mark.parametrize("deletes", [EVERYWHERE, IN_PARTITIONS])
def test_deletes_by_a_key_that_changed_are_written_again(deletes: Deletes) -> None:
    table = Layout(4, 2, 3)
    others = [replace(each, changed=frozenset({8})) for each in KNOWN]
    assert changes(deletes).misfit(table, others) == ""
    key = [replace(each, changed=frozenset({7, 8})) for each in KNOWN]
    assert "the key" in changes(deletes).misfit(table, key)


def test_deletes_without_rows_are_held_against_the_table_too() -> None:
    deletes = changes(EVERYWHERE, with_rows=False)
    assert deletes.misfit(NOW, KNOWN) == ""
    assert deletes.misfit(NOW, [Former(EVERYWHERE.layout, "gone")]) == "gone"
    assert str(deletes) == "schema 1, partition spec 0, sort order 0"


def test_the_table_is_asked_only_about_what_it_is_not() -> None:
    """In every commit to a table that nobody alters the answer costs nothing."""
    for table, deletes in ((OLD, EVERYWHERE), (OLD, IN_PARTITIONS)):
        assert changes(deletes).strangers(table) == frozenset()
    assert changes(EVERYWHERE).strangers(replace(OLD, sort_order_id=9)) == {OLD}
    assert changes(EVERYWHERE).strangers(NOW) == {OLD, EVERYWHERE.layout}
