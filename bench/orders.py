"""Orders to measure with: JSON of a given size that does not compress to nothing, and a topic full of it.

Names and ids are random, and the rest of a record is random words, cut at random places out of a text that
is far longer than any codec's window.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, though its types do not say so

from frazil.demo.broker import Broker

PARTITIONS = 4
COMPRESSION = "lz4"
"""Of the topic's batches: what most producers choose; both sides unpack it in native code."""

_SEED = 7
_TEXT_LENGTH = 16 * 2**20
_WORDS = 20_000
_LETTERS = "abcdefghijklmnopqrstuvwxyzäöü"
FIRST_ORDER = datetime(2026, 1, 1, tzinfo=UTC)
BETWEEN_ORDERS = timedelta(milliseconds=250)

PRODUCER = {
    "acks": "all",
    "enable.idempotence": "true",  # a batch that is sent again must not count twice
    "linger.ms": "50",
    "batch.size": str(2**20),
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "1000000",
    "compression.type": COMPRESSION,
    "log_level": "2",  # a broker that has just started lets a producer wait, which is nobody's concern
}


class Chance:
    """Random values, the same ones in every run, made fast."""

    def __init__(self) -> None:
        self.random = random.Random(_SEED)
        words = [self._word() for _ in range(_WORDS)]
        self._text = " ".join(self.random.choices(words, k=_TEXT_LENGTH // 8))

    def words(self, length: int) -> str:
        start = int(self.random.random() * (len(self._text) - length))
        return self._text[start : start + length]

    def number(self, below: int) -> int:
        return int(self.random.random() * below)

    def hex(self, digits: int) -> str:
        return f"{self.random.getrandbits(4 * digits):0{digits}x}"

    def _word(self) -> str:
        return "".join(self.random.choices(_LETTERS, k=self.random.randint(3, 12)))


@dataclass(frozen=True)
class Shape:
    """One kind of order: its columns and how a record of it is made."""

    name: str
    ddl: str
    make: Callable[[Chance, int], str]


def _small(chance: Chance, number: int) -> str:
    return (
        f'{{"order_id":{number},"customer":"{chance.hex(12)}","amount":{_amount(chance)},'
        f'"placed_at":"{_placed_at(number)}","note":"{chance.words(36)}"}}'
    )


def _large(chance: Chance, number: int) -> str:
    return (
        f'{{"order_id":{number},"customer":"{chance.hex(12)}","email":"{chance.hex(10)}@example.org",'
        f'"amount":{_amount(chance)},"quantity":{1 + chance.number(20)},"discount":{chance.random.random():.6f},'
        f'"express":{"true" if chance.number(4) == 0 else "false"},"placed_at":"{_placed_at(number)}",'
        f'"sku":"{chance.hex(16)}","street":"{chance.words(24)}","city":"{chance.words(10)}",'
        f'"note":"{chance.words(330)}","history":"{chance.words(370)}"}}'
    )


SMALL = Shape(
    "150b", "order_id BIGINT, customer STRING, amount DECIMAL(10,2), placed_at TIMESTAMP, note STRING", _small
)
LARGE = Shape(
    "1kb",
    "order_id BIGINT, customer STRING, email STRING, amount DECIMAL(10,2), quantity INT, discount DOUBLE, "
    "express BOOLEAN, placed_at TIMESTAMP, sku STRING, street STRING, city STRING, note STRING, history STRING",
    _large,
)


@dataclass(frozen=True)
class Topic:
    """A topic full of orders, spread evenly over its partitions."""

    name: str
    shape: Shape
    bootstrap: str
    records: int
    record_bytes: int
    """of the average value"""

    @property
    def ends(self) -> dict[int, int]:
        """The end offset of every partition."""
        return {p: len(range(p, self.records, PARTITIONS)) for p in range(PARTITIONS)}


def fill_topic(broker: Broker, shape: Shape, records: int) -> Topic:
    """Creates the topic and produces its records."""
    name = f"orders-{shape.name}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    # The broker keeps the producer's batches as they are, so that the topic is compressed as it says here.
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(timeout=30)
    size = _produce(broker, name, _records(shape, records))
    return Topic(name, shape, broker.bootstrap, records, size // max(1, records))


def _produce(broker: Broker, topic: str, records: Iterator[tuple[str, bytes]]) -> int:
    producer = Producer({**PRODUCER, "bootstrap.servers": broker.bootstrap})
    size = 0
    for number, (key, value) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value, key, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        size += len(value)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records could not be produced to {topic}")
    return size


def _records(shape: Shape, records: int) -> Iterator[tuple[str, bytes]]:
    chance = Chance()
    for number in range(records):
        yield f"order-{number}", shape.make(chance, number).encode()


def _amount(chance: Chance) -> str:
    cents = 100 + chance.number(500_000)
    return f"{cents // 100}.{cents % 100:02d}"


def _placed_at(number: int) -> str:
    return (FIRST_ORDER + number * BETWEEN_ORDERS).isoformat(timespec="milliseconds").replace("+00:00", "Z")
