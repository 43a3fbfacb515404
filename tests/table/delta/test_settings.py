"""What a Delta table's properties say of its files and its log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.errors import ConfigError, SchemaMismatch
from frazil.pipeline.spec import TableSection
from tests.table.delta.landing import WRITER, Landing, Readers, added

WIDE = "a INT, b STRUCT<x: INT, y: INT>, c ARRAY<INT>, d STRING, e INT"
ROW = pa.table(
    {
        "a": pa.array([1], pa.int32()),
        "b": [{"x": 2, "y": 3}],
        "c": [[4]],
        "d": ["text"],
        "e": pa.array([5], pa.int32()),
    }
)


@pytest.mark.parametrize(
    ("properties", "counted", "bounded"),
    [
        ({}, {"a", "b", "c", "d", "e"}, {"a", "b", "d", "e"}),
        ({"delta.dataSkippingNumIndexedCols": "2"}, {"a", "b"}, {"a", "b"}),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, {"a", "b", "c", "d", "e"}, {"a", "b", "d", "e"}),
        ({"delta.dataSkippingNumIndexedCols": "0"}, set(), set()),
        ({"delta.dataSkippingStatsColumns": "`d`, b.y"}, {"b", "d"}, {"b", "d"}),
        (
            {"delta.dataSkippingStatsColumns": "b", "delta.dataSkippingNumIndexedCols": "1"},
            {"b"},
            {"b"},
        ),
    ],
)
def test_the_columns_that_a_table_names_have_statistics(
    folder: Path, properties: dict[str, str], counted: set[str], bounded: set[str]
) -> None:
    """FILE-12: structs count by what is in them."""
    landing = Landing(folder, WIDE, **properties)
    (add,) = landing.land(ROW)
    stats = add["stats"]
    assert stats["numRecords"] == 1
    assert (set(stats["nullCount"]), set(stats["minValues"])) == (counted, bounded)
    assert set(stats["minValues"]) == set(stats["maxValues"])


def test_half_a_struct_has_statistics_where_the_count_ends_in_it(folder: Path) -> None:
    (add,) = Landing(folder, WIDE, **{"delta.dataSkippingNumIndexedCols": "2"}).land(ROW)
    assert add["stats"]["maxValues"] == {"a": 1, "b": {"x": 2}}


def test_of_a_wide_table_the_first_32_columns_have_statistics(folder: Path) -> None:
    landing = Landing(folder, ", ".join(f"c{number} INT" for number in range(40)))
    (add,) = landing.land(pa.table({"c0": pa.array([1], pa.int32())}))
    assert list(add["stats"]["nullCount"]) == [f"c{number}" for number in range(32)]


def test_files_are_compressed_and_sized_as_the_table_says(folder: Path) -> None:
    landing = Landing(folder, "id BIGINT")
    landing.set_properties(**{"delta.parquet.compression.codec": "SNAPPY", "delta.targetFileSize": "16mb"})
    target = landing.table.write_target(landing.section)
    assert (target.compression, target.target_file_size_bytes) == ("snappy", 16 * 1024 * 1024)
    (add,) = landing.land(pa.table({"id": pa.array([1], pa.int64())}))
    assert pq.ParquetFile(folder / add["path"]).metadata.row_group(0).column(0).compression == "SNAPPY"

    own = TableSection(format="delta", name="orders", path=str(folder), compression="gzip", target_file_size="32MB")
    target = landing.table.write_target(own)
    assert (target.compression, target.target_file_size_bytes) == ("gzip", 32 * 1024 * 1024)


def test_a_size_that_is_none_is_refused(folder: Path) -> None:
    landing = Landing(folder, "id BIGINT", **{"delta.targetFileSize": "large"})
    with pytest.raises(ConfigError, match=r"delta\.targetFileSize = 'large'"):
        landing.table.write_target(landing.section)


def test_the_log_has_a_checkpoint_as_often_as_the_table_says(folder: Path) -> None:
    """MAINT-11: when the number of versions is a multiple of the interval."""
    landing = Landing(folder, "id BIGINT", **{"delta.checkpointInterval": "3"})
    for number in range(7):
        landing.land(pa.table({"id": pa.array([number], pa.int64())}))
    log = folder / "_delta_log"
    assert [int(path.name[:20]) for path in sorted(log.glob("*.checkpoint.parquet"))] == [2, 5, 8]
    assert '"version":8' in (log / "_last_checkpoint").read_text()
    for version in range(8):
        (log / f"{version:020d}.json").unlink()
    assert landing.delta().count() == 7
    assert landing.table.observe(WRITER).register is not None


def test_a_value_beyond_a_narrow_column_is_refused(folder: Path) -> None:
    """Delta has integers of 8 and 16 bits, and frazil holds rows to them."""
    landing = Landing(folder, "tiny INT, box STRUCT<small: ARRAY<INT>>")
    log = folder / "_delta_log" / f"{0:020d}.json"
    first, second = log.read_text().split('\\"tiny\\",\\"type\\":\\"integer\\"')
    second = second.replace('\\"elementType\\":\\"integer\\"', '\\"elementType\\":\\"short\\"')
    log.write_text(first + '\\"tiny\\",\\"type\\":\\"byte\\"' + second)

    def rows(tiny: int, small: int) -> pa.Table:
        small_ones = pa.array([{"small": [small]}], pa.struct({"small": pa.list_(pa.int32())}))
        return pa.table({"tiny": pa.array([tiny], pa.int32()), "box": small_ones})

    landing.land(rows(-128, -32768))
    landing.land(rows(127, 32767))
    for too_large in (rows(128, 0), rows(0, 32768)):
        with pytest.raises(SchemaMismatch, match="does not fit"):
            landing.write(too_large)
    kinds = [str(column.logical_type) for column in pq.ParquetFile(folder / added(folder)[0]["path"]).schema]
    assert [kind.partition(",")[0] for kind in kinds] == ["Int(bitWidth=8", "Int(bitWidth=16"]
    assert sorted(landing.delta().to_pyarrow_table()["tiny"].to_pylist()) == [-128, 127]


@pytest.mark.parametrize("name", ["a b", "é 日本", "a:b+c", "'q'"])
def test_a_table_may_lie_in_a_folder_with_a_strange_name(tmp_path: Path, name: str) -> None:
    landing = Landing(tmp_path / name / "orders", "id BIGINT, word STRING", ["word"])
    landing.land(pa.table({"id": pa.array([1], pa.int64()), "word": ["x y"]}))
    assert Readers.rust(landing.path, "SELECT id, word FROM {t}") == [(1, "x y")]
    (file,) = landing.contents().files()
    assert landing.contents().size_of(file.path) == file.size
    assert landing.table.find_files(landing.table.uri, lambda _: True)


@pytest.mark.parametrize("character", "#?%")
def test_a_folder_that_readers_would_look_for_elsewhere_is_refused(tmp_path: Path, character: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot have a \\{character}"):
        Landing(tmp_path / f"a{character}b", "id BIGINT")
