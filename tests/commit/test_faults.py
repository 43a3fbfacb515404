"""A running coordinator, and all that can happen to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from frazil.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    Fenced,
    TableChanged,
)
from frazil.protocol.positions import Frontier
from frazil.table.memory import Fault

SILENCE = 4
"""as many observations as the coordinators of these tests are patient for"""


def fail() -> Frontier:
    pytest.fail("the starting offsets are resolved once in a pipeline's life")


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REFUSED, Fault.DELAYED])
@pytest.mark.parametrize("where", ["anchor", "dead"])
def test_a_fault_at_any_table_changes_nothing(shop: Any, fault: Fault, where: str) -> None:
    """COMMIT-04, COMMIT-06, COMMIT-11, FAULT-07, FAULT-10."""
    one = shop.started()
    for _ in range(3):
        getattr(shop, where).faults.append(fault)
        one.commit(shop.write(one))
        shop.anchor.release()
        shop.dead.release()
    shop.require_exactly_once()
    shop.require_gapless()


def test_an_outcome_unknown_that_had_landed_is_taken_up(shop: Any) -> None:
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


def test_an_outcome_unknown_that_had_not_landed_is_planned_again_without_doubling_dead_letters(shop: Any) -> None:
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


def test_an_outcome_unknown_that_lands_after_its_epoch_was_planned_anew(shop: Any) -> None:
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


def test_a_catalog_that_acknowledges_and_forgets_is_noticed_with_the_next_epoch(shop: Any) -> None:
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


def test_a_catalog_that_acknowledges_and_forgets_is_noticed_while_finding_one_s_bearings(shop: Any) -> None:
    """FAULT-13: another fault comes before the next epoch does."""
    one = shop.started()
    shop.anchor.faults.append(Fault.ACKNOWLEDGED_ONLY)
    one.commit(shop.write(one))
    with pytest.raises(TableChanged, match="is not what this coordinator left there"):
        one.resync()


def test_dead_letters_that_a_catalog_only_acknowledged_are_noticed_before_the_anchor_passes_them(shop: Any) -> None:
    """FAULT-13: found by the simulation; the next start took the anchor's frontier for the side table's."""
    one = shop.started()
    shop.dead.faults.append(Fault.ACKNOWLEDGED_ONLY)
    with pytest.raises(TableChanged, match="is not what this coordinator left there"):
        one.commit(shop.write(one))
    again = shop.started()
    again.commit(shop.write(again))
    shop.require_exactly_once()


def test_a_take_over_right_after_the_side_table_s_commit_is_seen_before_the_anchor_s(shop: Any) -> None:
    """FAULT-05."""
    one, other = shop.started(), shop.coordinator()
    late = shop.write(one)
    observe, looks = shop.dead.observe, []

    def observe_late(writer: str, *about: Any) -> Any:
        looks.append(writer)
        if len(looks) == 1:
            other.start(fail, take_over=True)
        return observe(writer, *about)

    shop.dead.observe = observe_late
    with pytest.raises(Fenced, match=other.id):
        one.commit(late)
    other.commit(shop.write(other))
    shop.require_exactly_once()


def test_a_crash_between_side_and_anchor_leaves_every_dead_letter_once(shop: Any) -> None:
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
def test_however_the_span_is_cut_after_such_a_crash(shop: Any, records: int) -> None:
    one = shop.started()
    shop.anchor.faults.extend([Fault.REFUSED] * SILENCE)
    with pytest.raises(CommitConflict):
        one.commit(shop.write(one, records=20))
    again = shop.started()
    while (again.frontier.offset(("orders", 0)) or 0) < 40:
        again.commit(shop.write(again, records), force=True)
    shop.require_exactly_once()
    shop.require_gapless()


def test_whoever_is_paused_past_a_take_over_is_fenced(shop: Any) -> None:
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


def test_whoever_is_paused_inside_its_commit_is_fenced_too(shop: Any) -> None:
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


def test_a_paused_coordinator_that_held_only_empty_epochs_is_fenced_when_it_settles(shop: Any) -> None:
    paused = shop.started()
    paused.commit(shop.write(paused, filtered=True))
    shop.started()
    with pytest.raises(Fenced):
        paused.settle()


def test_expiry_of_every_snapshot_of_ours_does_not_matter(shop: Any) -> None:
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


def test_a_rollback_under_a_running_coordinator_stops_it(shop: Any) -> None:
    """FAULT-20."""
    one = shop.started()
    for _ in range(2):
        one.commit(shop.write(one))
    shop.anchor.roll_back(1)
    with pytest.raises(TableChanged, match="rolled back"):
        one.commit(shop.write(one))


def test_a_table_recreated_under_a_running_coordinator_stops_it(shop: Any) -> None:
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


def test_after_a_rollback_the_remedy_with_adopt_lands_the_lost_epochs_again_and_nothing_twice(shop: Any) -> None:
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
        one.abandon(outcome.all_files)
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
