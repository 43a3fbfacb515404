"""Numbers that the parser gets wrong without a word, found and written plainly before they land.

The parser drops digits behind those that its type holds, and its arithmetic on exponents and on the count of
digits overflows: 1e-99999999999999999999 is ten to it. For each way to lose something there is a sign that costs
next to nothing to look for in a whole chunk:

    digits behind the last one that is held     a cast sees them unless zeros lie between: 15 zeros in a row
    more digits than it can count               24 digits in a row
    an exponent of 15 digits or more            15 digits in a row behind an e
    an exponent that moves all digits out       a zero in the column, and a signed exponent in the text

A value with such a sign is read once more, and the numbers of its exact columns are written without exponent and
without spare zeros. One that has more digits than its column keeps is refused. What stays wrong is an exponent of
5 to 14 digits, which no number of a declared type has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from frazil.decode.tokens import Node, Scalar, scalars
from frazil.decode.wire import Misfit

# Fifteen characters in a row always hold eight that are aligned to a word.
_WORD = np.dtype("<u8")
_ZEROS = np.uint64(int.from_bytes(b"0" * 8, "little"))
_DIGIT_BITS = np.uint64(int.from_bytes(b"\xf0" * 8, "little"))
_WORDS_IN_A_ROW = 3
# Small enough for the processor's cache.
_BLOCK = 1 << 15

# Below this many bytes numpy takes longer to set out than to arrive.
_SHORT = 4096
_LONG_RUN = re.compile(rb"[0-9]{15}")

_OF_NUMBERS = b"0123456789+-.eE"
_NUMBER_LIKE = re.compile(rb"[-+0-9.eE]*+")
_AROUND = b'"[]{}:, \t\r\n'
_LOOK_BACK = 400
_DANGER = re.compile(rb"0{15}|[eE]|.{24}")
_NAME = re.compile(rb'"([^"\\]*+)"\s*+:\s*+"?\Z')

# What is not JSON must not become it.
_JSON_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_NUMBER = re.compile(rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
# Above it no declared type has digits.
_DIGITS_MAX = 38


Places = npt.NDArray[Any]


@dataclass(frozen=True)
class Chunk:
    """Values, and the one text that they are joined to, each behind `key`, with `gap` more bytes between them."""

    values: list[bytes]
    text: bytes
    key: bytes
    gap: bytes

    def plain(self, suspects: Places, root: Node) -> list[bytes]:
        """The values, those at suspect places with plain numbers: the very same list when nothing had to change."""
        numbers = [place for place in suspects.tolist() if _is_within_a_number(self.text, place, root)]
        if not numbers:
            return self.values
        sizes = np.fromiter(map(len, self.values), np.int64, len(self.values)) + len(self.gap + self.key)
        ends = np.cumsum(sizes) + self.text.index(self.key)
        odd = {index: with_plain_numbers(self.values[index], root) for index in set(np.searchsorted(ends, numbers))}
        if all(self.values[index] == value for index, value in odd.items()):
            return self.values
        return [odd.get(index, value) for index, value in enumerate(self.values)]


def _is_within_a_number(text: bytes, place: int, root: Node) -> bool:
    """Whether what stands there is all of a JSON number or text, and not of a column that holds no numbers.

    It need not be right, only never wrongly say no: most suspects are identifiers in hex.
    """
    before = text[max(0, place - _LOOK_BACK) : place]
    left = len(before.rstrip(_OF_NUMBERS))
    right = _NUMBER_LIKE.match(text, place)
    assert right is not None
    if left and (before[left - 1] not in _AROUND or text[right.end()] not in _AROUND):
        return False
    if not _DANGER.search(before[left:] + right[0]):
        return False
    name = _NAME.search(before, 0, left)
    return name is None or name[1] not in root.names_without_numbers


def long_runs_of_digits(text: bytes) -> Places:
    """Where digits stand in a row that the parser may miscount or drop."""
    if len(text) < _SHORT:
        return np.array([run.start() for run in _LONG_RUN.finditer(text)], np.int64)
    words = np.frombuffer(text, _WORD, len(text) // _WORD.itemsize)
    blocks = range(0, len(words), _BLOCK)
    at = np.concatenate([np.flatnonzero((words[i : i + _BLOCK] & _DIGIT_BITS) == _ZEROS) + i for i in blocks])
    if not at.size:
        return at
    zeros = words[at] == _ZEROS
    row = np.zeros(len(at), bool)
    row[_WORDS_IN_A_ROW - 1 :] = at[_WORDS_IN_A_ROW - 1 :] - at[: 1 - _WORDS_IN_A_ROW] == _WORDS_IN_A_ROW - 1
    signs = at[zeros | row | _is_exponent(words, at)]
    # One place is enough of each run: words that follow each other belong to the same number.
    return cast(Places, signs[np.diff(signs, prepend=-2) > 1] * _WORD.itemsize)


def _is_exponent(words: Places, at: Places) -> Places:
    """Whether an e stands before the digits that end in the word before."""
    before = words[np.maximum(at - 1, 0)].view(np.uint8).reshape(-1, _WORD.itemsize)
    backwards = before[:, ::-1]
    is_sign = (backwards == ord("-")) | (backwards == ord("+"))
    is_other = (backwards - ord("0") >= 10) & ~is_sign
    letters = backwards[np.arange(len(at)), np.argmax(is_other, axis=1)]
    # A sign at the very start hides what stands before it.
    is_hidden = ~is_other.any(axis=1) & is_sign.any(axis=1)
    return cast(Places, ((letters | 0x20) == ord("e")) | is_hidden)


def signed_exponents(text: bytes) -> Places:
    """Where a number may have an exponent with a sign."""
    letters = np.frombuffer(text, np.uint8)
    is_sign = (letters[2:-1] == ord("-")) | (letters[2:-1] == ord("+"))
    at = np.flatnonzero(is_sign & ((letters[1:-2] | 0x20) == ord("e"))) + 2
    before, after = letters[at - 2], letters[at + 1]
    return cast(Places, at[(after - ord("0") < 10) & ((before - ord("0") < 10) | (before == ord(".")))])


def holds_an_exact_zero(values: pa.Array) -> bool:
    return any(
        pc.any(pc.equal(each, pa.scalar(0, each.type))).as_py()
        for each in plain_arrays(values)
        if pt.is_integer(each.type) or pt.is_decimal(each.type)
    )


def holds_infinity(values: pa.Array) -> bool:
    return any(pc.any(pc.is_inf(each)).as_py() for each in plain_arrays(values) if pt.is_floating(each.type))


def plain_arrays(values: pa.Array) -> Iterator[pa.Array]:
    """The arrays without further structure that an array is made of."""
    if pt.is_struct(values.type):
        for each in values.flatten():
            yield from plain_arrays(each)
    elif pt.is_map(values.type):
        yield from plain_arrays(values.keys)
        yield from plain_arrays(values.items)
    elif pt.is_large_list(values.type):
        yield from plain_arrays(values.values)
    else:
        yield values


def with_plain_numbers(value: bytes, root: Node) -> bytes:
    """The value with the numbers of its exact columns written without exponent and without spare zeros."""
    parts, position = [], 0
    for scalar in scalars(value, root):
        grammar = _JSON_NUMBER if scalar.is_number else _NUMBER
        if not (scalar.node.is_exact and grammar.fullmatch(scalar.text)):
            continue
        plain = _plain_number(scalar)
        if plain != scalar.text:
            parts += [value[position : scalar.start], plain]
            position = scalar.end
    return b"".join([*parts, value[position:]]) if parts else value


def too_large_for_a_float(value: bytes, root: Node) -> str | None:
    """The path of a FLOAT or DOUBLE column whose number is beyond it; a text may well say Infinity."""
    for scalar in scalars(value, root):
        if pt.is_floating(scalar.node.kind) and _NUMBER.fullmatch(scalar.text):
            with np.errstate(over="ignore"):
                if np.isinf(scalar.node.kind.to_pandas_dtype()(float(scalar.text))):
                    return scalar.node.path
    return None


def _plain_number(scalar: Scalar) -> bytes:
    try:
        sign, digits, exponent = Decimal(scalar.text.decode()).as_tuple()
    except InvalidOperation as error:
        raise _too_many_digits(scalar) from error
    assert isinstance(exponent, int)
    number = "".join(map(str, digits)).lstrip("0")
    short = number.rstrip("0")
    if not short:
        return b"0"
    exponent += len(number) - len(short)
    if pt.is_timestamp(scalar.node.kind) and -exponent > _scale(scalar.node.kind):
        # What a timestamp does not keep is cut off, so that it need not be written either.
        short, exponent = short[: exponent + _scale(scalar.node.kind)] or "0", -_scale(scalar.node.kind)
    if -exponent > _scale(scalar.node.kind) or exponent + len(short) > _DIGITS_MAX:
        raise _too_many_digits(scalar)
    return format(Decimal((sign, tuple(map(int, short)), exponent)), "f").encode()


def _too_many_digits(scalar: Scalar) -> Misfit:
    shown = scalar.text[:60].decode() + ("…" if len(scalar.text) > 60 else "")
    return Misfit(
        f"value does not fit {scalar.node.path}: {shown} has digits that {scalar.node.kind} does not keep"
    )


def _scale(kind: pa.DataType) -> int:
    """How many digits behind the point may matter."""
    if pt.is_timestamp(kind):
        return 18
    return kind.scale if pt.is_decimal(kind) else 0
