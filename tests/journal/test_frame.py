"""Frames: whatever happens to a file, what is left of it is read, and what is not is noticed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.journal.frame import ENTRY_BYTES_MAX, Damage, frame, read_frames

ENTRIES = st.lists(
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20), max_size=4).map(
        lambda value: json.dumps(value).encode()
    ),
    max_size=8,
)


def file_of(entries: list[bytes]) -> bytes:
    return b"".join(map(frame, entries))


@given(ENTRIES)
def test_what_was_framed_is_read_back(entries: list[bytes]) -> None:
    """REC-01."""
    found = read_frames(file_of(entries))
    assert list(found.entries) == entries
    assert (found.damage, found.torn_bytes) == ((), 0)


@given(ENTRIES, st.data())
def test_any_prefix_of_a_file_reads_as_a_prefix_of_its_entries(entries: list[bytes], data: st.DataObject) -> None:
    """REC-01, FAULT-43: a torn tail is cut at the last good frame."""
    whole = file_of(entries)
    length = data.draw(st.integers(0, len(whole)))
    found = read_frames(whole[:length])
    assert list(found.entries) == entries[: len(found.entries)]
    assert found.damage == ()
    assert found.good_bytes == len(file_of(entries[: len(found.entries)]))
    assert len(found.entries) == len(entries) or length < len(file_of(entries[: len(found.entries) + 1]))


@given(ENTRIES.filter(bool), st.data())
def test_any_bit_flip_is_found_and_costs_one_entry(entries: list[bytes], data: st.DataObject) -> None:
    """REC-01, FAULT-43."""
    whole = bytearray(file_of(entries))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    ends = [len(file_of(entries[: n + 1])) for n in range(len(entries))]
    hit = next(n for n, end in enumerate(ends) if bit // 8 < end)

    found = read_frames(bytes(whole))

    assert list(found.entries) == entries[:hit] + entries[hit + 1 :]
    if hit == len(entries) - 1:
        assert (found.damage, found.torn_bytes) == ((), len(frame(entries[hit])))
    else:
        assert found.damage == (Damage(ends[hit] - len(frame(entries[hit])), ends[hit]),)
        assert found.torn_bytes == 0


@given(ENTRIES, st.binary(max_size=200))
def test_what_follows_the_last_frame_is_a_tail_to_cut(entries: list[bytes], garbage: bytes) -> None:
    whole = file_of(entries)
    found = read_frames(whole + garbage)
    assert list(found.entries) == entries
    assert (found.good_bytes, found.torn_bytes) == (len(whole), len(garbage))


def test_zeros_are_no_frames() -> None:
    """What a file system leaves where a write was promised but never made."""
    assert read_frames(bytes(4096)).entries == ()


@pytest.mark.parametrize("entry", [b"", b"[1]", b"{" + b" " * ENTRY_BYTES_MAX])
def test_what_could_not_be_read_again_is_not_framed(entry: bytes) -> None:
    with pytest.raises(ValueError, match="JSON object"):
        frame(entry)
