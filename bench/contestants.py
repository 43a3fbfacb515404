"""Who takes part: frazil's two lanes, and Spark's own Kafka source with Iceberg's own writer.

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
from bench.pipeline import CATALOG, RunningPipeline, pipeline_spec
from frazil.decode import METADATA_FIELDS
from frazil.engine import assemble, decode_plan
from frazil.engine.assemble import anchor_wish
from frazil.pipeline import PipelineSpec
from frazil.table.iceberg import IcebergCatalog

_METADATA = ("topic", "partition", "offset", "timestamp", "key")
"""What Spark's source calls frazil's metadata columns."""

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
    sql: str | None = None

    def prepare(self, topic: Topic, table: str) -> Landing:
        pipeline = RunningPipeline(assemble(_spec(topic, table, self.warehouse, self.sql), self.spark))

        def land() -> None:
            planned = pipeline.plan(topic.records)
            pipeline.commit(pipeline.write(planned))

        return land


@dataclass(frozen=True)
class Peer:
    """Spark's batch read of the same offsets, `from_json`, and `writeTo(…).append()`."""

    name: str
    spark: SparkSession
    warehouse: Path

    def prepare(self, topic: Topic, table: str) -> Landing:
        # The same wish as frazil's, so that both tables are made alike.
        spec = _spec(topic, table, self.warehouse)
        IcebergCatalog(self.spark, spec.catalog).open(anchor_wish(spec.table, decode_plan(spec).schema))
        return lambda: self._rows(topic).writeTo(f"{CATALOG}.{table}").append()

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


def _spec(topic: Topic, table: str, warehouse: Path, sql: str | None = None) -> PipelineSpec:
    source = {"type": "kafka", "topics": [topic.name], "kafka": {"bootstrap.servers": topic.bootstrap}}
    return pipeline_spec(source, topic.shape.ddl, table, warehouse, sql)
