"""The journal's folder: logs and checkpoints, oldest first, and what they hold.

txlog-20261115-001.log       frames, appended to; a new file each day and when one is long enough
checkpoint-20261115.json     where replay begins: a log, a position in it, and the checkpoint that stands there
lock                         held by the one process that writes
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.journal.encode import Recorded, decode, encode
from frazil.journal.frame import Frames, read_frames
from frazil.protocol.entries import Checkpoint
from frazil.protocol.recovery import RecoveryState

_LOG = re.compile(r"txlog-(\d{8})-(\d{3,})\.log")
_CHECKPOINT = re.compile(r"checkpoint-(\d{8})\.json")


@dataclass(frozen=True, slots=True)
class JournalRead:
    """What a journal says, and what could not be read of it."""

    recorded: tuple[Recorded, ...]
    state: RecoveryState
    notes: tuple[str, ...]


def log_name(day: str, number: int) -> str:
    return f"txlog-{day}-{number:03d}.log"


def log_order(path: Path) -> tuple[str, int]:
    """The day of a log and its number on that day."""
    found = _LOG.fullmatch(path.name)
    assert found is not None
    return found[1], int(found[2])


def logs(folder: Path) -> list[Path]:
    return sorted((each for each in _names(folder) if _LOG.fullmatch(each.name)), key=log_order)


def checkpoints(folder: Path) -> list[Path]:
    return sorted(each for each in _names(folder) if _CHECKPOINT.fullmatch(each.name))


def _names(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def read_journal(folder: Path) -> JournalRead:
    """All entries of all logs that are kept, for people to read; whoever writes is not disturbed."""
    return _replay(RecoveryState(), [(path, 0) for path in logs(folder)])


def recover(folder: Path) -> JournalRead:
    """The entries since the last checkpoint, and what all entries come to."""
    kept = logs(folder)
    for path in reversed(checkpoints(folder)):
        if (found := _read_checkpoint(path, kept)) is not None:
            state, log, position = found
            later = [(each, 0) for each in kept if log_order(each) > log_order(log)]
            return _replay(state, [(log, position), *later])
    return _replay(RecoveryState(), [(path, 0) for path in kept])


def write_checkpoint(folder: Path, day: str, recorded: Recorded, log: Path, position: int) -> None:
    """Replaces the day's checkpoint; one that is half written is never seen."""
    text = encode(recorded).decode()
    facts = {"log": log.name, "position": position, "crc32": zlib.crc32(text.encode()), "checkpoint": text}
    path = folder / f"checkpoint-{day}.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    os.replace(fresh, path)


def _read_checkpoint(path: Path, kept: Sequence[Path]) -> tuple[RecoveryState, Path, int] | None:
    """None unless all of it fits together: then replay begins at the beginning."""
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        text: str = facts["checkpoint"]
        recorded = decode(text.encode())
        log = next(each for each in kept if each.name == facts["log"])
        position = int(facts["position"])
        whole = zlib.crc32(text.encode()) == facts["crc32"] and 0 <= position <= log.stat().st_size
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None
    if not whole or recorded is None or not isinstance(recorded.entry, Checkpoint):
        return None
    return RecoveryState().after(recorded.entry), log, position


def _replay(state: RecoveryState, parts: Sequence[tuple[Path, int]]) -> JournalRead:
    recorded: list[Recorded] = []
    notes: list[str] = []
    for path, position in parts:
        try:
            frames = read_frames(path.read_bytes()[position:])
        except OSError as error:
            notes.append(f"{path.name} cannot be read: {error.strerror}")
            continue
        notes += _notes(path, position, frames)
        for data in frames.entries:
            if (one := decode(data)) is None:
                notes.append(f"{path.name} has an entry that this version of frazil does not know: {data[:80]!r}")
                continue
            recorded.append(one)
            state = state.after(one.entry)
    return JournalRead(tuple(recorded), state, tuple(notes))


def _notes(path: Path, position: int, frames: Frames) -> list[str]:
    notes = [f"{path.name} is damaged from byte {position + d.start} to {position + d.end}" for d in frames.damage]
    if frames.torn_bytes:
        notes.append(f"{path.name} ends with {frames.torn_bytes} bytes of an entry that was never finished")
    return notes
