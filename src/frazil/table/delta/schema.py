"""Between Delta's schema and the columns that frazil writes, in Iceberg's terms.

A partition column that Delta computes from another one, such as a day from a timestamp, is no column of rows: it
is a partition field with a transform, and its value stands in the folder's name and in the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, zip_longest
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from frazil.errors import ConfigError, SchemaMismatch
from frazil.pipeline.partition import parse_partition
from frazil.table.files import StoredAs

GENERATED = "delta.generationExpression"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
PHYSICAL_ID = "delta.columnMapping.id"

_SIMPLE: dict[str, IcebergType] = {
    "string": StringType(),
    "long": LongType(),
    "integer": IntegerType(),
    "float": FloatType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_NARROW = {"byte": 8, "short": 16}
"""In a table that is there; frazil makes none."""
_NAMES = {kind: name for name, kind in _SIMPLE.items()}

# What Spark computes a partition column by, so that it can also skip partitions by the source column.
_COMPUTED: tuple[tuple[TimeTransform[Any], str, str], ...] = (
    (YearTransform(), "integer", "YEAR({0})"),
    (MonthTransform(), "string", "DATE_FORMAT({0}, 'yyyy-MM')"),
    (DayTransform(), "date", "CAST({0} AS DATE)"),
    (HourTransform(), "string", "DATE_FORMAT({0}, 'yyyy-MM-dd-HH')"),
)

_UNNAMEABLE = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Delta does not have in names without column mapping."""


@dataclass(frozen=True)
class Columns:
    """A Delta table's columns, as frazil writes them."""

    schema: Schema
    """without those that Delta computes"""
    spec: PartitionSpec
    """one field for each partition column, under its name"""
    stored: Mapping[int, StoredAs] = field(default_factory=dict)
    """by field id, those that files have otherwise"""
    partition_keys: tuple[str, ...] = ()
    """what the log calls each partition column"""

    @property
    def partition_columns(self) -> list[str]:
        return [field.name for field in self.spec.fields]

    @property
    def in_folders(self) -> tuple[str, ...]:
        """Columns of the rows whose values stand in the folder's name alone."""
        return tuple(each.name for each in self.spec.fields if isinstance(each.transform, IdentityTransform))

    @property
    def stored_spec(self) -> PartitionSpec:
        """The same partitioning under the names that folders have."""
        named = zip(self.spec.fields, self.partition_keys, strict=True)
        return PartitionSpec(*(each.model_copy(update={"name": key}) for each, key in named))

    def partition_of(self, values: Sequence[str | None]) -> dict[str, str | None]:
        """A file's partition by the names that users know."""
        return dict(zip(self.partition_columns, values, strict=True))

    def stored_name(self, column: NestedField) -> str:
        """What files and statistics call it."""
        return self.stored[column.field_id].name if column.field_id in self.stored else column.name


def read_columns(
    table: str, schema_json: str, partition_columns: Sequence[str], *, is_mapped: bool = False
) -> Columns:
    """The columns of a table that is there; refuses those that frazil cannot write.

    `is_mapped` tells whether files have the names that the schema keeps for them.
    """
    told = json.loads(schema_json)["fields"]
    computed = {each["name"]: each["metadata"][GENERATED] for each in told if GENERATED in each.get("metadata", {})}
    strangers = sorted(computed.keys() - set(partition_columns))
    if strangers:
        raise ConfigError(
            f"{table}: column {strangers[0]} is computed by Delta, as {computed[strangers[0]]}",
            "frazil computes partition columns only: drop the expression, and compute it in transform.sql",
        )
    reading = _Reading(table, is_mapped)
    schema = Schema(*reading.fields("", [each for each in told if each["name"] not in computed]))
    spec = PartitionSpec(
        *(
            _partition_field(table, number, name, computed.get(name), schema)
            for number, name in enumerate(partition_columns)
        )
    )
    _require_spellable(table, schema, spec)
    keys = {each["name"]: each["metadata"][PHYSICAL_NAME] if is_mapped else each["name"] for each in told}
    return Columns(schema, spec, reading.stored, tuple(keys[name] for name in partition_columns))


def write_schema(table: str, schema: Schema, partition: Sequence[str]) -> tuple[str, list[str]]:
    """Delta's schema of a new table, as JSON, and its partition columns."""
    spec = parse_partition(partition, schema)
    _require_spellable(table, schema, spec)
    told = [_told(table, field.name, field) for field in schema.fields]
    for each in spec.fields:
        source = schema.find_column_name(each.source_id) or ""
        if not isinstance(each.transform, IdentityTransform):
            told.append(_computed(table, each, source))
        elif each.name != source:
            raise ConfigError(
                f"table.partition: {source} AS {each.name}: a Delta table is partitioned by a column itself",
                f"write {source}",
            )
    names = [each["name"] for each in told]
    for name in names:
        if _UNNAMEABLE.search(name):
            raise ConfigError(
                f"{table}: {name!r} is no column's name in Delta, which has no ,;{{}}()= and no space in names",
                "give the column another name in decode.schema or transform.sql",
            )
    return json.dumps({"type": "struct", "fields": told}), [field.name for field in spec.fields]


def _computed(table: str, field: PartitionField, source: str) -> dict[str, Any]:
    known = [(kind, form) for transform, kind, form in _COMPUTED if transform == field.transform]
    if not known or "." in source:
        raise ConfigError(
            f"table.partition: {table} is a Delta table, and those cannot be partitioned by {field.transform} of "
            f"{source}",
            "name a column, or year, month, day or hour of a column of times",
        )
    ((kind, form),) = known
    metadata = {GENERATED: form.format(source)}
    return {"name": field.name, "type": kind, "nullable": True, "metadata": metadata}


def _partition_field(table: str, number: int, name: str, expression: str | None, schema: Schema) -> PartitionField:
    field_id = PARTITION_FIELD_ID_START + number
    if expression is None:
        return PartitionField(schema.find_field(name).field_id, field_id, IdentityTransform(), name)
    for transform, _, form in _COMPUTED:
        found = re.fullmatch(_pattern(form), expression.strip())
        if found and found[1] in {field.name for field in schema.fields}:
            return PartitionField(schema.find_field(found[1]).field_id, field_id, transform, name)
    raise ConfigError(
        f"{table}: its partition column {name} is computed as {expression}, which frazil does not know",
        "known are " + ", ".join(form.format("column") for _, _, form in _COMPUTED),
    )


def _pattern(form: str) -> str:
    """Case matters inside of quotes alone: HH is not hh."""
    outside, inside = form.split("'")[::2], form.split("'")[1::2]
    loose = [re.escape(part).replace(r"\{0\}", r"`?(\w+)`?").replace(r"\ ", r"\s*") for part in outside]
    exact = [f"'{re.escape(part)}'" for part in inside]
    return "".join(f"(?i:{a}){b}" for a, b in zip_longest(loose, exact, fillvalue=""))


def _require_spellable(table: str, schema: Schema, spec: PartitionSpec) -> None:
    """Refuses partitions whose values have no one text that all readers take for the same value."""
    for each in spec.fields:
        if isinstance(kind := schema.find_type(each.source_id), BinaryType | FloatType | DoubleType):
            raise ConfigError(
                f"{table} is partitioned by {each.name}, which is {kind}: readers disagree on its values",
                "partition the table by another column",
            )


class _Reading:
    """Delta's fields in Iceberg's terms, each with a number of its own."""

    def __init__(self, table: str, is_mapped: bool) -> None:
        self.stored: dict[int, StoredAs] = {}
        self._table = table
        self._is_mapped = is_mapped
        self._ids = count(1)

    def fields(self, path: str, told: Iterable[Mapping[str, Any]]) -> list[NestedField]:
        return [self._field(f"{path}{each['name']}", each) for each in told]

    def _field(self, path: str, told: Mapping[str, Any]) -> NestedField:
        field_id, name = next(self._ids), told["name"]
        if self._is_mapped:
            metadata = told["metadata"]
            self.stored[field_id] = StoredAs(metadata[PHYSICAL_NAME], metadata[PHYSICAL_ID])
        kind = self._type(path, field_id, name, told["type"])
        return NestedField(field_id, name, kind, required=not told["nullable"])

    def _type(self, path: str, field_id: int, name: str, told: Any) -> IcebergType:
        """Of the field with this id, which has this name in files unless they have another."""
        if isinstance(told, str):
            if decimal := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", told):
                return DecimalType(int(decimal[1]), int(decimal[2]))
            if bits := _NARROW.get(told):
                self.stored[field_id] = replace(self.stored.get(field_id, StoredAs(name)), bits=bits)
                return IntegerType()
            if told in _SIMPLE:
                return _SIMPLE[told]
        else:
            match told["type"]:
                case "struct":
                    return StructType(*self.fields(f"{path}.", told["fields"]))
                case "array":
                    element_id, element = self._inner(path, "element", told["elementType"])
                    return ListType(element_id, element, element_required=not told["containsNull"])
                case "map":
                    key_id, key = self._inner(path, "key", told["keyType"])
                    value_id, value = self._inner(path, "value", told["valueType"])
                    return MapType(key_id, key, value_id, value, value_required=not told["valueContainsNull"])
        raise SchemaMismatch(
            f"{self._table}: column {path} is {told}, which frazil cannot write",
            "leave it out of the table, or use another type",
            expected=", ".join([*_SIMPLE, *_NARROW, "decimal", "struct", "array", "map"]),
            actual=str(told),
        )

    def _inner(self, path: str, name: str, told: Any) -> tuple[int, IcebergType]:
        field_id = next(self._ids)
        return field_id, self._type(f"{path}.{name}", field_id, name, told)


def _told(table: str, path: str, field: NestedField) -> dict[str, Any]:
    kind = _told_type(table, path, field.field_type)
    return {"name": field.name, "type": kind, "nullable": not field.required, "metadata": {}}


def _told_type(table: str, path: str, kind: IcebergType) -> Any:
    match kind:
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case StructType():
            return {"type": "struct", "fields": [_told(table, f"{path}.{f.name}", f) for f in kind.fields]}
        case ListType():
            element = _told_type(table, f"{path}.element", kind.element_type)
            return {"type": "array", "elementType": element, "containsNull": not kind.element_required}
        case MapType():
            return {
                "type": "map",
                "keyType": _told_type(table, f"{path}.key", kind.key_type),
                "valueType": _told_type(table, f"{path}.value", kind.value_type),
                "valueContainsNull": not kind.value_required,
            }
        case _ if kind in _NAMES:
            return _NAMES[kind]
    raise ConfigError(
        f"{table}: column {path} is {kind}, and Delta has no such type",
        "declare it otherwise in decode.schema: STRING or BINARY for what Delta does not know",
    )
