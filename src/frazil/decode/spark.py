"""Decoded rows as Spark's Arrow takes them, for pipelines with SQL between decoding and writing.

UUID                  text, as Iceberg's Spark shows it
FIXED                 BINARY
ARRAY                 with 32-bit offsets: Spark takes no others
TIME, nanoseconds     refused: Spark 4.1 has a TIME but does not take it from Arrow, and no nanoseconds
a dot or a backquote  refused in a column's name: PySpark cannot hand such a column to Python
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from frazil.errors import ConfigError
from frazil.uuids import texts_of_uuids


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the rows that `as_spark` makes of rows with this one."""
    for name in schema.names:
        if "`" in name or "." in name:
            raise ConfigError(
                f"column {name}: PySpark cannot hand over a column with a dot or a backquote in its name",
                "rename the column, or do without transform.sql",
            )
    return pa.schema([each.with_type(_spark_type(each.type, each.name)) for each in schema])


def as_spark(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the types of `spark_schema`."""
    columns = [
        column if column.type == each.type else _spark_array(column, each.type)
        for column, each in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _spark_type(kind: pa.DataType, column: str) -> pa.DataType:
    if pt.is_time(kind) or (pt.is_timestamp(kind) and kind.unit == "ns"):
        name = "TIME" if pt.is_time(kind) else "nanosecond timestamp"
        raise ConfigError(
            f"column {column}: Spark takes no {name}, so that transform.sql cannot read it",
            "declare the column as STRING (or TIMESTAMP, which cuts off nanoseconds), or do without transform.sql",
        )
    if isinstance(kind, pa.UuidType):
        return pa.string()
    if pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_struct(kind):
        return pa.struct([each.with_type(_spark_type(each.type, column)) for each in kind])
    if pt.is_map(kind):
        key = kind.key_field.with_type(_spark_type(kind.key_type, column))
        return pa.map_(key, kind.item_field.with_type(_spark_type(kind.item_type, column)))
    if pt.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_spark_type(kind.value_type, column)))
    return kind


def _spark_array(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(values.type, pa.UuidType):
        return texts_of_uuids(values)
    if pt.is_struct(kind):
        inner = [_spark_array(each, field.type) for each, field in zip(values.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=values.is_null())
    if pt.is_map(kind):
        keys, items = _spark_array(values.keys, kind.key_type), _spark_array(values.items, kind.item_type)
        entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
        frame = values.buffers()[:2]
        return pa.Array.from_buffers(kind, len(values), frame, offset=values.offset, children=[entries])
    if pt.is_list(kind):
        frame, items = values.buffers()[:2], _spark_array(values.values, kind.value_type)
        large = pa.large_list(kind.value_field)
        return pa.Array.from_buffers(large, len(values), frame, offset=values.offset, children=[items]).cast(kind)
    return values.cast(kind)
