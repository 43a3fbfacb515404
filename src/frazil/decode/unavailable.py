"""Debezium's mark for a value that the database did not tell because it is large and did not change."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from frazil.decode.envelopes import Places

_TEXT = "__debezium_unavailable_value"
_BYTES = _TEXT.encode()
# As JSON has it in columns of bytes.
_SPELLINGS = (_BYTES, base64.b64encode(_BYTES), _BYTES.hex().encode())


def may_hold_unavailable(values: Sequence[bytes | None], positions: Places) -> list[int]:
    """The places, among these positions, of values that have the mark anywhere."""
    marked = [
        i for i, value in enumerate(values) if value is not None and any(mark in value for mark in _SPELLINGS)
    ]
    if not marked:
        return []
    place_of = {position: place for place, position in enumerate(positions.tolist())}
    return [place_of[i] for i in marked if i in place_of]


def holds_unavailable(value: object) -> bool:
    """Whether a row's value is the mark, or has it as a member."""
    match value:
        case str():
            return value == _TEXT or f'"{_TEXT}"' in value
        case bytes():
            return value == _BYTES
        case dict():
            return any(map(holds_unavailable, value.values()))
        case list() | tuple():
            return any(map(holds_unavailable, value))
        case _:
            return False
