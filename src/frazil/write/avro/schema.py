"""A table's schema in Avro's words, the way Iceberg's Java writer puts it."""

from __future__ import annotations

from typing import Any

from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_required_bytes

from frazil.errors import SchemaMismatch

_PRIMITIVES: dict[type[IcebergType], Any] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimeType: {"type": "long", "logicalType": "time-micros"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    TimestamptzType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    TimestampNanoType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    TimestamptzNanoType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True},
    UUIDType: {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"},
}


def avro_schema(schema: Schema) -> dict[str, Any]:
    """The schema that stands in the header of a data file."""
    return _Converter().record("table", schema.as_struct())


class _Converter:
    """Knows which named types were spelled out already: Avro wants the name alone from then on."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def record(self, name: str, struct: StructType) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [self._field(each) for each in struct.fields]}

    def _field(self, field: NestedField) -> dict[str, Any]:
        name = make_compatible_name(field.name)
        spelled: dict[str, Any] = {"name": name, "type": self._optional(field), "field-id": field.field_id}
        if name != field.name:
            spelled["iceberg-field-name"] = field.name
        if field.doc:
            spelled["doc"] = field.doc
        if not field.required:
            spelled["default"] = None
        return spelled

    def _optional(self, field: NestedField) -> Any:
        kind = self._type(field)
        return kind if field.required else ["null", kind]

    def _type(self, field: NestedField) -> Any:
        kind = field.field_type
        if isinstance(kind, StructType):
            return self.record(f"r{field.field_id}", kind)
        if isinstance(kind, ListType):
            return {"type": "array", "items": self._optional(kind.element_field), "element-id": kind.element_id}
        if isinstance(kind, MapType):
            return self._map(kind)
        if isinstance(kind, DecimalType):
            return self._once(_decimal(kind))
        if isinstance(kind, FixedType):
            return self._once({"type": "fixed", "name": f"fixed_{len(kind)}", "size": len(kind)})
        if type(kind) not in _PRIMITIVES:
            raise SchemaMismatch(
                f"column {field.name} is of type {kind}, which Avro files cannot hold",
                "choose table.file_format parquet, or leave the column out of the table",
            )
        return self._once(_PRIMITIVES[type(kind)])

    def _map(self, kind: MapType) -> dict[str, Any]:
        """Avro's own maps have text for keys; any other map is a list of pairs."""
        if isinstance(kind.key_type, StringType):
            values = self._optional(kind.value_field)
            return {"type": "map", "values": values, "key-id": kind.key_id, "value-id": kind.value_id}
        pair = StructType(kind.key_field, kind.value_field)
        return {
            "type": "array",
            "items": self.record(f"k{kind.key_id}_v{kind.value_id}", pair),
            "logicalType": "map",
        }

    def _once(self, kind: Any) -> Any:
        if isinstance(kind, str) or "name" not in kind:
            return kind
        if kind["name"] in self._named:
            return kind["name"]
        self._named.add(kind["name"])
        return kind


def _decimal(kind: DecimalType) -> dict[str, Any]:
    return {
        "type": "fixed",
        "name": f"decimal_{kind.precision}_{kind.scale}",
        "size": decimal_required_bytes(kind.precision),
        "logicalType": "decimal",
        "precision": kind.precision,
        "scale": kind.scale,
    }
