"""The key of a table: columns whose values name a row, by Iceberg's rules for identifier fields.

Or the whole row, `["*"]`: then the table is a bag of rows, which has no identifier fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import (
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimeType,
)

from frazil.errors import ConfigError
from frazil.pipeline.terms import unknown_column

if TYPE_CHECKING:
    from frazil.pipeline.spec import PipelineSpec

_KEY = "table.keys"
WHOLE_ROW = "*"

_OF_WHOLE = f'{_KEY} = ["{WHOLE_ROW}"]'
_TELLING = ("debezium", "op-column")
"""Envelopes that tell the whole row that goes."""


def is_whole(keys: Sequence[str]) -> bool:
    """Whether the row is its own key."""
    return WHOLE_ROW in keys


def whole_row_problem(spec: PipelineSpec) -> str | None:
    """Why rows of this pipeline could not be their own keys."""
    envelope = spec.decode.envelope
    if len(spec.table.keys) > 1:
        return f'{_KEY}: "{WHOLE_ROW}" is the whole row and stands alone'
    if envelope not in _TELLING:
        other = "name the columns of the primary key" if envelope == "cockroachdb" else "name the key's columns"
        return (
            f'{_OF_WHOLE}: decode.envelope = "{envelope}" does not tell the whole row that goes: '
            f"{other}, or use envelope {' or '.join(_TELLING)}"
        )
    if spec.decode.metadata:
        return (
            f"{_OF_WHOLE}: a row with its own offset never equals the record that takes it away: "
            "set decode.metadata = false"
        )
    if spec.decode.catch_all is not None:
        return f"{_OF_WHOLE} and decode.catch_all do not go together: declare all columns"
    for name in ("sequence_by", "trust_inserts"):
        if getattr(spec.changes, name):
            return f"{_OF_WHOLE}: changes.{name} has no meaning without key columns: leave it out"
    return None


def keyed(schema: Schema, keys: Sequence[str]) -> Schema:
    """The same columns with these as the row's key, which is never null; refuses what cannot be one.

    With the whole row as its key they stay as they are.
    """
    if not keys:
        raise ConfigError(
            f"{_KEY} is empty: changes need to know which row they are about", f"name a column in {_KEY}"
        )
    require_possible(keys, schema)
    if is_whole(keys):
        return schema
    fields = [
        field.model_copy(update={"required": True}) if field.name in keys else field for field in schema.fields
    ]
    return Schema(*fields, identifier_field_ids=[schema.find_field(column).field_id for column in keys])


def require_possible(keys: Sequence[str], schema: Schema) -> None:
    """Refuses columns whose values cannot name a row, for frazil or for those who read the table."""
    if is_whole(keys):
        _require_comparable(schema)
        return
    for column in keys:
        _require_possible(column, keys, schema)


def partitions_by_key(spec: PartitionSpec, schema: Schema, keys: Sequence[str]) -> bool:
    """Whether a row's key alone says which partition it is in."""
    sources = {field.source_id for field in spec.fields if not isinstance(field.transform, VoidTransform)}
    return sources <= {schema.find_field(column).field_id for column in keys}


def _require_possible(column: str, keys: Sequence[str], schema: Schema) -> None:
    if column not in {field.name for field in schema.fields}:
        if column in schema.column_names:
            raise ConfigError(f"{_KEY}: {column} is inside of a column", "name columns of the table itself")
        raise unknown_column(_KEY, column, column, schema)
    kind = schema.find_type(column)
    if not kind.is_primitive or isinstance(kind, FloatType | DoubleType):
        raise ConfigError(
            f"{_KEY}: {column} is {kind}: two such values cannot be told apart reliably, so it names no row",
            "name columns of whole numbers, decimals, texts, bytes or times",
        )
    if isinstance(kind, FixedType):
        raise ConfigError(
            f"{_KEY}: {column} is {kind}: of several deletes by such values in a file Spark follows only the last, "
            "so that deleted rows would come back",
            "declare it BINARY in a new table",
        )
    if keys.count(column) > 1:
        raise ConfigError(f"{_KEY}: {column} is named twice", "name each column once")


def _require_comparable(schema: Schema) -> None:
    """Refuses columns by which Spark can neither group nor join rows."""
    for field in schema.fields:
        if _holds(field.field_type, MapType):
            raise ConfigError(
                f"{_OF_WHOLE}: {field.name} is {field.field_type}: nobody can tell whether two maps are equal",
                "declare it as an ARRAY of STRUCT<key, value>, or as a STRING of JSON",
            )
        if _holds(field.field_type, TimeType, TimestampNanoType, TimestamptzNanoType):
            raise ConfigError(
                f"{_OF_WHOLE}: {field.name} is {field.field_type}, which Spark cannot read to find rows by it",
                "declare it as STRING, or a TIMESTAMP that counts microseconds",
            )
        if "`" in field.name or "." in field.name:
            raise ConfigError(
                f"{_OF_WHOLE}: PySpark cannot hand over column {field.name}, with a dot or a backquote in its name",
                "rename the column",
            )


def _holds(kind: IcebergType, *unfit: type[IcebergType]) -> bool:
    match kind:
        case StructType():
            return any(_holds(field.field_type, *unfit) for field in kind.fields)
        case ListType():
            return _holds(kind.element_type, *unfit)
    return isinstance(kind, unfit)
