"""Values people write in a pipeline file: durations, sizes, lists of fields."""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import BeforeValidator

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_BYTES = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE_MAX = 2**50
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_OUTER_COMMA = re.compile(r",(?![^(]*\))")


def parse_duration_s(value: object) -> object:
    """`"30s"` → 30.0; a bare number is taken as seconds."""
    if isinstance(value, str):
        amount, unit = _split(value)
        if unit not in _SECONDS:
            raise ValueError('a duration such as "500ms", "30s", "5m" or "1h"')
        value = amount * _SECONDS[unit]
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 < value < math.inf:
        raise ValueError("a duration longer than zero, and finite")
    return value


def parse_size_bytes(value: object) -> object:
    """`"128MB"` → 134217728 (MB = MiB); a bare number is taken as bytes."""
    if isinstance(value, str):
        amount, unit = _split(value)
        if unit not in _BYTES:
            raise ValueError('a size such as "512KB", "128MB" or "1GB"')
        if amount * _BYTES[unit] > _SIZE_MAX:
            raise ValueError("a size that a disk may have")
        value = int(amount * _BYTES[unit])
    if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
        raise ValueError("a size larger than zero")
    return value


def split_fields(value: object) -> object:
    """`"day(a), bucket(16, b)"` → two fields: commas inside parentheses do not count."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in _OUTER_COMMA.split(value)] if value.strip() else []


def _split(text: str) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(text)
    return (float(match[1]), match[2].lower()) if match else (0.0, "?")


Duration = Annotated[float, BeforeValidator(parse_duration_s)]
"""Seconds."""
Size = Annotated[int, BeforeValidator(parse_size_bytes)]
"""Bytes."""
FieldList = Annotated[list[str], BeforeValidator(split_fields)]
"""Partition or sort fields: a list of texts, or one text with commas."""
