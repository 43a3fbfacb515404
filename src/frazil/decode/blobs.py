"""Texts to bytes: base64 and hex."""

from __future__ import annotations

import binascii
from collections.abc import Callable

import pyarrow as pa


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
