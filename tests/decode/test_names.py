"""What a record says of the columns of its key."""

from __future__ import annotations

import pytest

from frazil.changes import Envelope
from frazil.decode.names import key_columns


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
        (None, None),
    ],
)
def test_an_object_names_the_columns_of_a_key(key: bytes | None, names: tuple[str, ...] | None) -> None:
    """CHG-03"""
    assert key_columns("debezium", b'{"op":"c","key":{"x":1},"source":{"primary_keys":["y"]}}', key) == names
    assert key_columns("cockroachdb", b'{"after":null}', key) == names


@pytest.mark.parametrize(
    ("envelope", "value", "message_key", "names"),
    [
        ("debezium", None, b'{"id":1}', ("id",)),
        ("cockroachdb", b'{"after":null,"key":[1]}', None, ()),
        ("cockroachdb", b'{"payload":{"after":null,"key":{"id":1}},"schema":{}}', b"[1]", ("id",)),
        ("cockroachdb", b'{"after":null,"source":{"primary_keys":["b","a"]}}', b"[1,2]", ("b", "a")),
        ("cockroachdb", b'{"after":null,"source":{"primary_keys":7}}', b"[1,2]", ()),
        ("cockroachdb", b'{"after":null,"source":null}', None, None),
        ("cockroachdb", b'{"resolved":"1.0"}', None, None),
    ],
)
def test_a_changefeed_may_name_the_key_in_the_value(
    envelope: Envelope, value: bytes | None, message_key: bytes | None, names: tuple[str, ...] | None
) -> None:
    """CHG-03"""
    assert key_columns(envelope, value, message_key) == names
