"""Split a batch by the partition values of its rows.

The values are those of Iceberg's Java transforms, with one exception on purpose: for the last microsecond of the
first second of an hour, day, month or year before 1970, Java names the one before it. Here it gets its own, as in
the Iceberg spec. Java finds it all the same: for a time before 1970 it looks into the next one as well.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    MonthTransform,
    TimeTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import BinaryType, DateType, DoubleType, FloatType, IcebergType, StructType, UUIDType

from frazil.write import delta_spelling, instants
from frazil.write.nested import at_path
from frazil.write.spelling import folder, json_value

# Spelling out a partition takes longer than writing a few rows of it, so those seen lately are remembered.
_KNOWN_PARTITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Partition:
    """One combination of partition values, as the table's metadata has them, and the folder it is written to."""

    values: tuple[Any, ...] = ()
    path: str = ""


UNPARTITIONED = Partition()


class Partitioner:
    """Applies a partition spec to batches that already have the table's columns."""

    def __init__(self, schema: Schema, spec: PartitionSpec, table_format: str = "iceberg") -> None:
        self._table_format = table_format
        self._schema = schema
        self._spec = spec
        self._types = [each.field_type for each in spec.partition_type(schema).fields]
        self._columns = [_exact(transformed(schema, each)) for each in spec.fields]
        self._known: dict[tuple[Any, ...], Partition] = {}

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """The rows of each partition, in their order; a batch of one partition is passed on as it is."""
        for partition, places in self.places(batch):
            yield partition, picked(batch, places)

    def places(self, batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.Array]]:
        """Where the rows of each partition stand in the batch; partitions by first appearance."""
        if not self._columns:
            yield UNPARTITIONED, pa.arange(0, batch.num_rows)
            return
        values = [column(batch) for column in self._columns]
        codes, sizes = _group(values)
        order = pc.sort_indices(codes)  # stable: rows of a partition keep the order they came in
        start = 0
        for size in sizes:
            rows = order.slice(start, size)
            yield self._partition(values, rows[0].as_py()), rows
            start += size

    def _partition(self, values: list[pa.Array], row: int) -> Partition:
        key = tuple(column[row].as_py() for column in values)
        if key not in self._known:
            if len(self._known) >= _KNOWN_PARTITIONS_MAX:
                self._known.clear()
            self._known[key] = self._described(key)
        return self._known[key]

    def _described(self, key: tuple[Any, ...]) -> Partition:
        values = [_internal(value, kind) for value, kind in zip(key, self._types, strict=True)]
        if self._table_format == "delta":
            named = zip(self._spec.fields, self._types, values, strict=True)
            texts = tuple(delta_spelling.log_text(*each) for each in named)
            return Partition(texts, delta_spelling.folder(self._spec.fields, self._types, values))
        return Partition(
            tuple(json_value(value, kind) for value, kind in zip(values, self._types, strict=True)),
            folder(self._spec.fields, self._types, values),
        )


def picked(batch: pa.RecordBatch, places: pa.Array) -> pa.RecordBatch:
    """The rows at these places; a batch that needs nothing left out is passed on as it is.

    Taken, not sliced out of one sorted batch: a slice would keep the rows of all other partitions in memory for
    as long as this partition waits for its row group to fill.
    """
    return batch if len(places) == batch.num_rows else batch.take(places)


def _group(values: list[pa.Array]) -> tuple[pa.Array, list[int]]:
    """Number the distinct combinations 0, 1, 2 … by first appearance, and count the rows of each."""
    codes = _numbered(values[0])
    for column in values[1:]:
        more = _numbered(column)
        # Both numberings stay below the number of rows, so their product fits 64 bits.
        width = (pc.max(more).as_py() or 0) + 1
        codes = _numbered(pc.add(pc.multiply(codes, width), more))
    return codes, pc.value_counts(codes).field("counts").to_pylist()


def _numbered(values: pa.Array) -> pa.Array:
    return values.dictionary_encode(null_encoding="encode").indices.cast(pa.int64())


def transformed(schema: Schema, field: PartitionField | SortField) -> Callable[[pa.RecordBatch], pa.Array]:
    """How to compute from a batch what rows are partitioned or sorted by, in a plain type."""
    path = path_to(schema.as_struct(), field.source_id)
    transform = _transform_of(field, schema.find_type(field.source_id))

    def column(batch: pa.RecordBatch) -> pa.Array:
        return _plain(transform(_plain_storage(at_path(batch, path))))

    return column


def _transform_of(field: PartitionField | SortField, source: IcebergType) -> Callable[[pa.Array], pa.Array]:
    if isinstance(field.transform, TruncateTransform) and isinstance(source, BinaryType):
        width = field.transform.width
        return lambda values: pc.binary_slice(values, 0, width)  # pyiceberg's own knows no large_binary
    if isinstance(field.transform, TimeTransform):
        # pyiceberg's own turns years that are far away into nulls.
        return _time_transform(field.transform, source)
    return field.transform.pyarrow_transform(source)


def _time_transform(transform: TimeTransform[Any], source: IcebergType) -> Callable[[pa.Array], pa.Array]:
    def day_counts(values: pa.Array) -> pa.Array:
        counts = _plain(values)
        return counts if isinstance(source, DateType) else instants.days(counts, _unit(values))

    def counted(values: pa.Array) -> pa.Array:
        match transform:
            case YearTransform():
                return instants.years(day_counts(values))
            case MonthTransform():
                return instants.months(day_counts(values))
            case DayTransform():
                return day_counts(values)
            case HourTransform():
                return instants.hours(_plain(values), _unit(values))

    # Iceberg's results have 32 bits; hours more than 245,000 years away start over, as they do in Java.
    return lambda values: counted(values).cast(pa.int32(), safe=False)


def _unit(timestamps: pa.Array) -> int:
    return instants.NANOS if timestamps.type.unit == "ns" else instants.MICROS


def path_to(struct: StructType, field_id: int) -> list[int]:
    """Positions that lead to a field through the structs around it; empty if it is not in there."""
    for position, field in enumerate(struct.fields):
        if field.field_id == field_id:
            return [position]
        if isinstance(field.field_type, StructType) and (below := path_to(field.field_type, field_id)):
            return [position, *below]
    return []


def _plain_storage(values: pa.Array) -> pa.Array:
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _plain(values: pa.Array) -> pa.Array:
    """Dates and times as the integers Iceberg keeps, which have no range or time zone of Python's."""
    if pt.is_date32(values.type):
        return values.view(pa.int32())
    if pt.is_timestamp(values.type) or pt.is_time64(values.type):
        return values.view(pa.int64())
    return values


def _exact(column: Callable[[pa.RecordBatch], pa.Array]) -> Callable[[pa.RecordBatch], pa.Array]:
    """Floats as their bits: the two zeros are equal, and yet two partitions."""

    def bits(batch: pa.RecordBatch) -> pa.Array:
        values = column(batch)
        if not pt.is_floating(values.type):
            return values
        return values.view(pa.int32() if pt.is_float32(values.type) else pa.int64())

    return bits


def _internal(value: Any, kind: IcebergType) -> Any:
    match kind, value:
        case _, None:
            return None
        case UUIDType(), _:
            return uuid.UUID(bytes=value)
        case FloatType(), _:
            return struct.unpack("<f", struct.pack("<i", value))[0]
        case DoubleType(), _:
            return struct.unpack("<d", struct.pack("<q", value))[0]
    return value
