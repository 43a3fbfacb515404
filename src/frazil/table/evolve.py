"""Evolving a table to what a pipeline declares: new columns, and wider types of those that are there.

It happens by a commit of its own, before the first file that has the new columns. Old rows have null in them. What
is inside of columns evolves as they do, but for the keys of maps. Nothing is ever taken away: a column that is no
longer declared stays, and is null in new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

Path = tuple[str, ...]
"""The names on the way to a column, which are element for what is in a list, and value for what is in a map."""


@dataclass(frozen=True)
class Change:
    """One column, or what is in a list or a map, as it is declared."""

    parents: Path
    column: NestedField

    @property
    def path(self) -> Path:
        return (*self.parents, self.column.name)

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True)
class Evolution:
    """What a table lacks to take the rows of a pipeline."""

    adds: tuple[Change, ...] = ()
    widens: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.adds or self.widens)

    @property
    def names(self) -> list[str]:
        return [each.name for each in (*self.adds, *self.widens)]

    @property
    def is_plain(self) -> bool:
        """Whether it is nothing but new columns of the table itself."""
        return not self.widens and not any(each.parents for each in self.adds)

    def of(self, actual: Schema) -> Schema:
        """The table's columns after it; new ones may be null, whatever is declared, for the rows that are there."""
        struct = self._grown((), actual.as_struct(), count(actual.highest_field_id + 1).__next__)
        assert isinstance(struct, StructType)
        return Schema(*struct.fields, identifier_field_ids=actual.identifier_field_ids)

    def _grown(self, path: Path, kind: IcebergType, next_id: Callable[[], int]) -> IcebergType:
        match kind:
            case StructType():
                kept = [
                    each.model_copy(
                        update={"field_type": self._grown((*path, each.name), each.field_type, next_id)}
                    )
                    for each in kind.fields
                ]
                new = [
                    each.column.model_copy(update={"required": False}) for each in self.adds if each.parents == path
                ]
                return StructType(*kept, *assign_fresh_schema_ids(Schema(*new), next_id).fields)
            case ListType():
                element = self._grown((*path, "element"), kind.element_type, next_id)
                return ListType(kind.element_id, element, kind.element_required)
            case MapType():
                value = self._grown((*path, "value"), kind.value_type, next_id)
                return MapType(kind.key_id, kind.key_type, kind.value_id, value, kind.value_required)
        wider = {each.path: each.column.field_type for each in self.widens}
        return wider.get(path, kind)


def plan_evolution(declared: Schema, actual: Schema) -> Evolution:
    """Compares columns by name, capitals aside."""
    return Evolution(
        tuple(_new((), declared.as_struct(), actual.as_struct())),
        tuple(_wider((), declared.as_struct(), actual.as_struct())),
    )


def _new(path: Path, declared: IcebergType, actual: IcebergType) -> Iterator[Change]:
    if isinstance(declared, StructType) and isinstance(actual, StructType):
        known = {each.name.lower() for each in actual.fields}
        yield from (Change(path, each) for each in declared.fields if each.name.lower() not in known)
    for name, wished, found in _pairs(declared, actual):
        yield from _new((*path, name), wished, found)


def _wider(path: Path, declared: IcebergType, actual: IcebergType) -> Iterator[Change]:
    if declared != actual and widens(actual, declared):
        yield Change(path[:-1], NestedField(1, path[-1], declared, required=False))
    for name, wished, found in _pairs(declared, actual):
        yield from _wider((*path, name), wished, found)


def _pairs(declared: IcebergType, actual: IcebergType) -> Iterator[tuple[str, IcebergType, IcebergType]]:
    """What is inside of both."""
    match declared, actual:
        case StructType(), StructType():
            found = {each.name: each.field_type for each in actual.fields}
            yield from (
                (each.name, each.field_type, found[each.name]) for each in declared.fields if each.name in found
            )
        case ListType(), ListType():
            yield "element", declared.element_type, actual.element_type
        case MapType(), MapType():
            yield "value", declared.value_type, actual.value_type


def widens(narrow: IcebergType, wide: IcebergType) -> bool:
    """Whether Iceberg reads values of the one type as values of the other."""
    match narrow, wide:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return narrow.scale == wide.scale and narrow.precision <= wide.precision
        case _:
            return False
