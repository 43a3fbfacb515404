"""Evolving a table to what a pipeline declares: new columns, and wider types of those that are there.

It happens at a start, by a commit of its own, before the first file that has the new columns. Old rows have null in
them. Nothing is ever taken away: a column that is no longer declared stays, and is null in new rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField


@dataclass(frozen=True)
class Evolution:
    """What a table lacks to take the rows of a pipeline; columns as they are declared."""

    adds: tuple[NestedField, ...] = ()
    widens: tuple[NestedField, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.adds or self.widens)

    @property
    def names(self) -> list[str]:
        return [each.name for each in (*self.adds, *self.widens)]

    def of(self, actual: Schema) -> Schema:
        """The table's columns after it; new ones may be null, whatever is declared, for the rows that are there."""
        wider = {each.name: each.field_type for each in self.widens}
        kept = [
            each.model_copy(update={"field_type": wider.get(each.name, each.field_type)}) for each in actual.fields
        ]
        new = [each.model_copy(update={"required": False}) for each in self.adds]
        return Schema(*kept, *new, identifier_field_ids=actual.identifier_field_ids)


def plan_evolution(declared: Schema, actual: Schema) -> Evolution:
    """Compares columns by name, capitals aside; what is inside of columns has to fit as it is."""
    there = {each.name: each for each in actual.fields}
    known = {name.lower() for name in there}
    adds = [each for each in declared.fields if each.name.lower() not in known]
    wider = [
        each
        for each in declared.fields
        if each.name in there
        and each.field_type != there[each.name].field_type
        and widens(there[each.name].field_type, each.field_type)
    ]
    return Evolution(tuple(adds), tuple(wider))


def widens(narrow: IcebergType, wide: IcebergType) -> bool:
    """Whether Iceberg reads values of the one type as values of the other."""
    match narrow, wide:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return narrow.scale == wide.scale and narrow.precision <= wide.precision
        case _:
            return False
