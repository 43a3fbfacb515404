"""Avro files: a header with the schema, then blocks of rows, each with its count, its size and a mark behind it."""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from frazil.pipeline.codecs import check_codec, codec_name
from frazil.table.files import WriteTarget
from frazil.write.avro.rows import encode_rows
from frazil.write.avro.schema import avro_schema
from frazil.write.encode import Sink
from frazil.write.measure import Column, Measure, measured_columns

# Rows are encoded this many at a time; more would leave the processor's caches, fewer would waste calls.
ROWS_AT_ONCE = 8_192

# A block is closed at about this many bytes before compression, as Avro's Java writer does.
BLOCK_BYTES = 64_000

_MAGIC = b"Obj\x01"
_SYNC_LENGTH = 16

_NAMES = {"none": "null", "gzip": "deflate", "snappy": "snappy", "zstd": "zstandard"}

# Iceberg's own choices where a table names no level.
_DEFLATE_LEVEL = 9
_ZSTD_LEVEL = 1

Compress = Callable[[pa.Buffer], bytes]


class Avro:
    """How the Avro files of one table look."""

    name = "avro"
    max_open_files = 32
    footer_bytes_once = 0

    def __init__(self, target: WriteTarget, schema: Schema) -> None:
        check_codec("avro", target.compression, target.compression_level)
        self._schema = schema
        self._columns = measured_columns(schema, target.properties, target.sort_order_json)
        self.arrow_schema: pa.Schema = schema_to_pyarrow(schema)
        codec = codec_name(target.compression)
        self._compress = _compressor(codec, target.compression_level)
        self._metadata = {
            "avro.schema": json.dumps(avro_schema(schema), ensure_ascii=False),
            "avro.codec": _NAMES[codec],
            "iceberg.schema": target.schema_json,
        }

    def encoder(self, sink: Sink, rows: pa.Table) -> AvroEncoder:
        return AvroEncoder(sink, self._schema, self._metadata, self._compress, self._columns)


class AvroEncoder:
    """One Avro file; every table becomes one or more blocks."""

    def __init__(
        self,
        sink: Sink,
        schema: Schema,
        metadata: dict[str, str],
        compress: Compress,
        columns: list[Column],
    ) -> None:
        self._sink = sink
        self._fields = schema.fields
        self._compress = compress
        self._sync = secrets.token_bytes(_SYNC_LENGTH)
        self._measure = Measure(columns)
        sink.write(_header(metadata, self._sync))

    def write(self, rows: pa.Table) -> None:
        for batch in rows.to_batches(max_chunksize=ROWS_AT_ONCE):
            self._write_blocks(encode_rows(self._fields, batch))
        self._measure.add(rows)

    def _write_blocks(self, rows: pa.LargeBinaryArray) -> None:
        offsets = np.frombuffer(rows.buffers()[1], np.int64)[: len(rows) + 1]
        start = 0
        while start < len(rows):
            end = min(len(rows), int(np.searchsorted(offsets, offsets[start] + BLOCK_BYTES)))
            packed = self._compress(rows.buffers()[2].slice(offsets[start], offsets[end] - offsets[start]))
            self._sink.write(_long(end - start) + _long(len(packed)) + packed + self._sync)
            start = end

    def close(self) -> dict[str, Any]:
        return self._measure.metrics()

    def abandon(self) -> None:
        """Nothing to do: nothing is held back."""


def _header(metadata: dict[str, str], sync: bytes) -> bytes:
    entries = b"".join(_text(key) + _text(value) for key, value in metadata.items())
    return _MAGIC + _long(len(metadata)) + entries + _long(0) + sync


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _long(len(encoded)) + encoded


def _long(number: int) -> bytes:
    """A count or a size, which is never negative: doubled, then seven bits a byte, the lowest first."""
    rest = number << 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _compressor(codec: str, level: int | None) -> Compress:
    if codec == "gzip":
        return lambda block: _deflated(block, level or _DEFLATE_LEVEL)
    if codec == "zstd":
        zstd = pa.Codec("zstd", level or _ZSTD_LEVEL)
        return lambda block: bytes(zstd.compress(block))
    if codec == "snappy":
        snappy = pa.Codec("snappy")
        return lambda block: bytes(snappy.compress(block)) + zlib.crc32(block).to_bytes(4, "big")
    return bytes


def _deflated(block: pa.Buffer, level: int) -> bytes:
    """Without zlib's header and checksum."""
    stream = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    return stream.compress(block) + stream.flush()
