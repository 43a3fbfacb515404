"""Column metrics counted from the rows themselves, for formats whose footer does not tell them.

They are those that Iceberg's own writers put into manifests: counts for every column outside lists and maps,
and bounds for primitive ones. A bound that is too narrow hides rows from queries, so where it cannot be said
exactly it is left out, and

- NaN takes no part in bounds, and zero is -0.0 below and +0.0 above, because Java tells the two apart;
- shortened text stays a bound: an upper one is raised in its last character that can be;
- dates and times are integers throughout: Python's own types end at the year 9999 and know no nanoseconds;
- bytes and UUIDs have no bounds, as in Iceberg's ORC files: Iceberg's readers get the order of UUIDs wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    PrimitiveType,
    StringType,
    StructType,
    UnknownType,
    UUIDType,
)

from frazil.write.bounds import raised
from frazil.write.modes import has_bounds, metrics_modes
from frazil.write.nested import at_path

Bound = bool | int | float | Decimal | str

_UNBOUNDED = (BinaryType, FixedType, UUIDType, UnknownType)


@dataclass(frozen=True, slots=True)
class Column:
    """A column outside lists and maps: the way to it through structs, and what is measured of it."""

    path: tuple[int, ...]
    field_id: int
    kind: IcebergType
    mode: MetricsMode

    @property
    def is_counted(self) -> bool:
        return self.mode.type != MetricModeTypes.NONE

    @property
    def is_float(self) -> bool:
        return isinstance(self.kind, FloatType | DoubleType)

    @property
    def is_bounded(self) -> bool:
        if not isinstance(self.kind, PrimitiveType) or isinstance(self.kind, _UNBOUNDED):
            return False
        return has_bounds(self.mode)

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """The column with a null wherever a struct around it is null."""
        return at_path(rows, self.path)


def measured_columns(schema: Schema, properties: Mapping[str, str], sort_order_json: str) -> list[Column]:
    """The columns that the table's `write.metadata.metrics.*` properties want to be measured."""
    modes = metrics_modes(schema, properties, sort_order_json)
    return [
        column
        for path, field_id, kind in _columns(schema.as_struct())
        if (column := Column(path, field_id, kind, modes[field_id])).is_counted
    ]


def _columns(struct: StructType, above: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], int, IcebergType]]:
    for position, each in enumerate(struct.fields):
        path = (*above, position)
        yield path, each.field_id, each.field_type
        if isinstance(each.field_type, StructType):
            yield from _columns(each.field_type, path)


Shortened = Callable[[Bound | None, Column], Bound | None]


@dataclass(slots=True)
class Measure:
    """What is known of one file so far."""

    columns: list[Column]
    _rows: int = 0
    _nulls: dict[int, int] = field(default_factory=dict)
    _nans: dict[int, int] = field(default_factory=dict)
    _lowest: dict[int, Bound] = field(default_factory=dict)
    _highest: dict[int, Bound] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Counts these rows in."""
        self._rows += rows.num_rows
        for column in self.columns:
            values = column.values(rows)
            self._nulls[column.field_id] = self._nulls.get(column.field_id, 0) + values.null_count
            if column.is_float:
                nans = pc.sum(pc.is_nan(values)).as_py() or 0
                self._nans[column.field_id] = self._nans.get(column.field_id, 0) + nans
            if column.is_bounded:
                self._widen(column.field_id, values)

    def _widen(self, field_id: int, values: pa.ChunkedArray) -> None:
        extremes = pc.min_max(_comparable(values)).as_py()
        low, high = extremes["min"], extremes["max"]
        if low is None or low != low:  # nothing but nulls, or nothing but NaN
            return
        self._lowest[field_id] = min(low, self._lowest.get(field_id, low))
        self._highest[field_id] = max(high, self._highest.get(field_id, high))

    def metrics(self) -> dict[str, Any]:
        """The metric fields of a `WrittenFile`."""
        return {
            "value_counts": {each.field_id: self._rows for each in self.columns},
            "null_value_counts": dict(self._nulls),
            "nan_value_counts": dict(self._nans),
            "lower_bounds": self._serialized(self._lowest, _lower),
            "upper_bounds": self._serialized(self._highest, _upper),
        }

    def _serialized(self, bounds: Mapping[int, Bound], shortened: Shortened) -> dict[int, str]:
        serialized: dict[int, str] = {}
        for column in self.columns:
            bound = shortened(bounds.get(column.field_id), column)
            if bound is not None and isinstance(column.kind, PrimitiveType):
                serialized[column.field_id] = to_bytes(column.kind, bound).hex()
        return serialized


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pt.is_date32(values.type):
        return values.cast(pa.int32())
    if pt.is_timestamp(values.type) or pt.is_time64(values.type):
        return values.cast(pa.int64())
    return values


def _lower(bound: Bound | None, column: Column) -> Bound | None:
    if isinstance(bound, str) and _is_too_long(bound, column):
        return bound[: column.mode.length]
    return -0.0 if column.is_float and bound == 0 else bound


def _upper(bound: Bound | None, column: Column) -> Bound | None:
    if isinstance(bound, str) and _is_too_long(bound, column):
        return raised(bound[: column.mode.length])
    return 0.0 if column.is_float and bound == 0 else bound


def _is_too_long(bound: str, column: Column) -> bool:
    return (
        isinstance(column.kind, StringType) and column.mode.length is not None and len(bound) > column.mode.length
    )
