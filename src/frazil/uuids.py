"""UUIDs as texts, as JSON and Spark have them, and as 16 bytes, as tables have them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_UUID_TEXT = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_UUID_BYTES = 16


def uuids_of_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The 16 bytes of each UUID, all texts read at once."""
    if pc.any(pc.invert(pc.match_substring_regex(texts, _UUID_TEXT))).as_py():
        raise pa.ArrowInvalid("not a UUID such as 123e4567-e89b-12d3-a456-426614174000")
    digits = pc.fill_null(pc.replace_substring(texts, "-", ""), "0" * 2 * _UUID_BYTES)
    data = pa.py_buffer(bytes.fromhex("".join(digits.to_pylist())))
    valid = pc.is_valid(texts).buffers()[1] if texts.null_count else None
    storage = pa.Array.from_buffers(pa.binary(_UUID_BYTES), len(texts), [valid, data])
    return kind.wrap_array(storage) if isinstance(kind, pa.BaseExtensionType) else storage


def texts_of_uuids(uuids: pa.Array) -> pa.Array:
    """The canonical text of each UUID."""
    storage = uuids.storage if isinstance(uuids, pa.ExtensionArray) else uuids
    texts = pa.array([None if each is None else each.hex() for each in storage.to_pylist()], pa.string())
    return pc.replace_substring_regex(texts, "^(.{8})(.{4})(.{4})(.{4})(.{12})$", r"\1-\2-\3-\4-\5")
