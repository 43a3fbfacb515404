"""Rows that go by their places in data files: gathered file by file, and written as files of position deletes.

A file of deletes speaks of one data file and lies in the spec and partition of that one, whatever the table's is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from frazil.errors import SchemaMismatch
from frazil.table.files import UNSORTED, PartitionShapes, RowPlaces, WriteTarget, WrittenFile
from frazil.write.file import DataFile, FileLayout
from frazil.write.formats import file_format
from frazil.write.locations import Locations
from frazil.write.partition import UNPARTITIONED, Partition
from frazil.write.spelling import json_value
from frazil.write.writer import FileName

FILE, SPEC, POSITION = "file", "spec_id", "position"
"""Columns of places: where a row is. Behind them stand the partition's fields."""

# The ids are Iceberg's own, and so are the names.
_SCHEMA = Schema(
    NestedField(2147483546, "file_path", StringType(), required=True),
    NestedField(2147483545, "pos", LongType(), required=True),
)
# Readers find the one data file that deletes are about by equal bounds, if they know of no better way.
_WHOLE_BOUNDS = {"write.metadata.metrics.default": "full"}
# What deletes rows of one data file is one file.
_NEVER_FULL = 2**40
_ROWS_AT_ONCE = 65_536


def gathered_places(batches: Iterable[pa.RecordBatch], shapes: PartitionShapes) -> Iterator[RowPlaces]:
    """The places of each data file together; they come in the order of files and positions."""
    types = Schema.model_validate_json(shapes.fields_json).fields
    open_file: tuple[str, int, tuple[Any, ...]] | None = None
    positions: list[bytes] = []
    for batch in batches:
        paths = batch.column(FILE)
        codes = paths.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        for start, end in pairwise(starts):
            if start == end:
                continue
            path = paths[start].as_py()
            if open_file is None or open_file[0] != path:
                if open_file is not None:
                    yield RowPlaces(*open_file, b"".join(positions))
                open_file, positions = (path, *_partition(batch.slice(start, 1), types, shapes)), []
            column = batch.column(POSITION).slice(start, end - start)
            positions.append(column.to_numpy(zero_copy_only=False).astype("<i8").tobytes())
    if open_file is not None:
        yield RowPlaces(*open_file, b"".join(positions))


def _partition(
    row: pa.RecordBatch, types: tuple[NestedField, ...], shapes: PartitionShapes
) -> tuple[int, tuple[Any, ...]]:
    """The spec of the file that a row is in, and the values of its fields."""
    spec_id = row.column(SPEC)[0].as_py()
    columns = row.columns[len(row.columns) - len(types) :] if types else []
    values = {
        each.field_id: json_value(_plain(column), each.field_type)
        for each, column in zip(types, columns, strict=True)
    }
    if not values.keys() >= set(shapes.specs[spec_id]):
        raise SchemaMismatch(
            f"{row.column(FILE)[0].as_py()} lies in a partition by a column that the table no longer has, so that "
            "nobody can say which one",
            "rewrite such files for the present partitioning: CALL system.rewrite_data_files(…)",
        )
    return spec_id, tuple(values[field_id] for field_id in shapes.specs[spec_id])


def _plain(column: pa.Array) -> Any:
    """The one value, dates and times as the numbers that Iceberg keeps."""
    if pt.is_date32(column.type):
        column = column.view(pa.int32())
    elif pt.is_timestamp(column.type):
        column = column.view(pa.int64())
    return column[0].as_py()


class PositionDeletes:
    """Writes one file of position deletes after another."""

    def __init__(self, target: WriteTarget, name: FileName) -> None:
        own = target.deletes
        looks = {} if own is None else {each.name: getattr(own, each.name) for each in fields(own)}
        self._target = replace(target, **looks, sort_order_json=UNSORTED, bloom_filters={})
        self._target = replace(
            self._target,
            schema_json=_SCHEMA.model_dump_json(),
            target_file_size_bytes=_NEVER_FULL,
            properties={**self._target.properties, **_WHOLE_BOUNDS},
        )
        self._name = replace(name, kind="deletes")
        self._io = load_file_io(dict(target.io_properties), target.location)
        self._locations = Locations(target.location, target.properties, target.table_location, of_deletes=True)
        self._format = file_format(self._target, _SCHEMA)
        self._written: list[WrittenFile] = []

    def write(self, places: RowPlaces) -> WrittenFile:
        """One file, with all places in one data file."""
        layout = FileLayout(self._target, self._format, places.spec_id, 0)
        name = self._name.numbered(len(self._written) + 1, self._format.name)
        path = self._locations.path(UNPARTITIONED, name)
        file = DataFile(layout, self._io, path, Partition(places.partition))
        try:
            for rows in self._rows(places):
                left = rows
                while left.num_rows:
                    left = left.slice(file.take(left))
            file.flush()
            written = file.close()
        except BaseException:
            file.abort()
            raise
        self._written.append(
            replace(written, content="position-deletes", sort_order_id=None, referenced_data_file=places.path)
        )
        return self._written[-1]

    def abort(self) -> None:
        """Removes all files; for a task that will not report."""
        for file in self._written:
            with contextlib.suppress(OSError):
                self._io.delete(file.path)

    def _rows(self, places: RowPlaces) -> Iterator[pa.RecordBatch]:
        positions = np.frombuffer(places.positions, "<i8")
        schema = self._format.arrow_schema
        for start in range(0, len(positions), _ROWS_AT_ONCE):
            some = positions[start : start + _ROWS_AT_ONCE]
            paths = pa.repeat(pa.scalar(places.path, schema.field(0).type), len(some))
            yield pa.RecordBatch.from_arrays([paths, pa.array(some, schema.field(1).type)], schema=schema)
