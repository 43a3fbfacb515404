"""What a Delta table says of itself once it has evolved.

Wider types are a feature of their own: each change of a type is noted beside the column, the table lists the
feature, and whoever does not know it reads the table no more. Features that older versions of Delta's protocol
stood for by their number alone are then listed by name.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.schema import Field
from pyiceberg.schema import Schema

from frazil.table.delta.features import MAX_COLUMN_ID, WIDENS, is_mapped, with_features
from frazil.table.delta.schema import PHYSICAL_ID, PHYSICAL_NAME, write_schema
from frazil.table.evolve import Change, Evolution, Path

TYPE_CHANGES = "delta.typeChanges"
_NO_ZONE = "timestamp_ntz"


def evolve_actions(name: str, table: DeltaTable, evolution: Evolution) -> list[dict[str, Any]]:
    """The new account of the table, and of what its readers and writers have to know."""
    metadata, protocol = table.metadata(), table.protocol()
    configuration: dict[str, Any] = dict(metadata.configuration)
    struct = json.loads(table.schema().to_json())
    new = [_add(struct, name, change) for change in evolution.adds]
    for change in evolution.widens:
        _widen(struct, change.path, _told(name, change)["type"])
    if is_mapped(configuration):
        configuration[MAX_COLUMN_ID] = str(_number(new, int(configuration.get(MAX_COLUMN_ID) or 0)))
    if evolution.widens:
        configuration[WIDENS] = "true"
    needed = {"typeWidening"} if evolution.widens else set[str]()
    needed |= {"timestampNtz"} if _NO_ZONE in json.dumps([each["type"] for each in new]) else set()
    told: dict[str, Any] = {
        "id": str(metadata.id),
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(struct, separators=(",", ":")),
        "partitionColumns": metadata.partition_columns,
        "configuration": configuration,
        "createdTime": metadata.created_time,
    }
    actions = [{"metaData": {key: value for key, value in told.items() if value is not None}}]
    if lifted := with_features(protocol, needed):
        actions.append({"protocol": lifted})
    return actions


def new_columns(name: str, evolution: Evolution) -> list[Field]:
    """As delta-rs takes them."""
    told, _ = write_schema(name, evolution.of(Schema()), [])
    return list(DeltaSchema.from_json(told).fields)


def _told(name: str, change: Change) -> dict[str, Any]:
    """The column in Delta's terms; it may be null, for the rows that are there."""
    told, _ = write_schema(name, Schema(change.column.model_copy(update={"required": False})), [])
    (field,) = json.loads(told)["fields"]
    return dict(field)


def _add(struct: Any, name: str, change: Change) -> dict[str, Any]:
    for step in change.parents:
        struct = _Inside.of(struct, step).kind
    struct["fields"].append(field := _told(name, change))
    return field


def _widen(struct: Any, path: Path, kind: str) -> None:
    """The column that it is in notes what was widened; of what is in lists and maps, also the way to it."""
    column, way, inside = struct, list[str](), _Inside.of(struct, path[0])
    for step in path:
        inside = _Inside.of(struct, step)
        column, way = (inside.holder, []) if inside.key == "type" else (column, [*way, step])
        struct = inside.kind
    change = {"toType": kind, "fromType": struct, **({"fieldPath": ".".join(way)} if way else {})}
    column["metadata"][TYPE_CHANGES] = [*column["metadata"].get(TYPE_CHANGES, []), change]
    inside.holder[inside.key] = kind


@dataclass(frozen=True)
class _Inside:
    """Where a type stands that is inside of another."""

    holder: dict[str, Any]
    key: str

    @classmethod
    def of(cls, kind: Any, step: str) -> _Inside:
        if kind["type"] == "struct":
            return cls(next(each for each in kind["fields"] if each["name"] == step), "type")
        return cls(kind, f"{step}Type")

    @property
    def kind(self) -> Any:
        return self.holder[self.key]


def _number(fields: list[dict[str, Any]], highest: int) -> int:
    """Gives new columns the names and numbers that files have for them; returns the highest number."""
    for field in fields:
        highest += 1
        field["metadata"] |= {PHYSICAL_ID: highest, PHYSICAL_NAME: f"col-{uuid.uuid4()}"}
        highest = _number_inside(field["type"], highest)
    return highest


def _number_inside(kind: Any, highest: int) -> int:
    if isinstance(kind, str):
        return highest
    highest = _number(kind.get("fields", []), highest)
    for inner in ("elementType", "keyType", "valueType"):
        highest = _number_inside(kind.get(inner, ""), highest)
    return highest
