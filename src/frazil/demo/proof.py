"""The proof at the end of the demo: what `frazil verify --deep` says, and a second witness.

The topic is read once more by a plain consumer, so that nothing frazil read or counted is taken on trust.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from pyspark.sql import SparkSession

from frazil.engine.verify import verify_pipeline
from frazil.errors import SourceUnavailable
from frazil.pipeline import PipelineSpec
from frazil.protocol.verify import Level, Verdict

_SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Proof:
    """How the table compares with the topic."""

    verdict: Verdict
    in_topic: int
    """records that the plain consumer saw"""

    @property
    def holds(self) -> bool:
        return self.verdict.level is Level.HOLDS and self._offsets("records") == self.in_topic

    @property
    def in_table(self) -> int:
        return self._offsets("rows")

    @property
    def duplicates(self) -> int:
        return self._offsets("surplus")

    @property
    def missing(self) -> int:
        return self._offsets("missing")

    @property
    def strangers(self) -> int:
        return self._offsets("strangers") + self._offsets("beyond") + self._offsets("others_rows")

    def _offsets(self, number: str) -> int:
        return sum(check.numbers[number] for check in self.verdict.checks if check.name == "offsets")


def prove(spec: PipelineSpec, spark: SparkSession, bootstrap: str, topic: str, partitions: int) -> Proof:
    """Asks both witnesses."""
    verdict = verify_pipeline(spec, spark, deep=True)
    return Proof(verdict, sum(len(_offsets_in_topic(bootstrap, topic, p)) for p in range(partitions)))


def _offsets_in_topic(bootstrap: str, topic: str, partition: int) -> pa.Array:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "frazil-proof",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 2,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        offsets: list[int] = []
        while True:
            messages = consumer.consume(10_000, 0.2) or consumer.consume(1, _SILENCE_S)
            if not messages:
                raise SourceUnavailable(f"{topic}[{partition}] was silent for {_SILENCE_S:.0f} s")
            offsets += [message.offset() or 0 for message in messages if message.error() is None]
            if any(_is_end(message) for message in messages):
                return pa.array(offsets, pa.int64())
    finally:
        consumer.close()


def _is_end(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise SourceUnavailable(f"{message.topic()}[{message.partition()}]: {error}")
