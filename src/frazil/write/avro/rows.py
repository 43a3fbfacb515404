"""Arrow rows in Avro's binary form, a column at a time.

An Avro row is its fields' bytes, one after the other. So each column becomes arrays of bytes, its *pieces*, and
Arrow joins the pieces of all columns row by row. No value passes through a Python object: that is many times
faster than encoding rows one by one, and a date or a nanosecond has no chance to get lost in Python's types.

A null in a piece is no byte at all. That is how an optional field works: one piece says which branch of the
union follows, and the field's own pieces are null where it is null. It is also how a struct that is null
silences the pieces of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import UnionType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_required_bytes

from frazil.write.nested import elements, entries, plain

BYTES = pa.large_binary()
_NOTHING = pa.scalar(b"", BYTES)
_DECIMAL_WIDTH = 16

Pieces = list[pa.Array]


def encode_rows(fields: Sequence[NestedField], rows: pa.RecordBatch) -> pa.LargeBinaryArray:
    """One binary value a row; its bytes lie one after the other in the array's data buffer."""
    columns = plain(rows).columns
    pieces = [piece for each, column in zip(fields, columns, strict=True) for piece in _field(each, column)]
    return _joined(pieces)


def _joined(pieces: Pieces) -> pa.LargeBinaryArray:
    joined = pc.binary_join_element_wise(*pieces, _NOTHING, null_handling="replace", null_replacement="")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _field(field: NestedField, values: pa.Array, among: pa.BooleanArray | None = None) -> Pieces:
    """The pieces of a field; `among` are the rows in which there is such a field at all."""
    if not field.required:
        return [_branch(values, among), *_pieces(field.field_type, values)]
    missing = values.null_count - (0 if among is None else len(among) - among.true_count)
    if missing > 0:
        raise pa.ArrowInvalid(f"{field.name} is required and has {missing} nulls")
    return _pieces(field.field_type, values)


def _branch(values: pa.Array, among: pa.BooleanArray | None) -> pa.Array:
    """Which branch of ["null", type] follows."""
    chosen = _looked_up(values.is_valid(), b"\x00", b"\x02")
    return chosen if among is None else pc.if_else(among, chosen, pa.scalar(None, BYTES))


def _pieces(kind: IcebergType, values: pa.Array) -> Pieces:
    if isinstance(kind, StructType):
        return _struct(kind, values)
    if isinstance(kind, ListType):
        return _list(kind, values)
    if isinstance(kind, MapType):
        return _map(kind, values)
    if isinstance(kind, StringType | BinaryType):
        return [_varints(pc.binary_length(values)), values.cast(BYTES)]
    for kinds, encode in _FIXED_LENGTH:
        if isinstance(kind, kinds):
            return [encode(kind, values)]
    return [_varints(values)]


def _struct(kind: StructType, values: pa.StructArray) -> Pieces:
    among = values.is_valid() if values.null_count else None
    return [
        piece
        for position, field in enumerate(kind.fields)
        for piece in _field(field, pc.struct_field(values, [position]), among)
    ]


def _list(kind: ListType, values: pa.LargeListArray) -> Pieces:
    bounds, inside = elements(values)
    return _blocks(values, bounds, _joined(_field(kind.element_field, inside)))


def _map(kind: MapType, values: pa.MapArray) -> Pieces:
    bounds, keys, items = entries(values)
    return _blocks(values, bounds, _joined(_field(kind.key_field, keys) + _field(kind.value_field, items)))


def _blocks(values: pa.Array, bounds: np.ndarray, inside: pa.LargeBinaryArray) -> Pieces:
    """A list is the number of its elements, the elements, and a zero; an empty one is the zero alone."""
    counts = np.diff(bounds)
    count = _varints(pa.array(counts, mask=counts == 0))
    body = _binary(_offsets(inside)[bounds], inside.buffers()[2])
    return [_spread(count, values), _spread(body, values), _looked_up(values.is_valid(), None, b"\x00")]


def _spread(present: pa.Array, values: pa.Array) -> pa.Array:
    """Puts what was made of the values that are not null back among the null ones."""
    if not values.null_count:
        return present
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return present.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _varints(values: pa.Array) -> pa.Array:
    """Whole numbers, dates and times: zigzag, then seven bits a byte, the lowest first."""
    signed = _integers(values)
    numbers = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    longest = max(1, -(-int(numbers.max(initial=0)).bit_length() // 7))
    groups = numbers[:, None] >> (np.arange(longest, dtype=np.uint64) * np.uint64(7))
    more = np.zeros(groups.shape, dtype=bool)
    more[:, :-1] = groups[:, 1:] != 0
    used = np.ones(groups.shape, dtype=bool)
    used[:, 1:] = more[:, :-1]
    digits = (groups & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
    return _binary(np.insert(np.cumsum(used.sum(axis=1)), 0, 0), pa.py_buffer(digits[used]), _validity(values))


def _integers(values: pa.Array) -> np.ndarray:
    stored = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    numbers: np.ndarray = (stored.fill_null(0) if stored.null_count else stored).to_numpy()
    return numbers.astype(np.int64)


def _number(_: IcebergType, values: pa.Array) -> pa.Array:
    """Floating point as it lies in memory."""
    return values.view(pa.binary(values.type.byte_width)).cast(BYTES)


def _boolean(_: IcebergType, values: pa.Array) -> pa.Array:
    return _looked_up(values, b"\x00", b"\x01")


def _bytes_alone(_: IcebergType, values: pa.Array) -> pa.Array:
    return values.cast(BYTES)


def _decimal(kind: IcebergType, values: pa.Array) -> pa.Array:
    """The unscaled number in as few bytes as its precision needs, the highest first; Arrow has 16, lowest first."""
    assert isinstance(kind, DecimalType)
    size = decimal_required_bytes(kind.precision)
    stored = np.frombuffer(values.buffers()[1], np.uint8).reshape(-1, _DECIMAL_WIDTH)
    turned = stored[values.offset : values.offset + len(values), size - 1 :: -1]
    offsets = np.arange(len(values) + 1) * size
    return _binary(offsets, pa.py_buffer(np.ascontiguousarray(turned)), _validity(values))


_FIXED_LENGTH: list[tuple[type[IcebergType] | UnionType, Callable[[IcebergType, pa.Array], pa.Array]]] = [
    (BooleanType, _boolean),
    (FloatType | DoubleType, _number),
    (DecimalType, _decimal),
    (FixedType | UUIDType, _bytes_alone),
]


def _looked_up(flags: pa.BooleanArray, no: bytes | None, yes: bytes) -> pa.Array:
    return pc.if_else(flags, pa.scalar(yes, BYTES), pa.scalar(no, BYTES))


def _binary(offsets: np.ndarray, data: pa.Buffer | None, validity: pa.Buffer | None = None) -> pa.LargeBinaryArray:
    ends = pa.py_buffer(np.ascontiguousarray(offsets, dtype=np.int64))
    return pa.Array.from_buffers(BYTES, len(offsets) - 1, [validity, ends, data or pa.py_buffer(b"")])


def _offsets(values: pa.LargeBinaryArray) -> np.ndarray:
    return np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]


def _validity(values: pa.Array) -> pa.Buffer | None:
    if not values.null_count:
        return None
    return pa.array(values.is_valid().to_numpy(zero_copy_only=False)).buffers()[1]
