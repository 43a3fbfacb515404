"""After a crash: what was left behind is gone, what is referenced stays, and every row is there once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import psutil
import pytest

from frazil.engine.recover import look_at_recovery
from frazil.journal import kind_of
from frazil.protocol.entries import EpochBegun, EpochLanded, FilesWritten, Started
from frazil.serve.journal import recovery_json, recovery_lines

pytestmark = pytest.mark.real

RECORDS = 200_000
POINTS = [(kind, when) for kind in (Started, EpochBegun, FilesWritten, EpochLanded) for when in ("before", "after")]


def on_disk(rig: Any) -> set[str]:
    return {str(path) for path in (rig.folder / "warehouse").glob("shop/orders*/data/**/*.parquet")}


def referenced(rig: Any) -> set[str]:
    """By whatever snapshot."""
    query = "SELECT file_path FROM {t}.all_data_files UNION ALL SELECT file_path FROM {dead}.all_data_files"
    return {unquote(urlparse(row[0]).path) for row in rig.sql(query)}


def journaled(rig: Any) -> Any:
    rig.tree["journal"] = {"dir": str(rig.folder / ".frazil" / "orders")}
    rig.tree["decode"]["schema"] = "id BIGINT, name STRING"
    return rig


def pipeline_file(rig: Any) -> Path:
    file: Path = rig.folder / "pipeline.toml"
    file.write_text(
        f"""
        pipeline.name = "orders"
        decode = {{ format = "json", schema = "id BIGINT, name STRING" }}
        table.name = "shop.orders"
        catalog = {{ name = "{rig.spec.catalog.name}", warehouse = "./warehouse" }}
        epoch = {{ interval = "300ms", max_records = 20_000 }}
        [source]
        type = "kafka"
        topics = ["{rig.topic}"]
        kafka."bootstrap.servers" = "{rig.bootstrap}"
        """,
        encoding="utf-8",
    )
    return file


def kill_mid_write(rig: Any, file: Path) -> None:
    """SIGKILL of the whole group as soon as a file of the third epoch is there; its commit cannot be.

    Workers are in a group of their own, and end with their JVM: until then they may finish a file.
    """
    with (rig.folder / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "frazil", "run", str(file)],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while not any(re.search(r"/orders-e3-t\d+-", path) for path in on_disk(rig)):
            assert process.poll() is None, (rig.folder / "output").read_text()
            time.sleep(0.005)
    finally:
        workers = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        psutil.wait_procs(workers, timeout=30)


def test_a_killed_run_is_cleaned_up_to_the_file_by_the_next_one(make_rig: Callable[..., Any]) -> None:
    """REC-13, REC-14, REC-16, REC-18, FAULT-01, FAULT-02, CFG-69."""
    rig = journaled(make_rig())
    rig.produce([b'{"id": %d, "name": "n"}' % n for n in range(RECORDS)])
    kill_mid_write(rig, pipeline_file(rig))
    left = on_disk(rig) - referenced(rig)
    assert left, "the kill came too late to leave anything behind"
    kept = on_disk(rig) & referenced(rig)
    stranger = next(iter(left)).replace("orders-e", "others-e")
    Path(stranger).write_text("of another writer")

    told = recovery_json(rig.spec, look_at_recovery(rig.spec, rig.spark))
    lines = list(recovery_lines(rig.spec, look_at_recovery(rig.spec, rig.spark)))
    shown = subprocess.run(
        [sys.executable, "-m", "frazil", "journal", str(rig.folder / "pipeline.toml"), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    rig.run()

    assert {unquote(urlparse(path).path) for path in told["orphan_files"]} == left
    assert f"{len(left)} files to delete" in lines
    kinds = [json.loads(line)["kind"] for line in shown.stdout.splitlines()]
    assert kinds[:2] == ["started", "epoch-begun"]
    assert on_disk(rig) - referenced(rig) == {stranger}
    assert kept <= on_disk(rig)
    assert rig.offsets() == rig.every(RECORDS)
    after = look_at_recovery(rig.spec, rig.spark)
    assert (after.orphans, after.journal.incomplete) == ([], {})
    assert after.journal.frontier == after.frontier


def test_killed_at_every_point_of_the_journal_no_row_is_lost_or_doubled(make_rig: Callable[..., Any]) -> None:
    """REC-12, REC-16, TEST-08: before and after each entry; what is left behind is gone after the next run."""
    rig = journaled(make_rig())
    left_behind: dict[str, int] = {}
    for number, (kind, when) in enumerate(POINTS):
        rig.produce([*(b'{"id": 1, "name": "n"}' for _ in range(19)), b"poison"])
        rig.run_killed(kind, after=when == "after")
        left_behind[f"{when} {kind_of(kind)}"] = len(on_disk(rig) - referenced(rig))
        rig.run()
        assert sorted(rig.offsets() + rig.dead_offsets()) == rig.every(20 * (number + 1)), (when, kind)
        assert on_disk(rig) == referenced(rig), (when, kind)
        assert look_at_recovery(rig.spec, rig.spark).journal.incomplete == {}, (when, kind)
    assert left_behind == {
        "before started": 0,
        "after started": 0,
        "before epoch-begun": 0,
        "after epoch-begun": 0,
        "before files-written": 2,
        "after files-written": 2,
        "before epoch-landed": 0,
        "after epoch-landed": 0,
    }


def test_whatever_happens_to_the_journal_between_runs_rows_are_exact(make_rig: Callable[..., Any]) -> None:
    """REC-18, FAULT-21, FAULT-22, FAULT-43."""
    rig = journaled(make_rig())
    folder = Path(rig.tree["journal"]["dir"])

    def logs() -> list[Path]:
        return sorted(folder.glob("txlog-*"))

    def delete() -> None:
        for file in folder.iterdir():
            file.unlink()

    def tear() -> None:
        logs()[-1].write_bytes(logs()[-1].read_bytes()[:-7])

    def flip() -> None:
        data = bytearray(logs()[0].read_bytes())
        data[len(data) // 2] ^= 1
        logs()[0].write_bytes(data)

    def forbid() -> None:
        delete()
        folder.rmdir()
        folder.write_text("not a folder")

    for number, harm in enumerate([lambda: None, tear, flip, delete, forbid]):
        harm()
        rig.produce([b'{"id": 1, "name": "n"}'] * 30)
        rig.run()
        assert rig.offsets() == rig.every(30 * (number + 1)), harm
        assert on_disk(rig) == referenced(rig)


def test_files_are_listed_as_manifests_spell_them(make_rig: Callable[..., Any]) -> None:
    """In folders of partitions and of hashes; delete files are told from orphans too."""
    merge_on_read = {"write.delete.mode": "merge-on-read", "write.object-storage.enabled": "true"}
    rig = make_rig(table={"partition": ["bucket(3, id)", "name"], "properties": merge_on_read})
    rig.produce_orders(0, 100)
    rig.run()
    rig.sql("DELETE FROM {t} WHERE id = 7")
    table = rig.open_table()
    location = table.write_target(rig.spec.table).location
    live = {row[0] for row in rig.sql("SELECT file_path FROM {t}.all_files")}
    deletes = {row[0] for row in rig.sql("SELECT file_path FROM {t}.all_delete_files")}
    assert deletes
    assert len(live) > 10

    found = table.find_files(location, lambda path: not path.endswith(".crc"))

    assert set(found) >= live - deletes
    assert table.referenced(found, after=0) == set(found), (
        "Spark's delete files too, whatever way it spells folders"
    )
