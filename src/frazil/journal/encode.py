"""Entries as compact JSON, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, cast, get_args, get_origin, get_type_hints

from frazil.protocol.entries import KINDS, Entry, EpochBegun, FileNoted, TableTouched
from frazil.protocol.positions import Frontier, Span


@dataclass(frozen=True, slots=True)
class Recorded:
    """An entry, and when it was written."""

    at_ms: int
    entry: Entry

    @property
    def kind(self) -> str:
        return kind_of(type(self.entry))


def kind_of(entry: type[Entry]) -> str:
    """`EpochBegun` → `epoch-begun`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", entry.__name__).lower()


_BY_KIND = {kind_of(each): each for each in KINDS}
_PARTS = (EpochBegun, FileNoted, TableTouched)
_HINTS: dict[type[Any], dict[str, Any]] = {each: get_type_hints(each) for each in (*KINDS, *_PARTS)}


def plain(recorded: Recorded) -> dict[str, Any]:
    """The entry as nested plain values."""
    return {"at": recorded.at_ms, "kind": recorded.kind, **_plain(recorded.entry)}


def encode(recorded: Recorded) -> bytes:
    return json.dumps(plain(recorded), separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> Recorded | None:
    """None for what another version of frazil wrote and this one does not know."""
    try:
        values = json.loads(data)
        return Recorded(int(values["at"]), cast(Entry, _made(_BY_KIND[values["kind"]], values)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, Frontier | Span):
        return value.encode()
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def _made(kind: type[Any], values: Mapping[str, Any]) -> Any:
    hints = _HINTS[kind]
    known = {each.name for each in fields(kind) if each.name in values or _is_required(each)}
    return kind(**{name: _typed(hints[name], values[name]) for name in known})


def _typed(hint: Any, value: Any) -> Any:
    if hint in (Frontier, Span):
        return hint.decode(value)
    if hint in _PARTS:
        return _made(hint, value)
    if get_origin(hint) is tuple:
        return tuple(_typed(get_args(hint)[0], each) for each in value)
    return value


def _is_required(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING
