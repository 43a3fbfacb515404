"""The columns that describe where a record came from, and the plan and result that all decoders share.

A decoded row is the declared columns followed by the metadata columns. A record that cannot be decoded
becomes a dead letter: the record itself, untouched, beside the reason and the schema it failed.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from frazil.changes import ChangePlan
from frazil.decode.declared import declared_schema, epoch_units, require_catch_all
from frazil.decode.keyed import require_possible_changes
from frazil.errors import ConfigError
from frazil.pipeline.schema import parse_schema
from frazil.records import Records

Format = Literal["json", "raw"]
OnError = Literal["dead-letter", "fail"]
Binary = Literal["base64", "hex"]

# Not plain `_partition`: Iceberg reserves that name, and Spark then refuses to read the table.
_WITHOUT_KEY_DDL = "_topic STRING, _kafka_partition INT, _offset BIGINT, _timestamp TIMESTAMP"
_METADATA_DDL = f"{_WITHOUT_KEY_DDL}, _key BINARY"
_RAW_DDL = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

METADATA_FIELDS = parse_schema(_METADATA_DDL).fields

DEAD_LETTER_SCHEMA = parse_schema(
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "error STRING, schema STRING"
)

# Kafka's mark for a record that carries no timestamp.
_NO_TIMESTAMP_MS = -1


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """How records become rows. Made on the driver, pickled to the workers."""

    format: Format
    # The text the user declared, kept for dead letters; empty for raw.
    ddl: str
    # The decoded rows, metadata columns included.
    schema: Schema
    metadata: bool
    on_error: OnError
    # The column that keeps what is not declared.
    catch_all: str | None = None
    # What numbers count in timestamp columns, by the column's path.
    epoch_units: dict[str, str] = field(default_factory=dict)
    binary: Binary = "base64"
    # How records become changes; None where every record is a row.
    changes: ChangePlan | None = None

    @property
    def needs_keys(self) -> bool:
        return self.format == "raw" or self.changes is not None or self._keeps_origin

    @property
    def needs_timestamps(self) -> bool:
        return self._keeps_origin

    @property
    def needs_headers(self) -> bool:
        return self.format == "raw"

    @property
    def _keeps_origin(self) -> bool:
        # Which records become dead letters is known only after they were fetched.
        return self.metadata or self.on_error == "dead-letter"


@dataclass(slots=True)
class Decoded:
    """The rows of a run of records, and those records that became none."""

    rows: pa.RecordBatch
    dead: pa.RecordBatch | None
    ignored: int = 0
    """records that are neither, and need not be: a delete's tombstone, for one"""
    unknown_ops: int = 0
    """records whose operation is not known, whatever became of them"""


def plan_decode(
    format: str,
    ddl: str,
    metadata: bool,
    on_error: str,
    *,
    catch_all: str | None = None,
    epoch_unit: str | Mapping[str, str] | None = None,
    binary: str = "base64",
    changes: ChangePlan | None = None,
) -> DecodePlan:
    """Checks what the user declared and works out the schema of the decoded rows."""
    _require_known("format", format, ("json", "raw"))
    _require_known("on_error", on_error, ("dead-letter", "fail"))
    _require_known("binary", binary, ("base64", "hex"))
    common = (metadata, cast(OnError, on_error))
    if format == "raw":
        if changes is not None:
            raise ConfigError(
                'decode.format = "raw" has no columns that could be a key', 'use format = "json", or append'
            )
        return DecodePlan("raw", ddl, _raw_schema(ddl, metadata), *common)
    schema = declared_schema(ddl, _METADATA_DDL if metadata else "")
    declared = parse_schema(ddl)
    if catch_all is not None:
        require_catch_all(declared, catch_all)
    if changes is not None:
        require_possible_changes(declared, changes, catch_all, on_error)
    units = epoch_units(declared, epoch_unit, changes)
    return DecodePlan("json", ddl, schema, *common, catch_all, units, cast(Binary, binary), changes)


def _require_known(key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f'decode.{key} = "{value}" is not known', f"use {' or '.join(known)}")


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of decoded rows: pyiceberg's mapping without field ids, which the writer gives."""
    return schema_to_pyarrow(schema, include_field_ids=False)


def metadata_columns(records: Records) -> list[pa.Array]:
    """The columns of METADATA_FIELDS, in that order."""
    return [
        _constant(records.topic, pa.large_string(), len(records)),
        _constant(records.partition, pa.int32(), len(records)),
        offset_column(records),
        timestamp_column(records),
        key_column(records),
    ]


def offset_column(records: Records) -> pa.Array:
    return _longs(records.offsets, pa.int64())


def timestamp_column(records: Records) -> pa.Array:
    """Microseconds in UTC; null where the broker has no timestamp."""
    kind = pa.timestamp("us", tz="UTC")
    if not records.timestamps_ms:
        return pa.nulls(len(records), kind)
    times = np.array(array("q", records.timestamps_ms))
    absent = times == _NO_TIMESTAMP_MS if times.min(initial=0) < 0 else None
    return pa.array(times * 1000, mask=absent).view(kind)


def key_column(records: Records) -> pa.Array:
    if not records.keys:
        return pa.nulls(len(records), pa.large_binary())
    return pa.array(records.keys, pa.large_binary())


def value_column(records: Records) -> pa.Array:
    return pa.array(records.values, pa.large_binary())


def dead_letters(records: Records, errors: Sequence[str], ddl: str) -> pa.RecordBatch:
    """One dead letter per record, each with its own error."""
    topic, partition, offset, timestamp, key = metadata_columns(records)
    error = pa.array(errors, pa.large_string())
    schema = _constant(ddl, pa.large_string(), len(records))
    columns = [topic, partition, offset, timestamp, key, value_column(records), error, schema]
    return pa.RecordBatch.from_arrays(columns, schema=_DEAD_LETTER_ARROW_SCHEMA)


def select(records: Records, positions: Sequence[int]) -> Records:
    """The records at these positions."""
    return Records(
        topic=records.topic,
        partition=records.partition,
        offsets=[records.offsets[i] for i in positions],
        values=[records.values[i] for i in positions],
        keys=[records.keys[i] for i in positions] if records.keys else [],
        timestamps_ms=[records.timestamps_ms[i] for i in positions] if records.timestamps_ms else [],
        headers=[records.headers[i] for i in positions] if records.headers else [],
    )


def _raw_schema(ddl: str, metadata: bool) -> Schema:
    if ddl.strip():
        raise ConfigError('decode.schema has no meaning with format = "raw"', "remove decode.schema")
    # `key` is a column of its own here; `_key` would hold it a second time.
    return parse_schema(f"{_RAW_DDL}, {_WITHOUT_KEY_DDL}" if metadata else _RAW_DDL)


def _constant(value: str | int, kind: pa.DataType, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), length)


def _longs(numbers: list[int], kind: pa.DataType) -> pa.Array:
    # The stdlib's array packs a list of ints a third faster than pa.array, which must look out for nulls.
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(array("q", numbers))])


_DEAD_LETTER_ARROW_SCHEMA = arrow_schema(DEAD_LETTER_SCHEMA)
