"""What the log says of live files, where the versions that added them are gone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from obstore.store import LocalStore

from frazil.errors import CatalogUnavailable
from frazil.table.delta.log import Log
from frazil.table.delta.state import _newest_checkpoint, live_adds
from tests.table.delta.landing import Landing

CLASSIC = f"{3:020d}.checkpoint.parquet"
HALVES = [f"{5:020d}.checkpoint.{part:010d}.{2:010d}.parquet" for part in (1, 2)]
ALONE = f"{5:020d}.checkpoint.{1:010d}.{1:010d}.parquet"
NAMED = f"{7:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
OTHERS = [
    f"{9:020d}.json",
    f".{9:020d}.checkpoint.parquet.crc",
    f"{9:020d}.checkpoint.parquet#1",
    "_last_checkpoint",
]


@pytest.mark.parametrize(
    ("files", "since", "head", "newest"),
    [
        ([CLASSIC], 0, 3, [CLASSIC]),
        ([CLASSIC], 0, 2, []),
        ([CLASSIC], 4, 9, []),
        ([CLASSIC, *HALVES], 0, 9, HALVES),
        ([CLASSIC, *HALVES, ALONE], 0, 9, HALVES),
        ([CLASSIC, *HALVES], 0, 4, [CLASSIC]),
        ([CLASSIC, HALVES[1]], 0, 9, [CLASSIC]),
        ([CLASSIC, HALVES[1], ALONE], 0, 9, [ALONE]),
        ([CLASSIC, *HALVES, NAMED], 0, 9, [NAMED]),
        ([], 0, 9, []),
    ],
)
def test_the_newest_checkpoint_that_is_whole_is_read(
    tmp_path: Path, files: list[str], since: int, head: int, newest: list[str]
) -> None:
    """Of one file, of several, or under a name of its own; what else is in the folder is none."""
    for name in [*files, *OTHERS]:
        (tmp_path / name).touch()
    assert sorted(_newest_checkpoint(LocalStore(tmp_path), since, head)) == newest


def test_files_are_told_of_by_versions_and_checkpoint_together(folder: Path) -> None:
    """MAINT-11: the log begins after the first was added; one that nobody tells of is an error."""
    landing = Landing(folder, "id BIGINT, word STRING", ["word"])
    first, second = (
        landing.land(pa.table({"id": pa.array([n], pa.int64()), "word": [f"é {n}"]}))[0]["path"] for n in (1, 2)
    )
    landing.delta().create_checkpoint()
    (folder / "_delta_log" / f"{2:020d}.json").unlink()
    log = Log(landing.table.place, landing.delta().version())
    told = live_adds(log, [first, second])
    assert {path: add["partitionValues"] for path, add in told.items()} == {
        first: {"word": "é 1"},
        second: {"word": "é 2"},
    }
    with pytest.raises(CatalogUnavailable, match="tells nowhere how it was added"):
        live_adds(log, ["nobody.parquet"])
