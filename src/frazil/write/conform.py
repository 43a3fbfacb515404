"""Bring a batch into the table's shape: its columns, in its order, with its types.

A cast may change how a value is stored, never what it means: `string` becomes `large_string`, another time
zone becomes UTC, an integer becomes a wider one. Text is never parsed into numbers, and a value that does
not fit is refused instead of rounded. The one text that is read is that of a UUID: Spark knows no other way to
show one.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pt

from frazil.errors import SchemaMismatch
from frazil.uuids import uuids_of_texts


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    variable = pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind)
    return bool(variable or pt.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _is_zoned(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.tz is not None)


def _is_naive(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.tz is None)


# (what may arrive, what the table may hold). Whether each value fits is Arrow's checked cast to decide.
_MEANING_KEPT: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]]] = [
    (pt.is_integer, pt.is_integer),
    (pt.is_integer, pt.is_floating),
    (pt.is_integer, pt.is_decimal),
    (pt.is_floating, pt.is_floating),
    (pt.is_decimal, pt.is_decimal),
    (_is_text, _is_text),
    (_is_bytes, _is_bytes),
    (pt.is_boolean, pt.is_boolean),
    (pt.is_date, pt.is_date),
    (pt.is_time, pt.is_time),
    (_is_zoned, _is_zoned),
    (_is_naive, _is_naive),
    (_is_list, _is_list),
    (pt.is_struct, pt.is_struct),
    (pt.is_map, pt.is_map),
    (pt.is_null, lambda _: True),
]


def _storage(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    return kind.value_type if pt.is_dictionary(kind) else kind


def keeps_meaning(arriving: pa.DataType, held: pa.DataType) -> bool:
    """Whether a cast from one type to the other stores the same value in another way."""
    source, target = _storage(arriving), _storage(held)
    if isinstance(held, pa.UuidType) and _is_text(source):
        return True
    if _is_list(source) and _is_list(target):
        return keeps_meaning(source.value_type, target.value_type)
    if pt.is_map(source) and pt.is_map(target):
        return keeps_meaning(source.key_type, target.key_type) and keeps_meaning(source.item_type, target.item_type)
    if pt.is_struct(source) and pt.is_struct(target):
        held_by_name = {each.name: each.type for each in target}
        return all(
            each.name in held_by_name and keeps_meaning(each.type, held_by_name[each.name]) for each in source
        )
    return any(may_arrive(source) and may_hold(target) for may_arrive, may_hold in _MEANING_KEPT)


def _texts_to_uuids(values: pa.Array, held: pa.DataType) -> pa.Array:
    """The array with texts that the table holds as UUIDs read; everything else as it came."""
    if isinstance(held, pa.UuidType) and _is_text(values.type):
        return uuids_of_texts(values, held.storage_type)
    if pt.is_struct(held) and pt.is_struct(values.type):
        names = [each.name for each in values.type]
        inner = [
            _texts_to_uuids(each, held.field(name).type) for name, each in zip(names, values.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(inner, names, mask=values.is_null())
    if _is_list(held) and pt.is_list(values.type):
        items = _texts_to_uuids(values.values, held.value_type)
        return pa.ListArray.from_arrays(values.offsets, items, mask=values.is_null())
    if pt.is_map(held) and pt.is_map(values.type):
        keys, items = _texts_to_uuids(values.keys, held.key_type), _texts_to_uuids(values.items, held.item_type)
        return pa.MapArray.from_arrays(values.offsets, keys, items, mask=values.is_null())
    return values


def _holds_uuids(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.UuidType) or any(_holds_uuids(kind.field(i).type) for i in range(kind.num_fields))


class Conformer:
    """Casts batches to one table's columns; what does not fit is a `SchemaMismatch` that names the column.

    `columns` are the table's own names in table order; `schema` is how its files spell the same columns.
    """

    def __init__(self, table: str, columns: list[str], schema: pa.Schema) -> None:
        self._table = table
        self._columns = columns
        self._schema = schema
        self._seen: pa.Schema | None = None
        self._sources: list[int | None] = []

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows with exactly the table's columns."""
        if self._seen is None or not batch.schema.equals(self._seen):
            self._sources = self._match(batch.schema)
            self._seen = batch.schema
        arrays = [
            pa.nulls(batch.num_rows, held.type) if source is None else self._cast(name, batch.column(source), held)
            for name, source, held in zip(self._columns, self._sources, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _match(self, arriving: pa.Schema) -> list[int | None]:
        """For each column of the table, where it stands in the batch."""
        self._refuse_unknown(arriving)
        return [self._source(name, arriving, held) for name, held in zip(self._columns, self._schema, strict=True)]

    def _refuse_unknown(self, arriving: pa.Schema) -> None:
        unknown = [name for name in arriving.names if name not in self._columns]
        twice = sorted({name for name in arriving.names if arriving.names.count(name) > 1})
        if unknown or twice:
            raise SchemaMismatch(
                f"the batch brings {', '.join(unknown or twice)} "
                f"{'which ' + self._table + ' does not have' if unknown else 'more than once'}",
                "add the column to the table, or leave it out of the decoded schema or the SQL",
                expected=", ".join(self._columns),
                actual=", ".join(arriving.names),
            )

    def _source(self, name: str, arriving: pa.Schema, held: pa.Field) -> int | None:
        position = int(arriving.get_field_index(name))
        if position < 0:
            if held.nullable:
                return None
            raise self._mismatch(name, "is required and missing", held, "no such column")
        if not keeps_meaning(arriving.field(position).type, held.type):
            raise self._mismatch(name, "has another type", held, str(arriving.field(position).type))
        return position

    def _cast(self, name: str, values: pa.Array, held: pa.Field) -> pa.Array:
        if not held.nullable and values.null_count:
            raise self._mismatch(name, "is required", held, f"{values.null_count} nulls")
        if values.type == held.type:
            return values
        try:
            if _holds_uuids(held.type):
                values = _texts_to_uuids(values, held.type)
            return values.cast(held.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as refused:
            raise self._mismatch(name, f"does not fit ({refused})", held, str(values.type)) from refused

    def _mismatch(self, name: str, why: str, held: pa.Field, actual: str) -> SchemaMismatch:
        return SchemaMismatch(
            f"column {name} of {self._table} {why}: the table wants {held.type}, the batch has {actual}",
            "change the decoded schema or cast the column in the pipeline's SQL",
            expected=str(held.type),
            actual=actual,
        )
