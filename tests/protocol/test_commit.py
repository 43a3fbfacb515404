"""The judgement inside a commit, row by row of its matrix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.errors import Fenced as FencedError
from frazil.errors import TableChanged, TransientError
from frazil.protocol.commit import (
    AlreadyCommitted,
    Altered,
    Fenced,
    Held,
    Overtaken,
    Proceed,
    Proposal,
    Standing,
    TableObserved,
    Unexpected,
    altered,
    fenced,
    judge,
)
from frazil.protocol.layout import Former, Layout, Shape
from frazil.protocol.positions import Frontier, Position
from frazil.protocol.register import BatchId, Epoch, Generation, Register


def register(generation: int = 2, coordinator: str = "us", epoch: int = 5, batch: str | None = None) -> Register:
    return Register(
        Generation(generation),
        coordinator,
        Epoch(epoch),
        BatchId(batch or f"batch-{epoch}"),
        Frontier({("t", 0): Position(epoch * 10)}),
        table_uuid="uuid-1",
        snapshot_id=100 + epoch,
        sequence_number=epoch,
    )


BEFORE = register(epoch=5)
HELD = Frontier({("t", 0): Position(30)})
PROPOSAL = Proposal("orders", "uuid-1", BEFORE, register(epoch=6), {})
START = Proposal("orders", "uuid-1", BEFORE, register(generation=3, coordinator="new", epoch=5, batch="start"), {})
FIRST = Proposal("orders", "uuid-1", None, register(generation=1, epoch=0, batch="start"), {})


def seen(found: Register | None, standing: Standing = Standing.ANCESTOR, uuid: str = "uuid-1") -> TableObserved:
    return TableObserved("shop.orders", uuid, 200, found, standing=standing)


def error(verdict: object) -> TableChanged:
    assert isinstance(verdict, Unexpected)
    assert isinstance(verdict.error, TableChanged)
    return verdict.error


def test_on_its_predecessor_a_proposal_proceeds() -> None:
    assert judge(seen(BEFORE), PROPOSAL) == Proceed()


def test_a_predecessor_whose_snapshot_has_expired_is_still_the_predecessor() -> None:
    """FAULT-18, REC-19, REC-20."""
    assert judge(seen(BEFORE.at(None, 0), Standing.EXPIRED), PROPOSAL) == Proceed()


def test_the_first_start_proceeds_on_a_table_without_a_register() -> None:
    assert judge(seen(None), FIRST) == Proceed()


@pytest.mark.parametrize("coordinator", ["us", "them"])
@pytest.mark.parametrize("generation", [1, 2, 3])
def test_our_batch_id_means_committed_whoever_landed_it(generation: int, coordinator: str) -> None:
    """COMMIT-04, FAULT-03, FAULT-07: looked for before anything else."""
    found = register(generation, coordinator, epoch=9, batch=PROPOSAL.register.batch_id)
    assert judge(seen(found), PROPOSAL) == AlreadyCommitted(found)


@pytest.mark.parametrize(
    "found",
    [
        register(3, "them", 5),
        register(3, "them", 6, "other"),
        register(2, "them", 6, "other"),
        register(9, "us", 5),
    ],
)
def test_a_newer_coordinator_fences(found: Register) -> None:
    """COMMIT-12, COMMIT-13, FAULT-05, FAULT-06."""
    assert judge(seen(found), PROPOSAL) == Fenced(found)


def test_a_newer_coordinator_fences_even_if_it_has_rolled_back_or_expired_everything() -> None:
    """FAULT-05: paused across the other's epochs, compaction and expiry."""
    found = register(3, "them", 8)
    for standing in Standing:
        assert judge(seen(found, standing), PROPOSAL) == Fenced(found)


def test_a_commit_of_ours_that_landed_late_overtakes_what_was_planned_without_it() -> None:
    """FAULT-10: it was given up for lost, the epoch was planned anew, and then it landed."""
    late = register(epoch=6, batch="the-lost-one")
    assert judge(seen(late), PROPOSAL) == Overtaken(late)


def test_what_another_coordinator_landed_since_we_looked_does_not_overtake_a_start() -> None:
    """The start looks again; it is no commit of ours."""
    theirs = replace(BEFORE, epoch=Epoch(6), batch_id=BatchId("theirs"))
    assert isinstance(judge(seen(theirs), START), Unexpected)


@pytest.mark.parametrize(
    "found",
    [
        None,
        register(epoch=4),  # a catalog that acknowledged and forgot, a property put back by hand
        register(1, "old", 7),
        replace(BEFORE, frontier=Frontier({("t", 0): Position(51)})),
        replace(BEFORE, batch_id=BatchId("edited")),
    ],
)
def test_any_other_register_is_refused(found: Register | None) -> None:
    """COMMIT-13, FAULT-13."""
    problem = error(judge(seen(found), PROPOSAL))
    assert "shop.orders" in problem.message
    assert "expected epoch 5 of generation 2" in problem.message
    assert problem.remedy


def test_a_register_where_none_was_expected_is_refused() -> None:
    """FAULT-06: two first starts; the other's register overrides by its id, an older one is a surprise."""
    assert judge(seen(register(1, "them", 0, "start-of-them")), FIRST) == Fenced(
        register(1, "them", 0, "start-of-them")
    )


def test_another_table_under_the_same_name_is_never_written_to() -> None:
    """FAULT-38: not even if its register looks like ours."""
    for found in (None, BEFORE, PROPOSAL.register, register(9, "them", 9)):
        problem = error(judge(seen(found, uuid="uuid-2"), PROPOSAL))
        assert "uuid-1" in problem.message
        assert "uuid-2" in problem.message
        assert problem.remedy


def test_a_table_that_was_rolled_back_below_the_predecessor_is_refused() -> None:
    """FAULT-20: the register survives a rollback, its rows do not."""
    problem = error(judge(seen(BEFORE, Standing.ROLLED_BACK), PROPOSAL))
    assert "rolled back or replaced" in problem.message
    assert "epoch 5 was committed in snapshot 105" in problem.message
    assert "set the current snapshot to 105" in problem.remedy
    assert "--on-rollback rewind" in problem.remedy
    assert "--on-rollback keep" in problem.remedy


def test_a_table_without_a_register_cannot_be_rolled_back() -> None:
    assert judge(seen(None, Standing.ROLLED_BACK), FIRST) == Proceed()


def test_whoever_is_fenced_is_told_by_whom() -> None:
    told = fenced("shop.orders", register(3, "them"))
    assert isinstance(told, FencedError)
    assert all(word in told.message for word in ("shop.orders", "them", "generation 3"))
    assert told.remedy


def test_a_judgement_changes_with_the_table_and_with_nothing_else() -> None:
    """It runs again on every retry of a commit and must then say the same."""
    for found in (None, BEFORE, register(3, "them")):
        assert judge(seen(found), PROPOSAL).__class__ is judge(seen(found), PROPOSAL).__class__


class TestAltered:
    """COMMIT-05, FAULT-41, SCHEMA-08: the epoch lands as it was written, or is written again."""

    WRITTEN = replace(PROPOSAL, shape=Shape(frozenset({Layout(1, 2, 3)})))

    @pytest.mark.parametrize("layout", [Layout(9, 2, 3), Layout(1, 9, 3), Layout(1, 2, 9)])
    def test_files_for_another_schema_spec_or_order_are_refused_if_they_misfit(self, layout: Layout) -> None:
        found = replace(seen(BEFORE), layout=layout, formers=frozenset({Former(Layout(1, 2, 3), "too late")}))
        assert judge(found, self.WRITTEN) == Altered(layout, "too late")

    @pytest.mark.parametrize("layout", [Layout(9, 2, 3), Layout(1, 9, 3), Layout(1, 2, 9)])
    def test_files_for_another_schema_spec_or_order_proceed_if_they_fit(self, layout: Layout) -> None:
        found = replace(seen(BEFORE), layout=layout, formers=frozenset({Former(Layout(1, 2, 3))}))
        assert judge(found, self.WRITTEN) == Proceed()

    def test_files_for_the_table_as_it_is_proceed(self) -> None:
        assert judge(replace(seen(BEFORE), layout=Layout(1, 2, 3)), self.WRITTEN) == Proceed()

    def test_a_commit_without_files_proceeds_whatever_the_table_is_like(self) -> None:
        assert judge(replace(seen(BEFORE), layout=Layout(9, 9, 9)), PROPOSAL) == Proceed()

    def test_what_landed_before_the_table_was_altered_has_landed(self) -> None:
        found = replace(seen(self.WRITTEN.register), layout=Layout(9, 9, 9))
        assert isinstance(judge(found, self.WRITTEN), AlreadyCommitted)

    def test_a_newer_coordinator_comes_first(self) -> None:
        found = register(3, "them", 5)
        assert judge(replace(seen(found), layout=Layout(9, 9, 9)), self.WRITTEN) == Fenced(found)

    def test_the_message_names_both_and_is_worth_another_try(self) -> None:
        told = altered("shop.orders", self.WRITTEN, Altered(Layout(4, 2, 3), "because"))
        assert isinstance(told, TransientError)
        assert "schema 1, partition spec 2, sort order 3" in told.message
        assert "schema 4, partition spec 2, sort order 3; because" in told.message


class TestAmends:
    """FAULT-20: a start that the user has told what to do about a rollback."""

    start = replace(START, holds=HELD)

    def rolled_back(self, held: Frontier | None) -> TableObserved:
        lost = Held(held, None)
        return replace(seen(BEFORE, Standing.ROLLED_BACK), held=lost)

    def test_it_lands_on_the_head_that_was_decided_upon(self) -> None:
        assert judge(self.rolled_back(HELD), self.start) == Proceed()

    @pytest.mark.parametrize("held", [Frontier(), Frontier({("t", 0): Position(20)}), None])
    def test_it_is_refused_by_a_head_that_was_moved_once_more(self, held: Frontier | None) -> None:
        assert "rolled back" in error(judge(self.rolled_back(held), self.start)).message

    def test_it_is_refused_by_a_head_that_was_restored_meanwhile(self) -> None:
        """Going back then would land rows twice that are there again."""
        assert "restored" in error(judge(seen(BEFORE), self.start)).message

    def test_an_epoch_is_refused_whatever_the_head_holds(self) -> None:
        assert isinstance(judge(self.rolled_back(HELD), PROPOSAL), Unexpected)

    def test_once_landed_it_is_recognised_and_a_newer_coordinator_still_fences(self) -> None:
        assert isinstance(judge(seen(self.start.register), self.start), AlreadyCommitted)
        newer = register(generation=9, coordinator="newest", epoch=5)
        assert isinstance(judge(seen(newer), self.start), Fenced)
