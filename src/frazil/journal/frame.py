"""Frames: how entries lie in a file, so that damage is found and everything else is still read.

    [length, 4 bytes][entry, so many bytes][CRC32, 4 bytes]

Numbers are big-endian; the CRC is over length and entry, so that a file of zeros holds no frame. What follows
the last good frame is a torn or corrupt tail, and is cut. Damage before it is passed over: the next
frame is found by trying every position, because a false hit would have to have the right CRC by chance.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

ENTRY_BYTES_MAX = 16 * 1024 * 1024

_LENGTH = struct.Struct(">I")
_FRAME_BYTES = 2 * _LENGTH.size
_ENTRY_BEGINS = b"{"


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no frame, with good frames after them."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Frames:
    """What a file holds."""

    entries: tuple[bytes, ...]
    damage: tuple[Damage, ...]
    good_bytes: int
    """up to the end of the last good frame"""
    size: int

    @property
    def torn_bytes(self) -> int:
        """The tail that is no frame."""
        return self.size - self.good_bytes


def frame(entry: bytes) -> bytes:
    """One entry, a JSON object, ready to be appended."""
    if not entry.startswith(_ENTRY_BEGINS) or len(entry) > ENTRY_BYTES_MAX:
        raise ValueError(f"an entry is a JSON object of at most {ENTRY_BYTES_MAX:,} bytes")
    body = _LENGTH.pack(len(entry)) + entry
    return body + _LENGTH.pack(zlib.crc32(body))


def read_frames(data: bytes) -> Frames:
    """Every entry that can be read, whatever lies between them."""
    entries: list[bytes] = []
    damage: list[Damage] = []
    good = 0
    for start, entry in _frames(data):
        if start > good:
            damage.append(Damage(good, start))
        entries.append(entry)
        good = start + _FRAME_BYTES + len(entry)
    return Frames(tuple(entries), tuple(damage), good, len(data))


def _frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while 0 <= at <= len(data) - _FRAME_BYTES:
        entry = _entry_at(data, at)
        if entry is not None:
            yield at, entry
            at += _FRAME_BYTES + len(entry)
        else:
            # An entry begins with a brace, behind its length.
            at = data.find(_ENTRY_BEGINS, at + 1 + _LENGTH.size) - _LENGTH.size


def _entry_at(data: bytes, at: int) -> bytes | None:
    (length,) = _LENGTH.unpack_from(data, at)
    end = at + _LENGTH.size + length
    if length > ENTRY_BYTES_MAX or end + _LENGTH.size > len(data):
        return None
    entry = data[at + _LENGTH.size : end]
    (expected,) = _LENGTH.unpack_from(data, end)
    good = entry.startswith(_ENTRY_BEGINS) and zlib.crc32(data[at:end]) == expected
    return entry if good else None
