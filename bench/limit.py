"""The limit of the path: what the libraries alone can do with a topic, without anything of frazil between them.

librdkafka's `consume`, arrow-rs's JSON reader and Arrow's Parquet writer, in one loop on one thread: no offsets,
no metadata columns, no dead letters, no metrics, no commit. A value is trusted to be one JSON document. What
frazil reaches of that rate, per second of CPU time, is what its guarantees leave over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import arro3.core
import arro3.io
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Message, TopicPartition

from bench.orders import Topic
from bench.pipeline import ZSTD_LEVEL
from frazil.decode.columns import arrow_schema
from frazil.pipeline.schema import parse_schema

# What is fastest here, for the limit as for frazil.
_CONSUME_RECORDS = 1_000
_CHUNK_RECORDS = 10_000
_CHUNK_BYTES = 4 * 2**20
_ROW_GROUP_ROWS = 131_072
_CONSUMER = {
    "group.id": "limit",
    "enable.auto.commit": "false",
    "fetch.queue.backoff.ms": "2",
    "queued.max.messages.kbytes": "16384",
    "fetch.wait.max.ms": "10",
}
# Only these repeat; a dictionary of the others would cost time and space for nothing.
_REPEATING = ["quantity", "express"]


@dataclass(frozen=True)
class Limit:
    """Takes a topic through the libraries."""

    folder: Path

    def run(self, topic: Topic) -> int:
        """How many rows the file has in the end."""
        schema = arrow_schema(parse_schema(topic.shape.ddl))
        file = self.folder / f"{topic.name}.parquet"
        with pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            use_dictionary=[name for name in _REPEATING if name in schema.names],
        ) as writer:
            rows = sum(_write(writer, group) for group in _row_groups(_batches(topic, schema)))
        file.unlink()
        return rows


def _write(writer: pq.ParquetWriter, group: list[pa.RecordBatch]) -> int:
    table = pa.Table.from_batches(group)
    writer.write_table(table, row_group_size=table.num_rows)
    return int(table.num_rows)


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(each.num_rows for each in group) >= _ROW_GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group


def _batches(topic: Topic, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    parser = arro3.core.Schema.from_arrow(schema)
    for values in _chunks(topic):
        text = BytesIO(b"\n".join(values))
        reader = arro3.io.read_json(text, parser, batch_size=len(values))
        yield from pa.RecordBatchReader.from_stream(reader)


def _chunks(topic: Topic) -> Iterator[list[bytes]]:
    consumer = Consumer({**_CONSUMER, "bootstrap.servers": topic.bootstrap})
    consumer.assign([TopicPartition(topic.name, partition, 0) for partition in topic.ends])
    left, size = topic.records, 0
    values: list[bytes] = []
    try:
        while left:
            messages = consumer.consume(_CONSUME_RECORDS, 0.01)
            left -= len(messages)
            values.extend(filter(None, map(Message.value, messages)))
            size += sum(map(len, messages))
            if values and (len(values) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES or not left):
                yield values
                values, size = [], 0
    finally:
        consumer.close()
