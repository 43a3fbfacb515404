"""Bounds of text, shortened."""

from __future__ import annotations

_SURROGATES = range(0xD800, 0xE000)
_LAST_CODE_POINT = 0x10FFFF


def raised(text: str) -> str | None:
    """The shortest text above all that begin with this one; None where there is none."""
    for end in range(len(text), 0, -1):
        successor = ord(text[end - 1]) + 1
        if successor in _SURROGATES:
            successor = _SURROGATES.stop
        if successor <= _LAST_CODE_POINT:
            return text[: end - 1] + chr(successor)
    return None
