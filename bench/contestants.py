"""Who takes part: frazil's two lanes, and Spark's own Kafka source with the table format's own writer.

Each of them first makes a table, and then lands the whole topic in it with one commit. Only the second step is
measured: planning, reading, decoding, writing, committing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

from bench.orders import Topic
from bench.pipeline import ZSTD_LEVEL, RunningPipeline, pipeline_spec, relation
from frazil.decode import METADATA_FIELDS
from frazil.engine import assemble, decode_plan
from frazil.engine.assemble import anchor_wish
from frazil.engine.lakehouse import open_lakehouse
from frazil.pipeline import PipelineSpec
from frazil.table.files import TableFormat

_METADATA = ("topic", "partition", "offset", "timestamp", "key")
"""What Spark's source calls frazil's metadata columns."""

_ZSTD_LEVEL = "parquet.compression.codec.zstd.level"

Landing = Callable[[], object]


class Contestant(Protocol):
    """Lands a topic in a new table."""

    @property
    def name(self) -> str: ...

    def prepare(self, topic: Topic, table: str) -> Landing:
        """Makes the table; what is returned is measured."""
        ...


@dataclass(frozen=True)
class Frazil:
    """frazil, in the lane that its pipeline asks for."""

    name: str
    spark: SparkSession
    warehouse: Path
    table_format: TableFormat = "iceberg"
    sql: str | None = None

    def prepare(self, topic: Topic, table: str) -> Landing:
        spec = _spec(topic, table, self.warehouse, self.table_format, self.sql)
        pipeline = RunningPipeline(assemble(spec, self.spark))

        def land() -> None:
            planned = pipeline.plan(topic.records)
            pipeline.commit(pipeline.write(planned))

        return land


@dataclass(frozen=True)
class Peer:
    """Spark's batch read of the same offsets, `from_json`, and an append by the format's own writer."""

    name: str
    spark: SparkSession
    warehouse: Path
    table_format: TableFormat = "iceberg"

    def prepare(self, topic: Topic, table: str) -> Landing:
        # The same wish as frazil's, so that both tables are made alike.
        spec = _spec(topic, table, self.warehouse, self.table_format)
        open_lakehouse(spec, self.spark).open(anchor_wish(spec.table, decode_plan(spec).schema))
        if self.table_format == "delta":
            path, compression = str(spec.table.path), {"compression": "zstd", _ZSTD_LEVEL: str(ZSTD_LEVEL)}
            return lambda: self._rows(topic).write.format("delta").options(**compression).mode("append").save(path)
        return lambda: self._rows(topic).writeTo(relation(table, self.warehouse, "iceberg")).append()

    def _rows(self, topic: Topic) -> DataFrame:
        order = from_json(col("value").cast("string"), topic.shape.ddl).alias("order")
        metadata = [col(theirs).alias(ours.name) for theirs, ours in zip(_METADATA, METADATA_FIELDS, strict=True)]
        records = self.spark.read.format("kafka").options(**_offsets(topic)).load()
        return records.select(order, *metadata).select("order.*", *(ours.name for ours in METADATA_FIELDS))


def _offsets(topic: Topic) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": topic.bootstrap,
        "subscribe": topic.name,
        "startingOffsets": json.dumps({topic.name: dict.fromkeys(topic.ends, 0)}),
        "endingOffsets": json.dumps({topic.name: topic.ends}),
    }


def _spec(
    topic: Topic, table: str, warehouse: Path, table_format: TableFormat, sql: str | None = None
) -> PipelineSpec:
    source = {"type": "kafka", "topics": [topic.name], "kafka": {"bootstrap.servers": topic.bootstrap}}
    return pipeline_spec(source, topic.shape.ddl, table, warehouse, sql, table_format=table_format)
