"""Paths of files: on storage, in the log, and on the way from one to the other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.transaction import AddAction

from frazil.table.delta.version_file import spelled
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


@pytest.mark.parametrize("is_cleaned_up", [False, True])
def test_a_file_whose_path_delta_rs_spells_otherwise_is_replaced_under_its_own(
    folder: Path, is_cleaned_up: bool
) -> None:
    """Spark leaves letters beyond ASCII as they are, delta-rs does not: its remove would be of no file at all."""
    landing = Landing(folder, "id BIGINT, word STRING", ["word"])
    rows = pa.table({"id": pa.array([1], pa.int64()), "word": ["é"]})
    landing.land(rows)
    newest = max((folder / "_delta_log").glob("*.json"))
    newest.write_text(newest.read_text().replace("word=%25C3%25A9", "word=é"))
    if is_cleaned_up:
        landing.delta().create_checkpoint()
        for file in (folder / "_delta_log").glob("*.json"):
            file.unlink()
    files = landing.write(rows)
    landing.commit(files, replaces=True)
    (live,) = landing.contents().files()
    assert live.path == files[0].path
    assert landing.delta().version() == 3


def test_paths_are_spelled_in_the_log_as_delta_rs_spells_them(folder: Path) -> None:
    """FILE-10: a file that one of the two added can be removed by the other."""
    path = "".join(map(chr, range(1, 128))) + "é日\U0010ffff"
    landing = Landing(folder, "id BIGINT")
    landing.delta().create_write_transaction(
        [AddAction(path, 1, {}, 0, True, "{}")], mode="append", schema=landing.delta().schema()
    )
    (told,) = landing.added()
    assert told["path"] == spelled(path)


def test_one_table_has_one_layout_however_often_it_is_looked_at(folder: Path) -> None:
    """delta-rs tells a field's metadata in another order each time."""
    landing = Landing(folder, "id BIGINT")
    log = folder / "_delta_log" / f"{0:020d}.json"
    metadata = ",".join(f'\\"key{number}\\":\\"{number}\\"' for number in range(8))
    log.write_text(log.read_text().replace('\\"metadata\\":{}', f'\\"metadata\\":{{{metadata}}}'))
    assert "key7" in landing.delta().schema().to_json()
    assert len({landing.table.observe("golden").layout for _ in range(20)}) == 1
