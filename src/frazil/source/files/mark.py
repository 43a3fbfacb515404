"""What the frontier remembers of files, and which files it therefore finds to be late.

An offset is a running number of rows over all files; only a mark finds it again after a restart. It names the file
of the row before the frontier, its first offset, rows, size and time. Of the files up to that name it knows:

    the last 100        a fingerprint each, of name and size
    those before them   their number, and the sum of their fingerprints
    all of them         the newest time of modification

A file is late when it lies at or before the mark's name and was not there, or not with this size, when the mark was
made. What a start can see:

    among the last 100                             always
    before them, and nothing was removed there     always, by number and sum
    before them, and files were removed meanwhile  if it was modified after all that had been read
    the same size, other bytes                     never: finished files are not read again

A changefeed's `.RESOLVED` files are left out of all this: one that comes late only repeats what is known.

While a process runs it remembers every name, and sees all of these but the last. Fingerprints have 36 bits: one
late file in a billion is taken for one of the 100.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from frazil.source.files.folder import File

_TAIL = 100
_LETTERS = 6
_64_BITS = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Mark:
    """The file of the row before the frontier, and a digest of all files up to it."""

    file: File
    start: int
    rows: int
    newest_ns: int = 0
    older_count: int = 0
    older_sum: int = 0
    tail: frozenset[str] = frozenset()

    @property
    def end(self) -> int:
        """The offset behind the file's last row."""
        return self.start + self.rows

    @classmethod
    def of(cls, file: File, start: int, rows: int, done: Iterable[File]) -> Mark:
        """`done` are all files that are there up to this one."""
        files = sorted(_data(done), key=lambda f: f.name)
        older, tail = files[:-_TAIL], files[-_TAIL:]
        newest_ns = max((f.modified_ns for f in files), default=0)
        return cls(file, start, rows, newest_ns, len(older), _sum(older), frozenset(map(_short, tail)))

    def encode(self) -> str:
        """Numbers first and the name last, which may hold blanks."""
        file = self.file
        numbers = (self.start, self.rows, file.size, file.modified_ns, self.newest_ns, self.older_count)
        tail = "".join(sorted(self.tail)) or "-"
        return f"{' '.join(map(str, numbers))} {self.older_sum:x} {tail} {file.name}"

    @classmethod
    def decode(cls, text: str) -> Mark:
        *numbers, older_sum, tail, name = text.split(" ", 8)
        start, rows, size, modified_ns, newest_ns, older_count = map(int, numbers)
        shorts = () if tail == "-" else (tail[i : i + _LETTERS] for i in range(0, len(tail), _LETTERS))
        file = File(name, size, modified_ns)
        return cls(file, start, rows, newest_ns, older_count, int(older_sum, 16), frozenset(shorts))

    def late(self, listed: Sequence[File]) -> list[File]:
        """Files at or before the mark that were not there when it was made; the table above says what it sees.

        Where only number and sum tell that there is one, it is the last one modified that gets the blame.
        """
        behind = [f for f in _data(listed) if f.name <= self.file.name]
        first_known = min((f.name for f in behind if _short(f) in self.tail), default=None)
        unknown = [f for f in behind if _short(f) not in self.tail]
        late = [f for f in unknown if (first_known or f.name) < f.name or f.modified_ns > self.newest_ns]
        older = sorted(set(unknown).difference(late), key=lambda f: f.modified_ns)
        surplus = len(older) - self.older_count
        if surplus > 0 or (surplus == 0 and _sum(older) != self.older_sum):
            late += older[-max(1, surplus) :]
        return late

    def missing(self, listed: Iterable[File]) -> int:
        """How many of the last files before the mark are no longer there."""
        return len(self.tail.difference(map(_short, listed)))


def _data(files: Iterable[File]) -> list[File]:
    return [file for file in files if not file.is_resolved_mark]


def _short(file: File) -> str:
    return base64.urlsafe_b64encode(_digest(file.name, file.size))[:_LETTERS].decode()


def _sum(files: Iterable[File]) -> int:
    return sum(int.from_bytes(_digest(f.name, f.size), "big") for f in files) & _64_BITS


@lru_cache(maxsize=2**18)
def _digest(name: str, size: int) -> bytes:
    return hashlib.blake2b(f"{name}\0{size}".encode(), digest_size=8).digest()
