"""Planning: does the frontier still fit the source, where does the next span end, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import DataLoss, SourceChanged
from frazil.protocol.plan import (
    Cut,
    FlushPolicy,
    Hold,
    Log,
    Ready,
    Remapping,
    SourceObserved,
    SourceStop,
    Unsure,
    added_partitions,
    backlog,
    cut,
    lag,
    look_again,
    reconcile,
)
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Partition, Position, Range, Span

P0: Partition = ("orders", 0)
P1: Partition = ("orders", 1)
IDS = {"orders": "id-1"}


def frontier(**offsets: int) -> Frontier:
    return Frontier({("orders", int(p[1:])): Position(o, leader_epoch=4) for p, o in offsets.items()}, IDS)


def seen(logs: dict[Partition, tuple[int, int]], ids: dict[str, str] = IDS) -> SourceObserved:
    return SourceObserved({p: Log(*bounds) for p, bounds in logs.items()}, ids)


def stop(found: object) -> SourceStop:
    assert isinstance(found, SourceStop)
    return found


class TestReconcileRowByRow:
    def test_another_topic_id_stops(self) -> None:
        """FAULT-34, FAULT-35: the topic was deleted and created again, even with more records than before."""
        found = stop(reconcile(frontier(p0=10), seen({P0: (0, 99)}, {"orders": "id-2"}), fail_on_data_loss=False))
        assert isinstance(found.error, SourceChanged)
        assert all(word in found.error.message for word in ("orders", "id-1", "id-2"))
        assert found.error.remedy

    def test_another_topic_id_is_noticed_even_when_partitions_are_missing(self) -> None:
        """FAULT-34: a topic recreated with fewer partitions is not an answer to be asked for again."""
        found = reconcile(frontier(p0=1, p1=1), seen({P0: (0, 5)}, {"orders": "id-2"}), fail_on_data_loss=True)
        assert isinstance(stop(found).error, SourceChanged)

    def test_a_topic_recreated_while_it_was_read_is_noticed_afterwards(self) -> None:
        """FAULT-34."""
        read = Span({P0: Range(1, 9)})
        assert look_again(frontier(p0=1), read, seen({P0: (0, 9)})) is None
        assert isinstance(look_again(frontier(p0=1), read, seen({}, {})), Unsure)
        after = look_again(frontier(p0=1), read, seen({P0: (0, 9)}, {"orders": "id-2"}))
        assert isinstance(stop(after).error, SourceChanged)

    @pytest.mark.parametrize("allowed", [True, False])
    def test_an_end_before_the_frontier_stops_whatever_loss_is_allowed(self, allowed: bool) -> None:
        """FAULT-35, FAULT-44: the log was truncated."""
        found = stop(reconcile(frontier(p0=10), seen({P0: (0, 9)}), fail_on_data_loss=not allowed))
        assert isinstance(found.error, SourceChanged)
        assert all(word in found.error.message for word in ("orders[0]", "9", "10", "truncated"))

    def test_retention_beyond_the_frontier_stops_and_names_the_range(self) -> None:
        """FAULT-33, EPOCH-07."""
        found = stop(reconcile(frontier(p0=10, p1=5), seen({P0: (1010, 2000), P1: (6, 9)}), fail_on_data_loss=True))
        assert isinstance(found.error, DataLoss)
        assert "1,001 offsets" in found.error.message
        assert "orders[0] offsets 10 to 1009, orders[1] offsets 5 to 5" in found.error.message
        assert "fail_on_data_loss = false" in found.error.remedy

    def test_loss_that_the_user_allows_is_skipped_and_said(self) -> None:
        """FAULT-33."""
        found = reconcile(frontier(p0=10, p1=5), seen({P0: (20, 30), P1: (0, 9)}), fail_on_data_loss=False)
        assert found == Ready(
            Frontier({P0: Position(20), P1: Position(5, leader_epoch=4)}, IDS), Span({P0: Range(10, 20)})
        )

    def test_a_partition_without_a_position_is_read_from_its_earliest_offset(self) -> None:
        """FAULT-36: records that came before anybody noticed the partition are not lost."""
        found = reconcile(frontier(p0=10), seen({P0: (0, 10), P1: (3, 9)}), fail_on_data_loss=True)
        assert found == Ready(Frontier({P0: Position(10, leader_epoch=4), P1: Position(3)}, IDS))

    def test_a_topic_without_a_position_is_read_from_its_earliest_offset(self) -> None:
        other: Partition = ("returns", 0)
        ids = {**IDS, "returns": "id-9"}
        found = reconcile(frontier(p0=10), seen({P0: (0, 10), other: (0, 4)}, ids), fail_on_data_loss=True)
        assert isinstance(found, Ready)
        assert found.frontier.offset(other) == 0
        assert found.frontier.topic_ids == ids

    def test_a_partition_missing_in_the_answer_is_asked_for_again(self) -> None:
        """FAULT-36, FAULT-37: it must never start over at its earliest offset."""
        found = reconcile(frontier(p0=10, p1=5), seen({P0: (0, 10)}), fail_on_data_loss=True)
        assert isinstance(found, Unsure)
        assert "orders[1]" in found.reason

    def test_an_answer_without_any_partitions_is_asked_for_again(self) -> None:
        """FAULT-37."""
        for nothing in (seen({}), seen({}, {})):
            assert isinstance(reconcile(frontier(p0=10), nothing, fail_on_data_loss=False), Unsure)

    def test_gaps_are_nothing(self) -> None:
        """FAULT-31, FAULT-32: compaction and markers leave gaps between records, the offsets still go on."""
        before = frontier(p0=10)
        assert reconcile(before, seen({P0: (0, 1_000_000)}), fail_on_data_loss=True) == Ready(before)

    def test_a_frontier_exactly_at_the_earliest_or_at_the_end_is_fine(self) -> None:
        for bounds in ((10, 10), (10, 20), (0, 10)):
            found = reconcile(frontier(p0=10), seen({P0: bounds}), fail_on_data_loss=True)
            assert found == Ready(frontier(p0=10))

    def test_an_empty_source_is_ready(self) -> None:
        """FAULT-40."""
        assert reconcile(Frontier(), seen({}, {}), fail_on_data_loss=True) == Ready(Frontier())


LOGS = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 8)),
    st.tuples(st.integers(0, 50), st.integers(0, 80)).map(lambda pair: Log(pair[0], pair[0] + pair[1])),
    max_size=10,
)


def beginning(logs: dict[Partition, Log]) -> Frontier:
    return Frontier({p: Position(log.earliest) for p, log in logs.items()})


@given(LOGS, st.integers(1, 120))
def test_a_span_never_exceeds_max_records_and_begins_at_the_frontier(
    logs: dict[Partition, Log], max_records: int
) -> None:
    """EPOCH-11."""
    start, source = beginning(logs), SourceObserved(logs, {})
    span = cut(start, source, max_records)
    assert span.records == min(max_records, backlog(start, source)) or 0 < span.records <= max_records
    for partition, r in span.ranges.items():
        assert r.start == start.offset(partition)
        assert r.start < r.end <= logs[partition].end
    assert start.advance(span).covers(start)


@given(LOGS, st.integers(1, 120))
def test_what_fits_is_taken_whole(logs: dict[Partition, Log], room: int) -> None:
    """EPOCH-06: catching up, the first span reaches from the frontier to the end."""
    start, source = beginning(logs), SourceObserved(logs, {})
    span = cut(start, source, backlog(start, source) + room)
    assert {p: r.end for p, r in span.ranges.items()} == {
        p: log.end for p, log in logs.items() if log.end > log.earliest
    }


@given(LOGS, st.integers(1, 40))
def test_cutting_drains_the_source_in_finite_steps_without_a_gap(
    logs: dict[Partition, Log], max_records: int
) -> None:
    """EPOCH-06, COMMIT-16."""
    here, source = beginning(logs), SourceObserved(logs, {})
    for _ in range(backlog(here, source) + 1):
        span = cut(here, source, max_records)
        if not span:
            break
        here = here.advance(span)
    assert backlog(here, source) == 0
    assert cut(here, source, max_records) == EMPTY_SPAN


def test_shares_follow_the_backlog_so_that_all_partitions_catch_up_together() -> None:
    logs = {P0: Log(0, 900), P1: Log(0, 100)}
    span = cut(beginning(logs), SourceObserved(logs, IDS), 100)
    assert span == Span({P0: Range(0, 90), P1: Range(0, 10)})


def test_no_partition_starves_when_an_epoch_holds_fewer_records_than_there_are_partitions() -> None:
    """A partition that is never read falls behind until retention takes its records."""
    partitions: list[Partition] = [("orders", p) for p in range(20)]
    here = Frontier({p: Position(0) for p in partitions})
    for end in range(1, 201):
        source = SourceObserved({p: Log(0, end) for p in partitions}, IDS)
        here = here.advance(cut(here, source, max_records=5))
    offsets = [here.offset(p) or 0 for p in partitions]
    assert max(offsets) - min(offsets) <= 1


def test_a_partition_without_a_place_to_read_from_is_left_out() -> None:
    assert cut(frontier(p0=0), seen({P0: (0, 5), P1: (0, 5)}), 100) == Span({P0: Range(0, 5)})


def test_a_look_can_be_limited_to_what_an_earlier_one_saw() -> None:
    """Finishing what is there now: later records and partitions wait, but loss and truncation still show."""
    goal = seen({P0: (0, 10), P1: (0, 10)})
    assert seen({P0: (0, 99), P1: (3, 10), ("orders", 2): (0, 5)}).up_to(goal) == seen({P0: (0, 10), P1: (3, 10)})
    assert seen({P0: (50, 99), P1: (0, 7)}).up_to(goal) == seen({P0: (50, 50), P1: (0, 7)})
    assert seen({P0: (0, 99)}).up_to(goal) == seen({P0: (0, 10)}), "a missing partition stays missing"


def test_the_backlog_counts_what_lies_ahead() -> None:
    assert backlog(frontier(p0=3, p1=9), seen({P0: (0, 10), P1: (0, 9)})) == 7


POLICY = FlushPolicy(interval_s=30, max_records=1000, max_bytes=100_000)


@pytest.mark.parametrize(
    ("waiting", "elapsed_s", "record_bytes", "decision"),
    [
        (0, 3600, 10, Hold(30)),  # nothing to flush, however long
        (1, 0, 10, Hold(30)),
        (1, 29, 10, Hold(1)),
        (1, 30, 10, Cut(1000)),  # time
        (999, 29, 10, Hold(1)),
        (1000, 0, 10, Cut(1000)),  # records
        (10**9, 0, 10, Cut(1000)),
        (99, 0, 1000, Hold(30)),
        (100, 0, 1000, Cut(100)),  # bytes
        (1, 0, 10**9, Cut(1)),  # one record is larger than an epoch may be
        (1000, 0, 0.0, Cut(1000)),  # empty records
    ],
)
def test_an_epoch_closes_on_time_on_records_or_on_bytes_whichever_comes_first(
    waiting: int, elapsed_s: float, record_bytes: float, decision: Cut | Hold
) -> None:
    """EPOCH-11, EPOCH-12: the time test also fires when no further record arrives."""
    assert POLICY.decide(waiting=waiting, elapsed_s=elapsed_s, record_bytes=record_bytes) == decision


def test_draining_closes_at_once_whatever_there_is_but_never_nothing() -> None:
    """EPOCH-06, EPOCH-14, FAULT-40."""
    assert POLICY.decide(waiting=1, elapsed_s=0, record_bytes=10, drain=True) == Cut(1000)
    assert POLICY.decide(waiting=0, elapsed_s=99, record_bytes=10, drain=True) == Hold(30)


@given(st.integers(0, 10**7), st.floats(0, 10**6), st.floats(0, 10**8), st.booleans())
def test_a_decision_is_always_possible_to_follow(
    waiting: int, elapsed_s: float, record_bytes: float, drain: bool
) -> None:
    match POLICY.decide(waiting=waiting, elapsed_s=elapsed_s, record_bytes=record_bytes, drain=drain):
        case Cut(limit):
            assert waiting > 0
            assert 1 <= limit <= POLICY.max_records
            assert limit == 1 or limit * record_bytes <= POLICY.max_bytes
        case Hold(seconds):
            assert 0 <= seconds <= POLICY.interval_s


def test_a_topic_taken_out_of_the_pipeline_file_is_a_matter_for_the_user() -> None:
    both = Frontier({("a", 0): Position(5), ("b", 0): Position(5)}, {"a": "1", "b": "2"})
    found = reconcile(both, SourceObserved({("a", 0): Log(0, 9)}, {"a": "1"}), fail_on_data_loss=True)
    assert isinstance(found, SourceStop)
    assert "no longer names b" in str(found.error)


def test_lag_is_counted_from_the_frontier_or_from_what_is_left_of_the_log() -> None:
    logs = {("a", 0): Log(0, 9), ("a", 1): Log(4, 9), ("a", 2): Log(0, 9)}
    frontier_of_a = Frontier({("a", 0): Position(7), ("a", 1): Position(1)})
    assert lag(frontier_of_a, SourceObserved(logs, {})) == {("a", 0): 2, ("a", 1): 5, ("a", 2): 9}


class TestMorePartitions:
    """CHG-10: keys move when a topic gets more partitions, and their newer changes must not go first."""

    def test_new_ones_wait_until_the_old_ones_are_read_to_where_they_ended(self) -> None:
        remapping = Remapping()
        assert remapping.readable(frontier(p0=3), seen({P0: (0, 10)})).logs.keys() == {P0}
        grown = seen({P0: (0, 10), P1: (0, 5)})
        assert remapping.readable(frontier(p0=3), grown).logs.keys() == {P0}
        grown = seen({P0: (0, 20), P1: (0, 5)})
        assert remapping.readable(frontier(p0=9), grown).logs.keys() == {P0}
        assert remapping.readable(frontier(p0=10), grown).logs.keys() == {P0, P1}

    def test_each_time_that_it_happens(self) -> None:
        remapping = Remapping()
        remapping.readable(frontier(p0=3), seen({P0: (0, 10), P1: (0, 5)}))
        remapping.readable(frontier(p0=10, p1=5), seen({P0: (0, 10), P1: (0, 5)}))
        grown = seen({P0: (0, 12), P1: (0, 9), ("orders", 2): (0, 1)})
        assert remapping.readable(frontier(p0=10, p1=9), grown).logs.keys() == {P0, P1}
        assert remapping.readable(frontier(p0=12, p1=9), grown).logs.keys() == {P0, P1, ("orders", 2)}

    def test_a_topic_that_was_never_read_has_no_new_ones(self) -> None:
        assert added_partitions(Frontier(), seen({P0: (0, 1), P1: (0, 1)})) == []
        assert added_partitions(frontier(p0=1), seen({P0: (0, 1), P1: (0, 1)})) == [P1]
