"""How partition values are spelled in a Delta table: in its log, and in the names of its folders.

All of it is as Spark does it, also for what Spark computes itself of a time, but for letters beyond ASCII in names
of folders. delta-rs encodes them in the log and Java does not, so that Spark's VACUUM takes such a file for a stray
one and deletes it (measured with delta-rs 1.6.6 and delta-spark 4.4.0). Here the name itself has them encoded.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import HourTransform, MonthTransform, YearTransform
from pyiceberg.types import BooleanType, IcebergType, TimestampType, TimestamptzType

from frazil.write.instants import MICROS, iso_date, iso_timestamp, iso_year
from frazil.write.spelling import json_value

_NULL = "__HIVE_DEFAULT_PARTITION__"


def log_text(field: PartitionField, kind: IcebergType, value: Any) -> str | None:
    """The value as the log has it; an empty text is no value of a partition to Delta."""
    if value is None or value == "":
        return None
    if isinstance(kind, TimestamptzType):
        instant = iso_timestamp(value, MICROS)
        whole, _, fraction = instant.partition(".")
        return f"{whole}.{fraction:0<6}Z"
    return _text(field, kind, value)


def folder(fields: tuple[PartitionField, ...], kinds: list[IcebergType], values: list[Any]) -> str:
    """The path below the table, one `name=value` for each field."""
    named = zip(fields, kinds, values, strict=True)
    return "/".join(f"{_escaped(field.name)}={_folder_text(field, kind, value)}" for field, kind, value in named)


def _folder_text(field: PartitionField, kind: IcebergType, value: Any) -> str:
    return _NULL if value is None or value == "" else _escaped(_text(field, kind, value))


def _text(field: PartitionField, kind: IcebergType, value: Any) -> str:
    match field.transform, kind:
        case YearTransform(), _:
            return str(1970 + value)
        case MonthTransform(), _:
            return f"{iso_year(1970 + value // 12)}-{value % 12 + 1:02d}"
        case HourTransform(), _:
            return f"{iso_date(value // 24)}-{value % 24:02d}"
        case _, TimestampType() | TimestamptzType():
            return iso_timestamp(value, MICROS).replace("T", " ")
        case _, BooleanType():
            return str(value).lower()
    return str(json_value(value, kind))


def _escaped(text: str) -> str:
    """As Spark and Hive do it, who leave most characters of ASCII as they are."""
    plain = re.sub(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""", lambda found: f"%{ord(found[0]):02X}", text)
    return "".join(each if each.isascii() else quote(each) for each in plain)
