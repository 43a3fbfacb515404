"""From a file that a worker closed to the `add` action that Delta keeps of it.

Statistics are what data skipping rests on, so they must never exclude a value that is in the file. Where a bound
cannot be told exactly, it is told wider: texts are cut as workers cut them, downwards and upwards, and times are
given in milliseconds, which is all that Delta's readers expect. A column with NaN has no upper bound, because Spark
holds NaN for the greatest number of all.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
from deltalake.transaction import AddAction
from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    PrimitiveType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from frazil.table.delta.schema import Columns
from frazil.table.files import WrittenFile

_EPOCH = datetime(1970, 1, 1)
_MILLISECOND = 1_000
"""in microseconds"""
_UNBOUNDED = (BooleanType, BinaryType)
"""Delta keeps no bounds of these."""
_JSON = msgspec.json.Encoder(decimal_format="number")


def add_action(file: WrittenFile, columns: Columns, root: str, now_ms: int) -> AddAction:
    """`root` is the table's folder, as the file's path spells it; delta-rs encodes what is below it for the log."""
    return AddAction(
        path=relative_path(file.path, root),
        size=file.file_size_bytes,
        partition_values=partition_values(file, columns),
        modification_time=now_ms,
        data_change=True,
        stats=_JSON.encode(statistics(file, columns)).decode(),
    )


def relative_path(path: str, root: str) -> str:
    return path.removeprefix(root.rstrip("/") + "/")


def partition_values(file: WrittenFile, columns: Columns) -> dict[str, str | None]:
    """As the log has them, which is how workers tell them."""
    return dict(zip(columns.partition_keys, file.partition, strict=True))


def statistics(file: WrittenFile, columns: Columns) -> dict[str, Any]:
    """Delta's statistics of a file, nested as its columns are."""
    lower, upper, nulls = _Tree(), _Tree(), _Tree()
    for path, field_id, kind in _leaves(columns, columns.schema.as_struct()):
        if field_id in file.null_value_counts:
            nulls.put(path, file.null_value_counts[field_id])
        if not isinstance(kind, PrimitiveType) or isinstance(kind, _UNBOUNDED):
            continue
        if field_id in file.lower_bounds:
            lower.put(path, _bound(kind, file.lower_bounds[field_id], upwards=False))
        if field_id in file.upper_bounds and not file.nan_value_counts.get(field_id):
            upper.put(path, _bound(kind, file.upper_bounds[field_id], upwards=True))
    return {
        "numRecords": file.record_count,
        "minValues": lower.values,
        "maxValues": upper.values,
        "nullCount": nulls.values,
    }


class _Tree:
    """Values by the path of their column; those that could not be told are left out."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def put(self, path: tuple[str, ...], value: Any) -> None:
        if value is None:
            return
        branch = self.values
        for name in path[:-1]:
            branch = branch.setdefault(name, {})
        branch[path[-1]] = value


def _leaves(
    columns: Columns, struct: StructType, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int, IcebergType]]:
    """Columns with statistics; what is inside of lists and maps has none."""
    for field in struct.fields:
        here = (*path, columns.stored_name(field))
        if isinstance(field.field_type, StructType):
            yield from _leaves(columns, field.field_type, here)
        else:
            yield here, field.field_id, field.field_type


def _bound(kind: PrimitiveType, encoded: str, *, upwards: bool) -> Any:
    value: Any = from_bytes(kind, bytes.fromhex(encoded))
    match kind:
        case DateType():
            return _date(value)
        case TimestampType():
            return _instant(value, upwards)
        case TimestamptzType():
            return (text := _instant(value, upwards)) and text + "Z"
        case FloatType() | DoubleType():
            return value if math.isfinite(value) else None
    return value


def _date(days: int) -> str | None:
    """None beyond the years that a text can name: a bound that is left out excludes nothing."""
    with contextlib.suppress(OverflowError):
        return (_EPOCH + timedelta(days=days)).date().isoformat()
    return None


def _instant(micros: int, upwards: bool) -> str | None:
    millis = -(-micros // _MILLISECOND) if upwards else micros // _MILLISECOND
    with contextlib.suppress(OverflowError):
        return (_EPOCH + timedelta(milliseconds=millis)).isoformat(timespec="milliseconds")
    return None
