"""The catch-all column: a JSON object with the fields of a record that are not declared, as they arrived.

It is cut out by a second parser, which is strict: with a catch-all, whatever is not JSON by the
letter is a dead letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa

# The second parser calls itself for every level, so that its own limit would depend on who calls it.
DEPTH_MAX = 500

_NULL = msgspec.Raw(b"null")

_BRACKETS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|([{\[])|([}\]])', re.DOTALL)


class CatchAll:
    """Cuts out what is not declared."""

    field = pa.field("rest", pa.large_string())

    def __init__(self, declared: Iterable[str], path: Sequence[str] = ()) -> None:
        """`path` leads to the object within the value whose fields are meant."""
        self._declared = frozenset(declared)
        self._path = path
        self._fields = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def column(self, values: list[bytes]) -> pa.Array:
        """One JSON text per value, null where everything is declared; ArrowInvalid when a value is not JSON."""
        try:
            return pa.array(map(self._rest, values), pa.large_binary(), size=len(values)).cast(pa.large_string())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise pa.ArrowInvalid(f"not JSON: {error}") from error

    def _rest(self, value: bytes) -> bytes | None:
        require_shallow(value)
        fields = self._fields.decode(value)
        for name in self._path:
            inner = fields.get(name)
            if inner is None or inner == _NULL:
                return None
            fields = self._fields.decode(inner)
        rest = [
            msgspec.json.encode(name) + b":" + raw for name, raw in fields.items() if name not in self._declared
        ]
        return b"{" + b",".join(rest) + b"}" if rest else None


def require_shallow(value: bytes) -> None:
    """Refuses what msgspec would go too deep for."""
    if value.count(b"[") + value.count(b"{") <= DEPTH_MAX:
        return
    depth = 0
    for token in _BRACKETS.finditer(value):
        depth += (token[1] is not None) - (token[2] is not None)
        if depth > DEPTH_MAX:
            raise pa.ArrowInvalid(f"nested deeper than the {DEPTH_MAX} levels that can be looked into")
