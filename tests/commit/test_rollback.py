"""Tables that were rolled back: a coordinator makes amends as it was told, whatever happens meanwhile.

Offsets divisible by ten are dead letters; each epoch of the shop reads ten offsets of either partition.
"""

from __future__ import annotations

from typing import Any

import pytest

from frazil.commit import Coordinator
from frazil.errors import CommitConflict, Fenced, TableChanged
from frazil.protocol.start import OnRollback
from frazil.table.memory import Fault

REWIND, KEEP = OnRollback.REWIND, OnRollback.KEEP
P0 = ("orders", 0)


def started(shop: Any, choice: OnRollback | None = None) -> Coordinator:
    one: Coordinator = shop.coordinator()
    one.start(shop.beginning, take_over=True, on_rollback=choice)
    return one


def after_epochs(shop: Any, epochs: int = 3) -> Coordinator:
    one = started(shop)
    for _ in range(epochs):
        one.commit(shop.write(one))
    return one


def test_a_rewound_table_gets_every_row_once_under_the_same_batch_ids_and_new_epochs(shop: Any) -> None:
    """FAULT-20, COMMIT-13, EPOCH-01: the name of a span that was rolled back is not taken for its landing."""
    after_epochs(shop)
    before = {record.batch_id for record in shop.history()}
    shop.anchor.roll_back(2)

    new = started(shop, REWIND)
    assert new.frontier.offset(P0) == 10
    for _ in range(2):
        new.commit(shop.write(new))

    shop.require_exactly_once()
    shop.require_gapless()
    appended = [record for record in shop.history() if record.action == "append"]
    assert [record.epoch for record in appended] == [1, 4, 5]
    assert {record.batch_id for record in appended} <= before
    assert [record.rewound_from.offset(P0) for record in shop.history() if record.rewound_from] == [30]


def test_a_kept_frontier_goes_on_behind_the_gap_and_records_it(shop: Any) -> None:
    """FAULT-20."""
    after_epochs(shop)
    shop.anchor.roll_back(2)
    new = started(shop, KEEP)
    new.commit(shop.write(new))
    assert {row[2] for row in shop.rows(shop.anchor)} == {o for o in [*range(10), *range(30, 40)] if o % 10}
    assert [r.given_up.encode() for r in shop.history() if r.given_up] == ['{"orders":"0:10-30 1:10-30"}']


def test_a_head_that_is_restored_between_look_and_claim_is_taken_up_as_it_is(shop: Any) -> None:
    """FAULT-20: going back on a table that has its rows again would double them."""
    old = after_epochs(shop)
    snapshot = old.registers[shop.anchor.name].snapshot_id
    shop.anchor.roll_back(2)
    shop.anchor.meanwhile.append(lambda: shop.anchor.set_head(snapshot))
    new = started(shop, REWIND)
    assert new.frontier.offset(P0) == 30
    new.commit(shop.write(new))
    shop.require_exactly_once()


def test_a_head_that_is_rolled_back_further_between_look_and_claim_is_looked_at_again(shop: Any) -> None:
    """FAULT-20."""
    after_epochs(shop)
    shop.anchor.roll_back(1)
    shop.anchor.meanwhile.append(lambda: shop.anchor.roll_back(1))
    new = started(shop, REWIND)
    assert new.frontier.offset(P0) == 10
    for _ in range(2):
        new.commit(shop.write(new))
    shop.require_exactly_once()


def test_a_rewind_of_both_tables_claims_the_anchor_before_its_side_table_goes_back(shop: Any) -> None:
    """FAULT-20: were the side table first, and the anchor restored, its dead letters would never be read again."""
    old = after_epochs(shop)
    snapshot = old.registers[shop.anchor.name].snapshot_id
    shop.anchor.roll_back(2)
    shop.dead.roll_back(2)
    shop.anchor.meanwhile.append(lambda: shop.anchor.set_head(snapshot))
    with pytest.raises(TableChanged, match="would not come back"):
        started(shop, REWIND)


def test_a_rewind_that_dies_between_anchor_and_side_table_is_taken_up(shop: Any) -> None:
    """FAULT-03, FAULT-20."""
    after_epochs(shop)
    shop.anchor.roll_back(2)
    shop.dead.roll_back(2)
    shop.dead.faults.extend([Fault.REFUSED] * 4)
    with pytest.raises(CommitConflict):
        started(shop, REWIND)
    with pytest.raises(TableChanged, match="dead_letters was rolled back"):
        started(shop)
    new = started(shop, REWIND)
    for _ in range(2):
        new.commit(shop.write(new))
    shop.require_exactly_once()


def test_an_older_coordinator_and_its_late_commit_do_not_land_on_a_rewound_table(shop: Any) -> None:
    """FAULT-05, FAULT-10, FAULT-20: the late epoch has the very batch id that is read again."""
    old = after_epochs(shop, 2)
    shop.anchor.faults.extend([Fault.DELAYED] * 4)
    with pytest.raises(CommitConflict):
        old.commit(shop.write(old))
    shop.anchor.roll_back(1)
    new = started(shop, REWIND)
    assert shop.anchor.release() == 0
    with pytest.raises(Fenced):
        old.commit(shop.write(old))
    for _ in range(2):
        new.commit(shop.write(new))
    assert shop.anchor.release() == 0
    shop.require_exactly_once()


def test_a_rollback_while_the_pipeline_runs_stops_it(shop: Any) -> None:
    """FAULT-20: the choice is made at a start."""
    after_epochs(shop)
    shop.anchor.roll_back(1)
    new = started(shop, REWIND)
    new.commit(shop.write(new))
    shop.anchor.roll_back(1)
    with pytest.raises(TableChanged, match="--on-rollback"):
        new.commit(shop.write(new))


def test_a_claim_that_is_lost_is_followed_by_a_pause(shop: Any) -> None:
    """FAULT-06: two that claim in turns do not do so without a breath."""
    started(shop)
    one = shop.coordinator()
    shop.dead.meanwhile.extend([lambda: started(shop)] * 2)
    shop.clock.slept_s.clear()
    one.start(shop.beginning, take_over=True)
    assert len(shop.clock.slept_s) >= 2
    assert shop.clock.slept_s == sorted(shop.clock.slept_s)
