"""Epochs by the source's own time, from the marks to the changes, without Spark: whatever a feed may legally do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from frazil.changes import ORDER, UPDATED
from frazil.engine.resolved import Resolving, resolved_time
from frazil.engine.window import sift
from frazil.protocol.plan import Log, Ready, SourceObserved, reconcile
from frazil.protocol.positions import Frontier, Partition, Position, Range, Slice, Span
from frazil.protocol.register import BatchId, Epoch, Generation, Register
from frazil.protocol.resolved import Mark, Marks, Policy, TimeWindow, reading, split_reading, time_text

KEYS = 4


@dataclass(frozen=True)
class Change:
    """Its number is also its value: the last one of a key is what its row shows; None deletes it."""

    time: int
    key: int
    value: int | None


Item = Change | int
"""A change, or the time of a mark."""


@dataclass
class Feed:
    """The partitions of a change feed, as an at-least-once sender fills them."""

    logs: dict[Partition, list[Item]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def state(self, up_to: int) -> dict[int, int | None]:
        """What the source's own table holds at that time."""
        rows: dict[int, int | None] = {}
        for change in sorted(self.changes, key=lambda each: each.time):
            if change.time <= up_to:
                rows[change.key] = change.value
        return {key: value for key, value in rows.items() if value is not None}

    def marks(self, partition: Partition, start: int, end: int) -> list[Mark]:
        log = self.logs[partition]
        return [Mark(i, Decimal(item)) for i, item in enumerate(log[start:end], start) if isinstance(item, int)]

    def rows(self, part: Slice) -> tuple[pa.RecordBatch, list[Change]]:
        log = self.logs[part.topic, part.partition]
        found = [(i, c) for i, c in enumerate(log[part.start : part.end], part.start) if isinstance(c, Change)]
        times = pa.array([Decimal(change.time) for _, change in found], pa.decimal128(38, 10))
        columns = {
            "place": pa.array(range(len(found)), pa.int64()),
            ORDER: pa.array([2 * i for i, _ in found], pa.int64()),
            UPDATED: times,
        }
        return pa.record_batch(columns), [change for _, change in found]

    def resolved_times(self) -> list[int]:
        """Every time that all partitions have a mark for."""
        marks = [[item for item in log if isinstance(item, int)] for log in self.logs.values()]
        if not all(marks):
            return []
        reached = min(map(max, marks))
        return sorted({time for some in marks for time in _rising(some) if time <= reached})


def _rising(times: Sequence[int]) -> list[int]:
    return [time for i, time in enumerate(times) if time > max(times[:i], default=-1)]


@st.composite
def feeds(draw: st.DrawFn) -> Feed:
    """A change's first copy stands before the first mark at or beyond its time; any other copy stands anywhere."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    partitions = [("rides", p) for p in range(draw(st.integers(1, 3)))]
    last = draw(st.integers(1, 20))
    feed = Feed()
    for time in range(1, last + 1):
        value = time if chance.random() < 0.7 else None
        feed.changes.append(Change(time, chance.randrange(KEYS), value))
    homes = {change: chance.choice(partitions) for change in feed.changes}
    for partition in partitions:
        times = sorted(chance.sample(range(last + 3), chance.randrange(min(7, last + 3))))
        segments: list[list[Item]] = [[] for _ in range(len(times) + 1)]
        for change in (each for each in feed.changes if homes[each] == partition):
            due = next((i for i, time in enumerate(times) if time >= change.time), len(times))
            segments[chance.randint(0, due)].append(change)
            while chance.random() < 0.3:
                chance.choice(segments).append(change)
        for i in range(1, len(segments)):
            if chance.random() < 0.3:
                segments[i].append(chance.randint(0, times[i - 1]))
        for some in segments:
            chance.shuffle(some)
        marks = [[time] for time in times] + [[]]
        feed.logs[partition] = [
            item for pair in zip(segments, marks, strict=True) for some in pair for item in some
        ]
    return feed


class Table:
    """A pipeline and its table, but for Kafka, Spark and Iceberg."""

    def __init__(self, feed: Feed, policy: Policy) -> None:
        self.feed = feed
        self.policy = policy
        self.frontier = Frontier({p: Position(0) for p in feed.logs})
        self.rows: dict[int, int] = {}
        self.published: list[int] = []
        self.delivered = 0
        self.restart()

    def restart(self) -> None:
        """Only what the register says survives."""
        register = Register(Generation(1), "c", Epoch(1), BatchId("b"), self.frontier)
        self.frontier = Register.decode(register.encode()).frontier
        self.marks = Marks()

    def look(self, ends: dict[Partition, int]) -> None:
        """All epochs that can be told from what the source shows now."""
        seen = SourceObserved({p: Log(0, end) for p, end in ends.items()}, {})
        unscanned = self.marks.unscanned(self.frontier, seen)
        self.marks.add(unscanned, {p: self.feed.marks(p, r.start, r.end) for p, r in unscanned.ranges.items()})
        while (found := self.marks.next_epoch(self.frontier, self.policy)) is not None:
            assert found.span
            self._land(found.span, found.window)

    def _land(self, span: Span, window: TimeWindow) -> None:
        due: list[tuple[int, Change]] = []
        lows: dict[Partition, int] = {}
        for part in (part for share in split_reading(self.frontier, span, 2) for part in share):
            rows, changes = self.feed.rows(part)
            sifted = sift(rows, window)
            due += [(changes[i].time, changes[i]) for i in sifted.rows.column("place").to_pylist()]
            self.delivered += sifted.due if part.again else len(part) - sifted.waiting
            if sifted.low is not None:
                partition = (part.topic, part.partition)
                lows[partition] = min(sifted.low, lows.get(partition, sifted.low))
        for _, change in sorted(due, key=lambda pair: pair[0]):
            if change.value is None:
                self.rows.pop(change.key, None)
            else:
                self.rows[change.key] = change.value
        self.frontier = self.frontier.advance(span, lows=lows, resolved=window.up_to)
        time = int(Decimal(window.up_to))
        assert not self.published or time > self.published[-1]
        self.published.append(time)
        assert self.rows == self.feed.state(time), f"at {time}"

    def waiting(self) -> int:
        """Copies of changes that were read and have not landed."""
        assert self.frontier.resolved is not None
        now = Decimal(self.frontier.resolved)
        read = [item for p, log in self.feed.logs.items() for item in log[: self.frontier.offset(p)]]
        return sum(isinstance(item, Change) and item.time > now for item in read)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(feeds(), st.sampled_from(["each", "latest"]), st.integers(0, 2**32))
def test_every_resolved_time_shows_exactly_the_changes_up_to_it(feed: Feed, policy: Policy, seed: int) -> None:
    """SRC-07, SRC-08, SRC-10, EPOCH-02, EPOCH-08, EPOCH-16, COMMIT-16, LIM-06, TEST-14.

    Several partitions, changes before their time, repetitions, repeated marks; seen in arbitrary pieces, with
    starts in between.
    """
    chance = random.Random(seed)
    table = Table(feed, policy)
    ends = dict.fromkeys(feed.logs, 0)
    while any(ends[p] < len(log) for p, log in feed.logs.items()):
        for partition, log in feed.logs.items():
            ends[partition] = min(len(log), ends[partition] + chance.randrange(6))
        if chance.random() < 0.3:
            table.restart()
        table.look(ends)
    expected = feed.resolved_times()
    if policy == "each":
        assert table.published == expected
    else:
        assert table.published[-1:] == expected[-1:]
    if table.published:
        covered = sum(position.offset for position in table.frontier.positions.values())
        assert table.delivered + table.waiting() == covered


def changes(*times_at: tuple[int, int]) -> pa.RecordBatch:
    offsets, times = zip(*times_at, strict=True)
    return pa.record_batch(
        {
            ORDER: pa.array([2 * offset for offset in offsets], pa.int64()),
            UPDATED: pa.array([Decimal(time) for time in times], pa.decimal128(38, 10)),
        }
    )


def test_a_window_is_open_below_and_closed_above() -> None:
    """EPOCH-02: (R_prev, R]."""
    found = sift(changes((1, 5), (2, 12), (4, 10), (5, 8), (6, 14)), TimeWindow("10", "5"))
    assert [int(order) // 2 for order in found.rows.column(ORDER).to_pylist()] == [4, 5]
    assert (found.due, found.repeated, found.waiting, found.low) == (2, 1, 2, 2)


def test_what_waits_beside_the_span_is_read_too() -> None:
    """EPOCH-08: partition 1 is ahead of the time; its span is empty, and its change may be due."""
    base = Frontier({("t", 0): Position(5, 3), ("t", 1): Position(9, 4, low=7)}, resolved="10")
    span = Span({("t", 0): Range(5, 8)})
    assert reading(base, span).ranges == {("t", 0): Range(5, 8), ("t", 1): Range(7, 9)}
    slices = [part for share in split_reading(base, span, 3) for part in share]
    assert sorted(slices, key=lambda part: part.partition) == [
        Slice("t", 0, 5, 8, leader_epoch=3),
        Slice("t", 1, 7, 9, again=True),
    ]


def test_changes_that_wait_are_missed_when_the_source_drops_them() -> None:
    """SRC-10, FAULT-08: not only what lies beyond the frontier can be lost."""
    frontier = Frontier({("t", 0): Position(9, low=5)}, {"t": "id"}, "10")
    seen = SourceObserved({("t", 0): Log(7, 20)}, {"t": "id"})
    stop = reconcile(frontier, seen, fail_on_data_loss=True)
    assert "t[0] offsets 5 to 6" in str(stop)
    ready = reconcile(frontier, seen, fail_on_data_loss=False)
    expected = Frontier({("t", 0): Position(9, low=7)}, {"t": "id"}, "10")
    assert ready == Ready(expected, Span({("t", 0): Range(5, 7)}))
    seen = SourceObserved({("t", 0): Log(12, 20)}, {"t": "id"})
    stop = reconcile(frontier, seen, fail_on_data_loss=True)
    assert "7 offsets before they were read: t[0] offsets 5 to 11" in str(stop)
    ready = reconcile(frontier, seen, fail_on_data_loss=False)
    expected = Frontier({("t", 0): Position(12)}, {"t": "id"}, "10")
    assert ready == Ready(expected, Span({("t", 0): Range(5, 12)}))


@pytest.mark.parametrize(
    ("value", "time"),
    [
        (b'{"resolved":"15.0000000001"}', "15.0000000001"),
        (b' { "resolved" : "15.0" } ', "15.0000000000"),
        (b'{"resolved":"15.0","after":null}', "15.0000000000"),
        (b'{"resolved":"15.0","after":{"id":1}}', None),
        (b'{"after":{"resolved":"15.0"}}', None),
        (b'{"payload":{"resolved":"15.0"}}', None),
        (b'{"resolved":"soon"}', None),
        (b'{"resolved":"1e40"}', None),
        (b'{"resolved":' + b"[" * 100_000, None),
        (b'{"resolved":"15', None),
        (b'{"resolved":[]}', None),
        (b"", None),
    ],
)
def test_a_mark_is_known_by_how_it_begins(value: bytes, time: str | None) -> None:
    """SRC-07: whatever else is there is no mark, and stops nothing.

    A changefeed writes its resolved messages bare with every envelope, and none within a payload.
    """
    found = resolved_time(value)
    assert (None if found is None else time_text(found)) == time


def test_a_feed_that_never_tells_its_time_is_named_once() -> None:
    """SRC-07: nothing of it would ever be published, and the remedy is said."""
    now = 0.0
    resolving = Resolving("each", lambda span: {}, interval_s=1.0, clock=lambda: now)
    base = Frontier({("t", 0): Position(0)})
    seen = SourceObserved({("t", 0): Log(0, 5)}, {})
    with capture_logs() as logs:
        for now in (0.0, 9.0, 10.0, 30.0):
            assert resolving.next_epoch(base, seen, waiting=5) is None
            assert len(logs) == (now >= 10.0)
    assert "WITH updated, resolved" in logs[0]["event"]
    assert logs[0]["partitions"] == "t[0]"
