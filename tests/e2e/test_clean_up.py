"""Cleaning up, on a real table: against older journals, paused coordinators, other spellings and other files."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from structlog.testing import capture_logs

from frazil.engine import Assembly
from frazil.engine.events import EpochWritten, Event
from frazil.engine.logbook import find_leftovers
from frazil.engine.recover import look_at_recovery
from frazil.errors import Fenced
from frazil.journal import read_journal
from frazil.protocol.entries import EpochBegun
from frazil.protocol.recovery import RecoveryState
from frazil.serve.journal import recovery_json, recovery_lines
from frazil.table.iceberg import IcebergTable

pytestmark = pytest.mark.real

ROW = b'{"id": 1, "name": "n"}'


def journaled(rig: Any) -> Any:
    rig.tree["journal"] = {"dir": str(rig.folder / ".frazil" / "orders")}
    rig.tree["decode"]["schema"] = "id BIGINT, name STRING"
    return rig


def journal_folder(rig: Any) -> Path:
    return Path(rig.tree["journal"]["dir"])


def on_disk(rig: Any) -> set[str]:
    return {str(path) for path in (rig.folder / "warehouse").glob("shop/orders/data/**/*.parquet")}


def referenced(rig: Any) -> set[str]:
    """By whatever snapshot."""
    return {unquote(urlparse(row[0]).path) for row in rig.sql("SELECT file_path FROM {t}.all_data_files")}


def killed_mid_epoch(rig: Any) -> set[str]:
    """Runs the rig until its next epoch is written; the files that are then nobody's."""
    before = on_disk(rig)
    rig.run_killed()
    left = on_disk(rig) - before
    assert left
    return left


def test_an_older_journal_put_back_deletes_nothing_that_landed_since(make_rig: Callable[..., Any]) -> None:
    """FAULT-21, REC-18: the table is ahead, and it wins; compaction has even taken the files out of the head."""
    rig = journaled(make_rig(epoch={"max_records": 10}))
    folder, aside = journal_folder(rig), rig.folder / "aside"
    rig.produce([ROW] * 30)

    def put_aside(event: Event) -> None:
        if isinstance(event, EpochWritten) and event.epoch == 2:
            shutil.copytree(folder, aside)

    rig.run(observer=put_aside)
    rig.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    rig.produce([ROW] * 10)
    rig.run()
    kept = on_disk(rig)
    shutil.rmtree(folder)
    shutil.copytree(aside, folder)
    older = read_journal(folder).state
    assert {begun.epoch for begun in older.incomplete.values()} >= {2}, "an epoch that has landed since"
    rig.produce([ROW] * 10)

    rig.run()

    assert rig.offsets() == rig.every(50)
    assert kept <= on_disk(rig)
    assert referenced(rig) == on_disk(rig)
    assert read_journal(folder).state.incomplete == {}


class PausedRun:
    """A run that stands still between its files and their commit, as a long garbage collection makes one."""

    def __init__(self, rig: Any) -> None:
        self.error: BaseException | None = None
        self._rig = rig
        self._written, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._written.wait(60)

    def wake(self) -> None:
        self._wake.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._rig.run(observer=self._pause)
        except BaseException as error:
            self.error = error

    def _pause(self, event: Event) -> None:
        if isinstance(event, EpochWritten):
            self._written.set()
            self._wake.wait(120)


@pytest.mark.parametrize("lock", ["held", "of no use"])
def test_what_a_paused_coordinator_wrote_is_deleted_only_where_it_can_never_land(
    make_rig: Callable[..., Any], lock: str
) -> None:
    """FAULT-05, FAULT-27: no snapshot ever references a file that was cleaned up.

    While the old one holds the journal's lock, the new one cleans up nothing. Where the lock is of no use, on a
    folder that was copied or is shared between machines, it deletes the files, and the old one is fenced.
    """
    rig = journaled(make_rig())
    folder = journal_folder(rig)
    rig.produce([ROW] * 10)
    old = PausedRun(rig)
    young = on_disk(rig)
    assert young
    if lock == "of no use":
        copied = rig.folder / ".frazil" / "copied"
        shutil.copytree(folder, copied)
        rig.tree["journal"] = {"dir": str(copied)}

    with capture_logs() as told:
        rig.run()

    assert (young & on_disk(rig) == young) == (lock == "held")
    assert ("another process writes it" in [each.get("reason") for each in told]) == (lock == "held")
    old.wake()
    assert isinstance(old.error, Fenced)
    assert not young & referenced(rig)
    assert referenced(rig) <= on_disk(rig)
    assert rig.offsets() == rig.every(10)

    rig.tree["journal"] = {"dir": str(folder)}
    rig.run()

    assert on_disk(rig) == referenced(rig)
    assert rig.offsets() == rig.every(10)


def test_an_orphan_job_of_others_leaves_an_epoch_under_way_alone(make_rig: Callable[..., Any]) -> None:
    """FAULT-27: it spares young files, and the epoch lands with all of them."""
    rig = make_rig()
    rig.produce_orders(0, 10)

    def clean(event: Event) -> None:
        if isinstance(event, EpochWritten):
            removed = rig.call("remove_orphan_files", "dry_run => false")
            assert removed == []

    rig.run(observer=clean)
    assert rig.offsets() == rig.every(10)


def spelled(location: str) -> list[str]:
    path = urlparse(location).path
    return [path, f"file:{path}", f"file://{path}", f"{location}/"]


def searching(state: RecoveryState, location: str) -> RecoveryState:
    """The same epochs, as if their files had been written under another spelling of the folder."""

    def moved(begun: EpochBegun) -> EpochBegun:
        return replace(begun, tables=tuple(replace(each, location=location) for each in begun.tables))

    return replace(state, incomplete={token: moved(begun) for token, begun in state.incomplete.items()})


def test_a_file_is_found_to_be_referenced_however_its_folder_is_spelled(
    make_rig: Callable[..., Any],
) -> None:
    """FAULT-28: one epoch landed unnoted, one is lost; only files of the lost one are orphans."""
    rig = journaled(make_rig())
    rig.produce([ROW] * 10)
    noted: list[RecoveryState] = []
    rig.run(observer=lambda e: noted.append(read_journal(journal_folder(rig)).state) if _written(e) else None)
    landed = on_disk(rig)
    rig.produce([ROW] * 10)
    lost = killed_mid_epoch(rig)
    state = read_journal(journal_folder(rig)).state
    both = replace(state, incomplete={**noted[0].incomplete, **state.incomplete})
    assert len(both.incomplete) == 2
    table = rig.open_table()
    uuids = {table.name: table.observe("orders").uuid}
    location = table.write_target(rig.spec.table).location

    for spelling in spelled(location):
        found = list(find_leftovers(searching(both, spelling), "orders", [table], uuids))
        by_path = [{unquote(urlparse(path).path) for path in some.orphans} for some in found]
        assert set[str]().union(*by_path) == lost, spelling
        kept = {unquote(urlparse(path).path) for some in found for path in some.kept}
        assert kept == landed, spelling


def _written(event: Event) -> bool:
    return isinstance(event, EpochWritten)


@pytest.mark.parametrize("listed", ["s3://shop", "s3n://shop", "s3a://shop.example", "file:/shop", "/shop"])
def test_a_file_in_a_manifest_under_another_scheme_or_authority_is_referenced(
    make_rig: Callable[..., Any], listed: str
) -> None:
    """FAULT-28: paths are never compared as texts; Iceberg takes whatever path it is given."""
    rig = make_rig()
    rig.run()
    name = "data/orders-e1-t0-x-000000000001-00000000000a-00001.parquet"
    table = rig.open_table()
    java, iceberg = table.loaded(), rig.spark._jvm.org.apache.iceberg
    file = iceberg.DataFiles.builder(java.spec()).withPath(f"s3a://shop/{name}").withRecordCount(1)
    java.newAppend().appendFile(file.withFileSizeInBytes(1).build()).commit()

    assert table.referenced([f"{listed}/{name}", f"{listed}/other.parquet"], 0) == {f"{listed}/{name}"}


def test_statistics_and_strangers_in_the_tables_folders_are_kept(
    make_rig: Callable[..., Any],
) -> None:
    """FAULT-29, REC-15: Puffin files, partition statistics, manifests, and what nobody knows."""
    rig = journaled(make_rig(table={"partition": ["bucket(2, id)"]}))
    rig.produce([ROW] * 10)
    rig.run()
    rig.spark.sql(f"CALL {rig.spec.catalog.name}.system.compute_table_stats('shop.orders')")
    rig.spark.sql(f"CALL {rig.spec.catalog.name}.system.compute_partition_stats('shop.orders')")
    rig.produce([ROW] * 10)
    lost = killed_mid_epoch(rig)
    warehouse = rig.folder / "warehouse" / "shop" / "orders"
    for name in ("1-2-a.stats", "deletes.puffin", "orders-e2-t0.parquet", "snap-1-1-a.avro", "_SUCCESS"):
        (warehouse / "data" / name).write_text("of somebody else")
    before = {path for path in warehouse.rglob("*") if path.is_file()}
    assert any(path.suffix == ".stats" and path.parent.name == "metadata" for path in before)

    rig.run()

    gone = {str(path) for path in before if not path.exists()}
    crcs = {str(Path(path).with_name(f".{Path(path).name}.crc")) for path in lost}
    assert lost <= gone <= lost | crcs
    table = rig.open_table().loaded()
    for statistics in [*table.statisticsFiles(), *table.partitionStatisticsFiles()]:
        assert table.io().newInputFile(statistics.path()).exists()
    assert rig.offsets() == rig.every(20)


def test_manifests_of_a_failed_commit_are_shown_with_their_type_and_left_alone(
    make_rig: Callable[..., Any],
) -> None:
    """REC-14, REC-15: their names do not tell whose they are, and another writer's commit may need them."""
    rig = journaled(make_rig(decode={"on_error": "fail"}))
    rig.produce([ROW] * 10)

    def outrun(parts: Assembly) -> None:
        """Somebody else commits between the look and the commit, once."""
        observed, commit = parts.anchor._observed, parts.anchor.commit

        def once(*seen: Any) -> Any:
            parts.anchor._observed = observed  # type: ignore[method-assign]
            found = observed(*seen)
            rig.spark.sql(f"INSERT INTO {rig.table} (id) VALUES (-1)")
            return found

        def watch(proposal: Any, files: Any) -> Any:
            if files:
                parts.anchor.commit = commit  # type: ignore[method-assign]
                parts.anchor._observed = once  # type: ignore[method-assign]
            return commit(proposal, files)

        parts.anchor.commit = watch  # type: ignore[method-assign]

    rig.run(prepare=outrun)
    rig.produce([ROW] * 10)
    lost = killed_mid_epoch(rig)

    found = look_at_recovery(rig.spec, rig.spark)

    told, lines = recovery_json(rig.spec, found), list(recovery_lines(rig.spec, found))
    types = {unquote(urlparse(path).path): kind for path, kind in told["orphan_types"].items()}
    left = set(types) - lost
    assert {types[path] for path in lost} == {"data file"}
    assert sorted(types[path] for path in left if path.endswith(".avro")) == ["manifest", "manifest list"]
    assert all(any(path in line and line.startswith("leaves") for line in lines) for path in left)
    rig.run()
    assert all(Path(path).exists() for path in left)
    assert [r[0] for r in rig.sql("SELECT _offset FROM {t} WHERE id >= 0 ORDER BY 1")] == [*range(20)]


@pytest.mark.parametrize("failure", [MemoryError("out of memory"), PermissionError(13, "denied")])
def test_a_clean_up_that_breaks_half_way_is_finished_by_the_next_start(
    make_rig: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
) -> None:
    """FAULT-11: it costs a warning and space, and nothing that is referenced."""
    rig = journaled(make_rig(table={"partition": ["bucket(4, id)"]}))
    rig.produce([b'{"id": %d, "name": "n"}' % n for n in range(20)])
    lost = killed_mid_epoch(rig)
    assert len(lost) > 1
    delete = IcebergTable.delete_files

    def half(table: IcebergTable, paths: list[str]) -> None:
        delete(table, paths[:1])
        if paths:
            raise failure

    with monkeypatch.context() as patch, capture_logs() as told:
        patch.setattr(IcebergTable, "delete_files", half)
        rig.run()

    assert "left-over files could not be deleted" in [each["event"] for each in told]
    assert len(lost & on_disk(rig)) == len(lost) - 1
    assert rig.offsets() == rig.every(20)

    rig.run()

    assert on_disk(rig) == referenced(rig)
    assert rig.offsets() == rig.every(20)
