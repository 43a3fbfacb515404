"""Columns as files have them, where that is not as the table's users know them.

A Delta table with column mapping has other names in its files than in its schema, and numbers for them. Integers of
8 and 16 bits, which Delta has and Iceberg has not, are held to their range while rows are cast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from frazil.table.files import StoredAs
from frazil.write.nested import children

Stored = Mapping[int, StoredAs]

_NARROW = {8: pa.int8(), 16: pa.int16()}
_FIELD_ID = "PARQUET:field_id"


def stored_schema(schema: Schema, stored: Stored) -> Schema:
    """The schema with the names that files have."""
    return Schema(*_renamed(schema.as_struct(), stored).fields) if stored else schema


def rows_in_arrow(schema: Schema, stored: Stored) -> pa.Schema:
    """The columns of rows, under the names that users know."""
    plain = schema_to_pyarrow(schema, include_field_ids=False)
    names_alone = {field_id: StoredAs("", bits=each.bits) for field_id, each in stored.items()}
    return _described(plain, schema, names_alone)


def files_in_arrow(schema: Schema, stored: Stored) -> pa.Schema:
    """The same columns as files have them."""
    named = stored_schema(schema, stored)
    return _described(schema_to_pyarrow(named, include_field_ids=False), named, stored)


@dataclass(frozen=True)
class Spelled:
    """Rows under other names, without a copy; Arrow takes them by its C interface."""

    rows: pa.RecordBatch
    schema: pa.Schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        return self.schema.__arrow_c_schema__(), self.rows.__arrow_c_array__()[1]


def spelled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows under the names of a schema that is otherwise the same."""
    if rows.schema.equals(schema):
        return rows
    return pa.Table.from_batches([pa.record_batch(Spelled(batch, schema)) for batch in rows.to_batches()], schema)


def _renamed(struct: StructType, stored: Stored) -> StructType:
    return StructType(
        *(
            NestedField(
                field.field_id,
                stored[field.field_id].name if field.field_id in stored else field.name,
                _renamed_type(field.field_type, stored),
                required=field.required,
            )
            for field in struct.fields
        )
    )


def _renamed_type(kind: IcebergType, stored: Stored) -> IcebergType:
    match kind:
        case StructType():
            return _renamed(kind, stored)
        case ListType():
            return ListType(kind.element_id, _renamed_type(kind.element_type, stored), kind.element_required)
        case MapType():
            key, value = _renamed_type(kind.key_type, stored), _renamed_type(kind.value_type, stored)
            return MapType(kind.key_id, key, kind.value_id, value, kind.value_required)
    return kind


def _described(arrow: pa.Schema, schema: Schema, stored: Stored) -> pa.Schema:
    return pa.schema([_field(held, own, stored) for held, own in zip(arrow, schema.fields, strict=True)])


def _field(held: pa.Field, own: NestedField, stored: Stored) -> pa.Field:
    """The field with its own number and width, and so all that is in it."""
    below = [
        _field(each, child, stored)
        for each, child in zip(_members(held.type), children(own.field_type), strict=True)
    ]
    field = held.with_type(_with_members(held.type, below))
    found = stored.get(own.field_id)
    if found is not None and found.bits is not None:
        field = field.with_type(_NARROW[found.bits])
    if found is not None and found.field_id is not None:
        field = field.with_metadata({_FIELD_ID: str(found.field_id)})
    return field


def _members(kind: pa.DataType) -> list[pa.Field]:
    if pt.is_struct(kind):
        return list(kind)
    if pt.is_large_list(kind):
        return [kind.value_field]
    return [kind.key_field, kind.item_field] if pt.is_map(kind) else []


def _with_members(kind: pa.DataType, members: list[pa.Field]) -> pa.DataType:
    if pt.is_struct(kind):
        return pa.struct(members)
    if pt.is_large_list(kind):
        return pa.large_list(*members)
    return pa.map_(*members) if pt.is_map(kind) else kind
