"""The same histories with Delta tables, whose changes land in two steps; and that a broken step is noticed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import pytest

from frazil.protocol.commit import Proposal
from frazil.protocol.register import Register
from frazil.table.delta import register as slots
from frazil.table.delta import table as adapter
from frazil.table.delta.log import Log
from frazil.table.delta.table import DeltaLakeTable
from tests.simulation.run import first_failure, simulate, simulate_all
from tests.simulation.settings import spec

FAST = 40
ROLLED = 20
ALL = 640
CHUNK = 200
MUTATED = range(400)
ROLLED_BACK = {"disaster": "rollback of the anchor"}

Patch = pytest.MonkeyPatch


@cache
def fast_histories() -> Counter[str]:
    return simulate_all(range(FAST), is_delta=True) + simulate_all(range(ROLLED), is_delta=True, **ROLLED_BACK)


def test_whatever_happens_to_a_delta_table_every_row_is_there_once() -> None:
    """Promises A to D, on the product's own adapter, register and log.

    COMMIT-04, COMMIT-06, COMMIT-09, COMMIT-11, COMMIT-23, TEST-05, TEST-06, TEST-08, FAULT-01, FAULT-02, FAULT-03,
    FAULT-05, FAULT-06, FAULT-07, FAULT-08, FAULT-18.
    """
    assert fast_histories()["histories"] == FAST + ROLLED
    assert [what for what in EXPECTED if fast_histories()[what] == 0] == []


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(FAST, ALL, CHUNK))
def test_whatever_happens_to_a_delta_table_in_many_more_histories_every_row_is_there_once(first: int) -> None:
    simulate_all(range(first, first + CHUNK), is_delta=True)


def test_the_same_seed_is_the_same_history_of_a_delta_table() -> None:
    first, second = simulate(7, is_delta=True), simulate(7, is_delta=True)
    assert list(map(str, first.trace)) == list(map(str, second.trace))


EXPECTED = [
    "MERGEs on top of a RESTORE",
    "MERGEs passed over",
    "a MERGE fails",
    "a MERGE is lost sight of",
    "compactions",
    "crashes",
    "delayed commits that landed",
    "expiries",
    "rewinds",
    "rollbacks between plan and MERGE",
    "stopped with Fenced",
    "stopped with TableChanged",
    "written again",
]


@dataclass(frozen=True)
class Mutation:
    """One thing broken on purpose, and the promise that falls."""

    break_it: Callable[[Patch], None]
    breaks: str
    weather: Mapping[str, object] = field(default_factory=dict)


def the_slot_that_counts_is_written_ahead(patch: Patch) -> None:
    patch.setattr(
        slots, "_free_slot", lambda writer, look_up: slots._slot(writer, slots._counting(writer, look_up))
    )


def nothing_is_written_ahead(patch: Patch) -> None:
    patch.setattr(adapter, "written_ahead", lambda writer, *_: {})


def the_register_counts_before_its_rows_are_there(patch: Patch) -> None:
    def at_once(writer: str, _before: Register, register: Register, look_up: slots.LookUp) -> dict[str, int]:
        return slots.to_numbers(writer, register, look_up)

    patch.setattr(adapter, "written_ahead", at_once)


def a_merge_that_was_passed_over_is_taken_for_landed(patch: Patch) -> None:
    def trust(_self: DeltaLakeTable, proposal: Proposal, planned: int) -> Register:
        return proposal.register.at(planned + 1, planned + 1)

    patch.setattr(DeltaLakeTable, "_require_merged", trust)


def the_number_does_not_rise_with_a_start(patch: Patch) -> None:
    for module in (slots, adapter):
        patch.setattr(module, "state_number", lambda register: register.epoch)


def a_restore_between_plan_and_merge_is_overlooked(patch: Patch) -> None:
    patch.setattr(Log, "_is_misplaced", lambda self, version: False)


def the_line_goes_on_through_a_restore(patch: Patch) -> None:
    patch.setattr(Log, "parent", lambda self, version: version.number - 1 if version.number else None)


RESTLESS = {
    "storminess": 0.3,
    "restlessness": 0.6,
    "disaster": None,
    "alters": False,
    "spec": spec(max_records=20, in_flight=1, heartbeat="off", loss=False),
}

MUTATIONS = [
    Mutation(the_slot_that_counts_is_written_ahead, "no register that goes with it", RESTLESS),
    Mutation(nothing_is_written_ahead, "D: .* TableChanged without a cause", RESTLESS),
    Mutation(the_register_counts_before_its_rows_are_there, "[ACD]: ", RESTLESS),
    Mutation(a_merge_that_was_passed_over_is_taken_for_landed, "[ACD]: ", RESTLESS),
    Mutation(the_number_does_not_rise_with_a_start, "[ACD]: ", RESTLESS),
    Mutation(a_restore_between_plan_and_merge_is_overlooked, "[AC]: ", ROLLED_BACK),
    Mutation(the_line_goes_on_through_a_restore, "[AC]: ", ROLLED_BACK),
]


@pytest.mark.thorough
@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.break_it.__name__ for mutation in MUTATIONS])
def test_a_broken_step_is_noticed(mutation: Mutation, monkeypatch: Patch) -> None:
    """TEST-04, COMMIT-04, COMMIT-06, COMMIT-11, FAULT-07, FAULT-18."""
    mutation.break_it(monkeypatch)
    failure = first_failure(MUTATED, is_delta=True, **mutation.weather)
    assert failure is not None, "no seed noticed"
    reason = str(failure).splitlines()[0]
    assert re.search(mutation.breaks, reason), reason
