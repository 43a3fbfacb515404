"""Whether files of a former schema and partition spec are read as they were meant, now that the table has others.

Iceberg finds a column by its id: one that was renamed keeps its values, one that was dropped loses them by the
user's own wish, one that was dropped and added again under the same name is another one and empty.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from frazil.protocol.layout import Former, Layout
from frazil.table.evolve import widens


def former(layout: Layout, schema: Schema | None, spec: PartitionSpec | None, current: Schema) -> Former:
    """What a table of the current schema can tell of files of this one; None is what it no longer remembers."""
    if schema is None:
        return Former(layout, f"the table no longer knows schema {layout.schema_id}")
    if spec is None:
        return Former(layout, f"the table no longer knows partition spec {layout.spec_id}")
    then, now = index_by_id(schema), index_by_id(current)
    kept = {i for i, field in then.items() if i in now and now[i].field_type == field.field_type}
    problems = [*_problems("", schema.fields, current.fields), *_partition_problems(spec, kept)]
    return Former(layout, "; ".join(problems), frozenset(then.keys() - kept))


def _partition_problems(spec: PartitionSpec, kept: set[int]) -> Iterator[str]:
    """Partition values stand in the metadata, in the type that their column has now."""
    for field in spec.fields:
        if field.source_id not in kept:
            yield f"they are partitioned by {field.name}, whose column is gone or has another type"


def _problems(path: str, written: tuple[NestedField, ...], current: tuple[NestedField, ...]) -> Iterator[str]:
    """Columns of the table that files with these ones cannot fill."""
    by_id = {field.field_id: field for field in written}
    for field in current:
        name, own = f"{path}{field.name}", by_id.get(field.field_id)
        if own is None:
            if field.required and field.initial_default is None:
                yield f"they have no column {name}, which is required now"
            continue
        if field.required and not own.required:
            yield f"their column {name} may be null, which it may not be now"
        yield from _type_problems(name, own.field_type, field.field_type)


def _type_problems(name: str, written: IcebergType, current: IcebergType) -> Iterator[str]:
    match written, current:
        case StructType(), StructType():
            yield from _problems(f"{name}.", written.fields, current.fields)
        case ListType(), ListType():
            yield from _problems(f"{name}.", (written.element_field,), (current.element_field,))
        case MapType(), MapType():
            inner = (written.key_field, written.value_field), (current.key_field, current.value_field)
            yield from _problems(f"{name}.", *inner)
        case _ if written != current and not widens(written, current):
            yield f"their column {name} is {written}, which cannot be read as {current}"
