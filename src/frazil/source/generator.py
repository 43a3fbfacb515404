"""Made-up orders without Kafka: the same ones for the same seed, at any offset, in any order of asking.

A record is a pure function of (seed, partition, offset), so that a span read twice gives the same bytes, and
a reader can begin anywhere. With `records_per_second` the records appear over time: counting begins at the
first look, from the frontier of an earlier life if there was one, and follows the monotonic clock.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from frazil.pipeline import GeneratorSource
from frazil.protocol.plan import Log, SourceObserved
from frazil.protocol.positions import Frontier, Partition, Position, Slice, Span
from frazil.records import Records
from frazil.source import Wants

TOPIC = "generator"

_FIRST_ORDER = datetime(2026, 1, 1, tzinfo=UTC)
_FIRST_ORDER_MS = int(_FIRST_ORDER.timestamp()) * 1000
_BETWEEN_ORDERS_MS = 250
_ORDERS_PER_PARTITION = 10**12
"""Order ids of different partitions never meet."""
_CUSTOMERS = 10_000
_NOTES = (
    "leave at the door",
    "gift wrap, please",
    "call before delivery",
    "no rush",
    "second floor, left",
    "the blue one, not the green one",
    "",
    "grüße an das Team",
)
_RUN_RECORDS = 10_000
_64_BITS = 2**64 - 1


def order(seed: int, partition: int, offset: int) -> bytes:
    """One order as a JSON object; its columns are order_id, customer, amount, placed_at and note."""
    chance = _mix(_mix(_mix(seed) ^ partition) ^ offset)
    cents = 100 + chance % 50_000
    return (
        f'{{"order_id":{order_id(partition, offset)},"customer":"customer-{(chance >> 20) % _CUSTOMERS:04d}",'
        f'"amount":{cents // 100}.{cents % 100:02d},"placed_at":"{_placed_at(offset).isoformat()}",'
        f'"note":"{_NOTES[(chance >> 50) % len(_NOTES)]}"}}'
    ).encode()


def order_id(partition: int, offset: int) -> int:
    return partition * _ORDERS_PER_PARTITION + offset


def _placed_at(offset: int) -> datetime:
    return _FIRST_ORDER + timedelta(milliseconds=offset * _BETWEEN_ORDERS_MS)


def _mix(number: int) -> int:
    """splitmix64: neighbouring numbers become unrelated ones."""
    number = (number + 0x9E3779B97F4A7C15) & _64_BITS
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return number ^ (number >> 31)


class GeneratorPlanner:
    """The driver's side; implements `Source`."""

    def __init__(self, spec: GeneratorSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._resumed_at: Frontier | None = None
        self._clock = clock
        self._opened_s: float | None = None

    def observe(self) -> SourceObserved:
        """Every partition starts at 0 and ends where the clock has come to."""
        elapsed_s = self._elapsed_s()
        partitions = range(self._spec.partitions)
        return SourceObserved({(TOPIC, p): Log(0, self._end(p, elapsed_s)) for p in partitions}, self._topic_ids)

    def starting_frontier(self) -> Frontier:
        """The beginning; there is nothing else to choose."""
        return Frontier({(TOPIC, p): Position(0) for p in range(self._spec.partitions)}, self._topic_ids)

    def resume(self, frontier: Frontier) -> None:
        """Records appear from here on: a log that ends before the frontier would count as truncated.

        A fault later on takes back no record that has appeared.
        """
        if self._resumed_at is None:
            self._resumed_at = frontier
            self._opened_s = self._clock()

    def marks(self, span: Span) -> Mapping[Partition, str]:
        """None: an offset says it all."""
        return {}

    def reader(self, wants: Wants, span: Span) -> GeneratorReader:
        """What the workers read with."""
        return GeneratorReader(self._spec.seed, wants)

    def acknowledge(self, frontier: Frontier) -> None:
        """Nobody monitors a generator."""

    def close(self) -> None:
        """Nothing to let go of."""

    @property
    def _topic_ids(self) -> dict[str, str]:
        return {TOPIC: uuid.uuid5(uuid.NAMESPACE_OID, f"frazil generator {self._spec.seed}").hex}

    def _elapsed_s(self) -> float:
        now = self._clock()
        if self._opened_s is None:
            self._opened_s = now
        return now - self._opened_s

    def _end(self, partition: int, elapsed_s: float) -> int:
        size = _share(self._spec.records, self._spec.partitions, partition)
        if self._spec.records_per_second is None:
            return size
        appeared = int(elapsed_s * self._spec.records_per_second)
        begun_at = (self._resumed_at or Frontier()).offset((TOPIC, partition)) or 0
        return min(size, begun_at + _share(appeared, self._spec.partitions, partition))


def _share(total: int, partitions: int, partition: int) -> int:
    """An even part of `total`; the first partitions take what is left over."""
    return total // partitions + (partition < total % partitions)


@dataclass(frozen=True)
class GeneratorReader:
    """Makes the records of a slice up."""

    seed: int
    wants: Wants

    def read(self, part: Slice) -> Iterator[Records]:
        """Every record of the slice, in runs of at most 10,000."""
        for start in range(part.start, part.end, _RUN_RECORDS):
            yield self._run(part, range(start, min(part.end, start + _RUN_RECORDS)))

    def _run(self, part: Slice, offsets: range) -> Records:
        partition, wants = part.partition, self.wants
        run = Records(part.topic, partition, list(offsets), [order(self.seed, partition, o) for o in offsets])
        if wants.keys:
            run.keys = [str(order_id(partition, o)).encode() for o in offsets]
        if wants.timestamps:
            run.timestamps_ms = [_FIRST_ORDER_MS + o * _BETWEEN_ORDERS_MS for o in offsets]
        if wants.headers:
            run.headers = [None] * len(offsets)
        return run
