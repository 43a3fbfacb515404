"""Paths of files: on storage, in the log, and on the way from one to the other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from frazil.errors import CommitConflict, TableChanged
from tests.table.delta.landing import Landing

WORDS = [
    None,
    "",
    "a b",
    "100%",
    "a/b",
    "a:b=c",
    "\"q\" 'r'",
    "é 日本",
    "\U0010ffff",
    "a\\b?#",
    "{a}[b]^",
    "a\nb\x01",
    "a+*~|<>",
]


def test_files_with_strange_names_are_found_looked_at_and_replaced(folder: Path) -> None:
    """FILE-10: paths are told as the log tells them, on the way in and on the way out."""
    landing = Landing(folder, "id BIGINT, word STRING", ["word"])
    rows = pa.table({"id": pa.array(range(len(WORDS)), pa.int64()), "word": WORDS})
    landing.land(rows)
    contents = landing.contents()
    assert {contents.size_of(file.path) == file.size for file in contents.files()} == {True}
    files = landing.write(rows.slice(0, 3))
    assert landing.table.referenced([file.path for file in files], 0) == set()
    landing.commit(files, replaces=True)
    assert landing.table.referenced([file.path for file in files], 0) == {file.path for file in files}
    assert landing.delta().count() == 3


def test_a_file_whose_path_delta_rs_cannot_spell_is_not_left_behind_in_silence(folder: Path) -> None:
    """Spark leaves letters beyond ASCII as they are, delta-rs does not: its remove would be of no file at all."""
    landing = Landing(folder, "id BIGINT, word STRING", ["word"])
    rows = pa.table({"id": pa.array([1], pa.int64()), "word": ["é"]})
    landing.land(rows)
    newest = max((folder / "_delta_log").glob("*.json"))
    newest.write_text(newest.read_text().replace("word=%25C3%25A9", "word=é"))
    with pytest.raises(CommitConflict) as refused:
        landing.commit(landing.write(rows), replaces=True)
    assert isinstance(refused.value.__cause__, TableChanged)
    assert "word=é" in str(refused.value.__cause__)


def test_one_table_has_one_layout_however_often_it_is_looked_at(folder: Path) -> None:
    """delta-rs tells a field's metadata in another order each time."""
    landing = Landing(folder, "id BIGINT")
    log = folder / "_delta_log" / f"{0:020d}.json"
    metadata = ",".join(f'\\"key{number}\\":\\"{number}\\"' for number in range(8))
    log.write_text(log.read_text().replace('\\"metadata\\":{}', f'\\"metadata\\":{{{metadata}}}'))
    assert "key7" in landing.delta().schema().to_json()
    assert len({landing.table.observe("golden").layout for _ in range(20)}) == 1
