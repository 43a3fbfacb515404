"""What the reports of an epoch's tasks come to."""

from __future__ import annotations

from typing import Any, cast

from frazil.changes import ChangeTarget
from frazil.engine.epoch import PlannedEpoch, _add_up
from frazil.engine.worker import EpochPlan, TaskReport
from frazil.protocol.positions import Frontier, Range, Slice, Span
from frazil.protocol.register import Epoch
from frazil.table.files import WriteTarget

P0 = ("orders", 0)


def add_up(shares: list[list[Slice]], reports: list[TaskReport], changes: ChangeTarget | None = None) -> Any:
    planned = PlannedEpoch(Epoch(1), Span({P0: Range(0, 100)}), Frontier())
    target = WriteTarget("shop.orders", "", "", "", changes=changes)
    plan = EpochPlan("orders", 1, shares, cast(Any, None), cast(Any, None), target)
    return _add_up(planned, plan, reports, 0, 0.0).outcome


HALVES = [[Slice("orders", 0, 0, 50)], [Slice("orders", 0, 50, 100)]]


def test_the_leader_epoch_at_the_end_comes_from_the_task_that_read_the_end() -> None:
    """FAULT-44: the first half ends under epoch 3, the second one under 7, whatever order they report in."""
    reports = [TaskReport(1, leader_epochs={P0: 7}), TaskReport(0, leader_epochs={P0: 3})]
    assert add_up(HALVES, reports).leader_epochs == {P0: 7}


def test_a_leader_epoch_of_the_middle_is_never_taken_for_the_end() -> None:
    """FAULT-44: an epoch too old for its offset would look like a truncated log at the next start."""
    reports = [TaskReport(0, leader_epochs={P0: 3}), TaskReport(1)]
    assert add_up(HALVES, reports).leader_epochs == {}


def test_records_go_to_one_of_three_places() -> None:
    counts = add_up(HALVES, [TaskReport(0, delivered=50, landed=40, dead=2), TaskReport(1, delivered=50)]).counts
    assert (counts.delivered, counts.landed, counts.dead, counts.filtered) == (100, 40, 2, 58)


def test_changes_go_to_one_of_five() -> None:
    """CHG-10: what a later change of the same key made void is counted, too."""
    tasks = [
        TaskReport(0, delivered=50, decoded=48, taken=40, landed=20, deleted=5, dead=1),
        TaskReport(1, delivered=50, decoded=50, taken=50, landed=30, deleted=10),
    ]
    counts = add_up(HALVES, tasks, ChangeTarget(("id",))).counts
    assert counts.add_up
    assert (counts.landed, counts.deleted, counts.dead, counts.filtered, counts.collapsed) == (50, 15, 1, 8, 26)
