"""Pipelines that read a folder: from files to rows, through stops, kills and everything that files do meanwhile."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.engine.check import check_connections
from frazil.engine.events import EpochLanded
from frazil.engine.inspect import inspect_pipeline
from frazil.engine.verify import verify_pipeline
from frazil.errors import DataLoss, SourceChanged
from frazil.protocol.positions import Frontier
from frazil.protocol.verify import Level
from frazil.source.files.mark import Mark
from tests.e2e.test_process import running, wait_for

pytestmark = pytest.mark.real


class FolderRig:
    """A rig whose pipeline reads a folder of its own."""

    def __init__(self, make_rig: Callable[..., Any], tmp_path: Path, source: dict[str, Any], **more: Any) -> None:
        self.folder = tmp_path / "in"
        self.folder.mkdir()
        told = {"type": "files", "path": str(self.folder), "topics": None, "kafka": None, **source}
        sections = {"decode": {"schema": "id BIGINT, name STRING"}, **more}
        self.rig = make_rig(source=told, **sections)

    def put(self, name: str, ids: Sequence[int]) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = [f'{{"id": {n}, "name": "n{n}"}}\n' if n % 50 else "poison\n" for n in ids]
        unfinished = file.with_name(f".{file.name}")
        unfinished.write_text("".join(rows), encoding="utf-8")
        return unfinished.rename(file)

    def ids(self) -> list[int]:
        return [row[0] for row in self.rig.sql("SELECT id FROM {t} ORDER BY id")]

    def frontier(self) -> Frontier:
        frontier = inspect_pipeline(self.rig.spec, self.rig.spark).tables[0].frontier
        assert frontier is not None
        return frontier

    def verified(self) -> bool:
        return verify_pipeline(self.rig.spec, self.rig.spark, deep=True).level < Level.BROKEN


@pytest.fixture
def make(make_rig: Callable[..., Any], tmp_path: Path) -> Callable[..., FolderRig]:
    return lambda source={}, **more: FolderRig(make_rig, tmp_path, source, **more)


def good(*runs: range) -> list[int]:
    return [n for run in runs for n in run if n % 50]


def test_a_folder_lands_row_by_row_over_epochs_tasks_and_starts(make: Callable[..., FolderRig]) -> None:
    """SRC-10: files are cut over epochs and tasks; a start goes on inside of a file."""
    here = make(epoch={"max_records": 70_000})
    here.put("2026-01-01/a.ndjson", range(1, 100_001))
    here.put("2026-01-02/b b.ndjson", range(100_001, 100_101))
    here.put("2026-01-02/empty.ndjson", [])
    enough = threading.Event()

    def stop_after_one(event: object) -> None:
        if isinstance(event, EpochLanded):
            enough.set()

    here.rig.run(available_now=False, observer=stop_after_one, stop=enough)
    mark = Mark.decode(here.frontier().positions["in", 0].mark)
    assert mark.file.name.endswith(("a.ndjson", "b b.ndjson"))
    here.put("2026-01-03/c.ndjson", range(100_101, 100_201))
    here.rig.run()
    here.rig.run()

    assert here.ids() == good(range(1, 100_201))
    assert sorted(here.rig.offsets() + here.rig.dead_offsets()) == here.rig.every(100_200)
    origin = here.rig.sql("SELECT CAST(_key AS STRING), _topic FROM {t} WHERE id = 100002")[0]
    assert tuple(origin) == ("2026-01-02/b b.ndjson:2", "in")
    dead = here.rig.sql("SELECT CAST(key AS STRING), CAST(value AS STRING) FROM {dead} WHERE offset = 100049")[0]
    assert tuple(dead) == ("2026-01-02/b b.ndjson:50", "poison")
    assert here.verified()
    status = inspect_pipeline(here.rig.spec, here.rig.spark)
    assert status.lag == {("in", 0): 0}
    here.put("2026-01-04/d.ndjson", range(10))
    assert inspect_pipeline(here.rig.spec, here.rig.spark).lag == {("in", 0): 10}
    assert "source: in, 1 partitions, 0 offsets to read and more that are not counted yet" in list(
        check_connections(here.rig.spec, here.rig.spark)
    )


def test_all_formats_land_side_by_side_through_a_query(make: Callable[..., FolderRig]) -> None:
    """The SQL lane, CSV and Parquet; a verification reads all of them again."""
    here = make(
        decode={"schema": "id BIGINT, name STRING, ok BOOLEAN"},
        transform={"sql": "SELECT id, upper(name) AS name, ok FROM source WHERE id <> 4"},
    )
    (here.folder / "1.csv").write_text("id,name,ok\n1,a,true\n2,,False\n", encoding="utf-8")
    pq.write_table(pa.table({"id": [3, 4], "name": ["c", "d"], "ok": [True, None]}), here.folder / "2.parquet")
    (here.folder / "3.jsonl").write_text('{"id": 5, "name": "e"}', encoding="utf-8")
    here.rig.run()
    rows = [tuple(row) for row in here.rig.sql("SELECT id, name, ok FROM {t} ORDER BY id")]
    assert rows == [(1, "A", True), (2, None, False), (3, "C", True), (5, "E", None)]
    assert here.verified()


def test_what_files_do_behind_the_frontier_stops_the_pipeline_until_it_is_undone(
    make: Callable[..., FolderRig],
) -> None:
    """FAULT-22, FAULT-33, promise D: late, changed and removed files are named, and nothing lands meanwhile."""
    here = make(epoch={"max_records": 10})
    first = here.put("b.ndjson", range(1, 11))
    here.rig.run()
    late = here.put("a.ndjson", range(11, 21))
    with pytest.raises(DataLoss, match=r"a\.ndjson appeared or grew behind the frontier"):
        here.rig.run()
    late.unlink()
    first.unlink()
    half = here.put("c.ndjson", range(21, 36))
    enough = threading.Event()
    here.rig.tree["epoch"]["in_flight"] = 1

    def stop_after_one(event: object) -> None:
        if isinstance(event, EpochLanded):
            enough.set()

    here.rig.run(available_now=False, observer=stop_after_one, stop=enough)
    assert here.frontier().offset(("in", 0)) == 20
    before = half.stat()
    os.utime(half, (1, 1))
    with pytest.raises(SourceChanged, match=r"c\.ndjson was changed after some of its rows were read"):
        here.rig.run()
    os.utime(half, ns=(before.st_atime_ns, before.st_mtime_ns))
    away = half.rename(half.with_name(".c"))
    with pytest.raises(DataLoss, match=r"c\.ndjson was removed before rows 11 to 15"):
        here.rig.run()
    away.rename(half)
    here.rig.run()
    assert here.ids() == good(range(1, 11), range(21, 36))
    assert here.verified()


def test_a_file_that_comes_between_epochs_in_flight_is_put_in_order(make: Callable[..., FolderRig]) -> None:
    """Its name is behind what is committed, and before what is planned: everything behind it is planned anew."""
    here = make(epoch={"max_records": 5, "in_flight": 3})
    here.put("a.ndjson", range(1, 6))
    here.put("c.ndjson", range(11, 41))
    came = threading.Event()

    def put_between(event: object) -> None:
        if isinstance(event, EpochLanded) and not came.is_set():
            came.set()
            here.put("b.ndjson", range(6, 11))

    here.rig.run(observer=put_between)
    here.rig.run()
    assert [row[0] for row in here.rig.sql("SELECT id FROM {t} ORDER BY _offset")] == good(range(1, 41))
    assert here.verified()


class Producer(threading.Thread):
    """Puts so many files into a folder, one after the other."""

    def __init__(self, here: FolderRig, files: int) -> None:
        super().__init__(daemon=True)
        self._here = here
        self._files = files
        self.rows = 700 * files

    def run(self) -> None:
        for number in range(self._files):
            self._here.put(f"{number // 20:03}/{number:06}.ndjson", range(700 * number, 700 * (number + 1)))
            time.sleep(0.2)


@pytest.mark.timeout(600)
def test_killed_in_mid_epoch_every_row_of_every_file_is_there_once(make: Callable[..., FolderRig]) -> None:
    """FAULT-01, FAULT-02, FAULT-03, FAULT-22: SIGKILL of the whole group in mid-epoch, while files arrive."""
    here = make()
    file: Path = here.rig.folder / "pipeline.toml"
    file.write_text(
        f"""
        pipeline.name = "orders"
        source = {{ type = "files", path = "in", pattern = "*.ndjson" }}
        decode = {{ format = "json", schema = "id BIGINT, name STRING" }}
        table.name = "shop.orders"
        catalog = {{ name = "{here.rig.spec.catalog.name}", warehouse = "./warehouse" }}
        epoch = {{ interval = "300ms", max_records = 2_500 }}
        """,
        encoding="utf-8",
    )
    dice = random.Random(20261115)
    producer = Producer(here, files=20)
    producer.start()
    with running("run", str(file), "--take-over") as process:
        wait_for(process, "epoch committed")
        wait_for(process, "epoch begun")
        time.sleep(0.3 * dice.random())
    producer.join()
    here.rig.run()
    assert sorted(here.rig.offsets() + here.rig.dead_offsets()) == here.rig.every(producer.rows)
    assert here.ids() == good(range(producer.rows))
    assert here.verified()
