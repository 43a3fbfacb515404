"""Landing one proposal, whatever the network does to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from frazil.commit.land import land
from frazil.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    Fenced,
    RowsMoved,
    TableAltered,
    TableChanged,
    TableDamaged,
)
from frazil.protocol.commit import Proposal
from frazil.protocol.layout import Layout
from frazil.protocol.positions import Frontier, Position
from frazil.protocol.register import BatchId, Epoch, Generation, Register
from frazil.protocol.retry import Backoff
from frazil.table import WrittenFile
from frazil.table.files import shape_of
from frazil.table.memory import Fault, MemoryTable

PATIENCE = Backoff(base_s=0.1, max_s=5.0, attempts=4)
FILES = [WrittenFile("shop.orders", "one.parquet", 0, 0, 5, 100)]


def register(table: Any, epoch: int, generation: int = 1, coordinator: str = "us", batch: str = "") -> Register:
    return Register(
        Generation(generation),
        coordinator,
        Epoch(epoch),
        BatchId(batch or f"batch-{epoch}"),
        Frontier({("t", 0): Position(epoch * 10)}),
        table_uuid=table.observe("orders").uuid,
    )


def proposal(table: Any, before: Register | None, after: Register) -> Proposal:
    return Proposal("orders", table.observe("orders").uuid, before, after, {"frazil.writer": "orders"})


@pytest.fixture
def table(shop: Any) -> MemoryTable:
    """With our start commit in it."""
    land(shop.anchor, proposal(shop.anchor, None, register(shop.anchor, 0)), [], shop.world(), PATIENCE)
    anchor: MemoryTable = shop.anchor
    return anchor


def epoch_1(table: MemoryTable) -> Proposal:
    return proposal(table, register(table, 0), register(table, 1))


def take_over(shop: Any, table: MemoryTable) -> None:
    before = table.observe("orders").register
    after = register(table, before.epoch if before else 0, generation=2, coordinator="them", batch="start of them")
    land(table, proposal(table, before, after), [], shop.world(), PATIENCE)


class Around:
    """A table with one thing different."""

    def __init__(self, inner: MemoryTable) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_a_commit_that_works_is_tried_once(shop: Any, table: MemoryTable) -> None:
    landed = land(table, epoch_1(table), FILES, shop.world(), PATIENCE)
    assert landed == register(table, 1)
    assert landed.snapshot_id == table.observe("orders").snapshot_id
    assert table.live_paths == ["one.parquet"]
    assert shop.clock.slept_s == []


def test_a_commit_whose_reply_was_lost_is_found_and_not_sent_again(shop: Any, table: MemoryTable) -> None:
    """COMMIT-04, COMMIT-11, FAULT-03, FAULT-07, FAULT-08, FAULT-09."""
    table.faults.append(Fault.REPLY_LOST)
    assert land(table, epoch_1(table), FILES, shop.world(), PATIENCE) == register(table, 1)
    assert table.live_paths == ["one.parquet"]
    assert table.deleted == set()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_refused_commit_is_tried_again_with_the_same_files(shop: Any, table: MemoryTable, times: int) -> None:
    """COMMIT-06, COMMIT-09, FAULT-12."""
    table.faults.extend([Fault.REFUSED] * times)
    land(table, epoch_1(table), FILES, shop.world(), PATIENCE)
    assert table.live_paths == ["one.parquet"]
    assert shop.clock.slept_s == pytest.approx([0.105, 0.21, 0.42][:times])


def test_when_attempts_run_out_it_says_conflict_and_keeps_the_files(shop: Any, table: MemoryTable) -> None:
    """COMMIT-09, FAULT-12: bounded, and loud."""
    table.faults.extend([Fault.REFUSED] * 4)
    with pytest.raises(CommitConflict, match="epoch 1 could not be committed in 4 attempts") as conflict:
        land(table, epoch_1(table), FILES, shop.world(), PATIENCE)
    assert "refused" in conflict.value.message
    assert "kept" in conflict.value.remedy
    assert table.live_paths == []
    assert table.deleted == set()
    assert len(shop.clock.slept_s) == 3, "nobody waits after the last attempt"


def test_files_for_a_table_that_was_altered_are_not_sent_again(shop: Any, table: MemoryTable) -> None:
    """COMMIT-05, FAULT-41: a retry with the same files could never land."""
    written = replace(epoch_1(table), shape=shape_of(FILES, "split"))
    table.faults.append(Fault.REFUSED)
    table.alter(Layout(schema_id=1), misfit="a column is required now")
    with pytest.raises(TableAltered, match=r"schema 0, .* the table has schema 1, .*; a column is required now"):
        land(table, written, FILES, shop.world(), PATIENCE)
    assert (table.live_paths, table.deleted, shop.clock.slept_s) == ([], set(), [])


def test_files_that_fit_a_table_that_was_altered_are_sent_again(shop: Any, table: MemoryTable) -> None:
    """SCHEMA-08: the look after an error judges them as the commit does."""
    written = replace(epoch_1(table), shape=shape_of(FILES, "split"))
    table.faults.append(Fault.REFUSED)
    table.alter(Layout(schema_id=1))
    assert land(table, written, FILES, shop.world(), PATIENCE) == register(table, 1)
    assert table.live_paths == ["one.parquet"]


class Moving(Around):
    """Refuses deletes by position, as Iceberg does when others have moved the rows; the first may have landed."""

    def __init__(self, inner: MemoryTable, *, lands: bool) -> None:
        super().__init__(inner)
        self._lands = lands

    def commit(self, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        if self._lands:
            self.inner.commit(proposal, files)
        raise RowsMoved("rows are no longer where they were found")


def test_rows_that_moved_are_not_looked_for_in_the_old_places_again(shop: Any, table: MemoryTable) -> None:
    """FAULT-26, LIM-04: a retry with the same files could never land; the epoch is written again."""
    moving = cast(MemoryTable, Moving(table, lands=False))
    with pytest.raises(RowsMoved):
        land(moving, epoch_1(table), FILES, shop.world(), PATIENCE)
    assert (table.live_paths, table.deleted, shop.clock.slept_s) == ([], set(), [])


def test_rows_that_moved_because_the_commit_landed_are_in_place(shop: Any, table: MemoryTable) -> None:
    """FAULT-07, LIM-04: an error says nothing about the outcome, this one neither."""
    moving = cast(MemoryTable, Moving(table, lands=True))
    assert land(moving, epoch_1(table), FILES, shop.world(), PATIENCE) == register(table, 1)
    assert table.live_paths == ["one.parquet"]


class Refusing(Around):
    """It can never take this commit, and says why."""

    def commit(self, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        raise TableChanged("it has come to hold what nobody can replace")


def test_a_commit_that_a_table_can_never_take_is_not_tried_again(shop: Any, table: MemoryTable) -> None:
    """COMMIT-09, FAULT-12: the reason is what the user reads, at once, and not the number of attempts."""
    with pytest.raises(TableChanged, match="nobody can replace"):
        land(cast(MemoryTable, Refusing(table)), epoch_1(table), FILES, shop.world(), PATIENCE)
    assert (table.live_paths, table.deleted, shop.clock.slept_s) == ([], set(), [])


def test_a_delayed_commit_that_lands_between_probe_and_retry_is_recognised(shop: Any, table: MemoryTable) -> None:
    """FAULT-10: the probe said no, and then it landed."""
    table.faults.append(Fault.DELAYED)
    landed: list[int] = []

    def sleep(seconds: float) -> None:
        landed.append(table.release())

    world = shop.world()
    object.__setattr__(world, "sleep", sleep)
    assert land(table, epoch_1(table), FILES, world, PATIENCE) == register(table, 1)
    assert landed == [1]
    assert table.live_paths == ["one.parquet"]


def test_a_delayed_commit_that_arrives_after_the_retry_never_lands(shop: Any, table: MemoryTable) -> None:
    """FAULT-10."""
    table.faults.append(Fault.DELAYED)
    land(table, epoch_1(table), FILES, shop.world(), PATIENCE)
    assert table.release() == 0
    assert table.live_paths == ["one.parquet"]


def test_all_attempts_delayed_and_released_at_once_land_once(shop: Any, table: MemoryTable) -> None:
    """FAULT-10."""
    table.faults.extend([Fault.DELAYED] * 4)
    with pytest.raises(CommitConflict):
        land(table, epoch_1(table), FILES, shop.world(), PATIENCE)
    assert table.release() == 1
    assert table.live_paths == ["one.parquet"]


def test_a_delayed_commit_that_arrives_after_another_took_over_never_lands(shop: Any, table: MemoryTable) -> None:
    """FAULT-05, FAULT-10."""
    table.faults.append(Fault.DELAYED)
    with pytest.raises(TimeoutError):
        table.commit(epoch_1(table), FILES)
    take_over(shop, table)
    assert table.release() == 0
    assert table.live_paths == []


def test_whoever_was_taken_over_stops_and_names_the_other(shop: Any, table: MemoryTable) -> None:
    """COMMIT-12, FAULT-05."""
    late = epoch_1(table)
    take_over(shop, table)
    with pytest.raises(Fenced, match="them") as fenced:
        land(table, late, FILES, shop.world(), PATIENCE)
    assert isinstance(fenced.value.__cause__, RuntimeError)
    assert table.live_paths == []


def test_our_span_landed_by_another_coordinator_fences_us(shop: Any, table: MemoryTable) -> None:
    """COMMIT-13: it is in, and so is somebody else."""
    late = epoch_1(table)
    take_over(shop, table)
    theirs = register(table, 1, generation=2, coordinator="them")
    land(table, proposal(table, table.observe("orders").register, theirs), FILES, shop.world(), PATIENCE)
    with pytest.raises(Fenced, match="them"):
        land(table, late, FILES, shop.world(), PATIENCE)
    assert table.live_paths == ["one.parquet"]


def test_nothing_is_sent_again_before_the_table_has_answered(shop: Any, table: MemoryTable) -> None:
    """COMMIT-11."""
    late = epoch_1(table)
    table.faults.append(Fault.REPLY_LOST)
    table.silences = 3
    assert land(table, late, FILES, shop.world(), PATIENCE) == register(table, 1)
    assert len(shop.clock.slept_s) == 3
    assert table.live_paths == ["one.parquet"]


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REFUSED])
def test_a_table_that_stays_silent_leaves_the_outcome_unknown(shop: Any, table: MemoryTable, fault: Fault) -> None:
    """COMMIT-11, FAULT-07."""
    late = epoch_1(table)
    table.faults.append(fault)
    table.silences = 4
    with pytest.raises(CommitOutcomeUnknown, match="epoch 1") as unknown:
        land(table, late, FILES, shop.world(), PATIENCE)
    assert "files are kept" in unknown.value.remedy
    assert table.deleted == set()


def test_a_commit_of_ours_that_lands_late_ends_what_was_planned_without_it(shop: Any, table: MemoryTable) -> None:
    """FAULT-10: to be planned again, not a table to be repaired by hand."""
    table.faults.append(Fault.DELAYED)
    with pytest.raises(TimeoutError):
        table.commit(epoch_1(table), FILES)
    anew = proposal(table, register(table, 0), register(table, 2))
    table.release()
    with pytest.raises(CommitOutcomeUnknown, match="given up for lost, has landed after all"):
        land(table, anew, [WrittenFile("shop.orders", "two.parquet", 0, 0, 5, 100)], shop.world(), PATIENCE)
    assert table.live_paths == ["one.parquet"]


def test_a_commit_that_was_acknowledged_and_forgotten_stops_the_next_one(shop: Any, table: MemoryTable) -> None:
    """FAULT-13."""
    table.faults.append(Fault.ACKNOWLEDGED_ONLY)
    forgotten = land(table, epoch_1(table), FILES, shop.world(), PATIENCE)
    with pytest.raises(TableChanged, match="found epoch 0 of generation 1, expected epoch 1"):
        land(table, proposal(table, forgotten, register(table, 2)), [], shop.world(), PATIENCE)
    assert table.live_paths == []


def test_a_rolled_back_table_stops_the_commit(shop: Any, table: MemoryTable) -> None:
    """FAULT-20."""
    landed = land(table, epoch_1(table), FILES, shop.world(), PATIENCE)
    table.roll_back(1)
    with pytest.raises(TableChanged, match="rolled back"):
        land(table, proposal(table, landed, register(table, 2)), [], shop.world(), PATIENCE)


def test_a_recreated_table_stops_the_commit(shop: Any, table: MemoryTable) -> None:
    """FAULT-38."""
    late = epoch_1(table)
    table.recreate()
    with pytest.raises(TableChanged, match="another table than before"):
        land(table, late, FILES, shop.world(), PATIENCE)
    assert table.live_paths == []


def test_foreign_commits_do_not_matter(shop: Any, table: MemoryTable) -> None:
    """COMMIT-06, COMMIT-10: an append fits on top of any head."""
    late = epoch_1(table)
    table.append_foreign("foreign.parquet")
    land(table, late, FILES, shop.world(), PATIENCE)
    assert sorted(table.live_paths) == ["foreign.parquet", "one.parquet"]


def test_compaction_and_expiry_do_not_matter(shop: Any, table: MemoryTable) -> None:
    """FAULT-18, FAULT-19, REC-20."""
    late = epoch_1(table)
    table.compact()
    table.expire()
    land(table, late, FILES, shop.world(), PATIENCE)
    assert "one.parquet" in table.live_paths


@pytest.mark.parametrize(
    "error", [ValueError("409"), MemoryError("out of memory"), OSError(5, "io"), TableChanged("x")]
)
def test_whatever_class_an_error_has_the_table_decides(shop: Any, table: MemoryTable, error: Exception) -> None:
    """FAULT-08, FAULT-09, FAULT-11: an error says nothing about the outcome."""

    class Lying(Around):
        def commit(self, offered: Proposal, files: Sequence[WrittenFile]) -> Register:
            self.inner.commit(offered, files)
            raise error

    assert land(cast(Any, Lying(table)), epoch_1(table), FILES, shop.world(), PATIENCE) == register(table, 1)
    assert table.live_paths == ["one.parquet"]


def test_a_damaged_head_is_reported_before_anything_else_is_tried(shop: Any, table: MemoryTable) -> None:
    """FAULT-11: the promise that every referenced file opens."""

    class Damaged(Around):
        def check_head(self) -> None:
            raise TableDamaged("the manifest list is gone")

    table.faults.append(Fault.REFUSED)
    with pytest.raises(TableDamaged):
        land(cast(Any, Damaged(table)), epoch_1(table), FILES, shop.world(), PATIENCE)
