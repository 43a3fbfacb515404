"""Planning: what the source shows, whether the frontier still fits it, and where the next span ends.

Theory. The driver observes, per partition, the earliest and the end offset (the last stable one, so that open
transactions are never planned) and, per topic, its id. `reconcile` compares that with the frontier and either
gives every partition a place to read from or stops. `FlushPolicy` says when to cut, `cut` says where.

    observed                          outcome
    other topic id                    Stop: the topic was recreated
    end before the frontier           Stop: the log was truncated
    earliest beyond the frontier      Stop, the lost range named; or skip it if the user allows loss
    earliest beyond changes that wait the same, from the first of those changes on
    torn where changes wait           the same for all of them, but those that are there are read
    partition without a position      read from its earliest offset
    partition missing in the answer   Unsure: ask again; never start it over
    topic no longer asked for         Stop: it was taken out of the pipeline file
    gaps between records              nothing: compaction and transaction markers leave them
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from frazil.errors import ConfigError, DataLoss, SourceChanged, TerminalError
from frazil.protocol.positions import (
    EMPTY_SPAN,
    Frontier,
    Partition,
    Position,
    Range,
    Span,
    describe_ranges,
    name_partition,
)


@dataclass(frozen=True, slots=True)
class Log:
    """The readable part of one partition: `[earliest, end)`."""

    earliest: int
    end: int


@dataclass(frozen=True, slots=True)
class SourceObserved:
    """What one look at the source showed."""

    logs: Mapping[Partition, Log]
    topic_ids: Mapping[str, str]
    more: bool = False
    """whether there is more than this look had time for"""
    torn: frozenset[Partition] = frozenset()
    """partitions that lost something before the frontier, and nobody can tell whether changes waited in it"""

    def up_to(self, goal: SourceObserved) -> SourceObserved:
        """The same, but no further than an earlier look reached; what is lost meanwhile is still seen to be."""
        logs = {
            partition: Log(log.earliest, max(log.earliest, min(log.end, goal.logs[partition].end)))
            for partition, log in self.logs.items()
            if partition in goal.logs
        }
        return SourceObserved(logs, self.topic_ids, torn=self.torn)

    def without(self, partitions: Collection[Partition]) -> SourceObserved:
        """The same, but for these partitions."""
        logs = {partition: log for partition, log in self.logs.items() if partition not in partitions}
        return SourceObserved(logs, self.topic_ids, torn=self.torn)

    @property
    def ends(self) -> Frontier:
        """Where every partition ends."""
        return Frontier({p: Position(log.end) for p, log in self.logs.items()}, self.topic_ids)


@dataclass(frozen=True, slots=True)
class Ready:
    """Every partition has a place to read from; `skipped` is loss that the user allows.

    It begins before the frontier where changes are lost that were read and waited for their time.
    """

    frontier: Frontier
    skipped: Span = EMPTY_SPAN


@dataclass(frozen=True, slots=True)
class Unsure:
    """The answer was incomplete; ask again."""

    reason: str


@dataclass(frozen=True, slots=True)
class SourceStop:
    """The source no longer fits the frontier."""

    error: TerminalError


def reconcile(frontier: Frontier, seen: SourceObserved, *, fail_on_data_loss: bool) -> Ready | Unsure | SourceStop:
    """Compares the frontier with the source; the table above is the whole of it."""
    if (recreated := recreated_topic(frontier, seen)) is not None:
        return recreated
    missing = sorted(p for p in frontier.positions if p not in seen.logs)
    dropped = sorted({topic for topic, _ in missing if topic not in seen.topic_ids})
    if dropped and seen.topic_ids:
        return SourceStop(_not_named(dropped))
    if missing:
        names = ", ".join(name_partition(p) for p in missing)
        return Unsure(f"the brokers' answer, or source.partitions, does not mention {names}")
    positions = dict(frontier.positions)
    lost: dict[Partition, Range] = {}
    for partition, log in seen.logs.items():
        here = frontier.positions.get(partition)
        if here is None:
            positions[partition] = Position(log.earliest)
            continue
        if log.end < here.offset:
            return SourceStop(_truncated(partition, here.offset, log.end))
        if partition in seen.torn and here.low is not None:
            lost[partition] = Range(here.low, here.offset)
        if log.earliest > here.unsettled and here.low is not None:
            lost.setdefault(partition, Range(here.low, min(log.earliest, here.offset)))
            positions[partition] = replace(here, low=log.earliest if log.earliest < here.offset else None)
        if log.earliest > here.offset:
            lost[partition] = Range(here.unsettled, log.earliest)
            positions[partition] = Position(log.earliest)
    if lost and fail_on_data_loss:
        return SourceStop(_lost(lost))
    topic_ids = {**frontier.topic_ids, **seen.topic_ids}
    return Ready(Frontier(positions, topic_ids, frontier.resolved), Span(lost))


def recreated_topic(frontier: Frontier, seen: SourceObserved) -> SourceStop | None:
    """Stops if a topic is another one than the frontier speaks of."""
    for topic, topic_id in frontier.topic_ids.items():
        found = seen.topic_ids.get(topic)
        if found is not None and found != topic_id:
            return SourceStop(_recreated(topic, topic_id, found))
    return None


def look_again(frontier: Frontier, span: Span, seen: SourceObserved) -> Unsure | SourceStop | None:
    """Asked after a span was read: a topic recreated meanwhile hands out other records under the same offsets.

    An answer that does not mention a topic of the span says nothing about it.
    """
    if (stop := recreated_topic(frontier, seen)) is not None:
        return stop
    read = {topic for topic, _ in span.ranges} & frontier.topic_ids.keys()
    if untold := sorted(read - seen.topic_ids.keys()):
        return Unsure(f"the brokers' answer does not mention {', '.join(untold)}, which was just read")
    return None


@dataclass(slots=True)
class Remapping:
    """Keeps the order of a key's changes when its topic gets more partitions.

    A key then goes to another partition than before, and its changes there are newer than those that wait where
    it was. So new partitions are left alone until the old ones are read up to where they ended when the new ones
    were first seen. A producer that has not heard of the new partitions goes on for some minutes; only a column
    that orders changes can tell those apart, and only within an epoch.
    """

    _awaited: Frontier | None = None

    def readable(self, planned: Frontier, seen: SourceObserved) -> SourceObserved:
        """What of the source may be read now."""
        fresh = added_partitions(planned, seen)
        if not fresh:
            self._awaited = None
            return seen
        if self._awaited is None:
            self._awaited = seen.without(fresh).ends
        return seen if planned.covers(self._awaited) else seen.without(fresh)


def added_partitions(frontier: Frontier, seen: SourceObserved) -> list[Partition]:
    """Partitions that a topic got after it was first read."""
    known = {topic for topic, _ in frontier.positions}
    return sorted(p for p in seen.logs if p[0] in known and p not in frontier.positions)


def backlog(frontier: Frontier, seen: SourceObserved) -> int:
    """How many offsets lie between the frontier and the end, over all partitions."""
    return sum(lag(frontier, seen).values())


def lag(frontier: Frontier, seen: SourceObserved) -> dict[Partition, int]:
    """How many offsets of each partition the table does not have yet."""
    return {
        partition: max(0, log.end - max(frontier.offset(partition) or 0, log.earliest))
        for partition, log in sorted(seen.logs.items())
    }


def cut(frontier: Frontier, seen: SourceObserved, max_records: int) -> Span:
    """The next span: at most `max_records` offsets, shared in proportion to each partition's backlog.

    Proportional shares let every partition's lag shrink at the same rate while catching up. The longest
    backlog comes first, so that none starves when there are more partitions than records allowed.
    """
    ahead = {
        partition: log.end - here
        for partition, log in seen.logs.items()
        if (here := frontier.offset(partition)) is not None and here < log.end
    }
    total = sum(ahead.values())
    ranges = {}
    left = max_records
    for partition, count in sorted(ahead.items(), key=lambda item: (-item[1], item[0])):
        share = count if total <= max_records else max(1, count * max_records // total)
        share = min(share, left)
        if share > 0:
            start = frontier.positions[partition].offset
            ranges[partition] = Range(start, start + share)
            left -= share
    return Span(ranges)


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the epoch now, with at most this many records."""

    max_records: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Not yet; look again after at most `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """An epoch closes on time, on records or on bytes, whichever comes first."""

    interval_s: float
    max_records: int
    max_bytes: int

    def decide(self, *, waiting: int, elapsed_s: float, record_bytes: float, drain: bool = False) -> Cut | Hold:
        """`waiting` records since the last cut `elapsed_s` ago, about `record_bytes` each.

        `drain` closes at once whatever there is: catching up after a start, finishing, stopping.
        """
        limit = max(1, min(self.max_records, int(self.max_bytes / max(record_bytes, 1.0))))
        if waiting >= limit or (waiting > 0 and (drain or elapsed_s >= self.interval_s)):
            return Cut(limit)
        return Hold(max(0.0, self.interval_s - elapsed_s) if waiting else self.interval_s)


def _recreated(topic: str, before: str, now: str) -> SourceChanged:
    return SourceChanged(
        f"topic {topic} was deleted and created again: its id is {now}, the frontier was recorded under {before}",
        "give the pipeline another name and table to read the new topic from its start",
    )


def _not_named(topics: list[str]) -> ConfigError:
    names = ", ".join(topics)
    return ConfigError(
        f"the source no longer names {names}, which this pipeline has been reading",
        "name it again, in source.topics or as source.name of files; to leave it out for good, give the pipeline "
        "another name and table",
    )


def _truncated(partition: Partition, here: int, end: int) -> SourceChanged:
    return SourceChanged(
        f"{name_partition(partition)} ends at offset {end}, before the frontier {here}: its log was truncated "
        "or the cluster was rebuilt",
        "the table holds records that the topic no longer has; decide which is right before going on",
    )


def _lost(lost: Mapping[Partition, Range]) -> DataLoss:
    total = sum(len(r) for r in lost.values())
    return DataLoss(
        f"the source dropped {total:,} offsets before they were read: {describe_ranges(lost.items())}",
        "raise the topic's retention; to go on without these records set source.fail_on_data_loss = false",
    )
