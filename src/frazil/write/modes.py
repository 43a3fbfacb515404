"""Which metrics a table wants of each column: `write.metadata.metrics.*`, read as Iceberg's Java library reads it.

Unless a default is set, all columns have bounds of 16 characters, in a table of more than a hundred columns only
the first hundred. Columns the table is sorted by have bounds even where the default gives none. A property for one
column wins over both; a mode that does not exist is as good as not given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import IcebergType, ListType, MapType, StructType

_DEFAULT = "write.metadata.metrics.default"
_COLUMN = "write.metadata.metrics.column."
_INFERRED_MAX = "write.metadata.metrics.max-inferred-column-defaults"
_INFERRED_MAX_DEFAULT = 100

_NONE = MetricsMode(MetricModeTypes.NONE)
_SHORT_BOUNDS = MetricsMode(MetricModeTypes.TRUNCATE, 16)
_NAMED = {
    "none": _NONE,
    "counts": MetricsMode(MetricModeTypes.COUNTS),
    "full": MetricsMode(MetricModeTypes.FULL),
}


def metrics_modes(schema: Schema, properties: Mapping[str, str], sort_order_json: str) -> dict[int, MetricsMode]:
    """The mode of every field by its id."""
    default = _parsed(properties.get(_DEFAULT), otherwise=_SHORT_BOUNDS)
    by_id: dict[int, MetricsMode] = {}
    if _DEFAULT not in properties and (first := _inferred_ids(schema, properties)) is not None:
        by_id = dict.fromkeys(first, default)
        default = _NONE
    by_id |= dict.fromkeys(_sorted_by(sort_order_json), default if has_bounds(default) else _SHORT_BOUNDS)
    modes = {field_id: by_id.get(field_id, default) for field_id in schema.field_ids}
    for field_id in modes:
        if own := properties.get(f"{_COLUMN}{schema.find_column_name(field_id)}"):
            modes[field_id] = _parsed(own, otherwise=default)
    return modes


def has_bounds(mode: MetricsMode) -> bool:
    return mode.type in (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)


def _parsed(text: str | None, otherwise: MetricsMode) -> MetricsMode:
    mode = (text or "").lower()
    truncated = re.fullmatch(r"truncate\((\d+)\)", mode)
    if truncated and int(truncated[1]):
        return MetricsMode(MetricModeTypes.TRUNCATE, int(truncated[1]))
    return _NAMED.get(mode, otherwise)


def _sorted_by(sort_order_json: str) -> Iterator[int]:
    """Not by a bucket, whose order says nothing about its column's."""
    order = SortOrder.model_validate_json(sort_order_json)
    return (field.source_id for field in order.fields if field.transform.preserves_order)


def _inferred_ids(schema: Schema, properties: Mapping[str, str]) -> list[int] | None:
    """The columns that have metrics without having been asked for; None for all."""
    limit = int(properties.get(_INFERRED_MAX, _INFERRED_MAX_DEFAULT))
    if limit < 0:
        limit = _INFERRED_MAX_DEFAULT
    if _size(schema.as_struct()) <= limit:
        return None
    return list(_widest_first(schema.as_struct()))[:limit]


def _size(kind: IcebergType) -> int:
    """How large Java finds a type: structs count, lists and maps do not, nor the key of a map to a nested type."""
    match kind:
        case StructType():
            own = sum(isinstance(each.field_type, StructType) for each in kind.fields)
            return own + sum(_size(each.field_type) for each in kind.fields)
        case ListType():
            return _size(kind.element_type)
        case MapType():
            key = 0 if kind.key_type.is_primitive and not kind.value_type.is_primitive else _size(kind.key_type)
            return key + _size(kind.value_type)
    return 1


def _widest_first(kind: IcebergType) -> Iterator[int]:
    """The columns of each level before those of the levels below it."""
    match kind:
        case StructType():
            members = [(each.field_id, each.field_type) for each in kind.fields]
        case ListType():
            members = [(kind.element_id, kind.element_type)]
        case MapType():
            members = [(kind.key_id, kind.key_type), (kind.value_id, kind.value_type)]
        case _:
            return
    yield from (field_id for field_id, member in members if member.is_primitive)
    for _, member in members:
        yield from _widest_first(member)
