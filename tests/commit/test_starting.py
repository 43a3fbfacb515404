"""Starting: one coordinator takes over every table, whoever else is about."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.commit import StopRequested
from frazil.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitOutcomeUnknown,
    Fenced,
    TableChanged,
)
from frazil.protocol.positions import Frontier
from frazil.table.memory import Fault

INTERVAL_S = 30.0
SILENCE = 4
"""as many observations as the coordinators of these tests are patient for"""


def fail() -> Frontier:
    pytest.fail("the starting offsets are resolved once in a pipeline's life")


def test_the_first_start_records_the_starting_offsets_in_every_table(shop: Any) -> None:
    """SRC-06, COMMIT-12."""
    started = shop.coordinator().start(lambda: shop.beginning(5))
    assert (started.generation, started.epoch, started.frontier) == (1, 0, shop.beginning(5))
    for table in (shop.anchor, shop.dead):
        seen = table.observe("orders")
        assert seen.snapshot_id is not None, "a start is a commit"
        assert seen.register.frontier == shop.beginning(5)
        assert seen.register.table_uuid == seen.uuid


def test_the_next_start_goes_on_from_the_table_under_a_new_generation(shop: Any) -> None:
    """FAULT-03, FAULT-14, FAULT-22, REC-18, REC-19: nothing but the table was kept."""
    first = shop.started()
    first.commit(shop.write(first))
    started = shop.coordinator().start(fail, take_over=True)
    assert (started.generation, started.epoch, started.frontier.offset(("orders", 0))) == (2, 1, 10)


def test_a_first_start_that_dies_between_side_and_anchor_decides_latest_once(shop: Any) -> None:
    shop.anchor.faults.extend([Fault.REFUSED] * SILENCE)
    with pytest.raises(CommitConflict):
        shop.coordinator().start(lambda: shop.beginning(123))
    started = shop.coordinator().start(fail, take_over=True)
    assert started.frontier == shop.beginning(123)
    assert started.generation == 2


def test_a_start_whose_reply_is_lost_has_started(shop: Any) -> None:
    """FAULT-07."""
    shop.dead.faults.append(Fault.REPLY_LOST)
    shop.anchor.faults.append(Fault.REPLY_LOST)
    one = shop.started()
    assert [record.action for record in shop.history()] == ["start"]
    one.commit(shop.write(one))
    shop.require_exactly_once()


def test_a_first_start_that_lands_late_decides_latest_once_also_for_the_same_coordinator(shop: Any) -> None:
    """FAULT-10: found by the simulation; its second attempt has the same name, and other starting offsets."""
    one = shop.coordinator()
    shop.dead.faults.append(Fault.DELAYED)
    shop.dead.meanwhile.append(lambda: setattr(shop.dead, "silences", SILENCE))
    with pytest.raises(CommitOutcomeUnknown):
        one.start(lambda: shop.beginning(1))
    shop.dead.meanwhile.append(shop.dead.release)
    started = one.start(lambda: shop.beginning(15))
    assert started.frontier == shop.beginning(1)
    assert shop.anchor.observe("orders").register.frontier == shop.beginning(1)


@pytest.mark.parametrize("where", ["anchor", "dead"])
def test_a_start_that_a_catalog_only_acknowledged_is_made_again(shop: Any, where: str) -> None:
    """FAULT-13: found by the simulation; side tables went ahead of an anchor that had never heard of them."""
    getattr(shop, where).faults.append(Fault.ACKNOWLEDGED_ONLY)
    one = shop.started()
    assert shop.anchor.observe("orders").register.coordinator == one.id
    assert shop.dead.observe("orders").register.coordinator == one.id
    one.commit(shop.write(one))
    shop.require_exactly_once()


def test_of_two_that_start_at_the_same_moment_one_wins_and_the_other_waits(shop: Any) -> None:
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


def test_of_two_that_claim_side_and_anchor_in_turns_exactly_one_goes_on(shop: Any) -> None:
    """FAULT-06: the other one came between the first one's two claims."""
    one, other = shop.coordinator(), shop.coordinator()
    shop.anchor.meanwhile.append(lambda: other.start(fail, take_over=True))
    one.start(shop.beginning, take_over=True)
    one.commit(shop.write(one))
    with pytest.raises(Fenced):
        other.commit(shop.write(other))
    shop.require_exactly_once()


@pytest.mark.parametrize("sides", [True, False])
def test_an_epoch_that_lands_between_look_and_claim_is_taken_along(shop: Any, sides: bool) -> None:
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


def test_a_delayed_epoch_of_the_one_before_cannot_land_after_a_start(shop: Any) -> None:
    """FAULT-05, FAULT-10."""
    old = shop.started()
    shop.anchor.faults.extend([Fault.DELAYED] * SILENCE)
    with pytest.raises(CommitConflict):
        old.commit(shop.write(old))
    new = shop.started()
    assert shop.anchor.release() == 0
    new.commit(shop.write(new))
    shop.require_exactly_once()


def test_it_waits_for_one_that_may_be_alive(shop: Any) -> None:
    """A courtesy to supervisors; safety does not rest on it."""
    shop.started("elsewhere/1/1")
    before_ms = shop.clock.now_ms
    shop.coordinator().start(fail)
    assert shop.clock.now_ms - before_ms == 3 * INTERVAL_S * 1000


def test_it_does_not_wait_for_one_that_is_known_to_be_dead(shop: Any) -> None:
    shop.started("here/1/1")
    shop.dead_processes.add("here/1/1")
    shop.coordinator().start(fail)
    assert shop.clock.slept_s == []


def test_a_wish_to_stop_ends_the_waiting(shop: Any) -> None:
    shop.started("elsewhere/1/1")
    world = shop.world()
    world.stop.set()
    with pytest.raises(StopRequested):
        shop.coordinator(world=world).start(fail)
    assert shop.anchor.observe("orders").register.generation == 1, "nothing was claimed"


def test_a_silent_catalog_is_asked_again_and_then_named(shop: Any) -> None:
    shop.anchor.silences = SILENCE - 1
    shop.started()
    shop.dead.silences = SILENCE
    with pytest.raises(CatalogUnavailable, match="dead_letters"):
        shop.coordinator().start(fail)


def test_data_of_others_is_refused_until_it_is_adopted(shop: Any) -> None:
    shop.anchor.append_foreign("foreign.parquet")
    with pytest.raises(TableChanged, match="already has data") as refused:
        shop.coordinator().start(shop.beginning)
    assert "--adopt" in refused.value.remedy
    shop.coordinator().start(shop.beginning, adopt=True)
    assert shop.anchor.live_paths == ["foreign.parquet"]


def test_a_recreated_anchor_is_noticed_by_the_side_table_that_is_ahead(shop: Any) -> None:
    """FAULT-38."""
    one = shop.started()
    one.commit(shop.write(one))
    shop.anchor.recreate()
    with pytest.raises(TableChanged, match="dropped and created again"):
        shop.coordinator().start(fail, take_over=True)


def test_a_rolled_back_table_is_noticed_and_names_the_choice(shop: Any) -> None:
    """FAULT-20."""
    one = shop.started()
    for _ in range(3):
        one.commit(shop.write(one))
    shop.anchor.roll_back(2)
    with pytest.raises(TableChanged, match="rolled back or replaced") as stop:
        shop.coordinator().start(fail, take_over=True)
    assert "set the current snapshot to" in stop.value.remedy
    assert "--on-rollback rewind" in stop.value.remedy
    assert "--on-rollback keep" in stop.value.remedy


def test_a_rollback_followed_by_expiry_is_noticed_too(shop: Any) -> None:
    """FAULT-18, FAULT-20: the snapshot is gone either way, but the head is older than it was."""
    one = shop.started()
    for _ in range(3):
        one.commit(shop.write(one))
    shop.anchor.roll_back(2)
    shop.anchor.expire()
    with pytest.raises(TableChanged, match="rolled back"):
        shop.coordinator().start(fail, take_over=True)


def test_a_table_rolled_back_to_nothing_is_noticed(shop: Any) -> None:
    """FAULT-20: CREATE OR REPLACE leaves the register and no head."""
    one = shop.started()
    one.commit(shop.write(one))
    shop.anchor.roll_back(99)
    with pytest.raises(TableChanged, match="rolled back or replaced"):
        shop.coordinator().start(fail, take_over=True)


def test_a_recreated_anchor_is_noticed_although_no_dead_letter_ever_came(shop: Any) -> None:
    """FAULT-38: the side table remembers the uuid of its anchor."""
    shop.started()
    shop.anchor.recreate()
    with pytest.raises(TableChanged, match="dropped and created again"):
        shop.coordinator().start(fail, take_over=True)


def test_a_clock_that_is_an_hour_ahead_elsewhere_costs_no_more_than_three_intervals(shop: Any) -> None:
    """The courtesy counts how long the tables were seen to stand still, not only what two clocks say."""
    shop.clock.now_ms += 3_600_000
    shop.started("elsewhere/1/1")
    shop.clock.now_ms -= 3_600_000
    before = shop.clock.now_ms
    shop.coordinator().start(shop.beginning)
    assert shop.clock.now_ms - before <= 95_000
