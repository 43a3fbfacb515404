"""The code of docs/SINK.md, run as it stands there; the query is killed in mid-flight."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from frazil.engine.lakehouse import lakehouse_conf
from frazil.sink import SinkConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "SINK.md").read_text(encoding="utf-8")
FILES = 5
COMMITS_BEFORE_THE_KILL = 3


def code(heading: str) -> str:
    """The first program below a heading of the page."""
    _, _, section = PAGE.partition(f"\n## {heading}\n")
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def run(program: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("heading", "table", "rows"),
    [("From a program", "readings", 6), ("By name, in the background", "clicks", 2)],
)
def test_a_program_of_the_page_lands_its_rows_once_however_often_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heading: str, table: str, rows: int
) -> None:
    """SINK-01, SINK-11"""
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        exec(code(heading), {})
        assert DeltaTable(Path("lake", table)).to_pyarrow_table().num_rows == rows


@pytest.mark.real
def test_a_query_killed_in_mid_flight_lands_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """TEST-08, FAULT-01, FAULT-02: kill -9 of a query into Iceberg and of one into Delta, at once."""
    (tmp_path / "incoming").mkdir()
    for number in range(FILES):
        lines = [json.dumps({"id": number * 100 + row, "name": f"n{row}"}) for row in range(100)]
        (tmp_path / "incoming" / f"{number:03d}.json").write_text("\n".join(lines), encoding="utf-8")
    every = list(range(FILES * 100))
    program = code("From a streaming query")

    victim = run(program, tmp_path)
    assert victim.stdout is not None
    commits = 0
    for line in victim.stdout:
        commits += "epoch committed" in line
        if commits == COMMITS_BEFORE_THE_KILL:
            break
    os.killpg(victim.pid, signal.SIGKILL)
    victim.wait(30)
    assert commits == COMMITS_BEFORE_THE_KILL, "it was killed before it was done"
    assert len(delta_ids(tmp_path)) < len(every)

    second = run(program, tmp_path)
    said, _ = second.communicate(timeout=240)
    assert second.returncode == 0, said
    assert sorted(delta_ids(tmp_path)) == every
    assert sorted(iceberg_ids(spark, tmp_path)) == every


def delta_ids(folder: Path) -> list[int]:
    path = folder / "lake" / "orders"
    if not DeltaTable.is_deltatable(str(path)):
        return []
    ids: list[int] = DeltaTable(path).to_pyarrow_table()["id"].to_pylist()
    return ids


def iceberg_ids(spark: SparkSession, folder: Path) -> list[int]:
    session = spark.newSession()
    config = SinkConfig.from_options({"table.name": "shop.orders", "catalog.warehouse": str(folder / "warehouse")})
    for key, value in lakehouse_conf(config).items():
        session.conf.set(key, value)
    return [row[0] for row in session.sql("SELECT id FROM frazil.shop.orders").collect()]
