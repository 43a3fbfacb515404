"""A number for each key, the same in every process: equal keys have equal ones.

Two keys may share a number; with ten million keys the chance that any two do is one in 370,000. Whoever looks for a
key that two tasks had then finds one too many, never one too few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt
from pandas.util import hash_array

from frazil.write.sort import comparable

# Any number will do: it only has to be the same everywhere.
_NULL = -(2**63) + 0x6E756C6C
_ODD = np.uint64(0x9E3779B97F4A7C15)


def hashed(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    """The hash of each row."""
    combined = np.zeros(len(columns[0]), np.uint64)
    for values in columns:
        combined = combined * _ODD + _hashed_column(values)
    return np.asarray(hash_array(combined), np.uint64)


def _hashed_column(values: pa.Array) -> npt.NDArray[np.uint64]:
    plain = comparable(values)
    if pt.is_decimal128(plain.type):
        plain = plain.view(pa.binary(16))
    if _is_bytes(plain.type):
        return np.asarray(hash_array(plain.to_numpy(zero_copy_only=False), categorize=False), np.uint64)
    return np.asarray(hash_array(_numbers(plain)), np.uint64)


def _is_bytes(kind: pa.DataType) -> bool:
    text = pt.is_string(kind) or pt.is_large_string(kind)
    return bool(text or pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def _numbers(values: pa.Array) -> npt.NDArray[np.int64]:
    """Whole numbers of one width, whether or not there are nulls among them."""
    kind = values.type
    if pt.is_temporal(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return np.asarray(values.cast(pa.int64()).fill_null(_NULL).to_numpy(), np.int64)
