"""The coordinator on tables in memory: epochs become snapshots, in order, each once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.commit import EpochOutcome
from frazil.commit.outcome import unique_files
from frazil.errors import (
    InvalidState,
)
from frazil.protocol.positions import EMPTY_SPAN, Position, Range, Span
from frazil.protocol.register import Epoch, batch_id
from frazil.protocol.summary import Counts
from frazil.table import WrittenFile


def test_every_epoch_is_one_snapshot_of_each_table_it_has_rows_for(shop: Any) -> None:
    """EPOCH-01, COMMIT-16, REC-19."""
    one = shop.started()
    for number in (1, 2, 3):
        landed = one.commit(shop.write(one))
        assert landed.epoch == number
        assert landed.register.frontier.offset(("orders", 1)) == number * 10
    assert [(r.action, r.epoch) for r in shop.history()] == [
        ("start", 0),
        ("append", 1),
        ("append", 2),
        ("append", 3),
    ]
    assert len(shop.dead.history("orders")) == 4
    shop.require_exactly_once()
    shop.require_gapless()


def test_files_that_are_written_show_only_with_their_epochs_commit(shop: Any) -> None:
    """EPOCH-13: however many files an epoch has, all of them or none."""
    one = shop.started()
    outcome = shop.write(one)
    more = shop.file(shop.anchor, [])
    assert shop.anchor.live_paths == []
    one.commit(replace(outcome, files={shop.anchor.name: [*outcome.files[shop.anchor.name], more]}))
    assert len(shop.anchor.live_paths) == 2
    assert len(shop.history()) == 2


def test_what_landed_is_reported_with_its_counts(shop: Any) -> None:
    """COMMIT-14, COMMIT-20."""
    one = shop.started()
    outcome = shop.write(one)
    shop.dead.meanwhile.append(lambda: shop.clock.sleep(0.25))
    landed = one.commit(outcome)
    assert landed.counts == Counts(delivered=20, landed=18, dead=2)
    assert (landed.files, landed.commit_ms) == (2, 250)
    assert one.frontier == landed.register.frontier
    record = shop.history()[-1]
    assert (record.counts, record.data_files, record.duration_ms) == (landed.counts, 1, 250)
    assert shop.dead.history("orders")[-1].counts == Counts(delivered=2, landed=2)


def test_a_side_table_without_rows_is_not_touched(shop: Any) -> None:
    one = shop.started()
    before = shop.dead.observe("orders").snapshot_id
    one.commit(shop.written(one, Span({("orders", 0): Range(0, 1)})))
    assert shop.dead.observe("orders").snapshot_id != before
    before = shop.dead.observe("orders").snapshot_id
    one.commit(shop.written(one, Span({("orders", 0): Range(1, 9)})))
    assert shop.dead.observe("orders").snapshot_id == before


def test_a_side_tables_history_is_gapless_even_though_it_sits_epochs_out(shop: Any) -> None:
    one = shop.started()
    for start, end in ((0, 5), (5, 9), (9, 12)):
        one.commit(shop.written(one, Span({("orders", 0): Range(start, end)})))
    spans = [r.span.ranges["orders", 0] for r in shop.dead.history("orders") if r.span]
    assert spans == [Range(0, 5), Range(5, 12)]


def test_an_epoch_of_dead_letters_only_still_moves_the_anchor(shop: Any) -> None:
    one = shop.started()
    landed = one.commit(shop.written(one, Span({("orders", 0): Range(0, 1)})))
    assert landed.counts == Counts(delivered=1, dead=1)
    assert one.frontier.offset(("orders", 0)) == 1
    shop.require_exactly_once()


def test_files_reported_twice_land_once(shop: Any) -> None:
    """COMMIT-19, FAULT-04: a task that Spark ran twice."""
    one = shop.started()
    outcome = shop.write(one)
    doubled = {name: [*files, *files] for name, files in outcome.files.items()}
    landed = one.commit(replace(outcome, files=doubled))
    assert landed.files == 2
    shop.require_exactly_once()


def test_one_path_with_two_contents_is_refused_before_anything_is_sent(shop: Any) -> None:
    """COMMIT-19."""
    one = shop.started()
    outcome = shop.write(one)
    (file,) = outcome.files[shop.anchor.name]
    torn = {**outcome.files, shop.anchor.name: [file, replace(file, record_count=1)]}
    with pytest.raises(InvalidState, match="reported twice, with different contents") as refused:
        one.commit(replace(outcome, files=torn))
    assert refused.value.actual != refused.value.expected
    assert shop.dead.live_paths == shop.anchor.live_paths == []


def test_files_of_a_table_that_is_not_the_pipelines_are_refused_and_not_forgotten(shop: Any) -> None:
    one = shop.started()
    outcome = shop.write(one)
    with pytest.raises(InvalidState, match=r"shop\.other"):
        one.commit(replace(outcome, files={**outcome.files, "shop.other": []}))
    assert shop.anchor.live_paths == []


def test_an_epoch_without_a_span_is_refused_whatever_files_it_brings(shop: Any) -> None:
    """Its batch id would be that of every other empty span, and its files be taken for committed."""
    one = shop.started()
    nowhere = replace(shop.write(one), span=EMPTY_SPAN)
    with pytest.raises(InvalidState, match="covers nothing"):
        one.commit(nowhere)


def test_an_epoch_that_is_in_already_is_a_no_op_with_a_warning(shop: Any) -> None:
    """EPOCH-15, FAULT-03: also when others have landed since; what was written again is never referenced."""
    one = shop.started()
    first = shop.write(one)
    one.commit(first)
    one.commit(shop.write(one))
    before = (shop.anchor.live_paths, shop.dead.live_paths, one.registers)
    for replayed in (first, replace(first, files={shop.anchor.name: [shop.file(shop.anchor, [])]})):
        with capture_logs() as logs:
            assert one.commit(replayed) is None
        assert [(each["event"], each["epoch"]) for each in logs] == [("epoch is committed already", 1)]
    assert (shop.anchor.live_paths, shop.dead.live_paths, one.registers) == before
    one.commit(shop.write(one))
    shop.require_exactly_once()


@pytest.mark.parametrize("end", [11, 15])
def test_an_epoch_number_that_comes_again_with_another_span_is_refused(shop: Any, end: int) -> None:
    """EPOCH-15, COMMIT-13: one snapshot per epoch; neither rows hidden nor doubled."""
    one = shop.started()
    first = shop.write(one)
    one.commit(first)
    before = shop.anchor.live_paths
    for start in (0, 10):
        other = shop.written(one, Span({("orders", 0): Range(start, end)}))
        with pytest.raises(InvalidState, match="epoch 1 is committed, and comes again with another span"):
            one.commit(replace(other, epoch=first.epoch))
    assert shop.anchor.live_paths == before


@pytest.mark.parametrize(("start", "end"), [(9, 20), (0, 10), (11, 20)])
def test_an_epoch_out_of_order_is_refused(shop: Any, start: int, end: int) -> None:
    """COMMIT-16: neither a row twice nor a hole."""
    one = shop.started()
    one.commit(shop.write(one))
    before = shop.anchor.live_paths
    with pytest.raises(InvalidState, match=r"the frontier of orders\[0\] would (go back|jump)"):
        one.commit(shop.written(one, Span({("orders", 0): Range(start, end)})))
    assert shop.anchor.live_paths == before


def test_loss_that_the_user_allows_moves_the_frontier_and_is_written_down(shop: Any) -> None:
    """FAULT-33."""
    one = shop.started()
    lost = Span({("orders", 0): Range(0, 50), ("orders", 1): Range(0, 7)})
    read = Span({("orders", 0): Range(50, 60)})
    one.commit(replace(shop.written(one, read), skipped=lost))
    assert [one.frontier.offset(p) for p in shop.partitions] == [60, 7]
    assert shop.history()[-1].skipped == lost
    one.commit(shop.write(one))
    assert [one.frontier.offset(p) for p in shop.partitions] == [70, 17]


def test_a_topic_added_without_records_does_not_look_like_a_changed_register(shop: Any) -> None:
    """Its id is known before any of its positions; the register must say so after encoding too."""
    one = shop.started()
    shop.topic_ids = {**shop.topic_ids, "returns": "another-id"}
    one.commit(shop.write(one))
    one.commit(shop.write(one))
    assert shop.anchor.observe("orders").register.frontier.topic_ids == shop.topic_ids


def test_partitions_that_appear_mid_way_join(shop: Any) -> None:
    """FAULT-36."""
    one = shop.started()
    one.commit(shop.written(one, Span({("orders", 0): Range(0, 5), ("orders", 2): Range(3, 8)})))
    one.commit(shop.written(one, Span({("orders", 2): Range(8, 9)})))
    assert one.frontier.offset(("orders", 2)) == 9


def test_two_pipelines_share_a_table_without_knowing_of_each_other(shop: Any) -> None:
    one = shop.started()
    other = shop.coordinator()
    other.pipeline = "returns"
    other.start(shop.beginning, adopt=True)
    one.commit(shop.write(one))
    other.commit(shop.write(other))
    one.commit(shop.write(one))
    assert len(shop.anchor.live_paths) == 3


def file(path: str = "a.parquet", rows: int = 1) -> WrittenFile:
    return WrittenFile("shop.orders", path, 0, 0, rows, 100)


def test_files_keep_their_order_and_lose_their_doubles() -> None:
    """COMMIT-19."""
    assert unique_files([file("b"), file("a"), file("b")]) == [file("b"), file("a")]
    assert unique_files([]) == []


def test_an_outcome_is_empty_without_files_and_without_loss() -> None:
    span = Span({("t", 0): Range(0, 5)})
    empty = EpochOutcome(Epoch(1), span, Counts(delivered=5, filtered=5), {"shop.orders": []})
    assert empty.is_empty
    assert not replace(empty, files={"shop.orders": [file()]}).is_empty
    assert not replace(empty, skipped=span).is_empty


class TestEmptyEpochs:
    def test_a_resolved_time_without_changes_is_carried_with_what_waits(self, shop: Any) -> None:
        """EPOCH-02, EPOCH-08: the next epoch begins behind it, before any table says so."""
        one = shop.started()
        (first, *_) = one.frontier.positions
        empty = replace(shop.write(one, filtered=True), resolved="10", lows={first: 3})
        assert one.commit(empty) is None
        assert one.frontier.resolved is None
        assert (one.reached.resolved, one.reached.positions[first].low) == ("10", 3)
        assert one.reached.covers(one.frontier.advance(empty.span))
        later = replace(shop.write(one, after=empty.span), epoch=Epoch(2), resolved="20")
        landed = one.commit(later)
        assert landed is not None
        assert landed.register.frontier == one.reached == one.frontier
        assert one.frontier.resolved == "20"
        assert one.frontier.positions[first].low is None
        assert landed.register.batch_id == batch_id("orders", shop.anchor.name, later.span, "20")

    def test_an_epoch_without_rows_makes_no_snapshot_and_is_carried_by_the_next(self, shop: Any) -> None:
        """EPOCH-14, FAULT-40."""
        one = shop.started()
        before = shop.anchor.observe("orders").snapshot_id
        empty = shop.write(one, filtered=True)
        assert one.commit(empty) is None
        assert shop.anchor.observe("orders").snapshot_id == before
        assert one.frontier == shop.beginning(), "only what is durable counts"

        landed = one.commit(replace(shop.write(one, after=empty.span), epoch=Epoch(2)))
        assert landed.epoch == 2
        assert landed.counts == Counts(delivered=40, landed=18, filtered=20, dead=2)
        assert shop.history()[-1].span.ranges["orders", 0] == Range(0, 20)

    def test_many_empty_epochs_are_carried_together(self, shop: Any) -> None:
        """EPOCH-14."""
        one = shop.started()
        span = EMPTY_SPAN
        for number in range(1, 6):
            outcome = replace(shop.write(one, after=span, filtered=True), epoch=Epoch(number))
            assert one.commit(outcome) is None
            span = span.then(outcome.span)
        landed = one.settle()
        assert landed.epoch == 5
        assert one.frontier.offset(("orders", 0)) == 50
        assert shop.history()[-1].action == "heartbeat"

    def test_settling_lands_what_empty_epochs_left_over_and_otherwise_nothing(self, shop: Any) -> None:
        """EPOCH-14, FAULT-40: a stop loses no progress, an idle one recommits nothing."""
        one = shop.started()
        assert one.settle() is None
        one.commit(shop.write(one, filtered=True))
        assert one.settle() is not None
        snapshot = shop.anchor.observe("orders").snapshot_id
        assert one.settle() is None
        assert shop.anchor.observe("orders").snapshot_id == snapshot

    def test_a_heartbeat_carries_the_frontier_when_nothing_landed_for_long(self, shop: Any) -> None:
        """EPOCH-14."""
        one = shop.started(heartbeat_s=300)
        first = shop.write(one, filtered=True)
        assert one.commit(first) is None
        shop.clock.sleep(299.9)
        second = replace(shop.write(one, after=first.span, filtered=True), epoch=Epoch(2))
        assert one.commit(second) is None
        shop.clock.sleep(0.1)
        third = shop.write(one, after=first.span.then(second.span), filtered=True)
        landed = one.commit(replace(third, epoch=Epoch(3)))
        assert landed.register.frontier.offset(("orders", 0)) == 30
        assert shop.history()[-1].action == "heartbeat"
        assert shop.anchor.live_paths == []

    def test_without_a_heartbeat_an_empty_epoch_waits_for_ever(self, shop: Any) -> None:
        one = shop.started(heartbeat_s=None)
        shop.clock.sleep(10**6)
        assert one.commit(shop.write(one, filtered=True)) is None

    def test_an_epoch_that_skipped_something_is_not_empty(self, shop: Any) -> None:
        """FAULT-33: loss is written down at once."""
        one = shop.started()
        lost = Span({("orders", 0): Range(0, 5)})
        read = shop.written(one, Span({("orders", 0): Range(5, 9)}), filtered=True)
        assert one.commit(replace(read, skipped=lost)) is not None
        assert shop.history()[-1].skipped == lost

    def test_loss_behind_a_carried_epoch_keeps_the_history_gapless(self, shop: Any) -> None:
        one = shop.started()
        one.commit(shop.written(one, Span({("orders", 0): Range(0, 5)}), filtered=True))
        read = shop.written(one, Span({("orders", 0): Range(9, 12)}))
        landed = one.commit(replace(read, epoch=Epoch(2), skipped=Span({("orders", 0): Range(5, 9)})))
        assert landed.register.frontier.offset(("orders", 0)) == 12
        one.commit(shop.written(one, Span({("orders", 0): Range(12, 13)})))
        shop.require_gapless()

    def test_after_a_fault_carried_epochs_are_planned_again(self, shop: Any) -> None:
        """What is carried is not durable: the table is the truth."""
        one = shop.started()
        one.commit(shop.write(one, filtered=True))
        one.resync()
        one.commit(shop.write(one, records=5))
        assert one.frontier.offset(("orders", 0)) == 5
        shop.require_exactly_once()

    def test_the_leader_epoch_of_a_carried_record_is_not_claimed_for_a_later_offset(self, shop: Any) -> None:
        """FAULT-44: markers of a later leader at the tail would look like a truncated log."""
        one = shop.started()
        p0, p1 = shop.partitions
        carried = shop.written(one, Span({p0: Range(0, 5), p1: Range(0, 5)}), filtered=True)
        one.commit(replace(carried, leader_epochs={p0: 3, p1: 3}))
        markers = shop.written(one, Span({p0: Range(5, 7)}), filtered=True)
        landed = one.commit(replace(markers, epoch=Epoch(2)), force=True)
        assert landed.register.frontier.positions == {p0: Position(7, None), p1: Position(5, 3)}

    def test_the_mark_of_the_last_carried_epoch_is_landed(self, shop: Any) -> None:
        """It belongs to the offset that the frontier then has."""
        one = shop.started()
        p0, p1 = shop.partitions
        carried = shop.written(one, Span({p0: Range(0, 5), p1: Range(0, 5)}), filtered=True)
        one.commit(replace(carried, marks={p0: "five", p1: "five"}))
        later = shop.written(one, Span({p0: Range(5, 7)}), filtered=True)
        landed = one.commit(replace(later, epoch=Epoch(2), marks={p0: "seven"}), force=True)
        assert {p: at.mark for p, at in landed.register.frontier.positions.items()} == {p0: "seven", p1: "five"}


def test_what_empty_epochs_left_over_is_landed_by_the_heartbeat_when_nothing_more_comes(shop: Any) -> None:
    """EPOCH-14: carried progress does not wait for the next row."""
    one = shop.started(heartbeat_s=300.0)
    assert one.commit(shop.written(one, Span({("orders", 0): Range(0, 5)}), filtered=True)) is None
    assert one.tend() is None, "not due yet"
    shop.clock.now_ms += 300_000
    landed = one.tend()
    assert landed is not None
    assert one.frontier.offset(("orders", 0)) == 5
    assert one.tend() is None, "nothing is left over"
