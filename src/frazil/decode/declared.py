"""What a user declares for JSON, checked: the columns, the one that keeps the rest, the units of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    ListType,
    MapType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from frazil.changes import ChangePlan
from frazil.errors import ConfigError
from frazil.pipeline.schema import parse_schema, render_schema

_TIMESTAMPS = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_NEVER_A_KEY = (BooleanType, StructType, ListType, MapType)
_UNITS = ("s", "ms", "us", "ns")
_DAYS = "d"


def declared_schema(ddl: str, metadata_ddl: str) -> Schema:
    """The declared columns, and the metadata columns behind them."""
    if not ddl.strip():
        raise ConfigError(
            "decode.schema is empty", 'declare the columns, for example schema = "id BIGINT, name STRING"'
        )
    declared = parse_schema(ddl)
    _require_possible_keys(declared)
    if not metadata_ddl:
        return declared
    added = {field.name for field in parse_schema(metadata_ddl).fields}
    taken = added & {field.name.lower() for field in declared.fields}
    if taken:
        raise ConfigError(
            f"decode.schema declares {', '.join(sorted(taken))}, which decode.metadata = true adds",
            "rename the column or set metadata = false",
        )
    return parse_schema(f"{ddl}, {metadata_ddl}")


def require_catch_all(schema: Schema, name: str) -> None:
    """Refuses a catch-all column that cannot take a JSON object, or need not be there."""
    column = next((field for field in schema.fields if field.name == name), None)
    if column is None:
        raise ConfigError(
            f'decode.catch_all = "{name}" is not a column of decode.schema', f"declare it there: {name} STRING"
        )
    if column.required or not isinstance(column.field_type, StringType):
        raise ConfigError(
            f"decode.catch_all: column {render_schema(Schema(column))} cannot keep what is not declared",
            f"declare it as {name} STRING, without NOT NULL: it is null when there is nothing to keep",
        )


def epoch_units(
    schema: Schema, told: str | Mapping[str, str] | None, changes: ChangePlan | None = None
) -> dict[str, str]:
    """What a number counts in each timestamp column, by the column's path."""
    leaves = list(_leaves("", schema.as_struct()))
    if changes is not None and changes.envelope == "debezium":
        return _debezium_units(leaves, told)
    columns = [path for path, kind in leaves if isinstance(kind, _TIMESTAMPS)]
    return _told_units(columns, dict.fromkeys(columns, told) if isinstance(told, str) else dict(told or {}))


def _debezium_units(
    leaves: Sequence[tuple[str, IcebergType]], told: str | Mapping[str, str] | None
) -> dict[str, str]:
    """Debezium counts days, and microseconds unless told otherwise; points in time it writes as texts."""
    counted = [path for path, kind in leaves if isinstance(kind, (TimestampType, TimestampNanoType, TimeType))]
    of_all = told if isinstance(told, str) else "us"
    named = {} if told is None or isinstance(told, str) else told
    columns = [path for path, kind in leaves if isinstance(kind, (*_TIMESTAMPS, TimeType))]
    days = {path: _DAYS for path, kind in leaves if isinstance(kind, DateType)}
    return _told_units(columns, {**dict.fromkeys(counted, of_all), **named}) | days


def _told_units(columns: Sequence[str], units: Mapping[str, str]) -> dict[str, str]:
    for path, unit in units.items():
        if path not in columns:
            raise ConfigError(
                f"decode.epoch_unit names {path}, which is not a timestamp column",
                f"name one of {', '.join(columns) or 'none: there is no timestamp column'}",
            )
        if unit not in _UNITS:
            raise ConfigError(f'decode.epoch_unit: "{unit}" is not a unit', f"use {', '.join(_UNITS)}")
    return {path: str(unit) for path, unit in units.items()}


def _leaves(path: str, kind: IcebergType) -> Iterator[tuple[str, IcebergType]]:
    """Every plain type with its path; what a list or a map holds has the path of the list or map."""
    match kind:
        case StructType():
            for field in kind.fields:
                yield from _leaves(f"{path}.{field.name}" if path else field.name, field.field_type)
        case ListType():
            yield from _leaves(path, kind.element_type)
        case MapType():
            yield from _leaves(path, kind.key_type)
            yield from _leaves(path, kind.value_type)
        case _:
            yield path, kind


def _require_possible_keys(schema: Schema) -> None:
    for path, kind in _maps("", schema.as_struct()):
        if isinstance(kind.key_type, _NEVER_A_KEY):
            raise ConfigError(
                f"column {path}: a JSON object has no keys of type {kind.key_type}", "declare MAP<STRING, …>"
            )


def _maps(path: str, kind: IcebergType) -> Iterator[tuple[str, MapType]]:
    match kind:
        case StructType():
            for field in kind.fields:
                yield from _maps(f"{path}.{field.name}" if path else field.name, field.field_type)
        case ListType():
            yield from _maps(path, kind.element_type)
        case MapType():
            yield path, kind
            yield from _maps(path, kind.value_type)
        case _:
            return
