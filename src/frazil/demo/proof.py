"""The proof at the end of the demo: the table against the topic, offset by offset.

The topic is read by a plain consumer of its own, so that nothing frazil wrote or counted is taken on trust.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from pyspark.sql import SparkSession

from frazil.errors import SourceUnavailable

_SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Proof:
    """How the offsets in the table compare with those in the topic."""

    in_topic: int
    in_table: int
    duplicates: int
    missing: int
    strangers: int

    @property
    def holds(self) -> bool:
        return self.duplicates == self.missing == self.strangers == 0 and self.in_table == self.in_topic


def prove(spark: SparkSession, table: str, bootstrap: str, topic: str, partitions: int) -> Proof:
    """Compares every (partition, offset) of both."""
    rows = spark.sql(f"SELECT _kafka_partition, _offset FROM {table}").toArrow()
    in_topic = in_table = duplicates = missing = strangers = 0
    for partition in range(partitions):
        read = _offsets_in_topic(bootstrap, topic, partition)
        landed = rows.filter(pc.equal(rows["_kafka_partition"], partition))["_offset"].combine_chunks()
        distinct = pc.unique(landed)
        in_topic += len(read)
        in_table += len(landed)
        duplicates += len(landed) - len(distinct)
        missing += _count_absent(read, distinct)
        strangers += _count_absent(distinct, read)
    return Proof(in_topic, in_table, duplicates, missing, strangers)


def _count_absent(values: pa.Array, among: pa.Array) -> int:
    present = pc.sum(pc.is_in(values, value_set=among)).as_py() or 0
    return len(values) - int(present)


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
