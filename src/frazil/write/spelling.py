"""How a partition value is spelled: in what is committed, and in the name of its folder.

Both are as Iceberg's Java library has them (`delta_spelling` is for Delta). Folder names are for people to read, a
partition's truth stands in the manifest; floats are spelled Python's way in them, because Java's way depends on its
version.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus

from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import HourTransform, MonthTransform, YearTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from frazil.errors import SchemaMismatch
from frazil.write.instants import MICROS, NANOS, iso_date, iso_time, iso_timestamp, year_month_day

_TIMESTAMPS: dict[type[IcebergType], Callable[[int], str]] = {
    TimestampType: lambda value: iso_timestamp(value, MICROS),
    TimestamptzType: lambda value: iso_timestamp(value, MICROS) + "+00:00",
    TimestampNanoType: lambda value: iso_timestamp(value, NANOS),
    TimestamptzNanoType: lambda value: iso_timestamp(value, NANOS) + "+00:00",
}


def json_value(value: Any, kind: IcebergType) -> Any:
    """Iceberg's JSON form of a single value."""
    if isinstance(value, float) and not math.isfinite(value):
        raise SchemaMismatch(
            f"{value} is not a partition value that Iceberg can describe in JSON",
            "partition by another column, or by a bucket or truncation of one",
            expected="a finite number",
            actual=str(value),
        )
    match kind, value:
        case _, None:
            return None
        case DateType(), _:
            return iso_date(value)
        case TimeType(), _:
            return iso_time(value, MICROS)
        case _, bytes():
            return value.hex()
        case _, Decimal():
            # Never in scientific notation: the number of digits after the point is the scale.
            return format(value, "f")
        case _, int() if type(kind) in _TIMESTAMPS:
            return _TIMESTAMPS[type(kind)](value)
        case _, bool() | int() | float():
            return value
    return str(value)


def folder(fields: tuple[PartitionField, ...], kinds: list[IcebergType], values: list[Any]) -> str:
    """The path below an Iceberg table's data folder, one `name=value` for each field."""
    texts = [_readable(*each) for each in zip(fields, kinds, values, strict=True)]
    return "/".join(f"{_escaped(field.name)}={_escaped(text)}" for field, text in zip(fields, texts, strict=True))


def _readable(field: PartitionField, kind: IcebergType, value: Any) -> str:
    if value is None:
        return "null"
    match field.transform, kind:
        case YearTransform(), _:
            return f"{1970 + value:04d}"
        case MonthTransform(), _:
            return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"
        case HourTransform(), _:
            return f"{_plain_date(value // 24)}-{value % 24:02d}"
        case _, DateType():
            return _plain_date(value)
        case _, TimeType():
            return _short_time(value)
        case _, BooleanType():
            return str(value).lower()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _TIMESTAMPS[type(kind)](value) if type(kind) in _TIMESTAMPS else str(value)


def _plain_date(day_count: int) -> str:
    year, month, day = year_month_day(day_count)
    return f"{year:04d}-{month:02d}-{day:02d}"


def _short_time(micros: int) -> str:
    """Whole minutes without seconds, and fractions in groups of three digits."""
    minute, _, fraction = iso_time(micros, MICROS).partition(".")
    if fraction:
        return f"{minute}.{fraction.ljust(3 if len(fraction) <= 3 else 6, '0')}"
    return minute.removesuffix(":00") if micros % (60 * MICROS) == 0 else minute


def _escaped(text: str) -> str:
    """As Java's URLEncoder does it, which differs from Python's in two characters."""
    return quote_plus(text, safe="*").replace("~", "%7E")
