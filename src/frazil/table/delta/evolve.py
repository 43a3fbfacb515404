"""What a Delta table says of itself once it has evolved.

Wider types are a feature of their own: each change of a type is noted beside the column, the table lists the
feature, and whoever does not know it reads the table no more. Features that older versions of Delta's protocol
stood for by their number alone are then listed by name.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.schema import Field
from pyiceberg.schema import Schema

from frazil.table.delta.features import MAX_COLUMN_ID, WIDENS, is_mapped, with_features
from frazil.table.delta.schema import PHYSICAL_ID, PHYSICAL_NAME, write_schema
from frazil.table.evolve import Evolution

TYPE_CHANGES = "delta.typeChanges"
_NO_ZONE = "timestamp_ntz"


def evolve_actions(name: str, table: DeltaTable, evolution: Evolution) -> list[dict[str, Any]]:
    """The new account of the table, and of what its readers and writers have to know."""
    metadata, protocol = table.metadata(), table.protocol()
    configuration: dict[str, Any] = dict(metadata.configuration)
    fields = json.loads(table.schema().to_json())["fields"]
    new, wider = _told(name, evolution)
    if is_mapped(configuration):
        configuration[MAX_COLUMN_ID] = str(_number(new, int(configuration.get(MAX_COLUMN_ID) or 0)))
    if wider:
        configuration[WIDENS] = "true"
    needed = {"typeWidening"} if wider else set[str]()
    needed |= {"timestampNtz"} if _NO_ZONE in json.dumps([each["type"] for each in new]) else set()
    evolved = [_widened(each, wider[each["name"]]) if each["name"] in wider else each for each in fields]
    told: dict[str, Any] = {
        "id": str(metadata.id),
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [*evolved, *new]}, separators=(",", ":")),
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


def _told(name: str, evolution: Evolution) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """New columns, and the types of wider ones by their names, in Delta's terms."""
    new, _ = write_schema(name, evolution.of(Schema()), [])
    wider, _ = write_schema(name, Schema(*evolution.widens), [])
    return json.loads(new)["fields"], {each["name"]: each["type"] for each in json.loads(wider)["fields"]}


def _widened(told: Mapping[str, Any], kind: str) -> dict[str, Any]:
    changes = told["metadata"].get(TYPE_CHANGES, [])
    change = {"toType": kind, "fromType": told["type"]}
    return {**told, "type": kind, "metadata": {**told["metadata"], TYPE_CHANGES: [*changes, change]}}


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
