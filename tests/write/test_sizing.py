"""Full files have the size that was asked for, whatever the rows are like."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from frazil.table.files import MIB, WriteTarget, WrittenFile
from frazil.write import FileName, TableWriter
from frazil.write.file import prefix_of_size

pytestmark = pytest.mark.thorough

ROWS = 5_000
COLUMNS_MAX = 40

Batches = Iterator[pa.RecordBatch]


def table_schema() -> Schema:
    texts = [NestedField(3 + n, f"text{n}", StringType()) for n in range(COLUMNS_MAX)]
    return Schema(NestedField(1, "part", StringType()), NestedField(2, "number", LongType()), *texts)


def write(folder: Path, target_bytes: int, batches: Batches, by_part: bool = False) -> dict[str, list[WrittenFile]]:
    """The files of each partition; the last one of each has whatever was left."""
    schema = table_schema()
    spec = PartitionSpec(*[PartitionField(1, 1000, IdentityTransform(), "part")][: int(by_part)])
    texts = schema.model_dump_json(), spec.model_dump_json()
    target = WriteTarget("t", str(folder), *texts, target_file_size_bytes=target_bytes)
    writer = TableWriter(target, FileName("w", 1, 0))
    rows, files = 0, []
    for batch in batches:
        rows += batch.num_rows
        files += writer.write(batch)
    files += writer.close()
    assert sum(file.record_count for file in files) == rows
    found: dict[str, list[WrittenFile]] = {}
    for file in files:
        assert Path(file.path).stat().st_size == file.file_size_bytes
        found.setdefault(file.partition[0] if file.partition else "", []).append(file)
    return found


def hard(chance: random.Random, width: int, rows: int = ROWS) -> pa.Array:
    """Text that compresses to little less than half."""
    return pa.array([chance.randbytes(width // 2).hex() for _ in range(rows)])


def soft(width: int, rows: int = ROWS) -> pa.Array:
    """Text that compresses to nothing, though it is never twice the same."""
    return pa.array([f"{row:08d}" + "a" * (width - 8) for row in range(rows)])


def batch(text: pa.Array, part: str = "x") -> pa.RecordBatch:
    count = len(text)
    return pa.record_batch({"part": [part] * count, "number": pa.array(range(count), pa.int64()), "text0": text})


def incompressible(chance: random.Random) -> Batches:
    return (batch(hard(chance, 400)) for _ in range(12))


def compressible(chance: random.Random) -> Batches:
    return (batch(soft(200)) for _ in range(150))


def narrow(chance: random.Random) -> Batches:
    for _ in range(150):
        yield pa.record_batch({"number": pa.array([chance.getrandbits(20) for _ in range(ROWS)], pa.int64())})


def wide(chance: random.Random) -> Batches:
    for _ in range(12):
        yield pa.record_batch({f"text{n}": hard(chance, 40, 500) for n in range(COLUMNS_MAX)})


def soft_then_hard(chance: random.Random) -> Batches:
    yield from (batch(soft(300)) for _ in range(20))
    yield from (batch(hard(chance, 300)) for _ in range(15))


def by_turns(chance: random.Random) -> Batches:
    for turn in range(60):
        yield batch(hard(chance, 100) if turn // 5 % 2 else soft(100))


def both_in_each_batch(chance: random.Random) -> Batches:
    for _ in range(25):
        yield batch(pa.concat_arrays([soft(150), hard(chance, 150, ROWS)]))


SHAPES = [incompressible, compressible, narrow, wide, soft_then_hard, by_turns, both_in_each_batch]


@pytest.mark.parametrize("target_bytes", [MIB, 3 * MIB // 2])
@pytest.mark.parametrize("shape", SHAPES, ids=[shape.__name__ for shape in SHAPES])
def test_full_files_are_within_a_tenth_of_the_target(
    tmp_path: Path, shape: Callable[[random.Random], Batches], target_bytes: int
) -> None:
    """FILE-04, PERF-12"""
    files = write(tmp_path, target_bytes, shape(random.Random(11)))[""]
    full = [file.file_size_bytes / target_bytes for file in files[:-1]]
    assert full
    assert all(0.9 <= size <= 1.1 for size in full), full
    assert files[-1].file_size_bytes <= 1.1 * target_bytes


def test_partitions_of_very_different_rows_all_have_full_files_of_the_target_size(tmp_path: Path) -> None:
    """FILE-04, PERF-12"""
    chance = random.Random(12)

    def batches() -> Batches:
        for _ in range(30):
            yield batch(hard(chance, 150), "hard")
            yield batch(soft(1_000), "soft")
            yield batch(hard(chance, 20), "short")

    found = write(tmp_path, MIB // 2, batches(), by_part=True)
    assert min(len(files) for files in found.values()) > 1
    for files in found.values():
        assert all(0.9 <= file.file_size_bytes / (MIB // 2) <= 1.1 for file in files[:-1])


def test_a_target_of_many_row_groups_is_met_as_well(tmp_path: Path) -> None:
    """FILE-04, PERF-12: no row group but the last one of the epoch is a splinter"""
    chance = random.Random(13)
    pool = [hard(chance, 400) for _ in range(20)]
    files = write(tmp_path, 32 * MIB, (batch(pool[turn % 20]) for turn in range(80)))[""]
    assert len(files) > 1
    for file in files[:-1]:
        footer = pq.ParquetFile(file.path).metadata
        groups = [footer.row_group(n).num_rows for n in range(footer.num_row_groups)]
        assert 0.9 <= file.file_size_bytes / (32 * MIB) <= 1.1
        assert len(groups) > 1
        assert min(groups) > 0.1 * max(groups)


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_fit_are_found_by_trying(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice([1, 1, 1, chance.randint(1, 500)]) for _ in range(1_000)]
    aim = chance.randint(1_000, sum(sizes))
    count = prefix_of_size(1_000, (aim, 1.1 * aim), lambda rows: sum(sizes[:rows]))
    assert count == 1_000 or 0.9 * aim <= sum(sizes[:count]) <= 1.1 * aim


def test_no_row_fits_where_there_is_no_room() -> None:
    assert prefix_of_size(100, (-5, -1), lambda rows: rows * 10) == 0
    assert prefix_of_size(1, (5, 9), lambda rows: rows * 10) == 0
