"""Changes to measure with: a topic in Debezium's envelope, whose keys are spread over the whole of a large table.

Of a hundred changes seventy update a row, fifteen delete one and fifteen insert a new one. All changes of a key
stand in one partition, in their order, as Debezium's messages do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, though its types do not say so
from pyspark.sql import DataFrame, SparkSession

from bench.orders import PARTITIONS, PRODUCER, Chance
from frazil.demo.broker import Broker

COLUMNS = "id BIGINT NOT NULL, customer STRING, amount DECIMAL(10,2), placed_at TIMESTAMP, note STRING"
_UPDATES, _DELETES = 0.70, 0.15


def base_rows(spark: SparkSession, rows: int) -> DataFrame:
    """What the table holds before the first change; the keys are 0 to `rows`."""
    return spark.range(rows).selectExpr(
        "id",
        "lower(hex(xxhash64(id))) AS customer",
        "CAST(pmod(xxhash64(id, 1), 500000) / 100 AS DECIMAL(10,2)) AS amount",
        "timestamp_millis(1767225600000 + id * 250) AS placed_at",
        "concat(hex(xxhash64(id, 2)), hex(xxhash64(id, 3))) AS note",
    )


@dataclass
class ChangeTopic:
    """A topic that grows by one epoch of changes at a time."""

    broker: Broker
    name: str
    rows: int
    """keys that the table had at first"""
    chance: Chance
    ends: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    """the end offset of every partition"""

    def __post_init__(self) -> None:
        self._next_key = self.rows
        self._producer = Producer({**PRODUCER, "bootstrap.servers": self.broker.bootstrap})
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(self.name, PARTITIONS, 1)])[self.name].result(timeout=30)

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def grow(self, changes: int) -> None:
        """Produces that many changes."""
        for key, value in self._changes(changes):
            self._produce(key, value)
        if left := self._producer.flush(120):
            raise RuntimeError(f"{left} changes could not be produced to {self.name}")

    def _changes(self, count: int) -> Iterator[tuple[int, str]]:
        for _ in range(count):
            kind = self.chance.random.random()
            if kind < _UPDATES:
                key = self.chance.number(self.rows)
                yield key, _event("u", f'{{"id":{key}}}', self._row(key))
            elif kind < _UPDATES + _DELETES:
                key = self.chance.number(self.rows)
                yield key, _event("d", f'{{"id":{key}}}', "null")
            else:
                key, self._next_key = self._next_key, self._next_key + 1
                yield key, _event("c", "null", self._row(key))

    def _row(self, key: int) -> str:
        cents = self.chance.number(500_000)
        placed_at = f"2026-0{1 + key % 9}-{1 + key % 28:02d}T10:00:00.{key % 1000:03d}Z"
        return (
            f'{{"id":{key},"customer":"{self.chance.hex(16)}","amount":"{cents // 100}.{cents % 100:02d}",'
            f'"placed_at":"{placed_at}","note":"{self.chance.words(32)}"}}'
        )

    def _produce(self, key: int, value: str) -> None:
        partition = key % PARTITIONS
        while True:
            try:
                self._producer.produce(self.name, value, f'{{"id":{key}}}', partition=partition)
                break
            except BufferError:
                self._producer.poll(0.1)
        self.ends[partition] += 1


def _event(op: str, before: str, after: str) -> str:
    source = '{"connector":"postgresql","db":"shop","schema":"public","table":"orders","snapshot":"false"}'
    return f'{{"before":{before},"after":{after},"source":{source},"op":"{op}","ts_ms":1767225600000}}'
