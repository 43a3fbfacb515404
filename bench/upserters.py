"""Who takes part in bench.upsert: frazil, and `MERGE INTO` as one writes it inside of `foreachBatch`.

All begin with a table over the very same data files. An epoch is what the topic has grown by.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from bench.changes import COLUMNS, ChangeTopic
from bench.pipeline import CATALOG, RunningPipeline, table_layout
from frazil.engine import assemble
from frazil.pipeline import PipelineSpec, parse_pipeline
from frazil.spark.gateway import jvm


class Upserter(Protocol):
    """Keeps one table in step with a topic."""

    @property
    def name(self) -> str: ...

    @property
    def table(self) -> str: ...

    def open(self, base: str) -> None:
        """Makes the table, with the rows of `base`."""
        ...

    def land(self) -> object:
        """Brings the table up to the topic's end, with one commit; this is measured."""
        ...


@dataclass
class FrazilUpsert:
    """frazil with `mode = "upsert"`."""

    name: str
    table: str
    spark: SparkSession
    topic: ChangeTopic
    warehouse: Path
    format_version: int = 2
    _pipeline: RunningPipeline | None = None

    def open(self, base: str) -> None:
        create_table(self.spark, self.table, self.format_version)
        # The pipeline claims the table while it is empty; what others append then is their affair.
        self._pipeline = RunningPipeline(assemble(self._spec(), self.spark))
        share_files(self.spark, base, self.table)

    def land(self) -> None:
        if self._pipeline is None:
            raise RuntimeError(f"{self.name} has no table yet")
        planned = self._pipeline.plan(sum(self.topic.ends.values()))
        self._pipeline.commit(self._pipeline.write(planned))

    def _spec(self) -> PipelineSpec:
        kafka = {"bootstrap.servers": self.topic.bootstrap}
        return parse_pipeline(
            {
                "pipeline": {"name": self.table},
                "source": {"type": "kafka", "topics": [self.topic.name], "kafka": kafka},
                "decode": {"format": "json", "envelope": "debezium", "schema": COLUMNS, "metadata": False},
                "table": {"name": self.table, "mode": "upsert", "keys": ["id"]},
                "changes": {"decimals": "plain"},
                "catalog": {"type": "sqlite", "name": CATALOG, "warehouse": str(self.warehouse)},
            }
        )


@dataclass
class MergeInto:
    """Spark's Kafka source, the last change of each key, and `MERGE INTO` a merge-on-read table."""

    name: str
    table: str
    spark: SparkSession
    topic: ChangeTopic
    format_version: int
    _landed: dict[int, int] = field(default_factory=dict)

    def open(self, base: str) -> None:
        create_table(self.spark, self.table, self.format_version)
        share_files(self.spark, base, self.table)
        self._landed = dict.fromkeys(self.topic.ends, 0)

    def land(self) -> None:
        ends = dict(self.topic.ends)
        self._last_changes(ends).createOrReplaceTempView("changes")
        self.spark.sql(
            f"""
            MERGE INTO {CATALOG}.{self.table} AS t USING changes AS s ON t.id = s.id
            WHEN MATCHED AND s.op = 'd' THEN DELETE
            WHEN MATCHED THEN UPDATE SET *
            WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT *
            """
        )
        self._landed = ends

    def _last_changes(self, ends: dict[int, int]) -> DataFrame:
        offsets = {
            "kafka.bootstrap.servers": self.topic.bootstrap,
            "subscribe": self.topic.name,
            "startingOffsets": json.dumps({self.topic.name: self._landed}),
            "endingOffsets": json.dumps({self.topic.name: ends}),
        }
        self.spark.read.format("kafka").options(**offsets).load().createOrReplaceTempView("records")
        schema = f"before STRUCT<id: BIGINT>, after STRUCT<{_struct_fields()}>, op STRING"
        return self.spark.sql(
            f"""
            WITH events AS (SELECT from_json(CAST(value AS STRING), '{schema}') AS e, offset FROM records),
            keyed AS (SELECT coalesce(e.after.id, e.before.id) AS id, e.op, e.after, offset FROM events),
            ranked AS (SELECT *, row_number() OVER (PARTITION BY id ORDER BY offset DESC) AS rank FROM keyed)
            SELECT id, after.customer, after.amount, after.placed_at, after.note, op FROM ranked WHERE rank = 1
            """
        )


def create_table(spark: SparkSession, table: str, format_version: int) -> None:
    """A merge-on-read table; what concerns the files' looks is alike for everybody."""
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    properties = {"format-version": str(format_version), **modes, **table_layout()}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{table.partition('.')[0]}")
    spark.sql(f"CREATE TABLE {CATALOG}.{table} ({COLUMNS}) USING iceberg TBLPROPERTIES ({listed})")
    spark.sql(f"ALTER TABLE {CATALOG}.{table} SET IDENTIFIER FIELDS id")


def share_files(spark: SparkSession, base: str, table: str) -> None:
    """Appends the data files of one table to another, so that large tables are written once."""
    load = jvm(spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable
    append = load(spark._jsparkSession, f"{CATALOG}.{table}").newAppend()
    tasks = load(spark._jsparkSession, f"{CATALOG}.{base}").newScan().planFiles()
    for task in tasks.iterator():
        append.appendFile(task.file())
    tasks.close()
    append.commit()


def _struct_fields() -> str:
    columns = COLUMNS.replace(" NOT NULL", "").split(", ")
    return ", ".join(f"{name}: {kind}" for name, kind in (column.split(" ") for column in columns))
