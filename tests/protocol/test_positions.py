"""Positions, spans and frontiers: what they say is what was read, once, and never less than before."""

from __future__ import annotations

import json
import string
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from frazil.errors import InvalidState
from frazil.protocol.positions import (
    EMPTY_SPAN,
    Frontier,
    Partition,
    Position,
    Range,
    Slice,
    Span,
    describe_ranges,
    name_partition,
)

TOPICS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249)
PARTITIONS = st.tuples(TOPICS, st.integers(0, 300))
OFFSETS = st.integers(0, 2**63 - 1)
POSITIONS = st.builds(Position, OFFSETS, st.none() | st.integers(0, 2**31 - 1), low=st.none() | OFFSETS)
RANGES = st.tuples(OFFSETS, OFFSETS).map(lambda pair: Range(min(pair), max(pair)))
SPANS = st.dictionaries(PARTITIONS, RANGES, max_size=20).map(Span)
FRONTIERS = st.builds(
    Frontier, st.dictionaries(PARTITIONS, POSITIONS, max_size=20), st.dictionaries(TOPICS, st.uuids().map(str))
)


def small_spans(*, partitions: int = 6, offsets: int = 40) -> st.SearchStrategy[Span]:
    bounds = st.tuples(st.integers(0, offsets), st.integers(0, offsets))
    ranges = bounds.map(lambda pair: Range(min(pair), max(pair)))
    names = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, partitions))
    return st.dictionaries(names, ranges, max_size=8).map(Span)


def offsets_of(span: Span) -> Counter[tuple[str, int, int]]:
    return Counter((*partition, o) for partition, r in span.ranges.items() for o in range(r.start, r.end))


@given(POSITIONS)
def test_a_position_survives_its_text(position: Position) -> None:
    assert Position.parse(str(position)) == position


@given(RANGES)
def test_a_range_survives_its_text(r: Range) -> None:
    assert Range.parse(str(r)) == r


@pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 3), (-2, -1)])
def test_a_range_never_runs_backwards_or_below_zero(start: int, end: int) -> None:
    with pytest.raises(InvalidState):
        Range(start, end)


@given(SPANS)
def test_a_span_survives_its_text(span: Span) -> None:
    """COMMIT-14: the offset ranges of every partition can be read back from a summary."""
    assert Span.decode(span.encode()) == span


@given(SPANS)
def test_the_same_span_has_the_same_text_whatever_order_it_was_built_in(span: Span) -> None:
    """COMMIT-03: a batch id made of this text is the same on every try."""
    shuffled = Span(dict(reversed(list(span.ranges.items()))))
    assert shuffled.encode() == span.encode()


@given(FRONTIERS)
def test_a_frontier_survives_its_text_whatever_partitions_it_leaves_out(frontier: Frontier) -> None:
    """COMMIT-04: a register is compared by value with what was read back, so nothing may get lost on the way."""
    text = json.dumps(frontier.encode())
    assert Frontier.decode(json.loads(text)) == frontier


def test_the_id_of_a_topic_without_any_position_survives_too() -> None:
    """A topic that was added to the pipeline and has no records yet has an id, but no position."""
    frontier = Frontier({("orders", 0): Position(5)}, {"orders": "id-1", "new-topic": "id-2"})
    assert Frontier.decode(json.loads(json.dumps(frontier.encode()))) == frontier


def test_a_frontier_is_written_compactly() -> None:
    frontier = Frontier(
        {("orders", 0): Position(10), ("orders", 3): Position(7, leader_epoch=2)}, {"orders": "some-id"}
    )
    assert frontier.encode() == {"orders": ["some-id", "10 - - 7@2"]}


@given(small_spans(), st.integers(1, 12), st.sampled_from([True, False]))
def test_split_covers_the_span_exactly_once_with_at_most_n_shares(span: Span, tasks: int, known: bool) -> None:
    """SRC-02: every offset goes to exactly one task, in order."""
    positions = {p: Position(r.start, leader_epoch=4) for p, r in span.ranges.items()}
    shares = span.split(tasks, Frontier(positions if known else {}))
    assert len(shares) <= tasks
    assert all(share and all(len(part) > 0 for part in share) for share in shares)
    parts = [part for share in shares for part in share]
    assert Counter((s.topic, s.partition, o) for s in parts for o in range(s.start, s.end)) == offsets_of(span)
    assert parts == sorted(parts, key=lambda s: (s.topic, s.partition, s.start))


@given(small_spans(), st.integers(1, 12))
def test_no_share_is_larger_than_an_even_one(span: Span, tasks: int) -> None:
    even = -(-span.records // tasks)
    assert all(sum(len(part) for part in share) <= even for share in span.split(tasks, Frontier()))


def test_only_the_slice_at_the_frontier_carries_the_leader_epoch() -> None:
    """FAULT-44: the epoch fits the offset it was recorded with, and no other."""
    span = Span({("t", 0): Range(10, 20), ("t", 1): Range(5, 7)})
    frontier = Frontier({("t", 0): Position(10, 3), ("t", 1): Position(4, 9)})
    shares = span.split(3, frontier)
    assert [part for share in shares for part in share] == [
        Slice("t", 0, 10, 14, 3),
        Slice("t", 0, 14, 18),
        Slice("t", 0, 18, 20),
        Slice("t", 1, 5, 7),
    ]


@given(SPANS, st.integers(1, 9))
def test_whole_partitions_go_to_one_share_each(span: Span, tasks: int) -> None:
    """CHG-10: all changes of a key that are in one partition meet in one task."""
    shares = span.split_whole(tasks, Frontier())
    slices = [part for share in shares for part in share]
    assert len(shares) <= tasks
    assert all(shares)
    assert {(s.topic, s.partition): Range(s.start, s.end) for s in slices} == span.ranges
    assert len(slices) == len(span.ranges)


def test_the_largest_partitions_are_spread_first() -> None:
    span = Span({("t", 0): Range(0, 10), ("t", 1): Range(0, 90), ("t", 2): Range(5, 85)})
    base = Frontier({("t", 2): Position(5, 7)})
    one, other = span.split_whole(2, base)
    assert [(s.partition, s.leader_epoch) for s in one] == [(1, None)]
    assert [(s.partition, s.leader_epoch) for s in other] == [(2, 7), (0, None)]


def test_an_empty_span_has_no_shares() -> None:
    assert EMPTY_SPAN.split(4, Frontier()) == []
    assert not EMPTY_SPAN


@given(small_spans())
def test_a_frontier_after_a_span_stands_at_its_end_and_elsewhere_where_it_stood(span: Span) -> None:
    elsewhere: Partition = ("z", 0)
    before = Frontier({elsewhere: Position(99, 1), **{p: Position(r.start, 1) for p, r in span.ranges.items()}})
    after = before.advance(span, dict.fromkeys(span.ranges, 7))
    assert after.positions[elsewhere] == Position(99, 1)
    assert all(after.positions[p] == Position(r.end, 7) for p, r in span.ranges.items())
    assert after.covers(before)


def test_the_leader_epoch_of_an_older_record_is_not_claimed_for_a_later_offset() -> None:
    """FAULT-44: an epoch that does not fit its offset would look like a truncated log."""
    before = Frontier({("t", 0): Position(10, leader_epoch=3)})
    after = before.advance(Span({("t", 0): Range(10, 12)}), leader_epochs={})
    assert after.positions["t", 0] == Position(12, None)


def test_a_span_that_begins_before_the_frontier_is_refused() -> None:
    """The frontier never goes back, and no row lands twice."""
    frontier = Frontier({("t", 0): Position(10)})
    with pytest.raises(InvalidState, match=r"t\[0\]") as refused:
        frontier.advance(Span({("t", 0): Range(9, 20)}))
    assert (refused.value.actual, refused.value.expected) == ("9", "10")


def test_a_span_that_begins_beyond_the_frontier_is_refused() -> None:
    """COMMIT-16: epochs that commit out of order would leave a hole that nobody ever fills."""
    frontier = Frontier({("t", 0): Position(10)})
    with pytest.raises(InvalidState, match=r"t\[0\]") as refused:
        frontier.advance(Span({("t", 0): Range(11, 20)}))
    assert (refused.value.actual, refused.value.expected) == ("11", "10")


def test_a_partition_without_a_position_may_begin_anywhere() -> None:
    after = Frontier({("t", 0): Position(10)}).advance(Span({("t", 1): Range(1000, 1001)}))
    assert after.offset(("t", 1)) == 1001


@given(FRONTIERS, FRONTIERS)
def test_the_later_of_two_frontiers_covers_both(one: Frontier, other: Frontier) -> None:
    later = one.later(other)
    assert later.covers(one)
    assert later.covers(other)
    assert later.positions.keys() == one.positions.keys() | other.positions.keys()


@given(FRONTIERS)
def test_a_frontier_is_not_later_than_itself(frontier: Frontier) -> None:
    assert frontier.later(frontier) == frontier
    assert frontier.covers(frontier)


def test_a_frontier_that_lacks_a_partition_does_not_cover_one_that_has_it() -> None:
    """FAULT-37: an answer without partitions is not progress."""
    assert not Frontier().covers(Frontier({("t", 0): Position(1)}))


@given(small_spans(), small_spans())
def test_what_a_side_table_reaches_begins_at_its_own_frontier(own: Span, span: Span) -> None:
    frontier = Frontier({p: Position(r.start) for p, r in own.ranges.items()})
    reached = frontier.reach(span)
    for partition, r in reached.ranges.items():
        here = frontier.offset(partition)
        assert r.start == (span.ranges[partition].start if here is None else here)
        assert r.end == span.ranges[partition].end
        assert len(r) > 0
    # It always fits: this is what makes a side table's history gapless.
    frontier.advance(reached)


def test_a_side_table_that_is_ahead_reaches_only_what_is_new() -> None:
    frontier = Frontier({("t", 0): Position(100), ("t", 1): Position(100)})
    span = Span({("t", 0): Range(0, 150), ("t", 1): Range(0, 100)})
    assert frontier.reach(span) == Span({("t", 0): Range(100, 150)})


def test_two_spans_in_a_row_become_one() -> None:
    """EPOCH-14: an epoch without rows is carried on by the next."""
    first = Span({("t", 0): Range(0, 5), ("t", 1): Range(0, 2)})
    second = Span({("t", 0): Range(5, 9), ("t", 2): Range(4, 6)})
    merged = Span({("t", 0): Range(0, 9), ("t", 1): Range(0, 2), ("t", 2): Range(4, 6)})
    assert first.then(second) == merged


@given(small_spans())
def test_a_span_followed_by_nothing_stays_as_it_is(span: Span) -> None:
    assert span.then(EMPTY_SPAN) == span
    assert EMPTY_SPAN.then(span) == span


def test_spans_that_overlap_never_become_one() -> None:
    with pytest.raises(InvalidState, match="overlaps"):
        Span({("t", 0): Range(0, 5)}).then(Span({("t", 0): Range(4, 9)}))


def test_ranges_are_named_for_people_with_their_last_offset() -> None:
    """FAULT-33: the lost range is named."""
    ranges = {("orders", 1): Range(5, 6), ("orders", 0): Range(10, 20)}
    assert describe_ranges(ranges.items()) == "orders[0] offsets 10 to 19, orders[1] offsets 5 to 5"
    assert name_partition(("orders", 3)) == "orders[3]"


@given(small_spans())
def test_a_span_counts_its_offsets(span: Span) -> None:
    assume(span.ranges)
    assert span.records == sum(offsets_of(span).values())
    assert bool(span) == (span.records > 0)


def test_a_planned_frontier_takes_over_the_leader_epochs_known_at_its_offsets() -> None:
    """FAULT-44: so that a log that was truncated and has grown again is noticed while the pipeline runs."""
    planned = Frontier({("a", 0): Position(5), ("a", 1): Position(9), ("a", 2): Position(1)}, {"a": "id"})
    committed = Frontier({("a", 0): Position(5, 3), ("a", 1): Position(8, 3)})
    knowing = planned.knowing(committed)
    assert knowing.positions == {("a", 0): Position(5, 3), ("a", 1): Position(9), ("a", 2): Position(1)}
    assert knowing.topic_ids == {"a": "id"}


def test_marks_are_kept_beside_their_offsets_and_cost_nothing_where_there_are_none() -> None:
    """Registers of sources without marks stay as they always were."""
    plain = Frontier({("a", 0): Position(5, 3), ("a", 2): Position(1)}, {"a": "id"})
    assert plain.encode() == {"a": ["id", "5@3 - 1"]}
    marked = Frontier({("a", 0): Position(5, 3, 'in "x y"'), ("a", 2): Position(1)}, {"a": "id"})
    assert marked.encode() == {"a": ["id", "5@3 - 1", ['in "x y"', "", ""]]}
    assert Frontier.decode(json.loads(json.dumps(marked.encode()))) == marked


def test_a_mark_goes_with_the_offset_it_was_made_for() -> None:
    before = Frontier({("a", 0): Position(5, mark="five")})
    after = before.advance(Span({("a", 0): Range(5, 7)}), marks={("a", 0): "seven"})
    assert after.positions == {("a", 0): Position(7, mark="seven")}
    assert before.advance(Span({("a", 0): Range(5, 7)})).positions == {("a", 0): Position(7)}
    assert before.later(after) == after


def test_changes_that_wait_are_known_in_partitions_too_that_the_span_does_not_reach() -> None:
    """EPOCH-08: the epoch may have taken them up, or some of them."""
    before = Frontier({("t", 0): Position(5, 1), ("t", 1): Position(9, 2, low=7), ("t", 2): Position(4, low=2)})
    after = before.advance(Span({("t", 0): Range(5, 8)}), lows={("t", 0): 6, ("t", 1): 8}, resolved="10")
    assert after.positions == {
        ("t", 0): Position(8, low=6),
        ("t", 1): Position(9, 2, low=8),
        ("t", 2): Position(4),
    }
    assert after.resolved == "10"
    assert [position.unsettled for position in after.positions.values()] == [6, 8, 4]
    planned = before.advance(Span({("t", 0): Range(5, 8)}))
    assert planned.knowing(after) == after
