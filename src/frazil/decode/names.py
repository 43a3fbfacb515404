"""What records themselves say of their key: the names of its columns, where an envelope writes them.

envelope       where the key is                              what names its columns
debezium       the message key                               an object, bare or in `payload`
cockroachdb    `key` in the value, else the message key      the same; most feeds write a list, without names
"""

from __future__ import annotations

from frazil.changes import Envelope
from frazil.decode.envelopes import FIELDS
from frazil.decode.extra import require_shallow
from frazil.decode.payload import PAYLOAD


def written_key(envelope: Envelope, value: bytes | None, message_key: bytes | None) -> bytes | None:
    """A record's key as it was written; None if it has none."""
    if envelope == "cockroachdb" and value is not None:
        fields = _fields(value)
        if "key" in fields:
            return fields["key"]
    return message_key


def key_names(key: bytes) -> tuple[str, ...]:
    """The names of a key's values; none of a list, of a plain value, and of what is no JSON."""
    return tuple(_fields(key))


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
