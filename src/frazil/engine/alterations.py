"""What others do to a table's schema while a pipeline lives on it, as the journal tells it."""

from __future__ import annotations

from pyiceberg.schema import Schema

from frazil.engine.assemble import Assembly
from frazil.protocol.entries import EpochBegun, SchemaChanged, TableTouched


def note_alterations(parts: Assembly, begun: EpochBegun) -> None:
    """Notes each table whose schema is another one than that of the last epoch in the journal."""
    known = parts.journal.state.schemas
    for touched in begun.tables:
        old = known.get(touched.uuid)
        if old is not None and touched.schema_id is not None and old != touched.schema_id:
            parts.journal.append(_changed(parts, touched, old, touched.schema_id))


def _changed(parts: Assembly, touched: TableTouched, old: int, new: int) -> SchemaChanged:
    (table,) = [each for each in (parts.anchor, *parts.sides) if each.name == touched.table]
    before, after = table.former_schema(old), table.former_schema(new)
    if before is None or after is None:
        return SchemaChanged(touched.table, old, new)
    return SchemaChanged(touched.table, old, new, _beyond(after, before), _beyond(before, after))


def _beyond(one: Schema, other: Schema) -> tuple[str, ...]:
    """Fields of one schema that the other has not, or knows by another name."""
    names = {one.find_field(name).field_id: name for name in one.column_names}
    known = {other.find_field(name).field_id: name for name in other.column_names}
    return tuple(sorted(name for field_id, name in names.items() if known.get(field_id) != name))
