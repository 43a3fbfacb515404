"""Resolved timestamps: epochs by the source's own time instead of by offsets.

Theory. A change feed carries the commit time of every change, and now and then, in each partition, a mark: no
change up to this time will come after it that has not come before it. Changes beyond the mark's time may stand
before it, and the feed may repeat itself.

An epoch covers the changes in (R_prev, R] and nothing else, where R is a time that all partitions have a mark for.
In each partition it reaches up to the first mark at or beyond R. What stands before that mark but is later than R
waits: the position keeps the offset of the first such change, and the next epoch reads again from there. What is
not later than R_prev was published already; it is a repetition and left out.

    offsets of a partition      0    1    2    3    4    5    6
    commit times                5   12   (10)  8   14   (15) 12
                                                             └ repeated after the mark of 15: left out
    epoch R = 10                [0, 3): the change of 5; that of 12 waits, so reading again begins at offset 1
    epoch R = 15                [3, 6): those of 12 and 14; that of 8 is no later than 10: left out

Everything that a start must know stands in the frontier: R, the offsets behind the marks, and those of the first
changes that wait. A partition may be ahead of R, because its first mark beyond R is of a later time. That mark is
then the record just before its offset, so looking for marks begins there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Literal

from frazil.errors import UndecodableRecord
from frazil.protocol.plan import SourceObserved
from frazil.protocol.positions import Frontier, Partition, Range, Slice, Span

Time = Decimal
"""A hybrid logical clock's reading: nanoseconds before the point, a counter of ten digits behind it."""

Policy = Literal["each", "latest"]
"""One epoch for each resolved time, or for the latest that there is: fewer snapshots while catching up."""

_DIGITS, _COUNTER_DIGITS = 38, 10
"""What a DECIMAL(38,10) holds, in which times travel beside changes."""


def parse_time(text: str) -> Time:
    """Reads `1536242855577149065.0000000000`."""
    try:
        time = Decimal(text)
    except InvalidOperation:
        time = Decimal("NaN")
    if not time.is_finite() or time < 0 or not _fits(time):
        raise UndecodableRecord(f"{text!r} is not a time of a change feed", "expected nanoseconds.counter")
    return time


def _fits(time: Time) -> bool:
    exponent = time.as_tuple().exponent
    return (
        isinstance(exponent, int) and exponent >= -_COUNTER_DIGITS and time.adjusted() < _DIGITS - _COUNTER_DIGITS
    )


def time_text(time: Time) -> str:
    """As `parse_time` reads it; the same time always has the same text."""
    return f"{time:.{_COUNTER_DIGITS}f}"


@dataclass(frozen=True, slots=True)
class Mark:
    """All changes up to `time` stand before `offset`, in its partition."""

    offset: int
    time: Time


@dataclass(frozen=True, slots=True)
class Resolution:
    """The next epoch: up to which time, and where it ends in each partition."""

    time: Time
    ends: Mapping[Partition, int]


def next_resolution(
    marks: Mapping[Partition, Sequence[Mark]], after: Time | None, policy: Policy
) -> Resolution | None:
    """The next time after `after` that every partition has a mark for; marks are given in offset order."""
    if not marks or not all(marks.values()):
        return None
    reached = min(max(mark.time for mark in some) for some in marks.values())
    times = {mark.time for some in marks.values() for mark in some if mark.time <= reached}
    if after is not None:
        times = {time for time in times if time > after}
    if not times:
        return None
    time = min(times) if policy == "each" else max(times)
    ends = {partition: next(m.offset + 1 for m in some if m.time >= time) for partition, some in marks.items()}
    return Resolution(time, ends)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The changes of one epoch: those later than `after`, up to `up_to`."""

    up_to: str
    after: str | None = None


@dataclass(frozen=True)
class ResolvedEpoch:
    """What the next epoch takes: a span, and what of it."""

    span: Span
    window: TimeWindow


@dataclass
class Marks:
    """The marks that are known, from where each partition stands up to where it was looked through."""

    _found: dict[Partition, list[Mark]] = field(default_factory=dict)
    _scanned: dict[Partition, int] = field(default_factory=dict)

    def unscanned(self, base: Frontier, seen: SourceObserved) -> Span:
        """Where marks are to be looked for, beginning with the one that the frontier may stand behind."""
        ranges = {}
        for partition, log in seen.logs.items():
            here = base.offset(partition)
            start = max(log.earliest, self._scanned.get(partition, (here or 0) - 1))
            if here is not None and start < log.end:
                ranges[partition] = Range(start, log.end)
        return Span(ranges)

    def add(self, scanned: Span, found: Mapping[Partition, Sequence[Mark]]) -> None:
        """Takes what was found there, in offset order; a mark that promises nothing new is of no use."""
        for partition, r in scanned.ranges.items():
            known = self._found.setdefault(partition, [])
            for mark in found.get(partition, ()):
                if not known or mark.time > known[-1].time:
                    known.append(mark)
            self._scanned[partition] = r.end

    def next_epoch(self, base: Frontier, policy: Policy) -> ResolvedEpoch | None:
        """The next epoch, if all partitions have the marks for one; forgets those that the frontier has passed."""
        for partition in base.positions:
            self._found[partition] = [
                mark for mark in self._found.get(partition, []) if mark.offset + 1 >= (base.offset(partition) or 0)
            ]
        after = None if base.resolved is None else parse_time(base.resolved)
        resolution = next_resolution({p: self._found[p] for p in base.positions}, after, policy)
        if resolution is None:
            return None
        window = TimeWindow(time_text(resolution.time), base.resolved)
        return ResolvedEpoch(_span(base, resolution), window)

    def lacking(self, base: Frontier) -> list[Partition]:
        """The partitions that hold the next epoch back: those whose last mark is the earliest."""
        lasts = {p: some[-1].time if (some := self._found.get(p)) else Time(-1) for p in base.positions}
        return sorted(p for p, last in lasts.items() if last == min(lasts.values()))


def _span(base: Frontier, resolution: Resolution) -> Span:
    starts = {partition: position.offset for partition, position in base.positions.items()}
    return Span({p: Range(starts[p], end) for p, end in resolution.ends.items() if starts[p] < end})


def reading(base: Frontier, span: Span) -> Span:
    """All that has to be read for the span: changes that wait before it, or beside it, may be due now."""
    ranges = dict(span.ranges)
    for partition, position in base.positions.items():
        end = ranges[partition].end if partition in ranges else position.offset
        if position.unsettled < end:
            ranges[partition] = Range(position.unsettled, end)
    return Span(ranges)


def split_reading(base: Frontier, span: Span, tasks: int) -> list[list[Slice]]:
    """Divides what has to be read, each partition into one task; what is read again stands in slices of its own."""
    return [
        [piece for part in share for piece in _pieces(part, base)]
        for share in reading(base, span).split_whole(tasks, base)
    ]


def _pieces(part: Slice, base: Frontier) -> list[Slice]:
    partition = (part.topic, part.partition)
    here = base.positions[partition]
    pieces = []
    if part.start < here.offset:
        pieces.append(replace(part, end=here.offset, leader_epoch=None, again=True))
    if here.offset < part.end:
        pieces.append(replace(part, start=here.offset, leader_epoch=here.leader_epoch))
    return pieces
