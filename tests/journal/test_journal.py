"""The journal in a folder: checkpoints, rotation, and every way in which it may fail without anybody minding."""

from __future__ import annotations

import errno
import json
import os
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.journal import Journal, JournalSettings, plain, read_journal, recover
from frazil.journal.encode import Recorded, decode, encode
from frazil.journal.files import checkpoints, logs
from frazil.journal.frame import frame
from frazil.protocol.entries import (
    KINDS,
    Checkpoint,
    Entry,
    EpochAbandoned,
    EpochBegun,
    EpochCarried,
    EpochLanded,
    FileNoted,
    FilesWritten,
    OrphansDeleted,
    SchemaChanged,
    Started,
    TableTouched,
)
from frazil.protocol.positions import Frontier, Position, Range, Span

SPAN = Span({("orders", 0): Range(0, 10), ("orders", 1): Range(5, 7)})
FRONTIER = Frontier({("orders", 0): Position(10, 3), ("orders", 1): Position(7)}, {"orders": "topic-id"})


def begun(number: int) -> EpochBegun:
    table = TableTouched("shop.orders", "uuid", "file:/w/shop/orders/data", 4)
    return EpochBegun(number, f"{number:012x}", f"batch-{number}", SPAN, (table,))


def landed(number: int) -> EpochLanded:
    return EpochLanded(number, f"{number:012x}", f"batch-{number}", FRONTIER, {"shop.orders": number}, 2, SPAN)


EVERY_KIND: list[Entry] = [
    Started(3, "c1", 7, FRONTIER, "host/1/2.0"),
    SchemaChanged("shop.orders", 1, 2, ("place", "place.city"), ("name",)),
    begun(8),
    FilesWritten(8, f"{8:012x}", (FileNoted("shop.orders", "file:/a ö.parquet", 10, 3, "crc"),)),
    landed(8),
    EpochCarried(9, "t9"),
    EpochAbandoned(10, "t10", "a task died"),
    OrphansDeleted(("t10",), ("file:/a", "file:/b")),
    Checkpoint(1, 8, 8, 2, FRONTIER, {"shop.orders": 8}, (replace(begun(11), winners=("a",)),), {"uuid": 2}),
]


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_793_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(folder: Path, clock: Clock, **settings: Any) -> Journal:
    journal = Journal(replace(JournalSettings(folder), **settings), clock)
    journal.open()
    return journal


def crash(journal: Journal) -> None:
    """As a killed process leaves it: no checkpoint, and the lock is gone."""
    journal._let_go()


@pytest.mark.parametrize("entry", EVERY_KIND, ids=lambda entry: type(entry).__name__)
def test_every_kind_of_entry_survives_the_trip(entry: Entry) -> None:
    """REC-02, REC-03, REC-04, REC-05, REC-06, REC-07, REC-08, REC-09, REC-24."""
    assert decode(encode(Recorded(12, entry))) == Recorded(12, entry)


def test_no_kind_is_left_out() -> None:
    assert [type(entry) for entry in EVERY_KIND] == list(KINDS)


def test_what_another_version_wrote_is_passed_over(tmp_path: Path, clock: Clock) -> None:
    assert decode(b'{"at":1,"kind":"from-the-future"}') is None
    assert decode(b"{") is None
    more = plain(Recorded(1, EpochCarried(1, "t"))) | {"new_field": 1}
    assert decode(json.dumps(more).encode()) == Recorded(1, EpochCarried(1, "t"))


def test_the_next_life_knows_what_the_last_one_noted(tmp_path: Path, clock: Clock) -> None:
    """REC-13, REC-14."""
    journal = opened(tmp_path, clock)
    for entry in (begun(1), landed(1), begun(2)):
        journal.append(entry, durable=True)
    crash(journal)

    state = opened(tmp_path, clock).state

    assert list(state.incomplete) == [f"{2:012x}"]
    assert state.incomplete[f"{2:012x}"] == begun(2)
    assert (state.frontier, state.snapshots, state.committed_files) == (FRONTIER, {"shop.orders": 1}, 2)
    assert state.entries == 3


def test_a_checkpoint_comes_after_so_many_entries_and_begins_a_new_file(tmp_path: Path, clock: Clock) -> None:
    """REC-08, REC-10, REC-11, CFG-67."""
    journal = opened(tmp_path, clock, checkpoint_entries=4)
    for number in range(1, 5):
        journal.append(begun(number))
    journal.append(begun(5))
    crash(journal)

    assert [path.name for path in logs(tmp_path)] == ["txlog-20261026-001.log", "txlog-20261026-002.log"]
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-20261026.json"]
    replayed = recover(tmp_path)
    assert [each.entry for each in replayed.recorded] == [begun(5)], "replay begins at the checkpoint"
    assert len(replayed.state.incomplete) == 5
    assert replayed.state.entries == 6
    assert replayed.state == read_journal(tmp_path).state


def test_a_checkpoint_comes_after_so_much_time(tmp_path: Path, clock: Clock) -> None:
    """REC-10."""
    journal = opened(tmp_path, clock)
    journal.append(begun(1))
    assert checkpoints(tmp_path) == []
    clock.now_ms += 300_000
    journal.append(begun(2))
    assert len(checkpoints(tmp_path)) == 1
    assert len(logs(tmp_path)) == 1


def test_a_graceful_end_leaves_nothing_to_replay(tmp_path: Path, clock: Clock) -> None:
    """REC-10."""
    journal = opened(tmp_path, clock)
    journal.append(begun(1))
    journal.close()
    found = recover(tmp_path)
    assert found.recorded == ()
    assert len(found.state.incomplete) == 1


def test_another_day_has_another_file_and_only_so_many_are_kept(tmp_path: Path, clock: Clock) -> None:
    """REC-11, CFG-68: what an old file knew is in the checkpoint that begins the next one."""
    for number in range(1, 6):
        journal = opened(tmp_path, clock, max_files=3)
        journal.append(begun(number))
        crash(journal)
        clock.now_ms += 86_400_000
    days = ["20261028", "20261029", "20261030"]
    assert [path.name for path in logs(tmp_path)] == [f"txlog-{day}-001.log" for day in days]
    assert [path.name for path in checkpoints(tmp_path)] == [f"checkpoint-{day}.json" for day in days]
    assert len(recover(tmp_path).state.incomplete) == 5
    for path in checkpoints(tmp_path):
        path.unlink()
    assert len(recover(tmp_path).state.incomplete) == 5


def test_a_torn_tail_is_cut_and_writing_goes_on_behind_it(tmp_path: Path, clock: Clock) -> None:
    """REC-01, FAULT-43."""
    journal = opened(tmp_path, clock)
    journal.append(begun(1))
    journal.append(begun(2))
    crash(journal)
    (path,) = logs(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])

    with capture_logs() as told:
        journal = opened(tmp_path, clock)
    journal.append(begun(3))
    crash(journal)

    assert "never finished" in told[0]["damage"]
    assert [each.entry for each in read_journal(tmp_path).recorded] == [begun(1), begun(3)]
    assert read_journal(tmp_path).notes == ()


def test_damage_before_the_tail_is_named_and_the_file_is_left_alone(tmp_path: Path, clock: Clock) -> None:
    """REC-01, FAULT-43."""
    journal = opened(tmp_path, clock)
    for number in (1, 2, 3):
        journal.append(begun(number))
    crash(journal)
    (path,) = logs(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)

    with capture_logs() as told:
        journal = opened(tmp_path, clock)
    journal.append(begun(4))
    crash(journal)

    third = len(data) // 3
    assert told[0]["damage"] == f"{path.name} is damaged from byte {third} to {2 * third}"
    assert path.read_bytes() == data
    found = [each.entry for each in read_journal(tmp_path).recorded if isinstance(each.entry, EpochBegun)]
    assert found == [begun(1), begun(3), begun(4)]


def test_a_damaged_checkpoint_only_makes_replay_longer(tmp_path: Path, clock: Clock) -> None:
    """A sequence number that was misread could make a file look unreferenced."""
    journal = opened(tmp_path, clock)
    journal.append(begun(1))
    journal.close()
    (path,) = checkpoints(tmp_path)
    good = path.read_text()
    for bad in (good.replace(f"{1:012x}", f"{2:012x}"), good[:50], "[]", '{"log": 1}'):
        assert bad != good
        path.write_text(bad)
        found = recover(tmp_path)
        assert list(found.state.incomplete) == [f"{1:012x}"]
        assert len(found.recorded) == 2


def test_two_processes_never_write_one_journal(tmp_path: Path, clock: Clock) -> None:
    first = opened(tmp_path, clock)
    with capture_logs() as told:
        second = opened(tmp_path, clock)
    assert (first.is_kept, second.is_kept) == (True, False)
    assert [(each["event"], each["reason"]) for each in told] == [
        ("the pipeline goes on without its journal", "another process writes it")
    ]
    second.append(begun(1))
    first.append(begun(2))
    assert [each.entry for each in read_journal(tmp_path).recorded] == [begun(2)]
    first.close()
    third = opened(tmp_path, clock)
    assert third.is_kept


def test_a_folder_that_cannot_be_made_costs_one_warning(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "file").write_text("")
    with capture_logs() as told:
        journal = opened(tmp_path / "file" / "journal", clock)
        journal.append(begun(1))
        journal.close()
    assert [each["log_level"] for each in told] == ["warning"]


@pytest.fixture
def full_disk() -> Iterator[Any]:
    """No file of this process may grow beyond so many bytes: the write that does fails, half done."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_costs_one_warning_and_the_entries_before_it_stay(
    tmp_path: Path, clock: Clock, full_disk: Any
) -> None:
    """FAULT-43."""
    journal = opened(tmp_path, clock)
    journal.append(begun(1))
    full_disk(logs(tmp_path)[0].stat().st_size + 10)
    with capture_logs() as told:
        for number in (2, 3, 4):
            journal.append(begun(number), durable=True)
        journal.close()
    full_disk(resource.RLIM_INFINITY)

    assert [each["log_level"] for each in told] == ["warning"]
    assert not journal.is_kept
    again = opened(tmp_path, clock)
    again.append(begun(5))
    assert [each.entry for each in read_journal(tmp_path).recorded] == [begun(1), begun(5)]


def test_a_disk_that_refuses_to_sync_costs_one_warning_and_nothing_is_taken_for_noted(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULT-43: some file systems find out that they are full only when they sync."""
    journal = opened(tmp_path, clock)
    journal.append(begun(1))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with capture_logs() as told:
        journal.append(begun(2), durable=True)
        journal.append(begun(3), durable=True)

    assert [each["reason"] for each in told] == ["No space left on device"]
    assert not journal.is_kept
    assert list(journal.state.incomplete) == [f"{1:012x}"]


def test_a_journal_that_makes_no_sense_costs_one_warning(tmp_path: Path, clock: Clock) -> None:
    """Its checksum is right, but somebody wrote nonsense into it."""
    nonsense = b'{"at":1,"kind":"orphans-deleted","tokens":[[]],"paths":[]}'
    (tmp_path / "txlog-20261026-001.log").write_bytes(frame(nonsense))
    with capture_logs() as told:
        journal = opened(tmp_path, clock)
        journal.append(begun(1))
    assert [each["log_level"] for each in told] == ["warning"]
    assert not journal.is_kept


def test_without_settings_nothing_is_noted() -> None:
    journal = Journal()
    journal.open()
    journal.append(begun(1))
    journal.close()
    assert journal.state.entries == 0
