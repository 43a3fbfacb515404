"""What a record says of the columns of its key."""

from __future__ import annotations

import pytest

from frazil.changes import Envelope
from frazil.decode.names import key_names, written_key


@pytest.mark.parametrize(
    ("key", "names"),
    [
        (b'{"id":1}', ("id",)),
        (b'{"region":"eu","id":1}', ("region", "id")),
        (b'{"schema":{"type":"struct"},"payload":{"id":1,"region":"eu"}}', ("id", "region")),
        (b'{"payload":{"id":1},"schema":{}}', ("id",)),
        (b'{"payload":1}', ("payload",)),
        (b'{"schema":{},"payload":1}', ()),
        (b"[1,2]", ()),
        (b"1", ()),
        (b"null", ()),
        (b"{}", ()),
        (b"k1", ()),
        (b"", ()),
        (b'{"id":' + b"[" * 600 + b"]" * 600 + b"}", ()),
    ],
)
def test_an_object_names_the_columns_of_a_key(key: bytes, names: tuple[str, ...]) -> None:
    """CHG-03"""
    assert key_names(key) == names


@pytest.mark.parametrize(
    ("envelope", "value", "message_key", "written"),
    [
        ("debezium", b'{"op":"c","key":{"x":1}}', b'{"id":1}', b'{"id":1}'),
        ("debezium", b'{"op":"c"}', None, None),
        ("debezium", None, b'{"id":1}', b'{"id":1}'),
        ("cockroachdb", b'{"after":null}', b"[1]", b"[1]"),
        ("cockroachdb", b'{"after":null,"key":[1]}', None, b"[1]"),
        ("cockroachdb", b'{"payload":{"after":null,"key":{"id":1}},"schema":{}}', b"[1]", b'{"id":1}'),
        ("cockroachdb", b'{"resolved":"1.0"}', None, None),
    ],
)
def test_a_key_is_beside_the_value_or_in_it(
    envelope: Envelope, value: bytes | None, message_key: bytes | None, written: bytes | None
) -> None:
    """CHG-03"""
    assert written_key(envelope, value, message_key) == written
