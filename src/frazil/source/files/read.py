"""The workers' side: the rows of a slice, from the files that the driver numbered.

A file is looked at before and after it is read. If it is no longer the one that was counted, the slice is
unavailable, and the driver looks anew and decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frazil.errors import SpanUnavailable
from frazil.protocol.positions import Slice
from frazil.records import Records
from frazil.source import Wants
from frazil.source.files.folder import File, Folder
from frazil.source.files.formats import Counted, Format, content


@dataclass(frozen=True, slots=True)
class NumberedFile:
    """A file whose rows have offsets, from `start` on."""

    file: File
    start: int
    counted: Counted

    @property
    def end(self) -> int:
        return self.start + self.counted.rows

    def within(self, start: int, end: int) -> NumberedFile:
        """The same with only those places that help to read these offsets."""
        before = max(place for place in self.counted.places if self.start + place[0] <= max(start, self.start))
        places = [place for place in self.counted.places if before < place and self.start + place[0] < end]
        return NumberedFile(self.file, self.start, Counted(self.counted.rows, (before, *places)))


@dataclass(frozen=True)
class FilesReader:
    """Reads slices of rows; travels to the workers in a pickle."""

    folder: Folder
    format: Format | None
    booleans: frozenset[str]
    wants: Wants
    files: Sequence[NumberedFile]

    def read(self, part: Slice) -> Iterator[Records]:
        """Every row of the slice, in runs of at most 10,000, each of one file; its key is `file:row`."""
        for numbered in self.files:
            if part.start < numbered.end and numbered.start < part.end:
                try:
                    yield from self._read(numbered, part)
                except FileNotFoundError:
                    raise _gone(numbered.file) from None

    def _read(self, numbered: NumberedFile, part: Slice) -> Iterator[Records]:
        self._require_unchanged(numbered.file)
        inside = content(self.folder, numbered.file.name, self.format, self.booleans)
        start, end = max(part.start, numbered.start), min(part.end, numbered.end)
        rows = inside.read(start - numbered.start, end - numbered.start, numbered.counted.places)
        for numbers, values in rows:
            yield self._records(numbered, part, numbers, values)
        self._require_unchanged(numbered.file)

    def _require_unchanged(self, file: File) -> None:
        if self.folder.look(file.name) != file:
            raise _gone(file)

    def _records(self, numbered: NumberedFile, part: Slice, numbers: Sequence[int], values: list[bytes]) -> Records:
        file, count = numbered.file, len(values)
        run = Records(part.topic, part.partition, [numbered.start + n for n in numbers], list(values))
        run.file, run.file_start = file.name, numbered.start
        if self.wants.keys:
            prefix = f"{file.name}:".encode()
            run.keys = [prefix + b"%d" % (number + 1) for number in numbers]
        if self.wants.timestamps:
            run.timestamps_ms = [file.modified_ns // 1_000_000] * count
        if self.wants.headers:
            run.headers = [None] * count
        return run


def _gone(file: File) -> SpanUnavailable:
    return SpanUnavailable(
        f"{file.name} was changed or removed after it was counted",
        "if its producer was still writing it, set source.settle",
    )
