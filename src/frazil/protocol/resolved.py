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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from frazil.errors import UndecodableRecord
from frazil.protocol.positions import Partition

Time = Decimal
"""A hybrid logical clock's reading: nanoseconds before the point, a counter of ten digits behind it."""

Policy = Literal["each", "latest"]
"""One epoch for each resolved time, or for the latest that there is: fewer snapshots while catching up."""


def parse_time(text: str) -> Time:
    """Reads `1536242855577149065.0000000000`."""
    try:
        time = Decimal(text)
    except InvalidOperation:
        time = Decimal("NaN")
    if not time.is_finite() or time < 0:
        raise UndecodableRecord(f"{text!r} is not a time of a change feed", "expected nanoseconds.counter")
    return time


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
