"""What records themselves say of their key: the names of its columns, where an envelope writes them.

envelope       where it may be                                   what names the columns
debezium       the message key                                   an object, bare or in `payload`
cockroachdb    `source` in the value, if it is an enriched one   `primary_keys`
               `key` in the value, or else the message key       an object; most feeds write a list, without names
"""

from __future__ import annotations

import msgspec

from frazil.changes import Envelope
from frazil.decode.envelopes import FIELDS
from frazil.decode.extra import require_shallow
from frazil.decode.payload import PAYLOAD

_NAMES = msgspec.json.Decoder(tuple[str, ...])


def key_columns(envelope: Envelope, value: bytes | None, message_key: bytes | None) -> tuple[str, ...] | None:
    """The columns of a record's key; none where it does not name them, None where it has no key."""
    fields = _fields(value) if envelope == "cockroachdb" and value is not None else {}
    if "source" in fields and (names := _primary_keys(fields["source"])):
        return names
    key = fields.get("key", message_key)
    return None if key is None else tuple(_fields(key))


def _primary_keys(source: bytes) -> tuple[str, ...]:
    try:
        return _NAMES.decode(_object(source).get("primary_keys", b"[]"))
    except ValueError:
        return ()


def _fields(text: bytes) -> dict[str, bytes]:
    """The fields of an object, or of the payload in it; none of anything else."""
    fields = _object(text)
    within = _object(fields[PAYLOAD]) if PAYLOAD in fields else {}
    return within if within or "schema" in fields else fields


def _object(text: bytes) -> dict[str, bytes]:
    try:
        require_shallow(text)
        return {name: bytes(value) for name, value in FIELDS.decode(text).items()}
    except ValueError:
        return {}
