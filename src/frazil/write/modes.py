"""Which metrics a table wants of each column: `write.metadata.metrics.*`, read as Iceberg's Java library reads it.

Unless a default is set, all columns have bounds of 16 characters, in a table of more than a hundred columns only
the first hundred. Columns the table is sorted by have bounds even where the default gives none. A property for one
column wins over both; a mode that does not exist is as good as not given.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import IcebergType, ListType, MapType, StructType

_DEFAULT = "write.metadata.metrics.default"
_COLUMN = "write.metadata.metrics.column."
_INFERRED_MAX = "write.metadata.metrics.max-inferred-column-defaults"
_INFERRED_MAX_DEFAULT = 100


@dataclass(frozen=True, slots=True)
class Mode:
    """What is recorded of a column: size and counts or nothing, and bounds of at most this length."""

    counts: bool
    bound_length: int = 0


NONE = Mode(counts=False)
COUNTS = Mode(counts=True)
SHORT_BOUNDS = Mode(counts=True, bound_length=16)
FULL = Mode(counts=True, bound_length=sys.maxsize)

_NAMED = {"none": NONE, "counts": COUNTS, "full": FULL}


class Modes:
    """The mode of each column, by field id."""

    def __init__(self, schema: Schema, properties: Mapping[str, str], order: SortOrder) -> None:
        given = properties.get(_DEFAULT)
        inferred_ids = _inferred_ids(schema, properties) if given is None else None
        self._default = SHORT_BOUNDS if given is None else _parsed(given, SHORT_BOUNDS)
        self._by_name: dict[str, Mode] = {}
        if inferred_ids is not None:
            self._by_name = {schema.find_column_name(each) or "": self._default for each in inferred_ids}
            self._default = NONE
        self._schema = schema
        self._by_name |= dict.fromkeys(self._sorted_columns(order), self._sorted_mode())
        for key, text in properties.items():
            if key.startswith(_COLUMN):
                self._by_name[key.removeprefix(_COLUMN)] = _parsed(text, self._default)

    def of(self, field_id: int) -> Mode:
        return self._by_name.get(self._schema.find_column_name(field_id) or "", self._default)

    def _sorted_columns(self, order: SortOrder) -> Iterator[str]:
        for field in order.fields:
            if field.transform.preserves_order and (name := self._schema.find_column_name(field.source_id)):
                yield name

    def _sorted_mode(self) -> Mode:
        return self._default if self._default.bound_length else SHORT_BOUNDS


def _parsed(text: str, otherwise: Mode) -> Mode:
    if named := _NAMED.get(text.lower()):
        return named
    truncated = re.fullmatch(r"truncate\((\d+)\)", text.lower())
    return Mode(True, int(truncated[1])) if truncated and int(truncated[1]) else otherwise


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
