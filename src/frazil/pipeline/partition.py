"""Partition fields as people write them: `placed_at`, `day(placed_at)`, `bucket(16, customer)`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from frazil.errors import ConfigError

_CALL = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*")
_NAME = re.compile(r"\s*([\w.]+)\s*")
AnyTransform = Transform[Any, Any]

_TIMED: dict[str, Callable[[], AnyTransform]] = {
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
    "identity": IdentityTransform,
}
_SIZED: dict[str, Callable[[int], AnyTransform]] = {"bucket": BucketTransform, "truncate": TruncateTransform}
_KNOWN = [*_TIMED, *_SIZED]


def parse_partition(fields: Sequence[str], schema: Schema) -> PartitionSpec:
    """Builds the partition spec, or refuses the field that does not fit the schema."""
    parsed: list[PartitionField] = []
    for index, text in enumerate(fields):
        transform, column = _parse_field(text)
        try:
            source = schema.find_field(column, case_sensitive=True)
        except ValueError:
            raise _unknown_column(text, column, schema) from None
        if not transform.can_transform(source.field_type):
            raise ConfigError(
                f"table.partition: {text!r}: {transform} cannot be applied to {column} of type {source.field_type}"
            )
        name = column if isinstance(transform, IdentityTransform) else f"{column}_{_suffix(transform)}"
        if name in {field.name for field in parsed}:
            raise ConfigError(f"table.partition: {text!r} partitions by {column} in the same way a second time")
        if name != column and name in schema.column_names:
            raise ConfigError(
                f"table.partition: {text!r} would be called {name}, as a column of the table is already",
                "rename the column",
            )
        parsed.append(PartitionField(source.field_id, PARTITION_FIELD_ID_START + index, transform, name))
    return PartitionSpec(*parsed)


def _parse_field(text: str) -> tuple[AnyTransform, str]:
    if named := _NAME.fullmatch(text):
        return IdentityTransform(), named[1]
    call = _CALL.fullmatch(text)
    if call is None:
        raise ConfigError(
            f"table.partition: cannot read {text!r}", 'write a column, "day(column)" or "bucket(16, column)"'
        )
    name, arguments = call[1].lower(), [a.strip() for a in call[2].split(",")]
    if (timed := _TIMED.get(name.removesuffix("s"))) is not None:
        if len(arguments) != 1 or not arguments[0]:
            raise ConfigError(f"table.partition: {text!r}: {name} takes one column")
        return timed(), arguments[0]
    if (sized := _SIZED.get(name)) is not None:
        if len(arguments) != 2 or not arguments[0].isdecimal() or int(arguments[0]) < 1:
            raise ConfigError(f"table.partition: {text!r}: {name} takes a whole number and a column")
        return sized(int(arguments[0])), arguments[1]
    near = difflib.get_close_matches(name, _KNOWN, 1)
    raise ConfigError(
        f"table.partition: {text!r}: unknown transform {name!r}; known are {', '.join(_KNOWN)}",
        f"did you mean {near[0]}?" if near else "",
    )


def _suffix(transform: AnyTransform) -> str:
    if isinstance(transform, BucketTransform):
        return "bucket"
    if isinstance(transform, TruncateTransform):
        return "trunc"
    return str(transform)


def _unknown_column(text: str, column: str, schema: Schema) -> ConfigError:
    names = [field.name for field in schema.fields]
    near = difflib.get_close_matches(column, names, 1)
    return ConfigError(
        f"table.partition: {text!r}: there is no column {column!r}; the columns are {', '.join(names)}",
        f"did you mean {near[0]}?" if near else "",
    )
