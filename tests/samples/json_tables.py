"""Random schemas, and rows of them as JSON and as what must land, for the decoder and for whole pipelines."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

Drawn = tuple[str, Any]
"""A JSON text, and the Python value that must land."""


@dataclass(frozen=True)
class Kind:
    """A type in DDL, and its values."""

    ddl: str
    values: st.SearchStrategy[Drawn]


def both(write: Callable[[Any], str], land: Callable[[Any], Any] = lambda value: value) -> Callable[[Any], Drawn]:
    return lambda value: (write(value), land(value))


def quoted(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: json.dumps(write(value))


NULL: st.SearchStrategy[Drawn] = st.just(("null", None))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
NANOS = st.integers(-(2**62), 2**62)


def integers(bits: int) -> st.SearchStrategy[Drawn]:
    numbers = st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    styles: list[Callable[[int], str]] = [str, lambda n: f'"{n}"', lambda n: f"{n}.0", lambda n: f"{n}e0"]
    return st.builds(lambda n, style: (style(n), n), numbers, st.sampled_from(styles))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Drawn]:
    digits = st.integers(-(10**precision) + 1, 10**precision - 1)
    numbers = digits.map(lambda n: Decimal(n).scaleb(-scale, None) if precision <= 28 else exact(n, scale))
    styles: list[Callable[[Decimal], str]] = [lambda d: format(d, "f"), lambda d: f'"{d:f}"', lambda d: f"{d:f}"]
    return st.builds(lambda d, style: (style(d), d), numbers, st.sampled_from(styles))


def exact(digits: int, scale: int) -> Decimal:
    sign, absolute = int(digits < 0), abs(digits)
    return Decimal((sign, tuple(map(int, str(absolute))), -scale))


def nanos_text(nanos: int) -> str:
    seconds, rest = divmod(nanos, 10**9)
    return f"{(datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()}.{rest:09d}"


def blob(value: bytes) -> str:
    return base64.b64encode(value).decode()


PLAIN: dict[str, Kind] = {
    kind.ddl: kind
    for kind in [
        Kind("BOOLEAN", st.booleans().map(both(json.dumps))),
        Kind("INT", integers(32)),
        Kind("BIGINT", integers(64)),
        Kind("FLOAT", st.floats(width=32, allow_nan=False, allow_infinity=False).map(both(repr))),
        Kind("DOUBLE", st.floats(allow_nan=False, allow_infinity=False).map(both(repr))),
        Kind("DECIMAL(10,2)", decimals(10, 2)),
        Kind("DECIMAL(23,5)", decimals(23, 5)),
        Kind("DECIMAL(24,0)", decimals(24, 0)),
        Kind("DECIMAL(38,10)", decimals(38, 10)),
        Kind("STRING", TEXT.map(both(json.dumps)) | TEXT.map(both(lambda s: json.dumps(s, ensure_ascii=False)))),
        Kind("BINARY", st.binary(max_size=9).map(both(quoted(blob)))),
        Kind("FIXED(4)", st.binary(min_size=4, max_size=4).map(both(quoted(blob)))),
        Kind("UUID", st.uuids().map(both(quoted(str)))),
        Kind("DATE", st.dates().map(both(quoted(date.isoformat)))),
        Kind("TIME", st.times().map(both(quoted(time.isoformat)))),
        Kind("TIMESTAMP", MOMENTS.map(lambda m: m.replace(tzinfo=UTC)).map(both(quoted(datetime.isoformat)))),
        Kind("TIMESTAMP_NTZ", MOMENTS.map(both(quoted(datetime.isoformat)))),
        Kind("TIMESTAMP_NS", NANOS.map(both(quoted(nanos_text)))),
        Kind("TIMESTAMPTZ_NS", NANOS.map(both(quoted(lambda n: nanos_text(n) + "Z")))),
    ]
}

# What Spark reads from an Iceberg table.
IN_SPARK = [ddl for ddl in PLAIN if ddl not in {"TIME", "TIMESTAMP_NS", "TIMESTAMPTZ_NS"}]


def kinds(plain: list[str], depth: int) -> st.SearchStrategy[Kind]:
    """Types of at most this depth."""
    leaves = st.sampled_from([PLAIN[ddl] for ddl in plain])
    if depth == 0:
        return leaves
    inner = kinds(plain, depth - 1)
    return leaves | inner.map(array) | inner.map(mapping) | st.lists(inner, min_size=1, max_size=3).map(struct)


def array(inner: Kind) -> Kind:
    def put(items: list[Drawn]) -> Drawn:
        return f"[{', '.join(text for text, _ in items)}]", [value for _, value in items]

    return Kind(f"ARRAY<{inner.ddl}>", st.lists(inner.values | NULL, max_size=3).map(put))


def mapping(inner: Kind) -> Kind:
    def put(items: dict[str, Drawn]) -> Drawn:
        text = ", ".join(f"{json.dumps(key)}: {item}" for key, (item, _) in items.items())
        return f"{{{text}}}", [(key, value) for key, (_, value) in items.items()]

    return Kind(f"MAP<STRING, {inner.ddl}>", st.dictionaries(TEXT, inner.values | NULL, max_size=3).map(put))


def struct(inner: list[Kind]) -> Kind:
    def put(items: tuple[Drawn, ...]) -> Drawn:
        text = ", ".join(f'"f{i}": {item}' for i, (item, _) in enumerate(items))
        return f"{{{text}}}", {f"f{i}": value for i, (_, value) in enumerate(items)}

    fields = ", ".join(f"f{i}: {kind.ddl}" for i, kind in enumerate(inner))
    return Kind(f"STRUCT<{fields}>", st.tuples(*(kind.values | NULL for kind in inner)).map(put))


@st.composite
def tables(draw: st.DrawFn, plain: list[str], depth: int = 2, rows: int = 8) -> tuple[str, list[Drawn]]:
    """The DDL of a few columns, and rows of it: the JSON object, and the values by column."""
    columns = draw(st.lists(kinds(plain, depth), min_size=1, max_size=4))
    row = struct(columns).values
    ddl = ", ".join(f"f{i} {kind.ddl}" for i, kind in enumerate(columns))
    return ddl, draw(st.lists(row, min_size=1, max_size=rows))


def plainly(value: Any) -> Any:
    """Values as Arrow and Spark hand them out, in one form: numbers for nanoseconds, texts for UUIDs."""
    match value:
        case dict():
            return {key: plainly(each) for key, each in value.items()}
        case list():
            return [plainly(each) for each in value]
        case tuple():
            return tuple(plainly(each) for each in value)
        case UUID():
            return str(value)
        case bytearray():
            return bytes(value)
        case datetime() if hasattr(value, "value"):
            return value.value
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case float():
            return repr(value)
        case _:
            return value
