"""Places of rows, gathered file by file, and the files of position deletes that are made of them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, LongType, NestedField, StringType

from frazil.engine.bag import copies
from frazil.errors import SchemaMismatch
from frazil.table.files import PartitionShapes, RowPlaces, WriteTarget, WrittenFile
from frazil.write import FileName
from frazil.write.positions import PositionDeletes, gathered_places

FIELDS = Schema(NestedField(1000, "day", DateType()), NestedField(1001, "name", StringType()))
SHAPES = PartitionShapes(FIELDS.model_dump_json(), {0: (), 1: (1000,), 2: (1001, 1000)})


def batch(*rows: tuple[str, int, int]) -> pa.RecordBatch:
    files, specs, positions = zip(*rows, strict=True)
    count = len(rows)
    columns = {
        "file": pa.array(files),
        "spec_id": pa.array(specs, pa.int32()),
        "position": pa.array(positions, pa.int64()),
        "part_0": pa.array([dt.date(1969, 12, 31)] * count),
        "part_1": pa.array([None] * count, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_the_places_of_a_file_are_gathered_over_batches() -> None:
    """LIM-04: with the values of the fields that its own spec has, in their order."""
    batches = [batch(("a", 0, 1), ("a", 0, 5), ("b", 1, 0)), batch(("b", 1, 7)), batch(("b", 1, 8), ("c", 2, 2))]
    found = list(gathered_places(batches, SHAPES))
    assert [(each.path, each.spec_id, each.partition) for each in found] == [
        ("a", 0, ()),
        ("b", 1, ("1969-12-31",)),
        ("c", 2, (None, "1969-12-31")),
    ]
    assert [np.frombuffer(each.positions, "<i8").tolist() for each in found] == [[1, 5], [0, 7, 8], [2]]
    assert list(gathered_places([], SHAPES)) == []


def test_a_partition_that_cannot_be_told_is_an_error() -> None:
    """LIM-04: deletes under another partition would reach no row."""
    with pytest.raises(SchemaMismatch, match="a column that the table no longer has"):
        list(gathered_places([batch(("a", 3, 1))], replace(SHAPES, specs={3: (1000, 1007)})))


def test_a_file_of_position_deletes_speaks_of_one_data_file(tmp_path: Path) -> None:
    """LIM-04, FILE-05: Iceberg's own columns, all bounds whole, and a name that the journal finds again."""
    schema = Schema(NestedField(1, "id", LongType()))
    target = WriteTarget("shop.orders", str(tmp_path), schema.model_dump_json(), "{}", target_file_size_bytes=1)
    writer = PositionDeletes(target, FileName("pipe", 7, 0, epoch_token="a" * 12))
    positions = np.arange(0, 200_000, 2, dtype="<i8")
    path = "file:///warehouse/shop/orders/data/" + "x" * 40 + ".parquet"
    written = writer.write(RowPlaces(path, 1, ("2026-01-02",), positions.tobytes()))
    rows = pq.read_table(written.path)
    assert rows.schema.field("file_path").metadata[b"PARQUET:field_id"] == b"2147483546"
    assert rows.schema.field("pos").metadata[b"PARQUET:field_id"] == b"2147483545"
    assert rows["pos"].to_numpy().tolist() == positions.tolist()
    assert set(rows["file_path"].to_pylist()) == {path}
    assert (written.content, written.spec_id, written.partition) == ("position-deletes", 1, ("2026-01-02",))
    assert written.lower_bounds[2147483546] == written.upper_bounds[2147483546] == path.encode().hex()
    assert written.sort_order_id is None
    assert f'"referenced-data-file": "{path}"' in written.content_file_json()
    assert WrittenFile.from_json(written.to_json()) == written
    assert Path(written.path).name.startswith(f"pipe-e7-t0-deletes-{'a' * 12}-")
    writer.abort()
    assert not Path(written.path).exists()


def test_rows_come_as_often_as_they_are_said_to() -> None:
    """LIM-04: in pieces, however many; what is said to go does not come."""
    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3, 4]})
    pieces = list(copies(rows, pa.array([2, -3, 100_000, 0])))
    assert max(piece.num_rows for piece in pieces) <= 65_536
    found = pa.concat_batches(pieces)["n"].to_numpy()
    assert [(found == n).sum() for n in (1, 2, 3, 4)] == [2, 0, 100_000, 0]
    assert list(copies(rows, pa.array([-1, 0, 0, -1]))) == []
