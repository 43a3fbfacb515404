"""The parser's complaints in words that help whoever reads a dead letter: the column, and no wrapping."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.types as pt

from frazil.decode.tokens import Node, scalars

# Messages quote the value, which may be large and stands in the dead letter anyway.
_LENGTH_MAX = 500

# What pyarrow and our wrapping put before arrow-rs's own words.
_PREFIXES = ("C Data interface error: ", "Json error: ", "Parser error: ", "whilst decoding field 'values': ")
_FIELD = re.compile(r"whilst decoding field '(.*?)': ")

# arrow-rs names the type it parses with, which is our widened one and would only confuse.
_MISSING = re.compile(r'Encountered unmasked nulls in non-nullable StructArray child: Field \{ "(.*?)": .*')
_NUMBER_GOT = re.compile(r"expected string got (-?[0-9].*)", re.DOTALL)
_NO_NUMBER = re.compile(
    r"(?:can't parse the string value (.*) to decimal|parse decimal overflow \((.*)\))", re.DOTALL
)
_NOT_THIS_DECIMAL = re.compile(r"expected (?:string|decimal) got ([-0-9{])")
_SCALED = "a number with a scale of its own fits no DECIMAL: set decimal.handling.mode = string at the source"
_PLAIN = 'set changes.decimals = "plain"'


def in_own_words(error: pa.ArrowInvalid, value: bytes, root: Node) -> str:
    """What is wrong with the value, and where."""
    words = str(error)
    for prefix in _PREFIXES:
        words = words.removeprefix(prefix)
    path: list[str] = []
    while outer := _FIELD.match(words):
        path.append(outer[1])
        words = words[outer.end() :]
    if missing := _MISSING.match(words):
        return shortened(f"{'.'.join([*path, missing[1]])} is NOT NULL, but null or missing")
    if no_number := _NO_NUMBER.fullmatch(words):
        return shortened(_no_number(no_number[1] or no_number[2] or "", value, root))
    if path and pt.is_decimal(_type_at(root, path)) and (other := _NOT_THIS_DECIMAL.match(words)):
        words = _SCALED if other[1] == "{" else f"{words.partition(' got ')[2]} is a number, not base64: {_PLAIN}"
    if path and (number := _NUMBER_GOT.fullmatch(words)) and pt.is_timestamp(_type_at(root, path)):
        words = f"{number[1]} is a number: say what it counts with decode.epoch_unit"
    return shortened(f"{'.'.join(path)}: {words}" if path else words)


def shortened(words: str) -> str:
    return words[:_LENGTH_MAX]


def _no_number(text: str, value: bytes, root: Node) -> str:
    """The parser does not say for which column it wanted a number."""
    for scalar in scalars(value, root):
        if scalar.text == text.encode() and scalar.node.is_exact:
            return f"value does not fit {scalar.node.path}: {text or 'an empty text'} is no {scalar.node.kind}"
    return f"{text or 'an empty text'} is no number that fits"


def _type_at(root: Node, path: list[str]) -> pa.DataType:
    node = root
    for name in path:
        node = _held(node.members[name])
    return node.kind


def _held(node: Node) -> Node:
    """What lists and maps hold in the end."""
    while inner := node.element or node.item:
        node = inner
    return node
