"""Numbers of columns for dates and times put in quotes, for chunks in which numbers and texts come mixed."""

from __future__ import annotations

from collections.abc import Container

import pyarrow.types as pt

from frazil.decode.tokens import Node, scalars


def quoted_times(values: list[bytes], root: Node, paths: Container[str]) -> list[bytes]:
    """The values with the numbers of these columns for dates and times written as texts."""
    return [_quoted(value, root, paths) for value in values]


def _quoted(value: bytes, root: Node, paths: Container[str]) -> bytes:
    parts, position = [], 0
    for scalar in scalars(value, root):
        if scalar.is_number and pt.is_temporal(scalar.node.kind) and scalar.node.path in paths:
            parts += [value[position : scalar.start], b'"', scalar.text, b'"']
            position = scalar.end
    return b"".join([*parts, value[position:]]) if parts else value
