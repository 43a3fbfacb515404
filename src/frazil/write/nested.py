"""What lies inside structs, lists and maps, without what no row reaches: slots of other slices and under nulls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def plain(rows: Rows) -> Rows:
    """The same rows with bytes for UUIDs: many of Arrow's functions know no extension types inside others."""
    schema = pa.schema([each.with_type(_plain_type(each.type)) for each in rows.schema])
    return rows if schema.equals(rows.schema) else rows.cast(schema)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pt.is_struct(kind):
        return pa.struct([each.with_type(_plain_type(each.type)) for each in kind])
    if pt.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pt.is_map(kind):
        key, value = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_plain_type(key.type)), value.with_type(_plain_type(value.type)))
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def at_path(rows: pa.Table | pa.RecordBatch, path: Sequence[int]) -> Any:
    """The values that positions lead to, through structs; null wherever a struct around them is."""
    top = rows.column(path[0])
    return pc.struct_field(top, list(path[1:])) if path[1:] else top


def elements(lists: pa.LargeListArray) -> tuple[np.ndarray, pa.Array]:
    """Where each list that is not null begins and ends, from 0 on, and all their elements."""
    present = lists.drop_null()
    bounds = present.offsets.to_numpy()
    return bounds - bounds[0], present.values.slice(bounds[0], bounds[-1] - bounds[0])


def entries(maps: pa.MapArray) -> tuple[np.ndarray, pa.Array, pa.Array]:
    """Where each map that is not null begins and ends, from 0 on, and all their keys and values."""
    present = maps.drop_null()
    bounds = present.offsets.to_numpy().astype(np.int64)
    begin, length = bounds[0], bounds[-1] - bounds[0]
    return bounds - begin, present.keys.slice(begin, length), present.items.slice(begin, length)


def children(kind: IcebergType) -> list[NestedField]:
    """The fields right below a type."""
    if isinstance(kind, StructType):
        return list(kind.fields)
    if isinstance(kind, ListType):
        return [kind.element_field]
    return [kind.key_field, kind.value_field] if isinstance(kind, MapType) else []


def leaf_values(fields: Sequence[NestedField], columns: Sequence[pa.Array], field_id: int) -> pa.Array | None:
    """All values of the field with this id, wherever it stands below these columns."""
    for field, values in zip(fields, columns, strict=True):
        if field.field_id == field_id:
            return values
        found = leaf_values(children(field.field_type), _inside(field.field_type, values), field_id)
        if found is not None:
            return found
    return None


def _inside(kind: IcebergType, values: pa.Array) -> Sequence[pa.Array]:
    if isinstance(kind, StructType):
        return [pc.struct_field(values, [position]) for position in range(len(kind.fields))]
    if isinstance(kind, ListType):
        return [elements(values)[1]]
    return entries(values)[1:] if isinstance(kind, MapType) else []
