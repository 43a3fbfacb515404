"""Texts and numbers to points in time.

The parser hands texts over as they are, because of a number it would not say what it counts. Arrow reads ISO 8601
in one go; only a column with a text that Arrow does not take as it is goes through the slower, wider reading:

    no zone in a column that has one      UTC
    more digits than the column keeps     cut off
    t and z in lower case                 the same as T and Z
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}

# What numbers are read as: more than enough before the point for nanoseconds, and as much behind it.
NUMBER = pa.decimal128(38, 19)
_NUMBER_TEXT = r"^[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,2})?$"

_DATE_TEXT = r"^(\d{4}-\d{2}-\d{2})$"
_UNZONED_TEXT = r"^(\d{4}-\d{2}-\d{2}[T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?)$"

# As far as a text can say it: the years 0 to 9999, in seconds.
_FIRST_SECOND = -62_167_219_200
_END_SECOND = 253_402_300_800

_DAY_S = 86_400
_DAY_US = _DAY_S * 1_000_000
_FIRST_DAY = _FIRST_SECOND // _DAY_S
_END_DAY = _END_SECOND // _DAY_S


def timestamps_of_texts(texts: pa.Array, kind: pa.TimestampType) -> pa.Array:
    """ISO 8601 texts as points in time."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        pass
    try:
        return _plain(texts, kind).cast(kind)
    except pa.ArrowInvalid as error:
        # Arrow goes on to recommend a function of its own.
        raise pa.ArrowInvalid(str(error).partition(". If these")[0]) from error


def timestamps_of_numbers(numbers: pa.Array, kind: pa.TimestampType, unit: str) -> pa.Array:
    """Numbers of the given unit since 1970; what the column does not keep is cut off, as in texts."""
    shift = _DIGITS[kind.unit] - _DIGITS[unit]
    # The same digits with the point elsewhere: nothing is multiplied, so nothing can overflow.
    moved = pa.Array.from_buffers(
        pa.decimal128(NUMBER.precision, NUMBER.scale - shift),
        len(numbers),
        numbers.buffers(),
        offset=numbers.offset,
    )
    ticks = pc.floor(moved).cast(pa.int64())
    _require_in_calendar(ticks, kind)
    return ticks.cast(kind)


def timestamps_of_either(texts: pa.Array, kind: pa.TimestampType, unit: str) -> pa.Array:
    """Texts that are ISO 8601, or numbers in quotes."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        numbers, others = _numbers_and_texts(texts)
    return pc.coalesce(timestamps_of_numbers(numbers, kind, unit), timestamps_of_texts(others, kind))


def dates_of_numbers(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """Days since 1970."""
    days = numbers.cast(pa.int32())
    bounds = pc.min_max(days).as_py()
    if bounds["min"] is not None and not _FIRST_DAY <= bounds["min"] <= bounds["max"] < _END_DAY:
        raise pa.ArrowInvalid("the number of days lies outside of the years 0 to 9999")
    return days.cast(kind)


def dates_of_either(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts that are ISO 8601, or numbers in quotes."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        numbers, others = _numbers_and_texts(texts)
    return pc.coalesce(dates_of_numbers(numbers, kind), others.cast(kind))


def times_of_numbers(numbers: pa.Array, kind: pa.DataType, unit: str) -> pa.Array:
    """Numbers of the given unit since midnight; what the column does not keep is cut off, as in texts."""
    moments = timestamps_of_numbers(numbers, pa.timestamp("us"), unit)
    bounds = pc.min_max(moments.cast(pa.int64())).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < _DAY_US:
        raise pa.ArrowInvalid("the number lies outside of a day: is decode.epoch_unit right?")
    return moments.cast(kind)


def times_of_either(texts: pa.Array, kind: pa.DataType, unit: str) -> pa.Array:
    """Texts that are ISO 8601, or numbers in quotes."""
    numbers, others = _numbers_and_texts(texts)
    return pc.coalesce(times_of_numbers(numbers, kind, unit), times_of_texts(others, kind))


def times_of_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """ISO 8601 times of day; Arrow reads those only as part of a timestamp."""
    moments = pc.binary_join_element_wise(pa.scalar("1970-01-01T", texts.type), texts, pa.scalar("", texts.type))
    return timestamps_of_texts(moments, pa.timestamp("us")).cast(kind)


def _numbers_and_texts(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Those that are numbers in quotes, as numbers, and the others; null where the other one is."""
    is_number = pc.match_substring_regex(texts, _NUMBER_TEXT)
    nothing = pa.scalar(None, texts.type)
    return pc.if_else(is_number, texts, nothing).cast(NUMBER), pc.if_else(is_number, nothing, texts)


def _plain(texts: pa.Array, kind: pa.TimestampType) -> pa.Array:
    kept = _DIGITS[kind.unit]
    texts = pc.utf8_upper(texts)
    texts = pc.replace_substring_regex(texts, rf"(\.\d{{{kept}}})\d+", r"\1")
    if kind.tz is None:
        return texts
    texts = pc.replace_substring_regex(texts, _DATE_TEXT, r"\1T00")
    return pc.replace_substring_regex(texts, _UNZONED_TEXT, r"\1Z")


def _require_in_calendar(ticks: pa.Array, kind: pa.TimestampType) -> None:
    """Milliseconds taken for seconds are in the year 50,000: better a dead letter than a row that few can read."""
    if kind.unit == "ns":
        return
    per_second = 10 ** _DIGITS[kind.unit]
    bounds = pc.min_max(ticks).as_py()
    if bounds["min"] is None:
        return
    if bounds["min"] < _FIRST_SECOND * per_second or bounds["max"] >= _END_SECOND * per_second:
        raise pa.ArrowInvalid("the number lies outside of the years 0 to 9999: is decode.epoch_unit right?")
