"""One JSON value as a row of scalars, each with the declared type it is meant for.

For the few values that need a second look. It takes the text as the parser does: what the parser refuses, it may
read in any way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from frazil.decode.wire import Spelling

_TOKEN = re.compile(
    rb'"(?P<text>[^"\\]*+(?:\\.[^"\\]*+)*+)"(?P<colon>\s*+:)?'
    rb"|(?P<number>-?[0-9][-+0-9.eE]*+)|(?P<bracket>[{}\[\]])",
    re.DOTALL,
)


@dataclass(frozen=True)
class Node:
    """A declared type and what lies within it; Arrow's own types take long to ask."""

    path: str
    kind: pa.DataType
    # Whether all digits of a number matter.
    is_exact: bool = False
    members: dict[str, Node] = field(default_factory=dict)
    # What a list holds; the keys and the items of a map.
    element: Node | None = None
    key: Node | None = None
    item: Node | None = None

    @cached_property
    def names_without_numbers(self) -> frozenset[bytes]:
        """Names that stand for columns without exact numbers wherever they occur."""
        inner = list(nodes(self))
        named = [(name.encode(), member) for node in inner for name, member in node.members.items()]
        # The keys of such a map may have any name.
        if any(each.is_exact for node in inner if node.item for each in nodes(node.item)):
            return frozenset()
        exact = {name for name, member in named if any(each.is_exact for each in nodes(member))}
        return frozenset(name for name, _ in named) - exact


class Scalar(NamedTuple):
    """A text or a number of a declared column."""

    text: bytes
    start: int
    end: int
    is_number: bool
    node: Node


def nodes(node: Node) -> Iterator[Node]:
    """The node and all that lie within it."""
    yield node
    for inner in (*node.members.values(), node.element, node.key, node.item):
        if inner:
            yield from nodes(inner)


def tree(declared: pa.Schema, spelling: Spelling) -> Node:
    """The declared columns, for `scalars`."""
    return _node("", pa.struct(list(declared)), spelling)


def scalars(value: bytes, root: Node) -> Iterator[Scalar]:
    """Texts and numbers of declared columns, in their order, keys of maps among them."""
    due: Node | None = root
    open_: list[Node | None] = []
    for token in _TOKEN.finditer(value):
        group = token.lastgroup
        if group == "bracket":
            if token[0] in b"{[":
                open_.append(due)
                due = due.element if due and token[0] == b"[" else None
            else:
                del open_[-1:]
                owner = open_[-1] if open_ else None
                due = owner.element if owner else None
        elif group == "colon":
            owner = open_[-1] if open_ else None
            if owner and owner.key:
                yield Scalar(token["text"], *token.span("text"), False, owner.key)
            due = _member(owner, token["text"]) if owner else None
        elif due is not None:
            assert group is not None
            yield Scalar(token[group], *token.span(group), group == "number", due)


def _node(path: str, kind: pa.DataType, spelling: Spelling) -> Node:
    if pt.is_struct(kind):
        inner = {
            each.name: _node(f"{path}.{each.name}" if path else each.name, each.type, spelling) for each in kind
        }
        return Node(path, kind, members=inner)
    if pt.is_map(kind):
        key, item = _node(path, kind.key_type, spelling), _node(path, kind.item_type, spelling)
        return Node(path, kind, key=key, item=item)
    if pt.is_large_list(kind):
        return Node(path, kind, element=_node(path, kind.value_type, spelling))
    return Node(path, kind, is_exact=_is_exact(path, kind, spelling))


def _is_exact(path: str, kind: pa.DataType, spelling: Spelling) -> bool:
    if pt.is_decimal(kind):
        return spelling.decimals == "plain"
    return pt.is_integer(kind) or pt.is_timestamp(kind) or path in spelling.epoch_units


def _member(owner: Node, key: bytes) -> Node | None:
    return owner.item or owner.members.get(_unescaped(key))


def _unescaped(key: bytes) -> str:
    try:
        return str(json.loads(b'"' + key + b'"')) if b"\\" in key else key.decode()
    except ValueError:
        return ""
