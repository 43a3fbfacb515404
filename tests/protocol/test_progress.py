"""The three frontiers of a running pipeline."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import InvalidState
from frazil.protocol.positions import Frontier, Position
from frazil.protocol.progress import Progress


def at(*offsets: int) -> Frontier:
    return Frontier({("t", p): Position(o) for p, o in enumerate(offsets)})


MOVES: dict[str, Callable[[Progress, Frontier], None]] = {
    "received": Progress.receive,
    "planned": Progress.plan,
    "committed": Progress.commit,
}


@pytest.mark.parametrize("name", MOVES)
def test_no_frontier_ever_goes_back(name: str) -> None:
    """EPOCH-10."""
    progress = Progress()
    move = MOVES[name]
    move(progress, at(5, 5))
    move(progress, at(5, 6))
    for back in (at(4, 7), at(5), at()):
        with pytest.raises(InvalidState, match=f"the {name} frontier would go back"):
            move(progress, back)
    assert getattr(progress, name) == at(5, 6)


def test_a_refusal_says_where_the_frontier_stands_and_where_it_would_go() -> None:
    progress = Progress()
    progress.commit(at(5))
    with pytest.raises(InvalidState) as refused:
        progress.commit(at(4))
    assert (refused.value.expected, refused.value.actual) == ("{'t': ['', '5']}", "{'t': ['', '4']}")


def test_partitions_may_be_added() -> None:
    """FAULT-36."""
    progress = Progress()
    progress.commit(at(5))
    progress.commit(at(5, 0, 3))
    assert progress.committed == at(5, 0, 3)


def test_replanning_takes_the_planned_frontier_back_to_the_committed_one_and_nothing_else() -> None:
    progress = Progress()
    progress.receive(at(100))
    progress.plan(at(50))
    progress.commit(at(10))
    progress.replan(at(10))
    assert (progress.received, progress.planned, progress.committed) == (at(100), at(10), at(10))
    progress.plan(at(20))


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), max_size=20))
def test_whatever_is_reported_committed_only_rises(reports: list[list[int]]) -> None:
    """EPOCH-10."""
    progress = Progress()
    for report in reports:
        before = progress.committed
        try:
            progress.commit(at(*report))
        except InvalidState:
            assert progress.committed == before
        assert progress.committed.covers(before)
