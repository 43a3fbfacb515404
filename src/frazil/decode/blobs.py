"""Texts to bytes, base64 and hex, and to decimals that are written as bytes."""

from __future__ import annotations

import binascii
import string
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Letters = npt.NDArray[np.uint8]

_DECIMAL_BYTES = 16
_DECIMAL_DIGITS = 38
_NEGATIVE = 0x80

_SIX_BITS_MAX = 63
_SIX_BITS = np.full(256, 255, np.uint8)
_SIX_BITS[
    np.frombuffer((string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode(), np.uint8)
] = np.arange(64)


def _base64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


_READ: dict[str, Callable[[str], bytes]] = {"base64": _base64, "hex": binascii.unhexlify}


def blobs_of_texts(texts: pa.Array, kind: pa.DataType, spelling: str) -> pa.Array:
    """The bytes that texts spell; a fixed length must fit."""
    read = _READ[spelling]
    try:
        blobs = [None if text is None else read(text) for text in texts.to_pylist()]
    except ValueError as error:
        raise pa.ArrowInvalid(f"not {spelling}: {error}") from error
    return pa.array(blobs, kind)


def decimals_of_texts(texts: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """The decimals whose unscaled digits, as a big-endian two's complement, the base64 texts spell."""
    lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy()
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(lengths) else lengths
    letters = np.frombuffer("".join(filter(None, texts.to_pylist())).encode(), np.uint8)
    digits = np.zeros((len(texts), _DECIMAL_BYTES), np.uint8)
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        digits[rows] = _big_endian(letters[starts[rows, None] + np.arange(length)])
    if (lengths[texts.is_valid().to_numpy(zero_copy_only=False)] == 0).any():
        raise pa.ArrowInvalid("an empty text is no base64 of a decimal's digits")
    valid = texts.is_valid().buffers()[1] if texts.null_count else None
    data = pa.py_buffer(np.ascontiguousarray(digits[:, ::-1]))
    wide = pa.Array.from_buffers(pa.decimal128(_DECIMAL_DIGITS, kind.scale), len(texts), [valid, data])
    _require_digits(wide)
    return wide.cast(kind)


def _big_endian(letters: Letters) -> Letters:
    """Sixteen bytes for each row of base64 letters, all rows of the same length."""
    count, length = letters.shape
    padding = (letters[:, -2:] == ord("=")).sum(axis=1)
    sixes = _SIX_BITS[letters]
    sixes[:, -1][padding > 0] = 0
    sixes[:, -2][padding > 1] = 0
    if length % 4 or (sixes > _SIX_BITS_MAX).any():
        raise pa.ArrowInvalid("not base64 of a decimal's digits: is changes.decimals right?")
    a, b, c, d = (sixes[:, i::4] for i in range(4))
    threes = np.stack([a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d], axis=2).reshape(count, -1)
    if threes.shape[1] - padding.max() > _DECIMAL_BYTES:
        raise pa.ArrowInvalid("more digits than a decimal has")
    wide = np.empty((count, _DECIMAL_BYTES), np.uint8)
    wide[:] = np.where(threes[:, :1] >= _NEGATIVE, 0xFF, 0)
    for spare in np.unique(padding).tolist():
        rows = padding == spare
        given = threes[rows][:, : threes.shape[1] - spare]
        wide[rows, _DECIMAL_BYTES - given.shape[1] :] = given
    return wide


def _require_digits(wide: pa.Array) -> None:
    """Sixteen bytes hold more than a decimal of 38 digits may."""
    try:
        wide.validate(full=True)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid("more digits than a decimal has") from error
