"""Column metrics of a closed Parquet file: those that Iceberg's Java writer would put into the manifest.

Most of them stand in the footer. What does not is gathered from the rows of each row group (`Tally`): how many
numbers are NaN, which of the two zeros is a bound, and the bounds of values over 4 KiB, which Arrow leaves out.
Without those a column has no bounds at all, because bounds of the other row groups would be too narrow, and a bound
that is too narrow hides rows from queries.

For the same reason UUIDs have neither bounds nor statistics in the footer. Java writes their bounds in the order of
bytes and reads them in the order of signed numbers, so that Spark does not find the row when asked for a UUID.

Fields inside lists and maps have a size and no other metrics, as in Java.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode, parquet_path_to_id_mapping
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    MapType,
    StringType,
    StructType,
    UUIDType,
)

from frazil.table.files import UNSORTED
from frazil.write.bounds import raised
from frazil.write.modes import has_bounds, metrics_modes
from frazil.write.nested import at_path

# Arrow leaves bounds that are longer out of the footer.
_FOOTER_BOUND_LENGTH_MAX = 4096

_BYTES = (StringType, BinaryType, FixedType)

Bounds = tuple[Any, Any]
"""The lowest and the highest value as the footer has them: bool, int, float or bytes."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A leaf of the schema of which something is recorded."""

    field_id: int
    kind: IcebergType
    mode: MetricsMode
    path: tuple[int, ...] | None
    """Positions that lead to it through structs; None inside a list or a map."""

    @property
    def is_float(self) -> bool:
        return isinstance(self.kind, FloatType | DoubleType)

    @property
    def has_bounds(self) -> bool:
        return self.path is not None and has_bounds(self.mode) and not isinstance(self.kind, UUIDType)


class MetricsPlan:
    """Which metrics each column gets; made once per writer, used for each of its files."""

    def __init__(
        self,
        schema: Schema,
        file_schema: Schema,
        properties: Mapping[str, str],
        sort_order_json: str = UNSORTED,
        *,
        counts_collections: bool = False,
    ) -> None:
        modes = metrics_modes(schema, properties, sort_order_json)
        collections = _collections(schema.as_struct(), ()) if counts_collections else ()
        counted = [_Column(field_id, kind, modes[field_id], path) for field_id, kind, path in collections]
        self._collections = [each for each in counted if each.mode.type != MetricModeTypes.NONE]
        leaves = [_Column(*leaf[:2], modes[leaf[0]], leaf[2]) for leaf in _leaves(schema.as_struct(), 0, ())]
        uuids = {each.field_id for each in leaves if isinstance(each.kind, UUIDType)}
        self._columns = {each.field_id: each for each in leaves if each.mode.type != MetricModeTypes.NONE}
        self._field_ids = parquet_path_to_id_mapping(file_schema)
        self.leaves_with_statistics = [path for path, field_id in self._field_ids.items() if field_id not in uuids]

    def tally(self) -> Tally:
        """For the rows of one file."""
        return Tally([each for each in self._columns.values() if each.path is not None], self._collections)

    def measure(self, footer: pq.FileMetaData, tally: Tally) -> dict[str, Any]:
        """The metric fields of a `WrittenFile`, from its footer and what the tally of its rows has seen."""
        sizes: Counter[int] = Counter()
        values: Counter[int] = Counter()
        nulls: Counter[int] = Counter()
        for _, column, chunk in self._chunks(footer):
            sizes[column.field_id] += chunk.total_compressed_size
            if column.path is not None:
                values[column.field_id] += chunk.num_values
                if chunk.is_stats_set:
                    nulls[column.field_id] += chunk.statistics.null_count
        bounds = self._bounds(footer, tally.bounds)
        return {
            "column_sizes": dict(sizes),
            "value_counts": dict(values),
            "null_value_counts": dict(nulls) | tally.null_counts,
            "nan_value_counts": tally.nan_counts,
            "lower_bounds": self._lower_bounds(bounds),
            "upper_bounds": self._upper_bounds(bounds),
            "split_offsets": tuple(_start(footer.row_group(group)) for group in range(footer.num_row_groups)),
        }

    def _bounds(self, footer: pq.FileMetaData, seen: Mapping[tuple[int, int], Bounds]) -> dict[int, Bounds]:
        bounds: dict[int, Bounds] = {}
        unknown: set[int] = set()
        for group, column, chunk in self._chunks(footer):
            if not column.has_bounds:
                continue
            found = seen.get((group, column.field_id)) or _footer_bounds(column.kind, chunk)
            if found is not None:
                bounds[column.field_id] = _widest(found, bounds.get(column.field_id, found))
            elif not _has_no_value(column, chunk):
                unknown.add(column.field_id)
        return {field_id: each for field_id, each in bounds.items() if field_id not in unknown}

    def _lower_bounds(self, bounds: Mapping[int, Bounds]) -> dict[int, str]:
        return {
            field_id: _shortened(_encoded(low, self._columns[field_id].kind), self._columns[field_id]).hex()
            for field_id, (low, _) in bounds.items()
        }

    def _upper_bounds(self, bounds: Mapping[int, Bounds]) -> dict[int, str]:
        rounded = {
            field_id: _rounded_up(_encoded(high, self._columns[field_id].kind), self._columns[field_id])
            for field_id, (_, high) in bounds.items()
        }
        return {field_id: bound.hex() for field_id, bound in rounded.items() if bound is not None}

    def _chunks(self, footer: pq.FileMetaData) -> Iterator[tuple[int, _Column, pq.ColumnChunkMetaData]]:
        for group in range(footer.num_row_groups):
            row_group = footer.row_group(group)
            for position in range(footer.num_columns):
                chunk = row_group.column(position)
                if column := self._columns.get(self._field_ids[chunk.path_in_schema]):
                    yield group, column, chunk


class Tally:
    """What the footer does not tell; takes the rows of each row group, in their order."""

    def __init__(self, columns: list[_Column], collections: Sequence[_Column] = ()) -> None:
        self._floats = [each for each in columns if each.is_float]
        self._maybe_long = [each for each in columns if each.has_bounds and isinstance(each.kind, _BYTES)]
        self._without_statistics = [*(each for each in columns if isinstance(each.kind, UUIDType)), *collections]
        self._row_groups = 0
        self.nan_counts: dict[int, int] = {each.field_id: 0 for each in self._floats}
        self.null_counts: dict[int, int] = {each.field_id: 0 for each in self._without_statistics}
        """Of the columns without statistics in the footer."""
        self.bounds: dict[tuple[int, int], Bounds] = {}
        """By row group and field id; for those columns of a row group whose bounds the footer does not give."""

    def add(self, rows: pa.Table) -> None:
        for column in self._floats:
            self._add_floats(column, _values(rows, column))
        for column in self._maybe_long:
            values = _values(rows, column)
            if _longest(values) > _FOOTER_BOUND_LENGTH_MAX:
                low, high = pc.min_max(values.cast(pa.large_binary())).as_py().values()
                self.bounds[self._row_groups, column.field_id] = (low, high)
        for column in self._without_statistics:
            self.null_counts[column.field_id] += _values(rows, column).null_count
        self._row_groups += 1

    def _add_floats(self, column: _Column, values: pa.ChunkedArray) -> None:
        is_nan = pc.is_nan(values)
        nan_count = pc.sum(is_nan).as_py() or 0
        self.nan_counts[column.field_id] += nan_count
        if column.has_bounds:
            low, high = pc.min_max(values.filter(pc.invert(is_nan)) if nan_count else values).as_py().values()
            if low is not None:
                self.bounds[self._row_groups, column.field_id] = _exact_zeros(values, low, high)


def _leaves(
    kind: IcebergType, field_id: int, path: tuple[int, ...] | None
) -> Iterator[tuple[int, IcebergType, tuple[int, ...] | None]]:
    match kind:
        case StructType():
            for position, field in enumerate(kind.fields):
                below = None if path is None else (*path, position)
                yield from _leaves(field.field_type, field.field_id, below)
        case ListType():
            yield from _leaves(kind.element_type, kind.element_id, None)
        case MapType():
            yield from _leaves(kind.key_type, kind.key_id, None)
            yield from _leaves(kind.value_type, kind.value_id, None)
        case _:
            yield field_id, kind, path


def _collections(
    struct: StructType, above: tuple[int, ...]
) -> Iterator[tuple[int, ListType | MapType, tuple[int, ...]]]:
    """Lists and maps outside of others: Delta counts how many of them are null, Iceberg does not."""
    for position, field in enumerate(struct.fields):
        path = (*above, position)
        if isinstance(field.field_type, StructType):
            yield from _collections(field.field_type, path)
        elif isinstance(field.field_type, ListType | MapType):
            yield field.field_id, field.field_type, path


def _values(rows: pa.Table, column: _Column) -> pa.ChunkedArray:
    assert column.path is not None
    return at_path(rows, column.path)


def _longest(values: pa.ChunkedArray) -> int:
    return pc.max(pc.binary_length(values)).as_py() or 0


def _exact_zeros(values: pa.ChunkedArray, low: float, high: float) -> Bounds:
    """Says which zero is meant: -0.0 is below 0.0, which no comparison in Arrow tells."""
    if low != 0 and high != 0:
        return low, high
    zeros = values.filter(pc.equal(values, 0))
    inverse = pc.min_max(pc.divide(1.0, zeros)).as_py()
    return (
        math.copysign(low, inverse["min"]) if low == 0 else low,
        math.copysign(high, inverse["max"]) if high == 0 else high,
    )


def _start(row_group: pq.RowGroupMetaData) -> int:
    first = row_group.column(0)
    return int(first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset)


def _footer_bounds(kind: IcebergType, chunk: pq.ColumnChunkMetaData) -> Bounds | None:
    if not chunk.is_stats_set or not chunk.statistics.has_min_max:
        return None
    low, high = chunk.statistics.min_raw, chunk.statistics.max_raw
    if isinstance(kind, DecimalType) and isinstance(low, bytes):
        return int.from_bytes(low, "big", signed=True), int.from_bytes(high, "big", signed=True)
    return low, high


def _has_no_value(column: _Column, chunk: pq.ColumnChunkMetaData) -> bool:
    """Arrow gives bounds to all numbers but NaN; of text and bytes only nulls have none for sure."""
    return column.is_float or (chunk.is_stats_set and chunk.statistics.null_count == chunk.num_values)


def _widest(one: Bounds, other: Bounds) -> Bounds:
    return min(one[0], other[0], key=_order), max(one[1], other[1], key=_order)


def _order(value: Any) -> Any:
    return (value, math.copysign(1, value)) if isinstance(value, float) else value


def _encoded(value: Any, kind: IcebergType) -> bytes:
    """Iceberg's binary form of a single value."""
    match kind:
        case BooleanType():
            return bytes([value])
        case IntegerType() | DateType():
            return struct.pack("<i", value)
        case FloatType():
            return struct.pack("<f", value)
        case DoubleType():
            return struct.pack("<d", value)
        case DecimalType():
            bits = value.bit_length() if value >= 0 else (~value).bit_length()
            return bytes(value.to_bytes(bits // 8 + 1, "big", signed=True))
    return value if isinstance(value, bytes) else struct.pack("<q", value)


def _shortened(bound: bytes, column: _Column) -> bytes:
    match column.kind:
        case StringType():
            return bound.decode()[: column.mode.length].encode()
        case BinaryType():
            return bound[: column.mode.length]
    return bound


def _rounded_up(bound: bytes, column: _Column) -> bytes | None:
    """Shortened, and then raised so that it is above all that begins with it; None if there is nothing above."""
    short = _shortened(bound, column)
    if short == bound:
        return bound
    if isinstance(column.kind, BinaryType):
        raisable = short.rstrip(b"\xff")
        return raisable[:-1] + bytes([raisable[-1] + 1]) if raisable else None
    above = raised(short.decode())
    return None if above is None else above.encode()
