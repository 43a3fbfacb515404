"""The journal of one running pipeline: entries go in, and nothing that happens to it ever stops ingestion.

The table is the authority, so the journal may fail: a folder that cannot be written, a full disk or another
process that holds the lock costs one warning, and the pipeline goes on without it. What it does not
note is then not cleaned up by the next start; no row depends on it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import structlog

from frazil.journal.encode import Recorded, encode
from frazil.journal.files import checkpoints, log_name, log_order, logs, recover, write_checkpoint
from frazil.journal.frame import Frames, frame, read_frames
from frazil.protocol.entries import Entry
from frazil.protocol.recovery import RecoveryState

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How a journal is kept."""

    folder: Path
    checkpoint_entries: int = 10_000
    checkpoint_interval_s: float = 300.0
    max_files: int = 10


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Journal:
    """Appends entries once it is open; does nothing without settings, and from its first failure on."""

    def __init__(self, settings: JournalSettings | None = None, now_ms: Callable[[], int] = _now_ms) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._held: BinaryIO | None = None
        self._writer: _Log | None = None
        self._state = RecoveryState()
        self._since_checkpoint = 0
        self._checkpoint_ms = 0

    def open(self) -> None:
        """Takes up what earlier lives noted; an open journal is closed by whoever opened it."""
        if self._settings is not None:
            self._checkpoint_ms = self._now_ms()
            with self._failing_softly():
                self._open(self._settings)

    @property
    def is_kept(self) -> bool:
        return self._writer is not None

    @property
    def state(self) -> RecoveryState:
        """What all entries come to, those of earlier lives included."""
        return self._state

    def append(self, entry: Entry, *, durable: bool = False) -> None:
        """Notes something; with `durable` it survives a power failure once this returns."""
        with self._lock, self._failing_softly():
            if self._writer is None or self._settings is None:
                return
            self._append(self._writer, entry, durable=durable)
            waited_s = (self._now_ms() - self._checkpoint_ms) / 1000
            due = waited_s >= self._settings.checkpoint_interval_s
            if due or self._since_checkpoint >= self._settings.checkpoint_entries:
                self._checkpoint(self._settings)

    def close(self) -> None:
        """Before a graceful end: a checkpoint, so that the next start has nothing to replay."""
        with self._lock:
            with self._failing_softly():
                if self._settings is not None and self._writer is not None and self._since_checkpoint:
                    self._checkpoint(self._settings)
            self._let_go()

    def _open(self, settings: JournalSettings) -> None:
        settings.folder.mkdir(parents=True, exist_ok=True)
        self._held = (settings.folder / "lock").open("ab")
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(0, "another process writes it") from None
        found = recover(settings.folder)
        for note in found.notes:
            log.warning("the journal is damaged, which costs no row", journal=str(settings.folder), damage=note)
        self._state = found.state
        last = logs(settings.folder)[-1:]
        self._writer = self._continued(settings, last[0]) if last else None
        if self._writer is None:
            self._begin_log(settings)

    def _continued(self, settings: JournalSettings, path: Path) -> _Log | None:
        """The last log, without its torn tail; None if it is long, damaged or of another day."""
        frames = read_frames(path.read_bytes())
        is_long = len(frames.entries) >= settings.checkpoint_entries
        if frames.damage or is_long or log_order(path)[0] != self._day():
            return None
        return _Log.continued(path, frames)

    def _begin_log(self, settings: JournalSettings) -> None:
        """A log begins with a checkpoint, so that no older one is needed to make sense of it."""
        day = self._day()
        taken = [number for each, number in map(log_order, logs(settings.folder)) if each == day]
        if self._writer is not None:
            self._writer.close()
        self._writer = _Log.begun(settings.folder / log_name(day, max(taken, default=0) + 1))
        if self._state.entries:
            self._note_checkpoint(settings, self._writer)
        for files in (logs(settings.folder), checkpoints(settings.folder)):
            for old in files[: -settings.max_files]:
                old.unlink(missing_ok=True)

    def _append(self, writer: _Log, entry: Entry, *, durable: bool = False) -> Recorded:
        recorded = Recorded(self._now_ms(), entry)
        writer.append(frame(encode(recorded)), durable=durable)
        self._state = self._state.after(entry)
        self._since_checkpoint += 1
        return recorded

    def _checkpoint(self, settings: JournalSettings) -> None:
        assert self._writer is not None
        if self._writer.entries >= settings.checkpoint_entries or log_order(self._writer.path)[0] != self._day():
            self._begin_log(settings)
        else:
            self._note_checkpoint(settings, self._writer)

    def _note_checkpoint(self, settings: JournalSettings, writer: _Log) -> None:
        recorded = self._append(writer, self._state.checkpoint(self._since_checkpoint), durable=True)
        write_checkpoint(settings.folder, self._day(), recorded, writer.path, writer.size)
        self._since_checkpoint = 0
        self._checkpoint_ms = self._now_ms()

    def _day(self) -> str:
        return f"{datetime.fromtimestamp(self._now_ms() / 1000, UTC):%Y%m%d}"

    @contextmanager
    def _failing_softly(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever is wrong with it, the pipeline runs all the same
            assert self._settings is not None
            log.warning(
                "the pipeline goes on without its journal",
                journal=str(self._settings.folder),
                reason=getattr(error, "strerror", None) or str(error),
                remedy="no row depends on it, but the next start cannot clean up after a crash; see journal.dir",
            )
            self._let_go()

    def _let_go(self) -> None:
        for file in (self._writer, self._held):
            if file is not None:
                with suppress(OSError):
                    file.close()
        self._writer = self._held = None


class _Log:
    """The log that is appended to."""

    def __init__(self, path: Path, file: BinaryIO, entries: int, size: int) -> None:
        self.path = path
        self.entries = entries
        self.size = size
        self._file = file

    @classmethod
    def begun(cls, path: Path) -> _Log:
        file = path.open("xb", buffering=0)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # a file that is not in its folder after a power failure holds nothing
        finally:
            os.close(folder)
        return cls(path, file, 0, 0)

    @classmethod
    def continued(cls, path: Path, frames: Frames) -> _Log:
        file = path.open("ab", buffering=0)
        file.truncate(frames.good_bytes)
        return cls(path, file, len(frames.entries), frames.good_bytes)

    def append(self, data: bytes, *, durable: bool) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        if durable:
            os.fsync(self._file.fileno())
        self.entries += 1
        self.size += len(data)

    def close(self) -> None:
        self._file.close()


NO_JOURNAL = Journal()
