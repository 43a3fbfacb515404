"""What partition and sort fields have in common: a column, or a transform of one.

term      := column | transform "(" [number ","] column ")"
column    := a name, dotted for a field of a struct, in backquotes if it is no plain word
transform := identity, year(s), month(s), day(s), hour(s): one column; bucket, truncate: a number and a column
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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

AnyTransform = Transform[Any, Any]

COLUMN = r"(?:[\w.]+|`(?:[^`]|``)+`)"
TERM = rf"(?:\w+\s*\([^()]*\)|{COLUMN})"

_CALL = re.compile(r"(\w+)\s*\(([^()]*)\)")
_PLAIN: dict[str, Callable[[], AnyTransform]] = {
    "year": YearTransform,
    "years": YearTransform,
    "month": MonthTransform,
    "months": MonthTransform,
    "day": DayTransform,
    "days": DayTransform,
    "hour": HourTransform,
    "hours": HourTransform,
    "identity": IdentityTransform,
}
_SIZED: dict[str, Callable[[int], AnyTransform]] = {"bucket": BucketTransform, "truncate": TruncateTransform}
_KNOWN = ["year", "month", "day", "hour", "identity", *_SIZED]
_SIZE = re.compile("[0-9]{1,10}")
_SIZE_MAX = 2**31 - 1
"""Iceberg keeps it in 32 bits."""


@dataclass(frozen=True)
class Term:
    """A transform, and the column of the schema that it reads."""

    transform: AnyTransform
    column: str
    source_id: int


def parse_term(key: str, text: str, schema: Schema) -> Term:
    """Reads one term and looks its column up; what does not fit is refused in the name of `key`."""
    transform, column = _read(key, text.strip())
    try:
        source = schema.find_field(column, case_sensitive=True)
    except ValueError:
        raise unknown_column(key, text, column, schema) from None
    if not transform.can_transform(source.field_type):
        raise ConfigError(
            f"{key}: {text!r}: {transform} cannot be applied to {column} of type {source.field_type}",
            _fitting(transform),
        )
    if (repeated := _repeated(schema, column)) is not None:
        raise ConfigError(f"{key}: {text!r}: {column} is inside {repeated}, of which a row has several or none")
    return Term(transform, column, source.field_id)


def _read(key: str, text: str) -> tuple[AnyTransform, str]:
    call = _CALL.fullmatch(text)
    if call is None:
        return IdentityTransform(), unquoted(text)
    name, arguments = call[1].lower(), [unquoted(argument.strip()) for argument in call[2].split(",")]
    if (plain := _PLAIN.get(name)) is not None:
        if len(arguments) != 1 or not arguments[0]:
            raise ConfigError(f"{key}: {text!r}: {name} takes one column")
        return plain(), arguments[0]
    if (sized := _SIZED.get(name)) is not None:
        if len(arguments) != 2 or not _SIZE.fullmatch(arguments[0]) or not 1 <= int(arguments[0]) <= _SIZE_MAX:
            raise ConfigError(f"{key}: {text!r}: {name} takes a whole number and a column")
        return sized(int(arguments[0])), arguments[1]
    near = difflib.get_close_matches(name, _KNOWN, 1)
    raise ConfigError(
        f"{key}: {text!r}: unknown transform {name!r}; known are {', '.join(_KNOWN)}",
        f"did you mean {near[0]}?" if near else "",
    )


def unquoted(name: str) -> str:
    """A name without the backquotes around it; one inside of it is written twice."""
    return name[1:-1].replace("``", "`") if len(name) > 1 and name[0] == name[-1] == "`" else name


def quoted(name: str) -> str:
    """The name as SQL takes it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def _fitting(transform: AnyTransform) -> str:
    match transform:
        case HourTransform():
            return "hour takes a timestamp"
        case YearTransform() | MonthTransform() | DayTransform():
            return f"{transform} takes a date or a timestamp"
        case TruncateTransform():
            return "truncate takes a whole number, a decimal, a text or bytes"
        case BucketTransform():
            return "bucket takes anything but booleans, floating numbers and nested columns"
        case _:
            return "take a plain column, or a field of a struct"


def _repeated(schema: Schema, column: str) -> str | None:
    """The list or map that the column is inside of, if any."""
    path = column.split(".")
    for length in range(1, len(path)):
        outer = ".".join(path[:length])
        try:
            kind = schema.find_type(outer)
        except ValueError:
            continue  # a name that itself has a dot in it
        if not kind.is_struct:
            return outer
    return None


def unknown_column(key: str, text: str, column: str, schema: Schema) -> ConfigError:
    """Says which columns there are, and which one may have been meant."""
    names = [field.name for field in schema.fields]
    near = difflib.get_close_matches(column, schema.column_names, 1)
    return ConfigError(
        f"{key}: {text!r}: there is no column {column!r}; the columns are {', '.join(names)}",
        f"did you mean {near[0]}?" if near else "",
    )


def terms_in(fields: Sequence[str], pattern: re.Pattern[str], key: str, remedy: str) -> Iterator[re.Match[str]]:
    """The fields, each read by a pattern that knows what may stand behind a term."""
    for text in fields:
        match = pattern.fullmatch(text)
        if match is None:
            raise ConfigError(f"{key}: cannot read {text!r}", remedy)
        yield match
