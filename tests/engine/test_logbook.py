"""Cleaning up after a crash, on tables in memory: only what is certain to be nobody's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from frazil.commit import Coordinator, EpochOutcome, Started
from frazil.engine.epoch import PlannedEpoch, _begun
from frazil.engine.logbook import Logbook
from frazil.journal import Journal, JournalSettings, read_journal
from frazil.protocol.positions import Frontier, Position, Range, Span
from frazil.protocol.register import Epoch
from frazil.protocol.summary import Counts
from frazil.table import WriteTarget, WrittenFile
from frazil.table.memory import Fault, MemoryTable
from frazil.write import FileName, new_token

P0 = ("orders", 0)
FOLDER = "mem:/orders/data"
TARGET = WriteTarget("shop.orders", FOLDER, "", "")


class Life:
    """One process of the pipeline, up to the moment it dies."""

    def __init__(self, table: MemoryTable, folder: Path) -> None:
        self.table = table
        self.journal = Journal(JournalSettings(folder))
        self.coordinator = Coordinator("orders", table, interval_s=1)
        self.logbook = Logbook(self.journal, self.coordinator, [table])
        self._opened: object = None

    def claim(self) -> Started:
        return self.coordinator.start(lambda: Frontier({P0: Position(0)}), take_over=True)

    def start(self) -> Life:
        self._opened = self.logbook.opened(self.claim())
        self._opened.__enter__()  # type: ignore[attr-defined]
        return self

    def begin(self) -> PlannedEpoch:
        base = self.coordinator.frontier
        at = base.offset(P0) or 0
        number = Epoch(self.coordinator.epoch + 1)
        planned = PlannedEpoch(
            number,
            Span({P0: Range(at, at + 10)}),
            base,
            token=new_token(),
            registers=self.coordinator.registers,
        )
        self.journal.append(_begun("orders", planned, TARGET, None), durable=True)
        return planned

    def write(self, planned: PlannedEpoch, files: int = 2) -> EpochOutcome:
        name = FileName("orders", planned.number, 0, "orders-0", epoch_token=planned.token)
        paths = [f"{FOLDER}/day=1/{name.numbered(n)}" for n in range(1, files + 1)]
        self.table.stored.update(paths)
        some = [WrittenFile("shop.orders", path, 0, 0, 5, 10) for path in paths]
        return EpochOutcome(planned.number, planned.span, Counts(10, 10), {"shop.orders": some})

    def land(self) -> None:
        planned = self.begin()
        outcome = self.write(planned)
        landed = self.coordinator.commit(outcome)
        assert landed is not None
        self.logbook.landed(planned, landed)

    def die(self) -> None:
        self.journal._let_go()


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable("shop.orders")


@pytest.fixture
def live(table: MemoryTable, tmp_path: Path) -> Callable[[], Life]:
    return lambda: Life(table, tmp_path)


def paths(outcome: EpochOutcome) -> set[str]:
    return {file.path for files in outcome.files.values() for file in files}


def test_files_of_an_epoch_that_never_landed_are_deleted_by_the_next_start(
    table: MemoryTable, live: Callable[[], Life], tmp_path: Path
) -> None:
    """REC-13, REC-16: killed after its files, before the commit."""
    one = live().start()
    one.land()
    lost = one.write(one.begin())
    table.stored |= {f"{FOLDER}/somebody-else.parquet", "mem:/elsewhere/orders.parquet"}
    one.die()

    two = live().start()

    assert table.deleted == paths(lost)
    assert two.journal.state.incomplete == {}
    two.die()
    deleted = [each.entry for each in read_journal(tmp_path).recorded if each.kind == "orphans-deleted"]
    assert {path for entry in deleted for path in entry.paths} == paths(lost)  # type: ignore[union-attr]


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.REPLY_LOST])
def test_files_of_a_commit_that_was_not_noted_are_kept(
    table: MemoryTable, live: Callable[[], Life], fault: Fault
) -> None:
    """REC-16, REC-18, FAULT-03: killed between the commit and the journal."""
    one = live().start()
    planned = one.begin()
    outcome = one.write(planned)
    one.logbook.written(planned, outcome)
    table.faults.append(fault)
    one.coordinator.commit(outcome)
    one.die()
    two = live().start()
    assert table.deleted == set()
    assert set(table.live_paths) == paths(outcome)
    assert two.journal.state.incomplete == {}, "looked for once, and then no more"


def test_nothing_is_deleted_before_the_older_coordinator_is_fenced(
    table: MemoryTable, live: Callable[[], Life]
) -> None:
    """FAULT-05: its commit may still land until the start commit is in."""
    old = live().start()
    outcome = old.write(old.begin())
    new = live()
    looks: list[str] = []
    table.find_files = lambda *_: looks.append("listed") or []  # type: ignore[method-assign,func-returns-value]
    table.before_swap = lambda: looks.append("start commit")
    old.die()
    with new.logbook.opened(new.claim()):
        pass
    assert looks == ["start commit", "listed"]
    table.before_swap = lambda: None
    with pytest.raises(Exception, match="has taken this pipeline over"):
        old.coordinator.commit(outcome)


def test_a_paused_coordinator_keeps_its_journal_and_its_files(table: MemoryTable, live: Callable[[], Life]) -> None:
    """FAULT-05: the new one has no journal, and cleans up nothing; the one after it does."""
    old = live().start()
    outcome = old.write(old.begin())
    new = live().start()
    assert not new.journal.is_kept
    assert table.deleted == set()
    new.die()
    old.die()
    live().start()
    assert table.deleted == paths(outcome)


def test_another_table_under_the_same_name_is_left_alone(tmp_path: Path, live: Callable[[], Life]) -> None:
    one = live().start()
    one.write(one.begin())
    one.die()
    recreated = MemoryTable("shop.orders")
    recreated.stored = set(one.table.stored)
    two = Life(recreated, tmp_path).start()
    assert recreated.deleted == set()
    assert two.journal.state.incomplete == {}


def test_a_start_with_nothing_to_clean_lists_nothing(table: MemoryTable, live: Callable[[], Life]) -> None:
    one = live().start()
    planned = one.begin()
    one.logbook.carried(planned)
    one.die()

    def listed(*_: object) -> Sequence[str]:
        raise AssertionError("nothing is incomplete")

    table.find_files = listed  # type: ignore[method-assign,assignment]
    with capture_logs() as told:
        live().start()
    assert told == []


def test_a_storage_that_cannot_be_listed_costs_a_warning_and_is_tried_again(
    table: MemoryTable, live: Callable[[], Life]
) -> None:
    """REC-17."""
    one = live().start()
    outcome = one.write(one.begin())
    one.die()
    find, table.find_files = table.find_files, _refuse  # type: ignore[method-assign]
    with capture_logs() as told:
        two = live().start()
    assert [each["event"] for each in told] == ["left-over files could not be deleted"]
    assert len(two.journal.state.incomplete) == 1
    two.die()
    table.find_files = find  # type: ignore[method-assign]
    live().start()
    assert table.deleted == paths(outcome)


def _refuse(*_: object) -> list[str]:
    raise PermissionError("may not list")


@pytest.mark.parametrize("damage", ["lost", "torn", "flipped"])
def test_a_journal_that_is_lost_or_damaged_deletes_nothing_that_is_referenced(
    table: MemoryTable, live: Callable[[], Life], tmp_path: Path, damage: str
) -> None:
    """REC-18, FAULT-43, at every byte of it."""
    one = live().start()
    one.land()
    lost = one.write(one.begin())
    one.die()
    (log,) = tmp_path.glob("txlog-*")
    whole = log.read_bytes()
    for position in range(0, len(whole), 29):
        for file in tmp_path.iterdir():
            file.unlink()
        if damage == "torn":
            log.write_bytes(whole[:position])
        elif damage == "flipped":
            log.write_bytes(whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :])
        live().start().die()
        assert table.deleted <= paths(lost)
