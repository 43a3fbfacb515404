"""ORC files, with the type attributes by which Iceberg knows its columns again.

Arrow hands each field's metadata to ORC as attributes of its type. Types that ORC does not have are stored as
Iceberg's own writer stores them: a time of day as a long, a UUID as bytes, told apart by an attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyarrow import orc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    FixedType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from frazil.errors import SchemaMismatch
from frazil.pipeline.codecs import check_codec, codec_name
from frazil.table.files import WriteTarget
from frazil.write.bloom import bloom_columns
from frazil.write.encode import Sink
from frazil.write.measure import Column, Measure, measured_columns
from frazil.write.nested import children, elements, entries

# ORC closes a stripe when it has grown to its size, which it checks after each batch. With batches of a whole
# row group and the smallest size, what comes in as one table goes out as one stripe, and the file's size is known.
STRIPE_SIZE = 1

# As Iceberg's own writer has it.
BLOCK_SIZE = 128 * 1024

_MAGIC = b"ORC"

_CODECS = {"gzip": "zlib", "none": "uncompressed"}

_ATTRIBUTES: list[tuple[type[IcebergType] | tuple[type[IcebergType], ...], dict[str, str]]] = [
    (LongType, {"iceberg.long-type": "LONG"}),
    (TimeType, {"iceberg.long-type": "TIME"}),
    (BinaryType, {"iceberg.binary-type": "BINARY"}),
    (FixedType, {"iceberg.binary-type": "FIXED"}),
    (UUIDType, {"iceberg.binary-type": "UUID"}),
    ((TimestampType, TimestamptzType), {"iceberg.timestamp-unit": "MICROS"}),
    ((TimestampNanoType, TimestamptzNanoType), {"iceberg.timestamp-unit": "NANOS"}),
]


class Orc:
    """How the ORC files of one table look."""

    name = "orc"
    # An open file keeps a megabyte for every column or two, and does not give it back before it is closed.
    max_open_files = 8
    footer_bytes_once = 0

    def __init__(self, target: WriteTarget, schema: Schema) -> None:
        check_codec("orc", target.compression, target.compression_level)
        self._columns = measured_columns(schema, target.properties, target.sort_order_json)
        self.arrow_schema: pa.Schema = schema_to_pyarrow(schema)
        self._stored = pa.schema([_stored_field(each) for each in schema.fields])
        codec = codec_name(target.compression)
        self._options = {
            "compression": _CODECS.get(codec, codec),
            "compression_strategy": target.properties.get("write.orc.compression-strategy", "speed").lower(),
            "compression_block_size": BLOCK_SIZE,
            "batch_size": target.row_group_rows,
            "stripe_size": STRIPE_SIZE,
            **_bloom_options(bloom_columns(schema, target.bloom_filters), schema),
        }

    def encoder(self, sink: Sink, rows: pa.Table) -> OrcEncoder:
        return OrcEncoder(sink, self._stored, self._options, self._columns)


class OrcEncoder:
    """One ORC file; every table becomes a stripe, very small ones share one."""

    def __init__(self, sink: Sink, stored: pa.Schema, options: Mapping[str, Any], columns: list[Column]) -> None:
        self._stored = stored
        self._sink = _Shield(sink)
        self._writer = orc.ORCWriter(self._sink, **options)
        self._measure = Measure(columns)
        self._stripes: list[int] = []
        self._waiting_rows = 0

    def write(self, rows: pa.Table) -> None:
        stored = rows.cast(self._stored)
        for name, column, field in zip(stored.column_names, stored.columns, stored.schema, strict=True):
            for chunk in column.chunks:
                _check(name, chunk, field)
        self._waiting_rows += rows.num_rows
        self._watch(lambda: self._writer.write(stored))
        self._measure.add(rows)

    def close(self) -> dict[str, Any]:
        self._watch(self._writer.close)
        return self._measure.metrics() | {"split_offsets": tuple(self._stripes)}

    def abandon(self) -> None:
        self._sink.is_deaf = True
        self._writer.is_open = False  # otherwise pyarrow writes a footer when the writer is collected

    def _watch(self, step: Callable[[], None]) -> None:
        """Does one step of writing, raises what the sink raised meanwhile, and notes where a stripe began."""
        begin = max(len(_MAGIC), self._sink.tell())
        step()
        if self._sink.failure is not None:
            raise self._sink.failure
        if self._waiting_rows and self._sink.tell() > begin:
            self._stripes.append(begin)
            self._waiting_rows = 0


class _Shield:
    """Stands between ORC's writer and the sink: an error that ORC's writer sees ends the whole process."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.failure: BaseException | None = None
        self.is_deaf = False

    def write(self, data: Any) -> int:
        if self.failure is None and not self.is_deaf:
            try:
                self._sink.write(data)
            except BaseException as failure:  # raised again once ORC's writer has returned
                self.failure = failure
        return len(data)

    def tell(self) -> int:
        return self._sink.tell()

    def flush(self) -> None:
        """Nothing to do: a file counts only once it is closed."""

    def close(self) -> None:
        """Nothing to do: the sink belongs to the file."""


def _stored_field(field: NestedField) -> pa.Field:
    if isinstance(field.field_type, UnknownType):
        raise SchemaMismatch(
            f"column {field.name} is of type {field.field_type}, which ORC files cannot hold",
            "choose table.file_format parquet, or leave the column out of the table",
        )
    attributes = {"iceberg.id": str(field.field_id), "iceberg.required": str(field.required).lower()}
    for kind, further in _ATTRIBUTES:
        if isinstance(field.field_type, kind):
            attributes |= further
    if isinstance(field.field_type, FixedType):
        attributes["iceberg.length"] = str(len(field.field_type))
    return pa.field(field.name, _stored_type(field.field_type), not field.required, attributes)


def _stored_type(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_stored_field(each) for each in kind.fields])
    if isinstance(kind, ListType):
        return pa.large_list(_stored_field(kind.element_field))
    if isinstance(kind, MapType):
        return pa.map_(_stored_field(kind.key_field), _stored_field(kind.value_field))
    if isinstance(kind, TimeType):
        return pa.int64()
    if isinstance(kind, UUIDType):
        return pa.binary(16)
    return schema_to_pyarrow(kind)


def _check(name: str, values: pa.Array, field: pa.Field) -> None:
    """Refuses what Arrow would write into a file without a word, although it is wrong there."""
    if not _needs_check(field):
        return
    if not field.nullable and values.null_count:
        raise pa.ArrowInvalid(f"{name} is required and has {values.null_count} nulls")
    if pt.is_timestamp(field.type):
        _check_moments(name, values)
    for child, inside in zip(_fields(field.type), _inside(field.type, values), strict=True):
        _check(f"{name}.{child.name}", inside, child)


def _needs_check(field: pa.Field) -> bool:
    return not field.nullable or pt.is_timestamp(field.type) or any(map(_needs_check, _fields(field.type)))


def _fields(kind: pa.DataType) -> list[pa.Field]:
    if pt.is_struct(kind):
        return list(kind)
    if pt.is_large_list(kind):
        return [kind.value_field]
    # Arrow itself makes sure that no key is null.
    return [kind.key_field.with_nullable(True), kind.item_field] if pt.is_map(kind) else []


def _inside(kind: pa.DataType, values: pa.Array) -> Sequence[pa.Array]:
    if pt.is_struct(kind):
        present = values.drop_null()
        return [pc.struct_field(present, [position]) for position in range(kind.num_fields)]
    if pt.is_large_list(kind):
        return [elements(values)[1]]
    return entries(values)[1:] if pt.is_map(kind) else []


def _check_moments(name: str, values: pa.Array) -> None:
    """Before 1970 Arrow gives ORC a negative fraction of a second; Iceberg reads it as a second too early."""
    early = pc.min(values.view(pa.int64())).as_py()
    if early is None or early >= 0:
        return
    before = values.filter(pc.less(values.view(pa.int64()), 0))
    whole = before.cast(pa.timestamp("s", values.type.tz), safe=False).cast(values.type)
    if pc.any(pc.not_equal(whole, before)).as_py():
        raise SchemaMismatch(
            f"{name} holds a moment before 1970 with a fraction of a second, which ORC files cannot hold exactly",
            "write parquet or avro files, or round the column to seconds in the pipeline's SQL",
            expected="whole seconds before 1970",
        )


def _bloom_options(shares: Mapping[int, float], schema: Schema) -> dict[str, Any]:
    """ORC counts its types from the root down, and has one share of false positives for all of them."""
    if not shares:
        return {}
    numbers = [number for number, field_id in enumerate(_in_order(schema.as_struct()), 1) if field_id in shares]
    return {"bloom_filter_columns": numbers, "bloom_filter_fpp": min(shares.values())}


def _in_order(kind: IcebergType) -> Iterator[int]:
    for each in children(kind):
        yield each.field_id
        yield from _in_order(each.field_type)
