"""What the reports of an epoch's tasks come to."""

from __future__ import annotations

from typing import Any, cast

from frazil.engine.epoch import PlannedEpoch, _add_up
from frazil.engine.worker import EpochPlan, TaskReport
from frazil.protocol.positions import Frontier, Range, Slice, Span
from frazil.protocol.register import Epoch

P0 = ("orders", 0)


def add_up(shares: list[list[Slice]], reports: list[TaskReport]) -> Any:
    planned = PlannedEpoch(Epoch(1), Span({P0: Range(0, 100)}), Frontier())
    plan = EpochPlan("orders", 1, shares, cast(Any, None), cast(Any, None), cast(Any, None))
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
