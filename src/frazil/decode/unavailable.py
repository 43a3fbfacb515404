"""Debezium's mark for a value that the database did not tell because it is large and did not change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from frazil.decode.envelopes import Marks, marks
from frazil.decode.numbers import plain_arrays

_TEXT = "__debezium_unavailable_value"
_WITHIN_JSON = f'"{_TEXT}"'


def unavailable(column: pa.Array) -> Marks | None:
    """Where a column, or a member of its values, has the mark; None if nowhere."""
    found = [_marked(each) for each in plain_arrays(column) if _may_be_marked(each.type)]
    if not any(each.any() for each in found):
        return None
    if _may_be_marked(column.type):
        return found[0]
    return np.array([_holds(value) for value in column.to_pylist()], bool)


def _may_be_marked(kind: pa.DataType) -> bool:
    return bool(pt.is_large_string(kind) or pt.is_large_binary(kind))


def _marked(values: pa.Array) -> Marks:
    """A text may also be JSON that has the mark within: a catch-all's, for one."""
    mark = pa.scalar(_TEXT if pt.is_large_string(values.type) else _TEXT.encode(), values.type)
    found = pc.equal(values, mark)
    if pt.is_large_string(values.type):
        found = pc.or_(found, pc.match_substring(values, _WITHIN_JSON))
    return marks(pc.fill_null(found, False))


def _holds(value: object) -> bool:
    match value:
        case str():
            return value == _TEXT or _WITHIN_JSON in value
        case bytes():
            return value == _TEXT.encode()
        case dict():
            return any(map(_holds, value.values()))
        case list() | tuple():
            return any(map(_holds, value))
        case _:
            return False
