"""What the parser reads each declared type as, and how that becomes the declared type.

The parser is generous: it takes 1.5 for a 1, a number for a timestamp of some unit, any odd text for hex. So it
reads numbers wider than declared, and everything that is a text in JSON as a text; the step to the declared type
is ours, done on whole columns, and refuses what does not fit.

    declared              read as                     then
    INT, BIGINT           decimal of 19 + 19 digits   a cast that refuses fractions and too large numbers
    DECIMAL               a wider decimal             a cast that refuses digits it would drop
                          text                        base64 of the digits, from sources that write that
    DATE, TIME            text, or decimal            ISO 8601, or a number, from sources that write those
    TIMESTAMP…            text, or decimal            ISO 8601, or a number of decode.epoch_unit
    BINARY, FIXED, UUID   text                        base64, hex, or the UUID's own spelling
    MAP                   map                         of entries with the same key the last one stays
    everything else       as it is                    nothing
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from frazil.decode.blobs import blobs_of_texts, decimals_of_texts
from frazil.decode.times import (
    NUMBER,
    dates_of_either,
    dates_of_numbers,
    times_of_either,
    times_of_numbers,
    times_of_texts,
    timestamps_of_either,
    timestamps_of_numbers,
    timestamps_of_texts,
)
from frazil.uuids import uuids_of_texts

Land = Callable[[pa.Array], pa.Array]

INTEGER = pa.decimal128(38, 19)

# A wide decimal must have this many digits more than declared: see numbers.py.
SPARE_DIGITS = 15


@dataclass(frozen=True)
class Wire:
    """How one type travels: what the parser reads, and the step to the declared type, if there is one."""

    kind: pa.DataType
    land: Land | None = None

    def landed(self, values: pa.Array) -> pa.Array:
        return values if self.land is None else self.land(values)


@dataclass(frozen=True)
class Spelling:
    """What the user said about how values are written."""

    binary: str = "base64"
    epoch_units: dict[str, str] = field(default_factory=dict)
    decimals: str = "plain"
    # Whether columns that have a unit are read as numbers or as texts; the parser takes one of them.
    epoch_as_number: bool = True


def wire(kind: pa.DataType, path: str, spelling: Spelling) -> Wire:
    """The wire of a type; `path` names the column in messages and in decode.epoch_unit."""
    if pt.is_struct(kind):
        return _struct(kind, path, spelling)
    if pt.is_map(kind):
        return _map(kind, path, spelling)
    if pt.is_large_list(kind):
        return _list(kind, path, spelling)
    leaf = _leaf(kind, path, spelling)
    return leaf if leaf.land is None else Wire(leaf.kind, _naming(path, leaf.land))


def _leaf(kind: pa.DataType, path: str, spelling: Spelling) -> Wire:
    if pt.is_integer(kind):
        return Wire(INTEGER, lambda values: values.cast(kind))
    if pt.is_decimal(kind):
        if spelling.decimals == "bytes":
            return Wire(pa.string(), lambda values: decimals_of_texts(values, kind))
        return Wire(_wider(kind), lambda values: values.cast(kind))
    if pt.is_timestamp(kind):
        return _timestamp(kind, spelling.epoch_units.get(path), spelling.epoch_as_number)
    if pt.is_date(kind):
        return _date(kind, spelling.epoch_units.get(path), spelling.epoch_as_number)
    if pt.is_time(kind):
        return _time(kind, spelling.epoch_units.get(path), spelling.epoch_as_number)
    if isinstance(kind, pa.UuidType):
        return Wire(pa.string(), lambda values: uuids_of_texts(values, kind))
    if pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return Wire(pa.large_string(), lambda values: blobs_of_texts(values, kind, spelling.binary))
    return Wire(kind)


def _wider(kind: pa.Decimal128Type) -> pa.DataType:
    """More digits behind the point, in the narrowest type that has them: it is the fastest to cast."""
    if kind.precision + SPARE_DIGITS <= 38:
        return pa.decimal128(38, kind.scale + SPARE_DIGITS)
    return pa.decimal256(76, kind.scale + 38)


def _timestamp(kind: pa.TimestampType, unit: str | None, as_number: bool) -> Wire:
    if unit is None:
        return Wire(pa.string(), lambda values: timestamps_of_texts(values, kind))
    if as_number:
        return Wire(NUMBER, lambda values: timestamps_of_numbers(values, kind, unit))
    return Wire(pa.string(), lambda values: timestamps_of_either(values, kind, unit))


def _date(kind: pa.DataType, unit: str | None, as_number: bool) -> Wire:
    if unit is None:
        return Wire(pa.string(), lambda values: values.cast(kind))
    if as_number:
        return Wire(NUMBER, lambda values: dates_of_numbers(values, kind))
    return Wire(pa.string(), lambda values: dates_of_either(values, kind))


def _time(kind: pa.DataType, unit: str | None, as_number: bool) -> Wire:
    if unit is None:
        return Wire(pa.string(), lambda values: times_of_texts(values, kind))
    if as_number:
        return Wire(NUMBER, lambda values: times_of_numbers(values, kind, unit))
    return Wire(pa.string(), lambda values: times_of_either(values, kind, unit))


def _struct(kind: pa.StructType, path: str, spelling: Spelling) -> Wire:
    wires = [wire(each.type, f"{path}.{each.name}" if path else each.name, spelling) for each in kind]
    read = pa.struct([each.with_type(inner.kind) for each, inner in zip(kind, wires, strict=True)])

    def land(values: pa.Array) -> pa.Array:
        columns = [inner.landed(column) for inner, column in zip(wires, values.flatten(), strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=values.is_null())

    return Wire(read, land if any(inner.land for inner in wires) else None)


def _list(kind: pa.LargeListType, path: str, spelling: Spelling) -> Wire:
    inner = wire(kind.value_type, path, spelling)
    read = pa.large_list(kind.value_field.with_type(inner.kind))

    def land(values: pa.Array) -> pa.Array:
        frame = values.buffers()[:2]
        items = inner.landed(values.values)
        return pa.Array.from_buffers(kind, len(values), frame, offset=values.offset, children=[items])

    return Wire(read, land if inner.land else None)


def _map(kind: pa.MapType, path: str, spelling: Spelling) -> Wire:
    keys, items = wire(kind.key_type, path, spelling), wire(kind.item_type, path, spelling)
    read = pa.map_(kind.key_field.with_type(keys.kind), kind.item_field.with_type(items.kind))

    def land(values: pa.Array) -> pa.Array:
        landed = keys.landed(values.keys), items.landed(values.items)
        return _last_of_each_key(values, *landed, kind)

    return Wire(read, land)


def _last_of_each_key(values: pa.MapArray, keys: pa.Array, items: pa.Array, kind: pa.MapType) -> pa.Array:
    """The map with these keys and items; where a key comes twice, the last one stays, as in every JSON object."""
    starts = values.offsets.to_numpy()
    starts = starts - starts[0]
    owners = np.repeat(np.arange(len(values)), np.diff(starts))
    storage = keys.storage if isinstance(keys, pa.ExtensionArray) else keys
    entries = pa.table({"owner": owners, "key": storage, "at": np.arange(len(keys))})
    last = entries.group_by(["owner", "key"], use_threads=False).aggregate([("at", "max")])
    if last.num_rows < len(keys):
        stay = np.sort(last.column("at_max").to_numpy())
        keys, items = keys.take(pa.array(stay)), items.take(pa.array(stay))
        starts = np.concatenate([[0], np.cumsum(np.bincount(owners[stay], minlength=len(values)))])
    entry = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    offsets = pa.py_buffer(starts.astype(np.int32))
    mask = values.is_valid().buffers()[1] if values.null_count else None
    return pa.Array.from_buffers(kind, len(values), [mask, offsets], children=[entry])


def _naming(path: str, land: Land) -> Land:
    """The same step, whose refusal says which column; Arrow's does not."""

    def named(values: pa.Array) -> pa.Array:
        try:
            return land(values)
        except pa.ArrowInvalid as error:
            raise Misfit(f"value does not fit {path}: {error}") from error

    return named


class Misfit(pa.ArrowInvalid):  # type: ignore[misc]  # pyarrow has no types
    """A value that is JSON, but not of the declared type."""
