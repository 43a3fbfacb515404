"""The simulation would notice: each test breaks one thing that exactly-once rests on, and some seed finds out.

A mutation that nothing notices means that the simulation is blind there, or that the code is not needed. The
letter in `breaks` is the promise that falls first; D with `InvalidState` is a second line of defence at work,
the frontier's own arithmetic, which stops a coordinator that would otherwise have done harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from frazil.commit import Coordinator, coordinator
from frazil.commit.land import land
from frazil.engine import run as running
from frazil.engine.epoch import PlannedEpoch
from frazil.engine.run import Engine
from frazil.errors import TransientError
from frazil.protocol import commit as judging
from frazil.protocol import plan as planning
from frazil.protocol import start as starting
from frazil.protocol.commit import AlreadyCommitted, Proceed, Proposal, Standing, TableObserved, Verdict
from frazil.protocol.layout import Shape
from frazil.protocol.plan import Ready, SourceObserved, Unsure
from frazil.protocol.positions import Frontier, Partition, Position
from frazil.protocol.register import Generation, Register
from frazil.protocol.start import Resume, decide_start
from frazil.table import Table, WrittenFile, memory, refusal
from frazil.table.memory import MemoryTable, Snapshot
from frazil.table.refusal import CommitRefused
from tests.simulation.broker import Partitioned
from tests.simulation.run import first_failure
from tests.simulation.settings import spec

pytestmark = pytest.mark.thorough

SEEDS = range(400)
"""How many histories a mutation has at most before it must have been noticed."""

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutation:
    """One thing broken on purpose, and the promise that falls."""

    break_it: Callable[[Patch], None]
    breaks: str
    weather: Mapping[str, object] = field(default_factory=dict)
    """where luck is needed: settings that every history gets"""

    @property
    def name(self) -> str:
        return self.break_it.__name__


def errors_are_taken_for_success(patch: Patch) -> None:
    def hope(table: Table, proposal: Proposal, files: Sequence[WrittenFile], *_: object) -> Register:
        try:
            return table.commit(proposal, files)
        except Exception:
            return proposal.register

    patch.setattr(coordinator, "land", hope)


def errors_are_taken_for_failure_and_files_deleted(patch: Patch) -> None:
    def land_and_tidy(table: Table, proposal: Proposal, files: Sequence[WrittenFile], *rest: Any) -> Register:
        try:
            return land(table, proposal, files, *rest)
        except Exception:
            with suppress(PermissionError):
                table.delete_files([file.path for file in files])
            raise

    patch.setattr(coordinator, "land", land_and_tidy)


def files_of_a_sent_epoch_are_given_up(patch: Patch) -> None:
    commit_oldest = Engine._commit_oldest

    def commit(self: Engine) -> None:
        oldest = self._flight[0]
        try:
            commit_oldest(self)
        except TransientError:
            if oldest not in self._flight:
                self._flight.appendleft(oldest)
            raise

    patch.setattr(Engine, "_commit_oldest", commit)


def orphans_are_deleted_before_the_start_commit(patch: Patch) -> None:
    start = Coordinator.start

    def tidy_and_start(self: Coordinator, *arguments: Any, **options: Any) -> Any:
        for table in self._tables:
            assert isinstance(table, MemoryTable)
            referenced = {path for snapshot in table.ledger for path in snapshot.paths}
            with suppress(PermissionError):
                table.delete_files([path for path in table.contents if path not in referenced])  # type: ignore[attr-defined]
        return start(self, *arguments, **options)

    patch.setattr(Coordinator, "start", tidy_and_start)


def a_newer_coordinator_is_not_recognised(patch: Patch) -> None:
    patch.setattr(Register, "overrides", lambda self, other: False)


def the_judgement_inside_the_commit_is_not_heeded(patch: Patch) -> None:
    patch.setattr(refusal, "judge", lambda seen, proposal: Proceed())


def only_the_ancestry_is_compared_not_the_register(patch: Patch) -> None:
    def judge(seen: TableObserved, proposal: Proposal) -> Verdict:
        found = seen.register
        if found is not None and found.batch_id == proposal.register.batch_id:
            return AlreadyCommitted(found)
        return Proceed() if seen.standing is not Standing.ROLLED_BACK else judging.judge(seen, proposal)

    patch.setattr(refusal, "judge", judge)
    patch.setattr("frazil.commit.land.judge", judge)


def the_last_writer_wins(patch: Patch) -> None:
    """No compare-and-set: what others committed since the judgement is overwritten."""

    def overwrite(self: MemoryTable, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        base = self._state
        self.before_swap()
        self._state = base
        return _swap(self, proposal, files)

    patch.setattr(MemoryTable, "_land", overwrite)


def a_start_is_a_property_only(patch: Patch) -> None:
    """It leaves no snapshot, and the catalog compares nothing but the head's."""

    def compare_heads(self: MemoryTable, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        base = self._state
        verdict = judging.judge(self._observed(base, proposal.writer), proposal)
        if not isinstance(verdict, Proceed):
            raise CommitRefused(f"refused inside the commit: {verdict}")
        self.before_swap()
        if self._state.head != base.head:
            raise CommitRefused("the head has changed")
        if proposal.summary["frazil.action"] != "start" or base.head is None:
            return _swap(self, proposal, files)
        register = proposal.register.at(base.head, base.sequence_number)
        self.ledger.append(Snapshot(base.head, None, 0, dict(proposal.summary), (), register))
        self._state = replace(self._state, registers={proposal.writer: register.encode()})
        return register

    patch.setattr(MemoryTable, "_land", compare_heads)


def _swap(table: MemoryTable, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
    number = table._state.sequence_number + 1
    register = proposal.register.at(number, number)
    table._push(proposal.summary, tuple(file.path for file in files), register)
    table._state = replace(table._state, registers={proposal.writer: register.encode()})
    return register


def local_state_is_trusted_more_than_the_table(patch: Patch) -> None:
    """What the life before had planned is taken for committed, as a checkpoint beside the table would have it."""
    take_up, launch = Engine._take_up, Engine._launch
    disk: dict[object, Frontier] = {}

    def remember(self: Engine, planned: PlannedEpoch) -> None:
        launch(self, planned)
        disk[self._parts.anchor] = self.progress.planned

    def trust(self: Engine) -> None:
        take_up(self)
        self.progress.replan(disk.get(self._parts.anchor, self.progress.planned))

    patch.setattr(Engine, "_launch", remember)
    patch.setattr(Engine, "_take_up", trust)


def epochs_are_committed_in_any_order(patch: Patch) -> None:
    commit_oldest = Engine._commit_oldest

    def commit_youngest(self: Engine) -> None:
        self._flight.rotate(1)
        commit_oldest(self)

    patch.setattr(Engine, "_commit_oldest", commit_youngest)


def side_tables_commit_after_the_anchor(patch: Patch) -> None:
    born = Coordinator.__init__

    def reversed_tables(self: Coordinator, *arguments: Any, **options: Any) -> None:
        born(self, *arguments, **options)
        self._tables.reverse()

    patch.setattr(Coordinator, "__init__", reversed_tables)


def the_floor_of_dead_letters_is_forgotten(patch: Patch) -> None:
    patch.setattr(Coordinator, "floors", property(lambda self: dict.fromkeys(self._registers, Frontier())))


def a_rollback_is_overlooked(patch: Patch) -> None:
    patch.setattr(memory, "_standing", lambda *_: Standing.ANCESTOR)


def a_rewind_goes_back_too_far(patch: Patch) -> None:
    """To the beginning, whatever the head still holds."""
    patch.setattr(starting, "_back_to", lambda holds, register, seen: Frontier({}, register.frontier.topic_ids))


def a_rewind_stays_where_it_was(patch: Patch) -> None:
    patch.setattr(starting, "_back_to", lambda holds, register, seen: register.frontier)


def partitions_that_came_after_a_rollback_are_forgotten(patch: Patch) -> None:
    patch.setattr(starting, "_back_to", lambda holds, register, seen: holds)


def a_head_that_moved_since_the_choice_is_not_looked_at_again(patch: Patch) -> None:
    def judge(seen: TableObserved, proposal: Proposal) -> Verdict:
        if proposal.holds is None:
            return judging.judge(seen, proposal)
        return judging.judge(replace(seen, standing=Standing.ANCESTOR), replace(proposal, holds=None))

    patch.setattr(refusal, "judge", judge)
    patch.setattr("frazil.commit.land.judge", judge)


def side_tables_go_back_although_nobody_reads_their_rows_again(patch: Patch) -> None:
    patch.setattr(starting, "_behind", lambda lost, frontier: {})


def an_acknowledgement_is_taken_for_a_landing(patch: Patch) -> None:
    patch.setattr(Coordinator, "_require_landed", lambda self, table: None)


def a_late_commit_of_our_own_is_taken_for_a_stranger(patch: Patch) -> None:
    patch.setattr(Proposal, "is_overtaken_by", lambda self, found: False)


def nobody_looks_at_the_tables_after_a_fault(patch: Patch) -> None:
    patch.setattr(Engine, "_find_bearings", lambda self: None)


def what_empty_epochs_covered_is_forgotten(patch: Patch) -> None:
    patch.setattr(Coordinator, "_join", lambda self, outcome: outcome)


def progress_is_acknowledged_before_it_is_committed(patch: Patch) -> None:
    commit_oldest = Engine._commit_oldest

    def acknowledge_first(self: Engine) -> None:
        planned, _ = self._flight[0]
        self._parts.source.acknowledge(planned.base.advance(planned.span))
        commit_oldest(self)

    patch.setattr(Engine, "_commit_oldest", acknowledge_first)


def partitions_missing_in_an_answer_are_forgotten(patch: Patch) -> None:
    reconcile = planning.reconcile

    def trusting(frontier: Frontier, seen: SourceObserved, *, fail_on_data_loss: bool) -> Any:
        decision = reconcile(frontier, seen, fail_on_data_loss=fail_on_data_loss)
        if not isinstance(decision, Unsure):
            return decision
        positions = {p: at for p, at in frontier.positions.items() if p in seen.logs}
        return reconcile(Frontier(positions, frontier.topic_ids), seen, fail_on_data_loss=fail_on_data_loss)

    patch.setattr(running, "reconcile", trusting)


def lost_records_are_skipped_in_silence(patch: Patch) -> None:
    reconcile = planning.reconcile

    def silent(frontier: Frontier, seen: SourceObserved, *, fail_on_data_loss: bool) -> Any:
        decision = reconcile(frontier, seen, fail_on_data_loss=False)
        return Ready(decision.frontier) if isinstance(decision, Ready) else decision

    patch.setattr(running, "reconcile", silent)
    patch.setattr(Frontier, "advance", _advance_anyhow)


def _advance_anyhow(
    self: Frontier,
    span: Any,
    leader_epochs: Any = None,
    topic_ids: dict[str, str] | None = None,
    *_: Any,
) -> Frontier:
    ends: dict[Partition, Any] = {p: Position(r.end) for p, r in span.ranges.items()}
    return Frontier({**self.positions, **ends}, {**self.topic_ids, **(topic_ids or {})})


def a_recreated_topic_is_taken_for_the_old_one(patch: Patch) -> None:
    patch.setattr(planning, "recreated_topic", lambda frontier, seen: None)


def nobody_looks_at_the_topic_after_reading_it(patch: Patch) -> None:
    patch.setattr(running, "look_again", lambda frontier, span, seen: None)


def new_partitions_are_read_from_their_end(patch: Patch) -> None:
    reconcile = planning.reconcile

    def late(frontier: Frontier, seen: SourceObserved, *, fail_on_data_loss: bool) -> Any:
        ends = {p: Position(log.end) for p, log in seen.logs.items() if p not in frontier.positions}
        known = Frontier({**frontier.positions, **ends}, frontier.topic_ids)
        return reconcile(known, seen, fail_on_data_loss=fail_on_data_loss)

    patch.setattr(running, "reconcile", late)


def a_file_that_is_reported_twice_is_committed_twice(patch: Patch) -> None:
    patch.setattr(coordinator, "unique_files", list)


def a_start_does_not_raise_the_generation(patch: Patch) -> None:
    def decide_the_same(*observed: Any) -> Any:
        decision = decide_start(*observed)
        return replace(decision, generation=Generation(1)) if isinstance(decision, Resume) else decision

    patch.setattr(coordinator, "decide_start", decide_the_same)


def files_land_whatever_the_table_is_like_now(patch: Patch) -> None:
    patch.setattr(Shape, "misfit", lambda *_: "")


def a_table_that_was_altered_takes_files_whatever_its_user_said(patch: Patch) -> None:
    misfit = Shape.misfit
    patch.setattr(Shape, "misfit", lambda self, *seen: misfit(replace(self, mixed="split"), *seen))


def open_transactions_are_planned(patch: Patch) -> None:
    patch.setattr(Partitioned, "end", property(lambda self: len(self.kinds)))


LONG_STORM = {
    "storminess": 0.4,
    "steps": 300,
    "restlessness": 0.1,
    "disaster": None,
    "spec": spec(max_records=1000, in_flight=1, heartbeat="off", loss=False),
}
"""Epochs take all there is, so that one planned anew is seldom the one that was given up for lost."""

MUTATIONS = [
    Mutation(errors_are_taken_for_success, "C: .* acknowledged before|D: .* TableChanged without a cause"),
    Mutation(errors_are_taken_for_failure_and_files_deleted, "B: .* which a coordinator deleted"),
    Mutation(files_of_a_sent_epoch_are_given_up, "B: .* which a coordinator deleted", LONG_STORM),
    Mutation(orphans_are_deleted_before_the_start_commit, "B: .* which a coordinator deleted"),
    Mutation(a_newer_coordinator_is_not_recognised, "D: .* TableChanged without a cause"),
    Mutation(the_judgement_inside_the_commit_is_not_heeded, "[BC]: ", {"alters": False}),
    Mutation(only_the_ancestry_is_compared_not_the_register, "[BC]: ", {"alters": False}),
    Mutation(files_land_whatever_the_table_is_like_now, "B: .* (cannot read|got) files of"),
    Mutation(a_table_that_was_altered_takes_files_whatever_its_user_said, "B: .* got files of"),
    Mutation(the_last_writer_wins, "[ABC]: ", {"alters": False}),
    Mutation(a_start_is_a_property_only, "C: .* (has begun|starts generation)", {"disaster": None}),
    Mutation(local_state_is_trusted_more_than_the_table, "D: .* InvalidState|D: .* left at"),
    Mutation(epochs_are_committed_in_any_order, "D: .* InvalidState"),
    Mutation(side_tables_commit_after_the_anchor, "A: .*__dead, missing"),
    Mutation(the_floor_of_dead_letters_is_forgotten, "A: .*__dead.* too much|D: .* InvalidState"),
    Mutation(
        a_rollback_is_overlooked, "C: .* nobody asked|A: of what is live", {"disaster": "rollback of the anchor"}
    ),
    Mutation(a_rewind_goes_back_too_far, "[AC]: ", {"disaster": "rollback of the anchor"}),
    Mutation(a_rewind_stays_where_it_was, "C: .* starts at", {"disaster": "rollback of the anchor"}),
    Mutation(
        partitions_that_came_after_a_rollback_are_forgotten,
        "C: .* but None is next",
        {"disaster": "rollback of the anchor"},
    ),
    Mutation(
        a_head_that_moved_since_the_choice_is_not_looked_at_again,
        "[AC]: ",
        {"disaster": "rollback of the anchor", "restlessness": 0.6, "alters": False},
    ),
    Mutation(
        side_tables_go_back_although_nobody_reads_their_rows_again,
        "A: .*__dead, missing",
        {"disaster": "rollback of the dead letters", "has_dead_letters": True},
    ),
    Mutation(
        an_acknowledgement_is_taken_for_a_landing,
        "A: .*__dead, missing|D: .* dropped and created again",
        {"liar": True, "storminess": 0.3},
    ),
    Mutation(a_late_commit_of_our_own_is_taken_for_a_stranger, "D: .* TableChanged without", LONG_STORM),
    Mutation(nobody_looks_at_the_tables_after_a_fault, "[AD]: "),
    Mutation(what_empty_epochs_covered_is_forgotten, "D: .* InvalidState"),
    Mutation(progress_is_acknowledged_before_it_is_committed, "C: .* acknowledged before"),
    Mutation(partitions_missing_in_an_answer_are_forgotten, "D: .* InvalidState"),
    Mutation(lost_records_are_skipped_in_silence, "[AC]: ", {"disaster": "loss of records"}),
    Mutation(a_recreated_topic_is_taken_for_the_old_one, "[AD]: ", {"disaster": "recreation of a topic"}),
    Mutation(nobody_looks_at_the_topic_after_reading_it, "A: ", {"disaster": "recreation of a topic"}),
    Mutation(new_partitions_are_read_from_their_end, "[AD]: "),
    Mutation(a_file_that_is_reported_twice_is_committed_twice, "B: .* more than once"),
    Mutation(a_start_does_not_raise_the_generation, "D: .* never comes to an end"),
    Mutation(open_transactions_are_planned, "A: "),
]


def test_a_failure_tells_its_seed_and_its_story(monkeypatch: Patch) -> None:
    """So that it can be told again with `make simulate SEED=…`, and become a test with a name."""
    the_judgement_inside_the_commit_is_not_heeded(monkeypatch)
    lines = str(first_failure(SEEDS)).splitlines()
    assert re.match(r"seed \d+: [ABCD]: ", lines[0])
    assert lines[-1] == lines[0]
    assert any("between judgement and swap" in line for line in lines)
    assert any("is started" in line for line in lines)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_a_broken_protocol_is_noticed(mutation: Mutation, monkeypatch: Patch) -> None:
    """Each would have been let through if the proof of one of these were empty.

    TEST-04, TEST-05, TEST-06, COMMIT-04, COMMIT-06, COMMIT-07, COMMIT-11, COMMIT-12, COMMIT-13, COMMIT-16,
    COMMIT-19, COMMIT-20, EPOCH-07, REC-18, FAULT-07, FAULT-13, FAULT-20, FAULT-31, FAULT-34, FAULT-36, FAULT-37.
    """
    mutation.break_it(monkeypatch)
    failure = first_failure(SEEDS, **mutation.weather)
    assert failure is not None, "no seed noticed"
    reason = str(failure).splitlines()[0]
    assert re.search(mutation.breaks, reason), reason
