"""Texts to bytes, base64 and hex, and to decimals that are written as bytes."""

from __future__ import annotations

import binascii
from collections.abc import Callable

import pyarrow as pa

_DECIMAL_BYTES = 16
_ZERO = bytes(_DECIMAL_BYTES)


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
    try:
        digits = b"".join([_ZERO if text is None else _digits(text) for text in texts.to_pylist()])
    except ValueError as error:
        raise pa.ArrowInvalid(f"not base64 of a decimal's digits: {error}: is cdc.decimals right?") from error
    except OverflowError as error:
        raise pa.ArrowInvalid(f"more digits than {kind} has") from error
    valid = texts.is_valid().buffers()[1] if texts.null_count else None
    wide = pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(texts), [valid, pa.py_buffer(digits)])
    return wide.cast(kind)


def _digits(text: str) -> bytes:
    big = _base64(text)
    if not big:
        raise ValueError("an empty text")
    return int.from_bytes(big, "big", signed=True).to_bytes(_DECIMAL_BYTES, "little", signed=True)
