"""Message keys: which row a record is about, as its producer wrote it beside the value.

    key_format   the key                            what it holds
    json         {"id": 7, "region": "eu"}          the key columns by name
                 {"schema": …, "payload": {…}}      the same, from Kafka Connect's converter
                 [7, "eu"]                          the key columns in their order
                 7                                  the key column, if there is one
    text         eu                                 the key column as a text, if there is one

All of them are brought into the first form and read as any JSON, so that a key column takes what a value's would.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from frazil.changes import KeyFormat
from frazil.decode.extra import require_shallow
from frazil.decode.parser import JsonParser, Outcome
from frazil.decode.payload import PAYLOAD, Unwrapping
from frazil.decode.wire import Spelling

_NOTHING = b"{}"


class MessageKeys:
    """Reads message keys as key columns."""

    def __init__(
        self, columns: pa.Schema, key_format: KeyFormat, spelling: Spelling, *, ordered: bool = True
    ) -> None:
        """The spelling's paths are those of the columns, and of the same within `payload`.

        Unless the columns are `ordered` as the source's key is, several values have to come with their names.
        """
        self._names = columns.names
        self._ordered = ordered
        self._format = key_format
        self._parser = JsonParser(columns, spelling)
        both = [*columns] if PAYLOAD in columns.names else [*columns, pa.field(PAYLOAD, pa.struct(list(columns)))]
        self._both = JsonParser(pa.schema(both), spelling)
        self._unwrapping = Unwrapping()
        self._fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._items = msgspec.json.Decoder(list[msgspec.Raw])

    def read(self, keys: Sequence[bytes | None]) -> Outcome:
        """The key columns, complete, or what is wrong with a key."""
        errors: dict[int, str] = {}
        objects: list[bytes] = []
        kept: list[int] = []
        for position, key in enumerate(keys):
            try:
                objects.append(self._object(key))
                kept.append(position)
            except ValueError as error:
                errors[position] = f"message key: {error}"
        outcome = self._parser.outcome(objects)
        errors |= {kept[i]: f"message key: {words}" for i, words in outcome.errors.items()}
        landed = outcome.landed
        left = [position for i, position in enumerate(kept) if i not in outcome.errors]
        for name, column in zip(self._names, landed.columns, strict=True):
            if column.null_count:
                missing = f"message key: key column {name} is null or missing"
                absent = column.is_null().to_pylist()
                errors |= {left[i]: missing for i, is_absent in enumerate(absent) if is_absent}
        complete = pa.array([position not in errors for position in left], pa.bool_())
        return Outcome(landed.filter(complete), errors)

    def glance(self, keys: Sequence[bytes | None]) -> list[pa.Array]:
        """The key columns that keys hold by name, one entry per key; null where they hold none."""
        if self._format == "text" or not keys:
            return [pa.nulls(len(keys), each) for each in self._parser.schema.types]
        try:
            plain = [key if key is not None and key[:1] == b"{" else _NOTHING for key in keys]
            return self._either(plain)
        except pa.ArrowInvalid:
            objects = [self._object_or_nothing(key) for key in keys]
        outcome = self._parser.outcome(objects)
        if outcome.errors:
            sound = [_NOTHING if i in outcome.errors else each for i, each in enumerate(objects)]
            outcome = self._parser.outcome(sound)
        return list(outcome.landed.columns)

    def _either(self, keys: list[bytes]) -> list[pa.Array]:
        """What objects hold, or the payloads in them."""
        columns = list(self._both.parse(list(self._unwrapping.payloads(keys))).columns)
        if len(columns) == len(self._names):
            return columns
        within = columns.pop()
        if within.null_count == len(within):
            return columns
        self._unwrapping.learn(keys[within.is_valid().index(True).as_py()])
        return [coalesce(*pair) for pair in zip(columns, within.flatten(), strict=True)]

    def _object_or_nothing(self, key: bytes | None) -> bytes:
        if key is None or key[:1] != b"{":
            return _NOTHING
        try:
            require_shallow(key)
            return self._payload(key)
        except ValueError:
            return key

    def _object(self, key: bytes | None) -> bytes:
        """The key as an object with the key columns; ValueError if it is none of the forms."""
        if key is None:
            raise ValueError("it is null, but has to say which row is deleted")
        if self._format == "text":
            return self._named([msgspec.json.encode(key.decode())])
        require_shallow(key)
        return self._json_object(self._payload(key))

    def _payload(self, key: bytes) -> bytes:
        if key.lstrip()[:1] != b"{" or PAYLOAD in self._names:
            return key
        return bytes(self._fields.decode(key).get(PAYLOAD, key))

    def _json_object(self, key: bytes) -> bytes:
        first = key.lstrip()[:1]
        if first == b"{":
            return key
        if first == b"[":
            return self._named(self._items.decode(key))
        return self._named([msgspec.json.decode(key, type=msgspec.Raw)])

    def _named(self, values: Sequence[bytes | msgspec.Raw]) -> bytes:
        if len(values) != len(self._names):
            raise ValueError(f"{len(values)} values for the key columns {', '.join(self._names)}")
        if len(values) > 1 and not self._ordered:
            raise ValueError("it has values without names, whose order only table.keys can tell")
        pairs = zip(self._names, values, strict=True)
        return b"{" + b",".join(msgspec.json.encode(name) + b":" + bytes(value) for name, value in pairs) + b"}"


def coalesce(first: pa.Array, second: pa.Array) -> pa.Array:
    """The first, or the second where that is null; of extension types too."""
    if isinstance(first, pa.ExtensionArray):
        return first.type.wrap_array(pc.coalesce(first.storage, second.storage))
    return pc.coalesce(first, second)
