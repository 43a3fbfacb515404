"""Where the deletes of a keyed table go, so that they find every row.

An equality delete reaches rows of its own partition spec and partition value only, unless it is written under an
unpartitioned spec: then it reaches them all. So:

    the table has an unpartitioned spec               global: deletes are written under that one
    one spec, and the key says which partition        partition: they go where the new row goes
    one spec, and the source says what rows were      before: they go where the old row was
    anything else                                     refused: some rows could never be deleted

A partitioned table that frazil creates for changes is therefore given an unpartitioned spec to begin with, unless
its key says which partition a row is in. Where rows are their own keys, they are deleted by their places in files,
and none of this matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from frazil.changes import ChangeTarget
from frazil.errors import ConfigError, SchemaMismatch
from frazil.pipeline.keys import is_whole, partitions_by_key

_DELETES_SINCE = 2
_VECTORS_SINCE = 3


def change_target(
    table: str, keys: Sequence[str], schema: Schema, specs: Sequence[PartitionSpec], *, tells_before: bool
) -> ChangeTarget:
    """How changes are written to a table that had these partition specs, if the source tells rows as they were."""
    unpartitioned = [spec for spec in specs if spec.is_unpartitioned()]
    if unpartitioned:
        return ChangeTarget(tuple(keys), "global", unpartitioned[-1].model_dump_json())
    if len(specs) == 1 and partitions_by_key(specs[0], schema, keys):
        return ChangeTarget(tuple(keys), "partition")
    if len(specs) == 1 and tells_before:
        return ChangeTarget(tuple(keys), "before")
    raise ConfigError(
        f"{table}: a row that moves to another partition could not be deleted from the old one: "
        + ("the table had several partition specs" if len(specs) > 1 else "its key does not say which one that is")
        + ", and none of its specs is unpartitioned",
        "let frazil create the table, add the partition columns to table.keys, or use a source with before images",
    )


def whole_row_target(format_version: int) -> ChangeTarget:
    """How changes are written to a table whose rows are their own keys."""
    return ChangeTarget((), whole=True, vectors=format_version >= _VECTORS_SINCE)


def needs_plain_spec(spec: PartitionSpec, schema: Schema, keys: Sequence[str]) -> bool:
    """Whether a new table has to begin with an unpartitioned spec, for its deletes."""
    return bool(keys) and not is_whole(keys) and not partitions_by_key(spec, schema, keys)


def require_same_keys(table: str, keys: Sequence[str], schema: Schema) -> None:
    """Refuses a table that says itself that other columns name its rows."""
    own = schema.identifier_field_names()
    if own and own != set(keys):
        raise SchemaMismatch(
            f"{table}: its identifier fields are {', '.join(sorted(own))}, table.keys says {', '.join(keys)}",
            "name the table's own in table.keys, or ALTER TABLE … SET IDENTIFIER FIELDS",
            expected=", ".join(keys),
            actual=", ".join(sorted(own)),
        )


def require_deletes(table: str, format_version: int) -> None:
    """Refuses a table of a format that knows no deletes of rows."""
    if format_version < _DELETES_SINCE:
        raise ConfigError(
            f"{table} has format version {format_version}, in which no row can be deleted",
            f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '{_DELETES_SINCE}')",
        )


def grow_partition_fields(iceberg: Any, update: Any, spec: PartitionSpec, schema: Schema) -> None:
    """Adds the fields of a spec to an update of a table's partitioning, with their names."""
    expressions = iceberg.expressions.Expressions
    for field in spec.fields:
        transform, column = str(field.transform), schema.find_column_name(field.source_id)
        name, _, size = transform.rstrip("]").partition("[")
        match name:
            case "identity":
                term = expressions.ref(column)
            case "bucket" | "truncate":
                term = getattr(expressions, name)(column, int(size))
            case _:
                term = getattr(expressions, name)(column)
        update.addField(field.name, term)
    update.commit()
