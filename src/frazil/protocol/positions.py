"""Where a source is: positions, frontiers and spans.

Theory. A source is a set of partitions, each an append-only sequence of offsets. A **frontier** is, per
partition, the next offset to read, with the leader epoch under which the offset before it was written and
the id of its topic: enough to recognise a truncated log or a recreated topic later. A **span** is, per
partition, one half-open range `[start, end)`. An epoch takes the frontier from `start` to `end`; nothing else
moves it, and it never goes back, but where the user rolled the table back and asks for it.

A change feed with resolved timestamps (resolved.py) also has a time: the frontier says up to which one the table is
complete, and per partition where the first change stands that was read and waits, because it is later.

What can be wrong with a position, and who notices:

    topic recreated             other topic id               reconcile
    log truncated               leader epoch, end < offset   the reader, reconcile
    retention passed offset     earliest > offset            reconcile
    partition added             no position yet              reconcile: from its earliest offset
    partition missing           answer is incomplete         reconcile: try again, never restart at earliest
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from frazil.errors import InvalidState

Partition = tuple[str, int]
"""A topic's name and a partition's number."""


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read, and the leader epoch of the record before it where it is known."""

    offset: int
    leader_epoch: int | None = None
    mark: str = ""
    """what a source without a log of its own needs to find this offset again; it alone reads it"""
    low: int | None = None
    """the first offset before this one whose change is later than the resolved time: it waits, and is read again"""

    @property
    def unsettled(self) -> int:
        """The first offset that a later epoch reads."""
        return self.offset if self.low is None else self.low

    def __str__(self) -> str:
        leader_epoch = "" if self.leader_epoch is None else f"@{self.leader_epoch}"
        low = "" if self.low is None else f"<{self.low}"
        return f"{self.offset}{leader_epoch}{low}"

    @classmethod
    def parse(cls, text: str) -> Position:
        position, _, low = text.partition("<")
        offset, _, leader_epoch = position.partition("@")
        return cls(int(offset), int(leader_epoch) if leader_epoch else None, low=int(low) if low else None)


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `start` up to, but without, `end`."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise InvalidState(f"a range of offsets cannot run from {self.start} to {self.end}")

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.start}-{self.end}"

    @classmethod
    def parse(cls, text: str) -> Range:
        start, _, end = text.partition("-")
        return cls(int(start), int(end))


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of one partition's range that one task reads."""

    topic: str
    partition: int
    start: int
    end: int
    leader_epoch: int | None = None
    again: bool = False
    """whether an earlier epoch read it before: of what it found, only the changes that waited count"""

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Span:
    """Per partition, the non-empty range of offsets that one epoch covers."""

    ranges: Mapping[Partition, Range]

    @property
    def records(self) -> int:
        """How many offsets it covers; gaps in the log make the number of records smaller."""
        return sum(len(r) for r in self.ranges.values())

    def __bool__(self) -> bool:
        return self.records > 0

    def encode(self) -> str:
        """Compact and canonical: the same span always has the same text."""
        topics: dict[str, list[str]] = {}
        for (topic, partition), r in sorted(self.ranges.items()):
            topics.setdefault(topic, []).append(f"{partition}:{r}")
        return _dumps({topic: " ".join(parts) for topic, parts in topics.items()})

    @classmethod
    def decode(cls, text: str) -> Span:
        ranges = {}
        for topic, parts in json.loads(text).items():
            for part in parts.split():
                partition, _, r = part.partition(":")
                ranges[topic, int(partition)] = Range.parse(r)
        return cls(ranges)

    def then(self, later: Span) -> Span:
        """This span and the one that follows it, as one."""
        merged = dict(self.ranges)
        for partition, r in later.ranges.items():
            before = merged.get(partition)
            if before is not None and before.end > r.start:
                raise InvalidState(f"span {later.encode()} overlaps {self.encode()}")
            merged[partition] = Range(before.start if before else r.start, r.end)
        return Span(merged)

    def with_skipped(self, skipped: Span) -> Span:
        """From the beginning of what was lost on the way to the end of what was read."""
        ranges = dict(self.ranges)
        for partition, lost in skipped.ranges.items():
            read = ranges.get(partition, lost)
            ranges[partition] = Range(min(lost.start, read.start), max(lost.end, read.end))
        return Span(ranges)

    def split(self, tasks: int, frontier: Frontier) -> list[list[Slice]]:
        """Divides the span into at most `tasks` shares of about the same number of offsets.

        A partition may be divided over several tasks; only its first slice begins where the frontier
        stands, so only that one carries the leader epoch to check.
        """
        share = max(1, -(-self.records // tasks))
        shares: list[list[Slice]] = [[]]
        room = share
        for (topic, partition), r in sorted(self.ranges.items()):
            start = r.start
            position = frontier.positions.get((topic, partition))
            while start < r.end:
                if room == 0:
                    shares.append([])
                    room = share
                end = min(r.end, start + room)
                known = position.leader_epoch if position and position.offset == start else None
                shares[-1].append(Slice(topic, partition, start, end, known))
                room -= end - start
                start = end
        return [s for s in shares if s]

    def split_whole(self, tasks: int, frontier: Frontier) -> list[list[Slice]]:
        """Divides the span into at most `tasks` shares, each partition in one of them, the largest ones first."""
        shares: list[list[Slice]] = [[] for _ in range(tasks)]
        loads = [0] * tasks
        for (topic, partition), r in sorted(self.ranges.items(), key=lambda item: (-len(item[1]), item[0])):
            lightest = loads.index(min(loads))
            position = frontier.positions.get((topic, partition))
            known = position.leader_epoch if position and position.offset == r.start else None
            shares[lightest].append(Slice(topic, partition, r.start, r.end, known))
            loads[lightest] += len(r)
        return [s for s in shares if s]


EMPTY_SPAN = Span({})


@dataclass(frozen=True)
class Frontier:
    """The source position after the last committed epoch."""

    positions: Mapping[Partition, Position] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    resolved: str | None = None
    """of a change feed: the table holds all changes up to this time, and none beyond"""

    def offset(self, partition: Partition) -> int | None:
        position = self.positions.get(partition)
        return None if position is None else position.offset

    def advance(
        self,
        span: Span,
        leader_epochs: Mapping[Partition, int] | None = None,
        topic_ids: Mapping[str, str] | None = None,
        marks: Mapping[Partition, str] | None = None,
        lows: Mapping[Partition, int] | None = None,
        resolved: str | None = None,
    ) -> Frontier:
        """The frontier after `span`; a span that begins anywhere else than here is refused."""
        positions = dict(self.positions)
        for partition, r in span.ranges.items():
            here = self.offset(partition)
            if here is not None and r.start != here:
                raise InvalidState(
                    f"the frontier of {name_partition(partition)} would {'go back' if r.start < here else 'jump'}",
                    actual=str(r.start),
                    expected=str(here),
                )
            positions[partition] = Position(
                r.end, (leader_epochs or {}).get(partition), (marks or {}).get(partition, "")
            )
        if resolved is not None:
            # Changes may have been taken up, or go on waiting, in partitions too that the span does not reach.
            positions = {p: replace(here, low=(lows or {}).get(p)) for p, here in positions.items()}
        return Frontier(positions, {**self.topic_ids, **(topic_ids or {})}, resolved)

    def later(self, other: Frontier) -> Frontier:
        """Per partition the later of both positions."""
        positions = dict(self.positions)
        for partition, position in other.positions.items():
            here = positions.get(partition)
            if here is None or here.offset < position.offset:
                positions[partition] = position
        return Frontier(positions, {**other.topic_ids, **self.topic_ids}, self.resolved)

    def knowing(self, committed: Frontier) -> Frontier:
        """The same offsets, with what `committed` knows of just these: leader epochs, and changes that wait."""
        positions = {
            partition: known if (known := committed.positions.get(partition, here)).offset == here.offset else here
            for partition, here in self.positions.items()
        }
        return Frontier(positions, self.topic_ids, committed.resolved)

    def covers(self, other: Frontier) -> bool:
        """Whether no partition of `other` is ahead of this frontier."""
        return all((self.offset(p) or 0) >= position.offset for p, position in other.positions.items())

    def reach(self, span: Span) -> Span:
        """From here to the end of `span`: what a table that saw nothing in between has covered then."""
        ranges = {}
        for partition, r in span.ranges.items():
            here = self.offset(partition)
            start = r.start if here is None else here
            if start < r.end:
                ranges[partition] = Range(start, r.end)
        return Span(ranges)

    def since(self, other: Frontier) -> Span:
        """From `other` to here; from 0 where that one knows nothing of a partition."""
        starts = {partition: other.offset(partition) or 0 for partition in self.positions}
        return Span({p: Range(starts[p], at.offset) for p, at in self.positions.items() if starts[p] < at.offset})

    def encode(self) -> object:
        """JSON-ready and compact: one string a topic, positions in partition order, `-` for none.

        Marks follow in the same order, if there are any.
        """
        topics: dict[str, dict[int, Position]] = {topic: {} for topic in self.topic_ids}
        for (topic, partition), position in self.positions.items():
            topics.setdefault(topic, {})[partition] = position
        encoded: dict[str, list[object]] = {}
        for topic, positions in sorted(topics.items()):
            partitions = range(max(positions, default=-1) + 1)
            line = " ".join(str(positions.get(p, "-")) for p in partitions)
            encoded[topic] = [self.topic_ids.get(topic, ""), line]
            if any(position.mark for position in positions.values()):
                encoded[topic].append([positions[p].mark if p in positions else "" for p in partitions])
        return encoded

    @classmethod
    def decode(cls, encoded: Mapping[str, list[Any]], resolved: str | None = None) -> Frontier:
        """`resolved` stands beside the positions wherever they are kept."""
        positions: dict[Partition, Position] = {}
        topic_ids: dict[str, str] = {}
        for topic, (topic_id, line, *more) in encoded.items():
            if topic_id:
                topic_ids[topic] = topic_id
            texts = line.split()
            marks = more[0] if more else [""] * len(texts)
            for partition, (text, mark) in enumerate(zip(texts, marks, strict=True)):
                if text != "-":
                    positions[topic, partition] = replace(Position.parse(text), mark=mark)
        return cls(positions, topic_ids, resolved)


def name_partition(partition: Partition) -> str:
    return f"{partition[0]}[{partition[1]}]"


def describe_ranges(ranges: Iterable[tuple[Partition, Range]]) -> str:
    """For people: `orders[0] offsets 10 to 19, orders[1] offsets 5 to 5`."""
    return ", ".join(_describe(ranges))


def _describe(ranges: Iterable[tuple[Partition, Range]]) -> Iterator[str]:
    for partition, r in sorted(ranges, key=lambda item: item[0]):
        yield f"{name_partition(partition)} offsets {r.start} to {r.end - 1}"


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
