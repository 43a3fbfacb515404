"""A pipeline without Kafka and without Spark: tables in memory, a clock that nobody waits for, workers that
write nothing but remember what their files would hold.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

import pytest
import structlog

from frazil.commit import Coordinator, EpochOutcome, World
from frazil.protocol.commit import Proposal
from frazil.protocol.positions import Frontier, Partition, Position, Range, Span
from frazil.protocol.register import Epoch, Register
from frazil.protocol.retry import Backoff
from frazil.protocol.summary import CommitRecord, Counts
from frazil.table import WrittenFile
from frazil.table.memory import MemoryTable

INTERVAL_S = 30.0
PATIENCE = Backoff(base_s=0.1, max_s=5.0, attempts=4)

Row = tuple[str, int, int]


class Clock:
    """Time passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.slept_s: list[float] = []

    def read(self) -> int:
        return self.now_ms

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_ms += round(seconds * 1000)


class Stop(threading.Event):
    """A wish to stop that is waited for on the fake clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.sleep(timeout or 0.0)
        return self.is_set()


class BusyTable(MemoryTable):
    """Something else happens between somebody's look at the table and their commit."""

    def __init__(self, name: str, now_ms: Callable[[], int]) -> None:
        super().__init__(name, now_ms)
        self.meanwhile: deque[Callable[[], object]] = deque()

    def commit(self, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        if self.meanwhile:
            self.meanwhile.popleft()()
        return super().commit(proposal, files)


class Shop:
    """One pipeline, its two tables and its workers. Offsets divisible by ten cannot be decoded."""

    partitions: tuple[Partition, ...] = (("orders", 0), ("orders", 1))
    topic_ids: Mapping[str, str] = {"orders": "topic-id"}

    def __init__(self) -> None:
        self.clock = Clock()
        self.anchor = BusyTable("shop.orders", self.clock.read)
        self.dead = BusyTable("shop.orders__dead_letters", self.clock.read)
        self.contents: dict[tuple[str, str], list[Row]] = {}
        self.dead_processes: set[str] = set()
        self.filters: Callable[[int], bool] = lambda offset: False
        self._names = itertools.count(1)

    def world(self, process: str = "") -> World:
        return World(
            stop=Stop(self.clock),
            now_ms=self.clock.read,
            sleep=self.clock.sleep,
            chance=lambda: 0.5,
            process=process,
            is_dead=self.dead_processes.__contains__,
        )

    def coordinator(
        self, process: str = "", *, sides: bool = True, heartbeat_s: float | None = None, world: World | None = None
    ) -> Coordinator:
        return Coordinator(
            "orders",
            self.anchor,
            [self.dead] if sides else [],
            interval_s=INTERVAL_S,
            heartbeat_s=heartbeat_s,
            world=world or self.world(process),
            backoff=PATIENCE,
        )

    def beginning(self, offset: int = 0) -> Frontier:
        return Frontier({p: Position(offset) for p in self.partitions}, self.topic_ids)

    def started(self, process: str = "", **options: object) -> Coordinator:
        """A coordinator that has taken over."""
        one = self.coordinator(process, **options)  # type: ignore[arg-type]
        one.start(self.beginning, take_over=True)
        return one

    def write(
        self, coordinator: Coordinator, records: int = 10, *, after: Span | None = None, filtered: bool = False
    ) -> EpochOutcome:
        """What the workers make of the next `records` offsets of every partition.

        `after` is a span in flight that the next one follows; `filtered` leaves no rows at all.
        """
        base = coordinator.frontier if after is None else coordinator.frontier.advance(after)
        span = Span({p: Range(at.offset, at.offset + records) for p, at in base.positions.items()})
        return self.written(coordinator, span, filtered=filtered)

    def written(self, coordinator: Coordinator, span: Span, *, filtered: bool = False) -> EpochOutcome:
        rows = [(*p, offset) for p, r in span.ranges.items() for offset in range(r.start, r.end)]
        kept = [row for row in rows if not filtered and not self.filters(row[2])]
        good = [row for row in kept if row[2] % 10]
        dead = [row for row in kept if row[2] % 10 == 0]
        floor = coordinator.floors.get(self.dead.name)
        fresh = [row for row in dead if floor is not None and row[2] >= (floor.offset(row[:2]) or 0)]
        return EpochOutcome(
            epoch=Epoch(coordinator.epoch + 1),
            span=span,
            counts=Counts(len(rows), len(good), len(rows) - len(good) - len(dead), len(dead)),
            files={
                table.name: [self.file(table, part)]
                for table, part in ((self.anchor, good), (self.dead, fresh))
                if part
            },
            leader_epochs={} if not kept else dict.fromkeys(span.ranges, 1),
            topic_ids=self.topic_ids,
            started_ms=self.clock.now_ms,
        )

    def file(self, table: MemoryTable, rows: list[Row]) -> WrittenFile:
        path = f"{table.name}/{next(self._names)}.parquet"
        self.contents[table.name, path] = rows
        return WrittenFile(table.name, path, 0, 0, len(rows), 100)

    def compact(self, table: MemoryTable) -> None:
        """All rows move into one file, and every snapshot but that one expires."""
        if not table.live_paths:
            return
        rows = list(self.rows(table).elements())
        table.compact()
        self.contents[table.name, table.live_paths[-1]] = rows

    def rows(self, table: MemoryTable) -> Counter[Row]:
        assert len(set(table.live_paths)) == len(table.live_paths), "no path is live twice"
        return Counter(row for path in table.live_paths for row in self.contents[table.name, path])

    def require_exactly_once(self) -> None:
        """Every row below the anchor's frontier is in one table, once; none beyond it is in the anchor."""
        seen = self.anchor.observe("orders").register
        assert seen is not None
        offsets = [
            (*p, o) for p, at in seen.frontier.positions.items() for o in range(at.offset) if not self.filters(o)
        ]
        assert self.rows(self.anchor) == Counter(row for row in offsets if row[2] % 10)
        dead = self.rows(self.dead)
        assert not [row for row, times in dead.items() if times > 1], "a dead letter landed twice"
        assert not [row for row in offsets if row[2] % 10 == 0 and row not in dead], "a dead letter is missing"

    def history(self) -> list[CommitRecord]:
        return self.anchor.history("orders")

    def require_gapless(self, records: list[CommitRecord] | None = None) -> None:
        """The spans of the anchor's history follow one another, and its epochs rise."""
        history = self.history() if records is None else records
        epochs = [record.epoch for record in history if record.action != "start"]
        assert epochs == sorted(set(epochs)), "epochs rise"
        here: dict[Partition, int] = {}
        for record in history:
            for partition, r in record.span.ranges.items():
                assert r.start == here.get(partition, r.start), "spans are disjoint and gapless"
                here[partition] = r.end


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Coordinators log every fault they meet, and here they meet thousands."""
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()


def _drop(_logger: object, _method: str, _entry: object) -> NoReturn:
    raise structlog.DropEvent
