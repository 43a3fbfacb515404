"""One coordinator, ended or held back at each of its moments in turn; another one takes over.

Where seeds try what chance brings, this tries every moment of one history: before and after each look, each
commit, each swap, each epoch. `World.finish` does the rest: a last coordinator takes over and brings
everything in, and whoever was held back goes on after that and finds itself fenced.
"""

from __future__ import annotations

import pytest

from frazil.engine.run import RunOptions
from tests.simulation.run import telling
from tests.simulation.settings import spec
from tests.simulation.world import World

pytestmark = pytest.mark.thorough

RECORDS_FROM = 40
"""batches that are there to read when the coordinator starts"""


def history(moment: int, *, killed: bool, is_delta: bool) -> bool:
    """Whether the coordinator was still at work at that moment."""
    world = World(
        3,
        has_dead_letters=True,
        latest=False,
        liar=False,
        restlessness=1.0,
        storminess=0.0,
        is_delta=is_delta,
        spec=spec(max_records=20, in_flight=3, heartbeat="off", loss=False),
    )
    with telling(world), world.begun():
        for _ in range(RECORDS_FROM):
            world.happenings.produce()
        first = world.start(RunOptions(available_now=True, take_over=True))
        world.drive(first, moment)
        was_at_work = not first.is_ended
        if killed:
            first.kill()
        world.finish()
        assert len(world.processes) == 2
    return was_at_work


@pytest.mark.parametrize("is_delta", [False, True], ids=["iceberg", "delta"])
@pytest.mark.parametrize("killed", [True, False])
def test_a_coordinator_that_goes_no_further_at_any_moment_costs_no_row(killed: bool, is_delta: bool) -> None:
    """TEST-05, TEST-08, REC-16, REC-23, FAULT-01, FAULT-02, FAULT-03, FAULT-05, FAULT-15."""
    moment = 0
    while history(moment, killed=killed, is_delta=is_delta):
        moment += 1
    assert moment > 50
