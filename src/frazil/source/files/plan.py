"""The driver's side of files: in which order they are read, and which offset each row has.

All files are one partition. Its offsets count rows over all files, in the order of their names, from the first one
ever read. A file gets its offsets once, when it is counted; the frontier's mark (mark.py) finds them again. Row
counts must be read: JSON lines and CSV are streamed once for it, of Parquet only the footer. A look at the folder
counts for a few seconds at most and says if there is more.

    seen                                                 outcome
    a new name behind the last one                       counted, and read
    younger than `settle`                                waits, and with it all names behind it
    a new name, or another size, before the frontier     late: DataLoss, or ignored if the user says so
    the same between the frontier and the last name      SourceUnavailable: numbered anew from the frontier on
    a finished file is gone                              nothing: somebody tidied up
    a file is gone that has rows to be read              DataLoss, or skipped if the user says so
    a file is gone while changes of a feed wait          the same at a start: their rows may have been in it
    the file at the frontier, partly read, is another    SourceChanged
    the folder is missing                                ConfigError at the first look, then SourceUnavailable
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile

import structlog

from frazil.errors import ConfigError, DataLoss, SourceChanged, SourceUnavailable
from frazil.pipeline import FilesSource
from frazil.protocol.plan import Log, SourceObserved
from frazil.protocol.positions import Frontier, Partition, Position, Span
from frazil.source import Wants
from frazil.source.files.folder import File, Folder
from frazil.source.files.formats import Counted, content
from frazil.source.files.mark import Mark
from frazil.source.files.read import FilesReader, NumberedFile

_COUNTING_S = 2.0
_THREADS = 8
"""Counting small files is waiting for the storage."""
_AT_ONCE = 32
_LOOK_SHARE = 0.1
"""Listing a large bucket takes its time: no more than this share of it all."""
_ID = "files"
"""Takes the place of a topic id: no Kafka topic has this one."""

log = structlog.get_logger()


class FilesFolder:
    """The files of one pipeline; implements `Source`."""

    def __init__(
        self,
        spec: FilesSource,
        booleans: frozenset[str] = frozenset(),
        *,
        to_read_again: bool = False,
        with_marks: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._spec = spec
        self._booleans = booleans
        self._to_read_again = to_read_again
        self._with_marks = with_marks
        self._clock = clock
        self._folder = Folder(spec.path)
        self._partition: Partition = (spec.topic, 0)
        self._listed: list[File] | None = None
        self._list_again_at = 0.0
        self._mark: Mark | None = None
        self._committed = 0
        self._unsettled = 0
        self._line: _Line | None = None
        self._ignored: set[File] = set()
        self._is_torn = False

    def observe(self) -> SourceObserved:
        """How far the rows reach that are counted; before `resume`, only that there are files."""
        listed = self._list()
        if self._mark is None:
            return self._observed(Log(0, 0), more=bool(listed))
        if self._line is None:
            self._line = self._begin(listed, self._mark)
        else:
            self._compare(listed, self._line, self._mark)
        more = self._extend(self._line, listed)
        return self._observed(Log(self._line.earliest, self._line.end), more)

    def starting_frontier(self) -> Frontier:
        """Before the first row of the first file, or of the first one behind `source.starting_from`."""
        name = "" if self._spec.starting_from == "earliest" else self._spec.starting_from
        done = [file for file in self._list() if file.name <= name]
        mark = Mark.of(File(name, 0, 0), 0, 0, done)
        return Frontier({self._partition: Position(0, mark=mark.encode())}, self._ids)

    def resume(self, frontier: Frontier) -> None:
        """Numbers are given anew from here on; whatever was numbered and not committed is forgotten."""
        self._stand(frontier)
        self._line = None
        self._list_again_at = 0.0

    def marks(self, span: Span) -> Mapping[Partition, str]:
        """The mark behind the last row of the span."""
        if self._partition not in span.ranges:
            return {}
        return {self._partition: self._numbered().mark(span.ranges[self._partition].end).encode()}

    def reader(self, wants: Wants, span: Span) -> FilesReader:
        """What the workers read with; knows only the files of the span."""
        offsets = span.ranges[self._partition]
        files = self._numbered().between(offsets.start, offsets.end)
        return FilesReader(self._folder, self._spec.format, self._booleans, wants, files)

    def acknowledge(self, frontier: Frontier) -> None:
        """Files before the frontier are finished, unless changes in them wait: from now on they may go."""
        self._numbered().finish(self._stand(frontier), self._unsettled)
        self._is_torn = False

    def close(self) -> None:
        """Nothing to let go of."""

    def _stand(self, frontier: Frontier) -> Mark:
        """A table that was adopted may have come as far as this pipeline: not at all."""
        position = frontier.positions.get(self._partition, Position(0))
        self._mark = Mark.decode(position.mark) if position.mark else Mark(File("", 0, 0), 0, 0)
        self._committed, self._unsettled = position.offset, position.unsettled
        return self._mark

    @property
    def _ids(self) -> dict[str, str]:
        return {self._spec.topic: _ID}

    def _observed(self, seen: Log, more: bool) -> SourceObserved:
        torn = frozenset({self._partition}) if self._is_torn else frozenset[Partition]()
        return SourceObserved({self._partition: seen}, self._ids, more, torn)

    def _numbered(self) -> _Line:
        assert self._line is not None, "asked before anything was observed"
        return self._line

    def _list(self) -> list[File]:
        began = time.monotonic()
        if self._listed is not None and began < self._list_again_at:
            return self._listed
        try:
            listed = self._folder.files(self._spec.pattern, with_marks=self._with_marks)
        except FileNotFoundError:
            if self._listed is not None:
                raise SourceUnavailable(f"{self._spec.path} is gone", "bring the folder back") from None
            raise ConfigError(f"source.path: there is no folder {self._spec.path}", "create it") from None
        ended = time.monotonic()
        self._list_again_at = ended + (ended - began) / _LOOK_SHARE
        self._listed = listed
        return listed

    def _begin(self, listed: Sequence[File], mark: Mark) -> _Line:
        """The files from the frontier on; the one that the frontier lies in comes first."""
        self._is_torn = False
        late = mark.late(listed)
        behind = {file.name: file for file in listed if file.name <= mark.file.name}
        if self._to_read_again:
            return self._look_back([file for file in behind.values() if file not in late], mark, 0)
        is_finished = self._committed == mark.end
        self._heed(file for file in late if is_finished or file.name != mark.file.name)
        if self._unsettled < self._committed:
            self._is_torn = not self._are_kept(behind, mark)
            return self._look_back([file for file in behind.values() if file not in late], mark, self._unsettled)
        if is_finished:
            return _Line(behind, mark.file.name, mark.end)
        found = behind.pop(mark.file.name, None)
        if found is None:
            if self._spec.fail_on_data_loss:
                raise _lost(mark.file, self._committed - mark.start, mark.rows)
            return _Line(behind, mark.file.name, mark.end)
        (counted,) = self._counts([found])
        if found != mark.file or counted.rows != mark.rows:
            raise _changed(found)
        return _Line(behind, mark.file.name, mark.start, [NumberedFile(found, mark.start, counted)])

    def _look_back(self, done: Sequence[File], mark: Mark, floor: int) -> _Line:
        """What was read and is still there, numbered backwards from the frontier until the floor is reached."""
        numbered: list[NumberedFile] = []
        behind = {file.name: file for file in done}
        start = mark.end
        if mark.file.name not in behind:
            return _Line(behind, mark.file.name, start)
        for at in range(len(done), 0, -_AT_ONCE):
            some = done[max(0, at - _AT_ONCE) : at]
            for file, counted in zip(reversed(some), reversed(self._counts(some)), strict=True):
                if start <= floor or counted.rows > start:
                    return _Line(behind, mark.file.name, start, numbered)
                start -= counted.rows
                numbered.insert(0, NumberedFile(file, start, counted))
                del behind[file.name]
        return _Line(behind, mark.file.name, start, numbered)

    def _are_kept(self, behind: Mapping[str, File], mark: Mark) -> bool:
        """Offsets before the frontier are found by counting back, which a file that is gone would mislead.

        Files in front of it then have higher offsets than before, so that none of what is left is overlooked.
        """
        is_kept = behind.get(mark.file.name) == mark.file and not mark.missing(behind.values())
        if not is_kept and self._spec.fail_on_data_loss:
            raise DataLoss(
                f"files up to {mark.file.name} were changed or removed while changes of the feed wait in them, "
                f"from offset {self._unsettled} on",
                "bring them back as they were; to go on without these rows set source.fail_on_data_loss = false",
            )
        return is_kept

    def _compare(self, listed: Sequence[File], line: _Line, mark: Mark) -> None:
        """Holds the listing against what is known; the table above says what follows."""
        there = {file.name: file for file in listed}
        known, unread = line.known, line.unread(self._unsettled)
        news = [f for f in listed if f.name <= line.last and _is_news(f, known, unread)]
        if any(file.name == mark.file.name and file.name in unread for file in news):
            raise _changed(mark.file)
        self._heed(file for file in news if file.name <= mark.file.name and not file.is_resolved_mark)
        ahead = [file.name for file in news if file.name > mark.file.name]
        if ahead:
            raise SourceUnavailable(f"{ahead[0]} appeared or changed before {line.last}; numbering the files anew")
        gone = [numbered for name, numbered in unread.items() if name not in there]
        if gone and self._spec.fail_on_data_loss:
            raise _lost(gone[0].file, max(0, self._unsettled - gone[0].start), gone[0].counted.rows)
        if gone:
            raise SourceUnavailable(f"{gone[0].file.name} was removed before it was read; numbering the files anew")
        done = [file for file in listed if file.name <= mark.file.name and file.name not in unread]
        line.behind = {file.name: file for file in done}

    def _heed(self, late: Iterable[File]) -> None:
        """Late files stop the pipeline; ignored ones are named once, and count as read."""
        late = [file for file in late if file not in self._ignored]
        if late and self._spec.on_late_file == "fail":
            raise _late([file.name for file in late])
        for file in late:
            self._ignored.add(file)
            log.warning("a late file is not read", file=file.name, ignored=len(self._ignored))

    def _extend(self, line: _Line, listed: Sequence[File]) -> bool:
        """Counts further files for a while; whether some are left that could be."""
        if self._to_read_again:
            return False
        waiting = self._settled([file for file in listed if file.name > line.last])
        enough_at = time.monotonic() + _COUNTING_S
        while waiting and time.monotonic() < enough_at:
            some, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            line.append(some, self._counts(some))
        return bool(waiting)

    def _settled(self, files: Sequence[File]) -> Sequence[File]:
        """Those before the first one that its producer may still be writing."""
        if self._spec.settle == "off":
            return files
        ripe_ns = (self._clock() - self._spec.settle) * 1e9
        return list(takewhile(lambda file: file.modified_ns <= ripe_ns, files))

    def _counts(self, files: Sequence[File]) -> list[Counted]:
        def count(file: File) -> Counted:
            return content(self._folder, file.name, self._spec.format, self._booleans).count()

        try:
            with ThreadPoolExecutor(_THREADS, "frazil-count") as threads:
                return list(threads.map(count, files))
        except FileNotFoundError as error:
            raise SourceUnavailable(f"a file was removed before it was counted: {error}") from error


class _Line:
    """Files in order: those that are done with, and those whose rows have offsets.

    Epochs are read beside the thread that appends to it, so that `numbered` is replaced and never shortened.
    """

    def __init__(
        self, behind: dict[str, File], last: str, earliest: int, numbered: Sequence[NumberedFile] = ()
    ) -> None:
        self.behind = behind
        self.last = last
        self.earliest = earliest
        self.numbered = list(numbered)

    @property
    def end(self) -> int:
        return self.numbered[-1].end if self.numbered else self.earliest

    @property
    def known(self) -> dict[str, File]:
        return {**self.behind, **{numbered.file.name: numbered.file for numbered in self.numbered}}

    def unread(self, settled: int) -> dict[str, NumberedFile]:
        """Those with rows that no table has yet."""
        return {n.file.name: n for n in self.numbered if n.end > max(n.start, settled)}

    def append(self, files: Sequence[File], counts: Sequence[Counted]) -> None:
        for file, counted in zip(files, counts, strict=True):
            self.numbered.append(NumberedFile(file, self.end, counted))
            self.last = file.name

    def finish(self, mark: Mark, settled: int) -> None:
        """Lets go of the places in files that are done with."""
        done = [n for n in self.numbered if n.file.name <= mark.file.name and n.end <= settled]
        self.behind = {**self.behind, **{n.file.name: n.file for n in done}}
        if done:
            self.earliest = done[-1].end
            self.numbered = self.numbered[len(done) :]

    def mark(self, end: int) -> Mark:
        numbered = self.numbered
        last = numbered[bisect_left(numbered, end, key=lambda n: n.end)]
        done = [file for name, file in self.known.items() if name <= last.file.name]
        return Mark.of(last.file, last.start, last.counted.rows, done)

    def between(self, start: int, end: int) -> list[NumberedFile]:
        return [n.within(start, end) for n in self.numbered if start < n.end and n.start < end]


def _is_news(file: File, known: Mapping[str, File], unread: Mapping[str, NumberedFile]) -> bool:
    """A file that is done with is known by its size; one that is not, also by its time."""
    before = known.get(file.name)
    return before is None or before.size != file.size or (file.name in unread and before != file)


def _late(names: Sequence[str]) -> DataLoss:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return DataLoss(
        f"{names[0]}{more} appeared or grew behind the frontier, where everything was read already",
        'give it a name behind all others; to go on without its rows set source.on_late_file = "ignore"; for '
        "producers that are slow or write out of order set source.settle",
    )


def _lost(file: File, read: int, rows: int) -> DataLoss:
    return DataLoss(
        f"{file.name} was removed before rows {read + 1:,} to {rows:,} of it were read",
        "bring it back as it was; to go on without these rows set source.fail_on_data_loss = false",
    )


def _changed(file: File) -> SourceChanged:
    return SourceChanged(
        f"{file.name} was changed after some of its rows were read: its size, its time or its number of rows is "
        "another one",
        "bring it back as it was, with its time of modification; files must not change once they are read",
    )
