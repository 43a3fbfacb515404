"""Kafka, made up: partitions of records with transactions, gaps and retention, and the driver's view of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.errors import SourceUnavailable
from frazil.protocol.plan import Log, SourceObserved
from frazil.protocol.positions import Frontier, Partition, Position, Span

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

Row = tuple[str, int, int]
"""Topic id, partition, offset: a recreated topic has other rows under the same offsets."""

GOOD, BAD, FILTERED, GAP = "good", "bad", "filtered", "gap"
"""What becomes of a record: a row, a dead letter, nothing; a gap is a control record or a compacted one."""


@dataclass
class Partitioned:
    """One partition: every record it ever had, and which part of it the brokers still hold."""

    topic_id: str
    number: int
    kinds: list[str] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    start: int = 0
    open_since: int | None = None
    """first offset of a transaction that is still open"""
    is_frozen: bool = False
    """truncated: nobody produces to it any more"""

    @property
    def end(self) -> int:
        """The last stable offset: nothing of an open transaction is before it."""
        return len(self.kinds) if self.open_since is None else self.open_since

    def close(self, *, commit: bool) -> None:
        """Ends the open transaction with a control record."""
        assert self.open_since is not None
        if not commit:
            self.aborted.update(range(self.open_since, len(self.kinds)))
        self.kinds.append(GAP)
        self.open_since = None

    def visible(self, start: int, end: int) -> Iterator[tuple[Row, str]]:
        """What a `read_committed` consumer gets of these offsets, retention aside."""
        for offset in range(start, end):
            if self.kinds[offset] is not GAP and offset not in self.aborted:
                yield (self.topic_id, self.number, offset), self.kinds[offset]


class Broker:
    """All topics of a world; `everything` remembers what users and retention took away."""

    def __init__(self, world: World, topics: list[str]) -> None:
        self.world = world
        self.ids: dict[str, str] = {topic: f"{topic}#1" for topic in topics}
        self.logs: dict[Partition, Partitioned] = {}
        self.everything: dict[tuple[str, int], Partitioned] = {}

    def add_partition(self, topic: str) -> Partition:
        number = sum(1 for name, _ in self.logs if name == topic)
        log = Partitioned(self.ids[topic], number)
        self.logs[topic, number] = self.everything[log.topic_id, number] = log
        return topic, number

    def recreate(self, topic: str) -> None:
        """The same name and partitions, another id, other records."""
        partitions = sum(1 for name, _ in self.logs if name == topic)
        self.ids[topic] = f"{topic}#2"
        self.logs = {p: log for p, log in self.logs.items() if p[0] != topic}
        for _ in range(partitions):
            self.add_partition(topic)

    def truncate(self, partition: Partition, end: int) -> None:
        """The tail is gone, on the brokers; the oracle keeps the whole log."""
        log = self.logs[partition]
        aborted = {offset for offset in log.aborted if offset < end}
        self.logs[partition] = Partitioned(
            log.topic_id, log.number, log.kinds[:end], aborted, min(log.start, end), is_frozen=True
        )

    def observed(self) -> SourceObserved:
        return SourceObserved({p: Log(log.start, log.end) for p, log in self.logs.items()}, dict(self.ids))


class DriverSource:
    """What one process sees of the broker; implements `Source`."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def observe(self) -> SourceObserved:
        self._process.pause("asks the brokers")
        if self._world.happens(0.15, "the brokers are silent"):
            self._process.hurt += 1
            raise SourceUnavailable("no broker answered")
        seen = self._world.broker.observed()
        if self._world.happens(0.08, "the brokers' answer is incomplete"):
            self._process.hurt += 1
            seen = self._incomplete(seen)
        self._process.pause("has the brokers' answer")
        return seen

    def starting_frontier(self) -> Frontier:
        seen = self._world.broker.observed()
        latest = self._world.settings.latest
        positions = {p: Position(log.end if latest else log.earliest) for p, log in seen.logs.items()}
        self._process.pause("has resolved the starting offsets")
        return Frontier(positions, seen.topic_ids)

    def resume(self, frontier: Frontier) -> None:
        pass

    def marks(self, span: Span) -> dict[Partition, str]:
        return {}

    def acknowledge(self, frontier: Frontier) -> None:
        """Others may rely on this: what is acknowledged must be in the table."""
        self._world.require_committed(frontier)

    def close(self) -> None:
        pass

    def _incomplete(self, seen: SourceObserved) -> SourceObserved:
        """A broker that has just come up knows of no partitions, or of some."""
        if self._world.random.random() < 0.5:
            return SourceObserved({}, {})
        missing = self._world.random.choice(list(seen.logs))
        return SourceObserved({p: log for p, log in seen.logs.items() if p != missing}, seen.topic_ids)
