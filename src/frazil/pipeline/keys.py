"""The key of a table: columns whose values name a row, by Iceberg's rules for identifier fields."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FixedType, FloatType

from frazil.errors import ConfigError
from frazil.pipeline.terms import unknown_column

_KEY = "table.keys"


def keyed(schema: Schema, keys: Sequence[str]) -> Schema:
    """The same columns with these as the row's key, which is never null; refuses what cannot be one."""
    if not keys:
        raise ConfigError(
            f"{_KEY} is empty: changes need to know which row they are about", f"name a column in {_KEY}"
        )
    require_possible(keys, schema)
    fields = [
        field.model_copy(update={"required": True}) if field.name in keys else field for field in schema.fields
    ]
    return Schema(*fields, identifier_field_ids=[schema.find_field(column).field_id for column in keys])


def require_possible(keys: Sequence[str], schema: Schema) -> None:
    """Refuses columns whose values cannot name a row, for frazil or for those who read the table."""
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
