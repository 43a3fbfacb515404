"""What may be deleted after a crash: a table of decisions, each of which has to hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.protocol.entries import (
    Entry,
    EpochAbandoned,
    EpochBegun,
    EpochCarried,
    EpochLanded,
    FileNoted,
    FilesWritten,
    OrphansDeleted,
    Started,
    TableTouched,
)
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Position
from frazil.protocol.recovery import (
    INCOMPLETE_MAX,
    OrphanKind,
    RecoveryState,
    orphan_kind,
    orphans,
    plan_search,
    replay,
)

T, U = "0123456789ab", "ba9876543210"
ATTEMPT = "cafecafecafe"
FRONTIER = Frontier({("orders", 0): Position(10)})
ANCHOR = TableTouched("shop.orders", "uuid-a", "s3://lake/orders/data", 7)
DEAD = TableTouched("shop.dead", "uuid-d", "s3://lake/dead/data", 3)
UUIDS = {"shop.orders": "uuid-a", "shop.dead": "uuid-d"}

BEGUN = EpochBegun(4, T, "batch", EMPTY_SPAN, (DEAD, ANCHOR))
WRITTEN = FilesWritten(4, T, (FileNoted("shop.orders", "s3://lake/orders/data/f", 1, 1),))
LANDED = EpochLanded(4, T, "batch", FRONTIER, {"shop.orders": 11}, 1)
STARTED = Started(2, "c", 3, FRONTIER)


@pytest.mark.parametrize(
    ("entries", "incomplete"),
    [
        ([], False),
        ([STARTED], False),
        ([BEGUN], True),
        ([BEGUN, WRITTEN], True),
        ([BEGUN, WRITTEN, STARTED], True),
        ([BEGUN, EpochAbandoned(4, T, "a task died")], True),
        ([BEGUN, WRITTEN, LANDED], False),
        ([BEGUN, EpochCarried(4, T)], False),
        ([BEGUN, OrphansDeleted((T,), ())], False),
        ([BEGUN, OrphansDeleted((U,), ("path",))], True),
        ([LANDED], False),
        ([BEGUN, EpochLanded(4, U, "batch", FRONTIER, {}, 0)], True),
    ],
)
def test_an_epoch_is_incomplete_until_it_landed_or_was_cleaned_up(entries: list[Entry], incomplete: bool) -> None:
    """REC-13, REC-16, REC-24: the crash points, before and after each entry."""
    assert list(replay(entries).incomplete) == ([T] if incomplete else [])


def test_the_state_tells_what_the_journal_knows() -> None:
    """REC-14."""
    other = EpochBegun(5, U, "next", EMPTY_SPAN, (ANCHOR,))
    state = replay([STARTED, BEGUN, WRITTEN, LANDED, other, FilesWritten(5, U, WRITTEN.files)])
    assert state.frontier == FRONTIER
    assert state.snapshots == {"shop.orders": 11}
    assert state.incomplete == {U: other}
    assert state.written == {U: WRITTEN.files}
    assert (state.committed_files, state.entries) == (1, 6)


def test_a_checkpoint_stands_for_all_entries_before_it() -> None:
    """REC-08, REC-10."""
    state = replay([STARTED, BEGUN, WRITTEN, LANDED, EpochBegun(5, U, "next", EMPTY_SPAN, (ANCHOR,))])
    resumed = RecoveryState().after(state.checkpoint(5))
    assert resumed == state.after(state.checkpoint(5))
    assert (resumed.incomplete, resumed.entries) == (state.incomplete, 6)
    assert resumed.checkpoint(1).number == 2


def test_a_fault_every_few_seconds_makes_no_state_without_end() -> None:
    many = [EpochBegun(n, f"{n:012x}", "b", EMPTY_SPAN, ()) for n in range(INCOMPLETE_MAX + 5)]
    assert list(replay(many).incomplete) == [each.token for each in many[5:]]


def test_a_start_with_nothing_incomplete_looks_nowhere() -> None:
    assert plan_search(replay([BEGUN, LANDED]), UUIDS) == []


def test_each_folder_is_searched_once_for_all_epochs() -> None:
    earlier = TableTouched("shop.orders", "uuid-a", ANCHOR.location, 5)
    other = EpochBegun(5, U, "next", EMPTY_SPAN, (earlier,))
    searches = {search.table: search for search in plan_search(replay([BEGUN, other]), UUIDS)}
    assert searches["shop.orders"].epochs == {T: 4, U: 5}
    assert searches["shop.orders"].sequence_number == 5, "of the earliest: a later one could hide a reference"
    assert searches["shop.dead"].epochs == {T: 4}


@pytest.mark.parametrize("uuids", [{"shop.orders": "another", "shop.dead": "another"}, {}])
def test_nothing_is_looked_for_in_another_table_of_the_same_name(uuids: dict[str, str]) -> None:
    assert plan_search(replay([BEGUN]), uuids) == []


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (f"s3://x/day=1/orders-e4-t0-orders-0-0-9-{T}-{ATTEMPT}-00001.parquet", True),
        (f"orders-e4-t12-{T}-{ATTEMPT}-00001.orc", True),
        (f"orders-e4-t0-sql-{T}-{ATTEMPT}-123456.avro", True),
        (f"orders-e5-t0-{T}-{ATTEMPT}-00001.parquet", False),
        (f"orders-e4-t0-{U}-{ATTEMPT}-00001.parquet", False),
        (f"orders2-e4-t0-{T}-{ATTEMPT}-00001.parquet", False),
        (f"other-orders-e4-t0-{T}-{ATTEMPT}-00001.parquet", False),
        (f"orders-e4-t0-{ATTEMPT}-{T}-00001.parquet", False),
        (f"orders-e4-t0-{T}-00001.parquet", False),
        (f"orders-e4-t0-{T}-{ATTEMPT}-00001.parquet.crc.old", False),
        (f"{T}/compacted-00001.parquet", False),
        ("00000-0-6f1c8e0a-5d0b-5a55-9a37-0e2f7a4b9c11-00001.parquet", False),
    ],
)
def test_only_a_name_with_writer_epoch_and_token_is_found(path: str, found: bool) -> None:
    """Never files of another writer, of another attempt, or of somebody's compaction."""
    (search,) = plan_search(replay([EpochBegun(4, T, "b", EMPTY_SPAN, (ANCHOR,))]), UUIDS)
    assert search.finds(path, "orders") is found


def test_of_a_landed_epoch_only_files_of_attempts_that_spark_gave_up_are_found() -> None:
    """FAULT-04: and none at all where every task ran once."""
    begun = EpochBegun(4, T, "b", EMPTY_SPAN, (ANCHOR,))
    landed = EpochLanded(4, T, "b", Frontier(), {}, 1)
    assert plan_search(replay([begun, landed]), UUIDS) == []

    twice = replay([begun, replace(landed, winners=(ATTEMPT,))])
    for state in (twice, replay([twice.checkpoint(0)])):
        (search,) = plan_search(state, UUIDS)
        assert not search.finds(f"orders-e4-t0-{T}-{ATTEMPT}-00001.parquet", "orders")
        assert search.finds(f"orders-e4-t0-{T}-{U}-00001.parquet", "orders")
    assert replay([begun, replace(landed, winners=(ATTEMPT,)), OrphansDeleted((T,), ())]).incomplete == {}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"data/day=1/orders-e4-t0-orders-0-0-9-{T}-{ATTEMPT}-00001.parquet", OrphanKind.DATA_FILE),
        ("metadata/0a1b2c3d-m0.avro", OrphanKind.MANIFEST),
        ("metadata/snap-42-1-0a1b2c3d.avro", OrphanKind.MANIFEST_LIST),
        ("metadata/20260101_00001-abc.stats", OrphanKind.STATISTICS),
        ("metadata/deletes.puffin", OrphanKind.STATISTICS),
        ("metadata/partition-stats-42-abc.parquet", OrphanKind.STATISTICS),
        ("metadata/00003-abc.metadata.json", OrphanKind.UNKNOWN),
        ("data/part-00000.parquet", OrphanKind.UNKNOWN),
    ],
)
def test_an_orphan_is_known_by_its_name(name: str, kind: OrphanKind) -> None:
    """REC-15."""
    assert orphan_kind(f"s3://lake/{name}") is kind


def test_what_a_snapshot_references_is_no_orphan() -> None:
    assert orphans(["b", "a", "c"], {"b", "x"}) == ["a", "c"]
