"""The coordinator on tables in memory: starts, epochs, faults, take-overs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from frazil.commit import EpochOutcome, StopRequested
from frazil.commit.coordinator import unique_files
from frazil.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitOutcomeUnknown,
    Fenced,
    InvalidState,
    TableChanged,
)
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Position, Range, Span
from frazil.protocol.register import Epoch
from frazil.protocol.summary import Counts
from frazil.table import WrittenFile
from frazil.table.memory import Fault

INTERVAL_S = 30.0
SILENCE = 4
"""as many observations as the coordinators of these tests are patient for"""


def fail() -> Frontier:
    pytest.fail("the starting offsets are resolved once in a pipeline's life")


class TestStart:
    def test_the_first_start_records_the_starting_offsets_in_every_table(self, shop: Any) -> None:
        """SRC-06, COMMIT-12."""
        started = shop.coordinator().start(lambda: shop.beginning(5))
        assert (started.generation, started.epoch, started.frontier) == (1, 0, shop.beginning(5))
        for table in (shop.anchor, shop.dead):
            seen = table.observe("orders")
            assert seen.snapshot_id is not None, "a start is a commit"
            assert seen.register.frontier == shop.beginning(5)
            assert seen.register.table_uuid == seen.uuid

    def test_the_next_start_goes_on_from_the_table_under_a_new_generation(self, shop: Any) -> None:
        """FAULT-03, FAULT-14, FAULT-22, REC-18, REC-19: nothing but the table was kept."""
        first = shop.started()
        first.commit(shop.write(first))
        started = shop.coordinator().start(fail, take_over=True)
        assert (started.generation, started.epoch, started.frontier.offset(("orders", 0))) == (2, 1, 10)

    def test_a_first_start_that_dies_between_side_and_anchor_decides_latest_once(self, shop: Any) -> None:
        shop.anchor.faults.extend([Fault.REFUSED] * SILENCE)
        with pytest.raises(CommitConflict):
            shop.coordinator().start(lambda: shop.beginning(123))
        started = shop.coordinator().start(fail, take_over=True)
        assert started.frontier == shop.beginning(123)
        assert started.generation == 2

    def test_a_start_whose_reply_is_lost_has_started(self, shop: Any) -> None:
        """FAULT-07."""
        shop.dead.faults.append(Fault.REPLY_LOST)
        shop.anchor.faults.append(Fault.REPLY_LOST)
        one = shop.started()
        assert [record.action for record in shop.history()] == ["start"]
        one.commit(shop.write(one))
        shop.require_exactly_once()

    def test_of_two_that_start_at_the_same_moment_one_wins_and_the_other_waits(self, shop: Any) -> None:
        """FAULT-06: both looked at empty tables."""
        one, other = shop.coordinator("host/1/1"), shop.coordinator("host/2/2")
        shop.dead.meanwhile.append(lambda: other.start(shop.beginning))
        shop.dead_processes.add("host/2/2")  # it dies later, so that the first may have its turn
        started = one.start(lambda: shop.beginning(99))
        assert (started.generation, started.frontier) == (2, shop.beginning()), "the quicker one decided"
        with pytest.raises(Fenced):
            other.commit(shop.write(other))
        one.commit(shop.write(one))
        shop.require_exactly_once()

    def test_of_two_that_claim_side_and_anchor_in_turns_exactly_one_goes_on(self, shop: Any) -> None:
        """FAULT-06: the other one came between the first one's two claims."""
        one, other = shop.coordinator(), shop.coordinator()
        shop.anchor.meanwhile.append(lambda: other.start(fail, take_over=True))
        one.start(shop.beginning, take_over=True)
        one.commit(shop.write(one))
        with pytest.raises(Fenced):
            other.commit(shop.write(other))
        shop.require_exactly_once()

    @pytest.mark.parametrize("sides", [True, False])
    def test_an_epoch_that_lands_between_look_and_claim_is_taken_along(self, shop: Any, sides: bool) -> None:
        """FAULT-05: taking over from one that is alive and committing."""
        old = shop.started(sides=sides)
        outcome = shop.write(old)
        shop.anchor.meanwhile.append(lambda: old.commit(outcome))
        if sides:  # it is already fenced on the side table, so let the whole epoch land before that
            shop.anchor.meanwhile.clear()
            shop.dead.meanwhile.append(lambda: old.commit(outcome))
        new = shop.coordinator(sides=sides)
        started = new.start(fail, take_over=True)
        assert started.frontier.offset(("orders", 0)) == 10
        with pytest.raises(Fenced):
            old.commit(shop.write(old))
        new.commit(shop.write(new))
        shop.require_gapless()

    def test_a_delayed_epoch_of_the_one_before_cannot_land_after_a_start(self, shop: Any) -> None:
        """FAULT-05, FAULT-10."""
        old = shop.started()
        shop.anchor.faults.extend([Fault.DELAYED] * SILENCE)
        with pytest.raises(CommitConflict):
            old.commit(shop.write(old))
        new = shop.started()
        assert shop.anchor.release() == 0
        new.commit(shop.write(new))
        shop.require_exactly_once()

    def test_it_waits_for_one_that_may_be_alive(self, shop: Any) -> None:
        """A courtesy to supervisors; safety does not rest on it."""
        shop.started("elsewhere/1/1")
        before_ms = shop.clock.now_ms
        shop.coordinator().start(fail)
        assert shop.clock.now_ms - before_ms == 3 * INTERVAL_S * 1000

    def test_it_does_not_wait_for_one_that_is_known_to_be_dead(self, shop: Any) -> None:
        shop.started("here/1/1")
        shop.dead_processes.add("here/1/1")
        shop.coordinator().start(fail)
        assert shop.clock.slept_s == []

    def test_a_wish_to_stop_ends_the_waiting(self, shop: Any) -> None:
        shop.started("elsewhere/1/1")
        world = shop.world()
        world.stop.set()
        with pytest.raises(StopRequested):
            shop.coordinator(world=world).start(fail)
        assert shop.anchor.observe("orders").register.generation == 1, "nothing was claimed"

    def test_a_silent_catalog_is_asked_again_and_then_named(self, shop: Any) -> None:
        shop.anchor.silences = SILENCE - 1
        shop.started()
        shop.dead.silences = SILENCE
        with pytest.raises(CatalogUnavailable, match="dead_letters"):
            shop.coordinator().start(fail)

    def test_data_of_others_is_refused_until_it_is_adopted(self, shop: Any) -> None:
        shop.anchor.append_foreign("foreign.parquet")
        with pytest.raises(TableChanged, match="already has data") as refused:
            shop.coordinator().start(shop.beginning)
        assert "--adopt" in refused.value.remedy
        shop.coordinator().start(shop.beginning, adopt=True)
        assert shop.anchor.live_paths == ["foreign.parquet"]

    def test_a_recreated_anchor_is_noticed_by_the_side_table_that_is_ahead(self, shop: Any) -> None:
        """FAULT-38."""
        one = shop.started()
        one.commit(shop.write(one))
        shop.anchor.recreate()
        with pytest.raises(TableChanged, match="dropped and created again"):
            shop.coordinator().start(fail, take_over=True)

    def test_a_rolled_back_table_is_noticed_and_names_the_choice(self, shop: Any) -> None:
        """FAULT-20."""
        one = shop.started()
        for _ in range(3):
            one.commit(shop.write(one))
        shop.anchor.roll_back(2)
        with pytest.raises(TableChanged, match="rolled back or replaced") as stop:
            shop.coordinator().start(fail, take_over=True)
        assert "set the current snapshot to" in stop.value.remedy
        assert "--adopt" in stop.value.remedy

    def test_a_rollback_followed_by_expiry_is_noticed_too(self, shop: Any) -> None:
        """FAULT-18, FAULT-20: the snapshot is gone either way, but the head is older than it was."""
        one = shop.started()
        for _ in range(3):
            one.commit(shop.write(one))
        shop.anchor.roll_back(2)
        shop.anchor.expire()
        with pytest.raises(TableChanged, match="rolled back"):
            shop.coordinator().start(fail, take_over=True)

    def test_a_table_rolled_back_to_nothing_is_noticed(self, shop: Any) -> None:
        """FAULT-20: CREATE OR REPLACE leaves the register and no head."""
        one = shop.started()
        one.commit(shop.write(one))
        shop.anchor.roll_back(99)
        with pytest.raises(TableChanged, match="rolled back or replaced"):
            shop.coordinator().start(fail, take_over=True)


class TestEpochs:
    def test_every_epoch_is_one_snapshot_of_each_table_it_has_rows_for(self, shop: Any) -> None:
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

    def test_what_landed_is_reported_with_its_counts(self, shop: Any) -> None:
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

    def test_a_side_table_without_rows_is_not_touched(self, shop: Any) -> None:
        one = shop.started()
        before = shop.dead.observe("orders").snapshot_id
        one.commit(shop.written(one, Span({("orders", 0): Range(0, 1)})))
        assert shop.dead.observe("orders").snapshot_id != before
        before = shop.dead.observe("orders").snapshot_id
        one.commit(shop.written(one, Span({("orders", 0): Range(1, 9)})))
        assert shop.dead.observe("orders").snapshot_id == before

    def test_a_side_tables_history_is_gapless_even_though_it_sits_epochs_out(self, shop: Any) -> None:
        one = shop.started()
        for start, end in ((0, 5), (5, 9), (9, 12)):
            one.commit(shop.written(one, Span({("orders", 0): Range(start, end)})))
        spans = [r.span.ranges["orders", 0] for r in shop.dead.history("orders") if r.span]
        assert spans == [Range(0, 5), Range(5, 12)]

    def test_an_epoch_of_dead_letters_only_still_moves_the_anchor(self, shop: Any) -> None:
        one = shop.started()
        landed = one.commit(shop.written(one, Span({("orders", 0): Range(0, 1)})))
        assert landed.counts == Counts(delivered=1, dead=1)
        assert one.frontier.offset(("orders", 0)) == 1
        shop.require_exactly_once()

    def test_files_reported_twice_land_once(self, shop: Any) -> None:
        """COMMIT-19, FAULT-04: a task that Spark ran twice."""
        one = shop.started()
        outcome = shop.write(one)
        doubled = {name: [*files, *files] for name, files in outcome.files.items()}
        landed = one.commit(replace(outcome, files=doubled))
        assert landed.files == 2
        shop.require_exactly_once()

    def test_one_path_with_two_contents_is_refused_before_anything_is_sent(self, shop: Any) -> None:
        """COMMIT-19."""
        one = shop.started()
        outcome = shop.write(one)
        (file,) = outcome.files[shop.anchor.name]
        torn = {**outcome.files, shop.anchor.name: [file, replace(file, record_count=1)]}
        with pytest.raises(InvalidState, match="reported twice, with different contents") as refused:
            one.commit(replace(outcome, files=torn))
        assert refused.value.actual != refused.value.expected
        assert shop.dead.live_paths == shop.anchor.live_paths == []

    def test_files_of_a_table_that_is_not_the_pipelines_are_refused_and_not_forgotten(self, shop: Any) -> None:
        one = shop.started()
        outcome = shop.write(one)
        with pytest.raises(InvalidState, match=r"shop\.other"):
            one.commit(replace(outcome, files={**outcome.files, "shop.other": []}))
        assert shop.anchor.live_paths == []

    def test_an_epoch_without_a_span_is_refused_whatever_files_it_brings(self, shop: Any) -> None:
        """Its batch id would be that of every other empty span, and its files be taken for committed."""
        one = shop.started()
        nowhere = replace(shop.write(one), span=EMPTY_SPAN)
        with pytest.raises(InvalidState, match="covers nothing"):
            one.commit(nowhere)

    @pytest.mark.parametrize(("start", "end"), [(9, 20), (0, 10), (11, 20)])
    def test_an_epoch_out_of_order_is_refused(self, shop: Any, start: int, end: int) -> None:
        """COMMIT-16: neither a row twice nor a hole."""
        one = shop.started()
        one.commit(shop.write(one))
        before = shop.anchor.live_paths
        with pytest.raises(InvalidState, match=r"the frontier of orders\[0\] would (go back|jump)"):
            one.commit(shop.written(one, Span({("orders", 0): Range(start, end)})))
        assert shop.anchor.live_paths == before

    def test_loss_that_the_user_allows_moves_the_frontier_and_is_written_down(self, shop: Any) -> None:
        """FAULT-33."""
        one = shop.started()
        lost = Span({("orders", 0): Range(0, 50), ("orders", 1): Range(0, 7)})
        read = Span({("orders", 0): Range(50, 60)})
        one.commit(replace(shop.written(one, read), skipped=lost))
        assert [one.frontier.offset(p) for p in shop.partitions] == [60, 7]
        assert shop.history()[-1].skipped == lost
        one.commit(shop.write(one))
        assert [one.frontier.offset(p) for p in shop.partitions] == [70, 17]

    def test_a_topic_added_without_records_does_not_look_like_a_changed_register(self, shop: Any) -> None:
        """Its id is known before any of its positions; the register must say so after encoding too."""
        one = shop.started()
        shop.topic_ids = {**shop.topic_ids, "returns": "another-id"}
        one.commit(shop.write(one))
        one.commit(shop.write(one))
        assert shop.anchor.observe("orders").register.frontier.topic_ids == shop.topic_ids

    def test_partitions_that_appear_mid_way_join(self, shop: Any) -> None:
        """FAULT-36."""
        one = shop.started()
        one.commit(shop.written(one, Span({("orders", 0): Range(0, 5), ("orders", 2): Range(3, 8)})))
        one.commit(shop.written(one, Span({("orders", 2): Range(8, 9)})))
        assert one.frontier.offset(("orders", 2)) == 9

    def test_two_pipelines_share_a_table_without_knowing_of_each_other(self, shop: Any) -> None:
        one = shop.started()
        other = shop.coordinator()
        other.pipeline = "returns"
        other.start(shop.beginning, adopt=True)
        one.commit(shop.write(one))
        other.commit(shop.write(other))
        one.commit(shop.write(one))
        assert len(shop.anchor.live_paths) == 3


class TestEmptyEpochs:
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


class TestFaults:
    @pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REFUSED, Fault.DELAYED])
    @pytest.mark.parametrize("where", ["anchor", "dead"])
    def test_a_fault_at_any_table_changes_nothing(self, shop: Any, fault: Fault, where: str) -> None:
        """COMMIT-04, COMMIT-06, COMMIT-11, FAULT-07, FAULT-10."""
        one = shop.started()
        for _ in range(3):
            getattr(shop, where).faults.append(fault)
            one.commit(shop.write(one))
            shop.anchor.release()
            shop.dead.release()
        shop.require_exactly_once()
        shop.require_gapless()

    def test_an_outcome_unknown_that_had_landed_is_taken_up(self, shop: Any) -> None:
        """COMMIT-11, FAULT-07."""
        one = shop.started()
        outcome = shop.write(one)
        shop.anchor.faults.append(Fault.REPLY_LOST)
        shop.anchor.silences = SILENCE
        with pytest.raises(CommitOutcomeUnknown):
            one.commit(outcome)
        one.resync()
        assert (one.frontier.offset(("orders", 0)), one.epoch) == (10, 1)
        one.commit(shop.write(one))
        shop.require_exactly_once()
        shop.require_gapless()

    def test_an_outcome_unknown_that_had_not_landed_is_planned_again_without_doubling_dead_letters(
        self, shop: Any
    ) -> None:
        """COMMIT-11: the side table landed, the anchor did not; the floor has moved with it."""
        one = shop.started()
        shop.anchor.faults.append(Fault.REFUSED)
        outcome = shop.write(one)
        shop.anchor.silences = SILENCE
        with pytest.raises(CommitOutcomeUnknown):
            one.commit(outcome)
        one.resync()
        assert one.frontier == shop.beginning()
        assert one.floors[shop.dead.name].offset(("orders", 0)) == 10
        assert one.epoch == 1, "the side table's: the next number is a new one"
        one.commit(shop.write(one, records=25))
        shop.require_exactly_once()

    def test_an_outcome_unknown_that_lands_after_its_epoch_was_planned_anew(self, shop: Any) -> None:
        """FAULT-10: plans again, and does not ask anybody to repair the table."""
        one = shop.started()
        outcome = shop.write(one)
        shop.anchor.faults.append(Fault.DELAYED)
        shop.anchor.silences = SILENCE
        with pytest.raises(CommitOutcomeUnknown):
            one.commit(outcome)
        one.resync()
        anew = shop.write(one, records=15)
        assert shop.anchor.release() == 1
        with pytest.raises(CommitOutcomeUnknown, match="has landed after all"):
            one.commit(anew)
        one.resync()
        one.commit(shop.write(one))
        shop.require_exactly_once()
        shop.require_gapless()

    def test_a_catalog_that_acknowledges_and_forgets_is_noticed_with_the_next_epoch(self, shop: Any) -> None:
        """FAULT-13."""
        one = shop.started()
        shop.anchor.faults.append(Fault.ACKNOWLEDGED_ONLY)
        one.commit(shop.write(one))
        with pytest.raises(TableChanged, match="is not what this coordinator left there"):
            one.commit(shop.write(one))
        again = shop.started()
        assert again.frontier == shop.beginning(), "the table is the truth"
        again.commit(shop.write(again))
        shop.require_exactly_once()

    def test_a_crash_between_side_and_anchor_leaves_every_dead_letter_once(self, shop: Any) -> None:
        """FAULT-02, FAULT-03: the side table is one commit ahead."""
        one = shop.started()
        one.commit(shop.write(one))
        shop.anchor.faults.extend([Fault.REFUSED] * SILENCE)
        with pytest.raises(CommitConflict):
            one.commit(shop.write(one, records=20))
        again = shop.coordinator()
        started = again.start(fail, take_over=True)
        assert started.frontier.offset(("orders", 0)) == 10
        assert started.floors[shop.dead.name].offset(("orders", 0)) == 30
        assert started.epoch == 2
        for records in (5, 30, 10):
            again.commit(shop.write(again, records))
        shop.require_exactly_once()
        shop.require_gapless()

    @pytest.mark.parametrize("records", [1, 10, 20, 21, 100])
    def test_however_the_span_is_cut_after_such_a_crash(self, shop: Any, records: int) -> None:
        one = shop.started()
        shop.anchor.faults.extend([Fault.REFUSED] * SILENCE)
        with pytest.raises(CommitConflict):
            one.commit(shop.write(one, records=20))
        again = shop.started()
        while (again.frontier.offset(("orders", 0)) or 0) < 40:
            again.commit(shop.write(again, records), force=True)
        shop.require_exactly_once()
        shop.require_gapless()

    def test_whoever_is_paused_past_a_take_over_is_fenced(self, shop: Any) -> None:
        """FAULT-05: across the other's epochs, compaction and expiry of everything."""
        paused = shop.started()
        paused.commit(shop.write(paused))
        late = shop.write(paused)
        other = shop.started()
        for _ in range(3):
            other.commit(shop.write(other))
        shop.compact(shop.anchor)
        shop.compact(shop.dead)
        before = shop.anchor.live_paths, shop.dead.live_paths
        with pytest.raises(Fenced, match=other.id):
            paused.commit(late)
        with pytest.raises(Fenced):
            paused.resync()
        assert (shop.anchor.live_paths, shop.dead.live_paths) == before
        other.commit(shop.write(other))
        shop.require_exactly_once()

    def test_whoever_is_paused_inside_its_commit_is_fenced_too(self, shop: Any) -> None:
        """FAULT-05: the other one takes over between the side table's commit and the anchor's."""
        paused = shop.started()
        late = shop.write(paused)
        other = shop.coordinator()
        shop.anchor.meanwhile.append(lambda: other.start(fail, take_over=True))
        with pytest.raises(Fenced):
            paused.commit(late)
        other.commit(shop.write(other, records=7))
        other.commit(shop.write(other, records=7))
        shop.require_exactly_once()
        shop.require_gapless()

    def test_a_paused_coordinator_that_held_only_empty_epochs_is_fenced_when_it_settles(self, shop: Any) -> None:
        paused = shop.started()
        paused.commit(shop.write(paused, filtered=True))
        shop.started()
        with pytest.raises(Fenced):
            paused.settle()

    def test_expiry_of_every_snapshot_of_ours_does_not_matter(self, shop: Any) -> None:
        """FAULT-18, FAULT-19, REC-19, REC-20."""
        one = shop.started()
        for _ in range(3):
            one.commit(shop.write(one))
            shop.compact(shop.anchor)
            shop.compact(shop.dead)
        assert shop.history() == []
        one.commit(shop.write(one))
        again = shop.started()
        assert again.frontier.offset(("orders", 0)) == 40
        shop.require_exactly_once()

    def test_a_rollback_under_a_running_coordinator_stops_it(self, shop: Any) -> None:
        """FAULT-20."""
        one = shop.started()
        for _ in range(2):
            one.commit(shop.write(one))
        shop.anchor.roll_back(1)
        with pytest.raises(TableChanged, match="rolled back"):
            one.commit(shop.write(one))

    def test_a_table_recreated_under_a_running_coordinator_stops_it(self, shop: Any) -> None:
        """FAULT-38."""
        one = shop.started()
        one.commit(shop.write(one))
        shop.anchor.recreate()
        with pytest.raises(TableChanged, match="another table than before"):
            one.commit(shop.write(one))
        one.resync()
        with pytest.raises(TableChanged, match="another table than before"):
            one.commit(shop.write(one))
        assert shop.anchor.live_paths == []

    def test_after_a_rollback_the_remedy_with_adopt_lands_the_lost_epochs_again_and_nothing_twice(
        self, shop: Any
    ) -> None:
        """FAULT-20: remove the property, name the offsets, adopt."""
        one = shop.started()
        for _ in range(3):
            one.commit(shop.write(one))
        shop.anchor.roll_back(2)
        shop.anchor._state = replace(shop.anchor._state, registers={})
        again = shop.coordinator()
        started = again.start(lambda: shop.beginning(10), take_over=True, adopt=True)
        assert started.frontier == shop.beginning(10)
        assert started.epoch == 3, "the side table's epochs must go on rising"
        again.commit(shop.write(again, records=15))
        again.commit(shop.write(again, records=15))
        shop.require_exactly_once()
        dead = [r.epoch for r in shop.dead.history("orders")]
        assert dead == sorted(dead)


class TestAbandonedFiles:
    def abandoned(self, shop: Any, one: Any) -> list[str]:
        outcome = shop.write(one)
        one.abandon(outcome)
        return sorted(file.path for files in outcome.files.values() for file in files)

    def test_they_are_deleted_only_after_our_next_commit(self, shop: Any) -> None:
        """FAULT-02: until then nobody knows whether somebody else's commit needs the disk to stay as it is."""
        one = shop.started()
        paths = self.abandoned(shop, one)
        assert shop.anchor.deleted == shop.dead.deleted == set()
        one.commit(shop.write(one))
        assert sorted(shop.anchor.deleted | shop.dead.deleted) == paths
        shop.require_exactly_once()

    def test_they_stay_while_epochs_are_carried(self, shop: Any) -> None:
        one = shop.started()
        self.abandoned(shop, one)
        assert one.commit(shop.write(one, filtered=True)) is None
        assert shop.anchor.deleted == set()

    def test_they_stay_when_we_are_fenced(self, shop: Any) -> None:
        """FAULT-05."""
        one = shop.started()
        self.abandoned(shop, one)
        shop.started()
        with pytest.raises(Fenced):
            one.commit(shop.write(one))
        assert shop.anchor.deleted == shop.dead.deleted == set()

    def test_they_stay_when_a_commit_fails(self, shop: Any) -> None:
        one = shop.started()
        self.abandoned(shop, one)
        shop.anchor.faults.extend([Fault.REFUSED] * SILENCE)
        with pytest.raises(CommitConflict):
            one.commit(shop.write(one))
        assert shop.anchor.deleted == set()

    def test_files_of_a_commit_whose_outcome_is_unknown_are_never_deleted(self, shop: Any) -> None:
        """COMMIT-11, FAULT-07."""
        one = shop.started()
        shop.anchor.faults.append(Fault.REPLY_LOST)
        outcome = shop.write(one)
        shop.anchor.silences = SILENCE
        with pytest.raises(CommitOutcomeUnknown):
            one.commit(outcome)
        one.resync()
        one.commit(shop.write(one))
        assert shop.anchor.deleted == shop.dead.deleted == set()

    def test_a_file_that_cannot_be_deleted_costs_space_and_nothing_else(self, shop: Any, monkeypatch: Any) -> None:
        """FAULT-11."""
        one = shop.started()
        self.abandoned(shop, one)

        def denied(paths: object) -> None:
            raise PermissionError(13, "denied")

        monkeypatch.setattr(shop.anchor, "delete_files", denied)
        assert one.commit(shop.write(one)) is not None
        one.commit(shop.write(one))
        shop.require_exactly_once()


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
