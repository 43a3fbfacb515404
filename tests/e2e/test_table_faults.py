"""What happens to tables while a pipeline lives on them, done by real catalogs, files and writers."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.commit import World
from frazil.engine import Assembly
from frazil.engine.events import EpochLanded, EpochWritten, Event
from frazil.errors import (
    CatalogUnavailable,
    CommitConflict,
    ConfigError,
    SchemaMismatch,
    TableChanged,
    TerminalError,
)

pytestmark = pytest.mark.real


def catalog_file(rig: Any) -> Path:
    return Path(rig.spec.catalog.warehouse) / "catalog.db"


def expire_all(rig: Any) -> None:
    rig.call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")


def test_foreign_writers_compaction_and_expiry_disturb_nothing(make_rig: Callable[..., Any]) -> None:
    """REC-19, REC-20, LIM-03, FAULT-18, FAULT-19: the register survives what removes our snapshots."""
    rig = make_rig(epoch={"max_records": 20})
    rig.produce_orders(0, 60)
    rig.run()
    rig.spark.sql(f"INSERT INTO {rig.table} (id) VALUES (-1)")
    rig.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    expire_all(rig)
    assert len(rig.sql("SELECT * FROM {t}.snapshots")) == 1
    rig.produce_orders(60, 30)

    events = rig.run()

    assert [e.landed.epoch for e in rig.epochs(events)] == [4, 5]
    assert [r[0] for r in rig.sql("SELECT _offset FROM {t} WHERE _offset IS NOT NULL ORDER BY 1")] == [*range(90)]
    assert rig.sql("SELECT count(*) FROM {t} WHERE id = -1")[0][0] == 1


def test_a_foreign_writer_between_load_and_commit_costs_a_retry_only(make_rig: Callable[..., Any]) -> None:
    """COMMIT-05, COMMIT-06, COMMIT-07: Iceberg meets the other snapshot, judges again and lands on top of it."""
    rig = make_rig(epoch={"max_records": 10})
    rig.produce_orders(0, 40)

    def watch(event: Event) -> None:
        if isinstance(event, EpochWritten):
            rig.spark.sql(f"INSERT INTO {rig.table} (id) VALUES (-1)")

    rig.run(observer=watch)

    assert [r[0] for r in rig.sql("SELECT _offset FROM {t} WHERE _offset IS NOT NULL ORDER BY 1")] == [*range(40)]
    assert rig.sql("SELECT count(*) FROM {t} WHERE id = -1")[0][0] == 4


class LandedButReportedAsFailed:
    """Makes SQLite say that no row was updated, although it was.

    Updates go through a view whose trigger performs them, and SQLite does not count what a trigger does. The
    JDBC catalog then reports a failed commit, and Iceberg's own retry meets the epoch it has just landed.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> None:
        self._script("""
            ALTER TABLE iceberg_tables RENAME TO real_tables;
            CREATE VIEW iceberg_tables AS SELECT * FROM real_tables;
            CREATE TRIGGER lie INSTEAD OF UPDATE ON iceberg_tables BEGIN
              UPDATE real_tables SET metadata_location = NEW.metadata_location,
                previous_metadata_location = NEW.previous_metadata_location
              WHERE catalog_name = OLD.catalog_name AND table_namespace = OLD.table_namespace
                AND table_name = OLD.table_name AND metadata_location = OLD.metadata_location;
            END;""")

    def __exit__(self, *_: object) -> None:
        self._script("DROP VIEW iceberg_tables; ALTER TABLE real_tables RENAME TO iceberg_tables;")

    def _script(self, text: str) -> None:
        database = sqlite3.connect(self._file, timeout=20)
        database.executescript(text)
        database.close()


def test_a_commit_that_landed_but_was_reported_failed_is_in_the_table_once(make_rig: Callable[..., Any]) -> None:
    """COMMIT-04, COMMIT-11, FAULT-07, FAULT-09: nothing of it is deleted, and it is not committed twice."""
    rig = make_rig()
    rig.produce_orders(0, 10)
    rig.run()
    rig.produce_orders(10, 10)
    lie = LandedButReportedAsFailed(catalog_file(rig))

    def watch(event: Event) -> None:
        if isinstance(event, EpochWritten):
            lie.__enter__()
        elif isinstance(event, EpochLanded):
            lie.__exit__()

    rig.run(observer=watch)

    assert rig.offsets() == rig.every(20)
    rig.produce_orders(20, 5)
    rig.run()
    assert rig.offsets() == rig.every(25)
    assert [r.epoch for r in rig.open_table().history("orders") if r.action == "append"] == [1, 2, 3]


def test_a_conflict_and_then_a_landing_reported_as_failed_leave_the_table_readable(
    make_rig: Callable[..., Any],
) -> None:
    """FAULT-07, FAULT-11: were Iceberg's own retries used up by then, it would delete the live head's manifests."""
    rig = make_rig(table={"properties": {"commit.retry.num-retries": "0"}})
    rig.produce_orders(0, 10)
    lie = LandedButReportedAsFailed(catalog_file(rig))

    def prepare(parts: Assembly) -> None:
        observed, commit = parts.anchor._observed, parts.anchor.commit
        looks = 0

        def outrun(*arguments: Any) -> Any:
            """Somebody else commits after each of the first two looks; the third attempt lands, and is denied."""
            nonlocal looks
            seen, looks = observed(*arguments), looks + 1
            if looks <= 2:
                rig.spark.sql(f"INSERT INTO {rig.table} (id) VALUES (-1)")
            if looks == 2:
                lie.__enter__()
            return seen

        def commit_outrun(proposal: Any, files: Any) -> Any:
            if files:
                parts.anchor._observed = outrun  # type: ignore[method-assign]
            return commit(proposal, files)

        parts.anchor.commit = commit_outrun  # type: ignore[method-assign]

    def watch(event: Event) -> None:
        if isinstance(event, EpochLanded):
            lie.__exit__()

    rig.run(prepare=prepare, observer=watch)

    assert [r[0] for r in rig.sql("SELECT _offset FROM {t} WHERE _offset IS NOT NULL ORDER BY 1")] == [*range(10)]
    assert rig.sql("SELECT count(*) FROM {t} WHERE id = -1")[0][0] == 2


def test_a_catalog_locked_by_somebody_else_is_waited_out(make_rig: Callable[..., Any]) -> None:
    """COMMIT-08, COMMIT-11: SQLite gives up after three seconds; frazil asks again."""
    rig = make_rig()
    rig.produce_orders(0, 10)
    locker = sqlite3.connect(catalog_file_before(rig), timeout=20, check_same_thread=False, isolation_level=None)

    def watch(event: Event) -> None:
        if isinstance(event, EpochWritten):
            locker.execute("BEGIN EXCLUSIVE")
            threading.Timer(5, lambda: locker.execute("COMMIT")).start()

    rig.run(observer=watch)
    assert rig.offsets() == rig.every(10)
    locker.close()


def catalog_file_before(rig: Any) -> Path:
    """The catalog's file, also when nothing has been written yet."""
    file = catalog_file(rig)
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def test_a_crash_between_the_side_table_and_the_anchor_doubles_no_dead_letter(make_rig: Callable[..., Any]) -> None:
    """FAULT-02, FAULT-03, TEST-05: the dead letters are in, the rows are not; both end up there once."""
    rig = make_rig()
    rig.produce([{"id": 0}, b"bad 1", {"id": 2}])

    def die_before_the_anchor(parts: Assembly) -> None:
        def dead(*_: object) -> None:
            raise KeyboardInterrupt

        commit = parts.anchor.commit
        parts.anchor.commit = lambda p, files: dead() if files else commit(p, files)  # type: ignore[method-assign]

    with pytest.raises(KeyboardInterrupt):
        rig.run(prepare=die_before_the_anchor)
    assert rig.dead_offsets() == [(0, 1)]
    assert rig.offsets() == []
    rig.produce([b"bad 3", {"id": 4}])

    rig.run()

    assert rig.dead_offsets() == [(0, 1), (0, 3)]
    assert rig.offsets() == [(0, 0), (0, 2), (0, 4)]


def test_a_replaced_table_stops_also_after_its_history_expired(make_rig: Callable[..., Any]) -> None:
    """FAULT-20: CREATE OR REPLACE keeps the register; the new history goes back to a snapshot without parent."""
    rig = make_rig()
    rig.produce_orders(0, 20)
    rig.run()
    columns = "id, name, amount, placed_at, _topic, _kafka_partition, _offset, _timestamp, _key"
    rig.spark.sql(f"CREATE OR REPLACE TABLE {rig.table} USING iceberg AS SELECT {columns} FROM {rig.table}")
    with pytest.raises(TableChanged, match="rolled back or replaced"):
        rig.run()

    rig.spark.sql(f"INSERT INTO {rig.table} (id) VALUES (-1)")
    rig.call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 2")
    with pytest.raises(TableChanged, match="rolled back or replaced"):
        rig.run()


def test_a_table_dropped_and_recreated_stops_the_pipeline(make_rig: Callable[..., Any]) -> None:
    """FAULT-38: while it runs by the uuid, at a start by the dead letters' register."""
    rig = make_rig(epoch={"max_records": 10})
    rig.produce([*[{"id": n} for n in range(9)], b"bad", *[{"id": n} for n in range(10, 30)]])

    def watch(event: Event) -> None:
        if isinstance(event, EpochLanded) and event.landed.epoch == 1:
            rig.spark.sql(f"CREATE OR REPLACE TABLE {rig.table}_copy USING iceberg AS SELECT * FROM {rig.table}")
            rig.spark.sql(f"DROP TABLE {rig.table}")
            rig.spark.sql(f"CREATE TABLE {rig.table} USING iceberg AS SELECT * FROM {rig.table}_copy LIMIT 0")

    with pytest.raises(TableChanged, match="another table than before"):
        rig.run(observer=watch)
    rig.spark.sql(f"DROP TABLE {rig.table}")
    with pytest.raises(TableChanged, match="was dropped and created again"):
        rig.run()


def test_a_table_with_data_of_others_is_refused_unless_adopted(make_rig: Callable[..., Any]) -> None:
    rig = make_rig()
    rig.run()
    rig.spark.sql(f"INSERT INTO {rig.table} (id) VALUES (-1)")
    rig.tree["pipeline"]["name"] = "another"
    rig.produce_orders(0, 5)
    with pytest.raises(TableChanged, match=r"(?s)already has data.*--adopt"):
        rig.run()

    rig.run(adopt=True)

    assert rig.sql("SELECT count(*) FROM {t}")[0][0] == 6


def test_a_renamed_pipeline_is_told_whose_table_it_is(make_rig: Callable[..., Any]) -> None:
    """FAULT-14: under its own name it goes on; nothing is landed again by mistake."""
    rig = make_rig()
    rig.produce_orders(0, 10)
    rig.run()
    rig.tree["pipeline"]["name"] = "orders-of-today"
    rig.produce_orders(10, 10)

    with pytest.raises(TableChanged) as refused:
        rig.run()

    assert "no frontier of this pipeline; it has those of orders" in refused.value.message
    assert "if this pipeline was renamed, give pipeline.name back: orders" in refused.value.remedy
    assert "--adopt" in refused.value.remedy
    assert rig.offsets() == rig.every(10)
    rig.tree["pipeline"]["name"] = "orders"
    rig.run()
    assert rig.offsets() == rig.every(20)


def test_a_table_that_cannot_take_the_rows_is_shown_beside_the_declaration(make_rig: Callable[..., Any]) -> None:
    """Nothing is written, not even a start."""
    rig = make_rig(decode={"metadata": False})
    catalog_file_before(rig)
    rig.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {rig.spec.catalog.name}.shop")
    rig.spark.sql(f"CREATE TABLE {rig.table} (id STRING, name STRING) USING iceberg")

    with pytest.raises(SchemaMismatch) as caught:
        rig.run()

    text = str(caught.value)
    assert "column id is long as declared, but string in the table" in text
    assert "column amount is not in the table" in text
    assert "declared" in text
    assert "in the table" in text
    assert rig.sql("SELECT * FROM {t}.snapshots") == []


def test_a_broken_catalog_is_never_taken_for_a_missing_table(make_rig: Callable[..., Any]) -> None:
    """CAT-10: only "not found" leads to a creation."""
    rig = make_rig()
    rig.produce_orders(0, 5)
    rig.run()
    file = catalog_file(rig)
    good = file.read_bytes()
    file.write_bytes(b"this is no database" * 100)
    with pytest.raises(CatalogUnavailable, match=r"catalog\.db"):
        rig.run()
    file.write_bytes(good)
    assert rig.offsets() == rig.every(5)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    mount = tmp_path / "small"
    mount.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=False)


def fill(disk: Path) -> Path:
    """Leaves no byte free; the file that takes them all."""
    ballast = disk / "ballast"
    ballast.write_bytes(b"0" * free_bytes(disk))
    return ballast


def test_a_full_disk_stops_loudly_and_loses_nothing(make_rig: Callable[..., Any], small_disk: Path) -> None:
    """FAULT-01, FAULT-43: the fault outlasts the retries, the table stays whole, and room lets it go on."""
    rig = make_rig(catalog={"warehouse": str(small_disk)})
    rig.produce_orders(0, 10)
    rig.run()
    ballast = fill(small_disk)
    rig.produce([os.urandom(8).hex().encode() for _ in range(10)])
    rig.produce_orders(20, 1000)

    with pytest.raises(TerminalError, match="No space left on device"):
        rig.run()

    ballast.unlink()
    rig.run()
    assert [o for _, o in rig.offsets()] == [*range(10), *range(20, 1020)]
    assert len(rig.dead_offsets()) == 10


def test_a_full_disk_under_the_metadata_stops_loudly_and_loses_nothing(
    make_rig: Callable[..., Any], small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULT-43: the files are written, their manifests cannot be; the head stays as it was."""
    monkeypatch.setattr("frazil.engine.run.World", lambda **given: World(**given, sleep=lambda _: None))
    rig = make_rig(table={"properties": {"write.metadata.path": small_disk.as_uri()}})
    rig.produce_orders(0, 10)
    rig.run()
    rig.produce_orders(10, 10)
    ballast: list[Path] = []

    def watch(event: Event) -> None:
        if isinstance(event, EpochWritten):
            ballast.append(fill(small_disk))

    with pytest.raises(CommitConflict, match=r"in 10 attempts.*No space left on device"):
        rig.run(observer=watch)

    assert rig.offsets() == rig.every(10)
    ballast[0].unlink()
    rig.run()
    assert rig.offsets() == rig.every(20)
    assert [r.epoch for r in rig.open_table().history("orders") if r.action == "append"] == [1, 2]


def test_a_full_disk_under_the_journal_costs_a_warning_and_no_row(
    make_rig: Callable[..., Any], small_disk: Path
) -> None:
    """FAULT-43: it fills while the pipeline runs; landing goes on, and says what is no longer noted."""
    rig = make_rig(journal={"dir": str(small_disk / "journal")}, epoch={"max_records": 10})
    rig.produce_orders(0, 40)
    filled: list[Path] = []

    def watch(event: Event) -> None:
        if isinstance(event, EpochLanded) and not filled:
            filled.append(fill(small_disk))

    with capture_logs() as told:
        rig.run(observer=watch)

    warnings = [each for each in told if each["event"] == "the pipeline goes on without its journal"]
    assert [each["reason"] for each in warnings] == ["No space left on device"]
    assert rig.offsets() == rig.every(40)
    filled[0].unlink()
    rig.produce_orders(40, 10)
    rig.run()
    assert rig.offsets() == rig.every(50)


def free_bytes(folder: Path) -> int:
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def test_an_unwritable_warehouse_is_named(make_rig: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    rig = make_rig(catalog={"warehouse": str(tmp_path / "taken" / "warehouse")})
    with pytest.raises(ConfigError, match=r"catalog\.warehouse: .*taken"):
        rig.run()


def test_waiting_for_another_coordinator_ends_when_it_falls_silent(make_rig: Callable[..., Any]) -> None:
    """A courtesy: without --take-over a start waits three intervals of silence."""
    rig = make_rig(epoch={"interval": "700ms"})
    rig.produce_orders(0, 5)
    rig.run()
    began = time.monotonic()
    rig.run(take_over=False)
    assert time.monotonic() - began > 1.0
