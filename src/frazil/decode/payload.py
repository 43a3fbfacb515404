"""Kafka Connect's schema block, cut off.

A converter that writes schemas wraps what it has: {"schema": …, "payload": …}. The schema is longer than the rest,
and the same text in all records of a topic, so it need not be parsed: of a value that begins with a text that was
seen to lead up to a payload, what remains up to the last brace is the payload. If it is not, because more comes
behind it, it is no JSON document by itself, and the value is parsed as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from frazil.decode.extra import require_shallow

PAYLOAD = "payload"
_END = b"}"


class Unwrapping:
    """Knows the text that led up to the last payload."""

    def __init__(self) -> None:
        self._fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._lead = b""

    def payloads(self, values: Sequence[bytes]) -> Sequence[bytes]:
        """The payloads of values with the same lead as the last one; the others as they are."""
        lead, length = self._lead, len(self._lead)
        if not lead:
            return values
        return [each[length:-1] if each.startswith(lead) and each.endswith(_END) else each for each in values]

    def learn(self, value: bytes) -> bool:
        """Takes the lead from a value whose payload comes last; whether it is such a value."""
        try:
            require_shallow(value)
            payload = bytes(self._fields.decode(value).get(PAYLOAD, b""))
        except ValueError:
            return False
        if not payload or not value.endswith(payload + _END):
            return False
        self._lead = value[: -len(payload + _END)]
        return True
