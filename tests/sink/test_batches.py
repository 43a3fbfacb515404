"""Structured Streaming: each batch of a query lands once, whatever becomes of the query."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from frazil.errors import ConfigError
from frazil.sink import SinkConfig, foreach_batch
from tests.sink.conftest import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real


class Feed:
    """A folder of JSON files, and a query that reads one of them a batch."""

    def __init__(self, spark: SparkSession, folder: Path, config: SinkConfig) -> None:
        self.spark = spark
        self.incoming = folder / "incoming"
        self.checkpoint = folder / "checkpoint"
        self.lander = foreach_batch(config)
        self.incoming.mkdir()

    def add(self, *ids: int) -> None:
        lines = [json.dumps({"id": each, "name": f"n{each}"}) for each in ids]
        (self.incoming / f"{ids[0]:06d}.json").write_text("\n".join(lines), encoding="utf-8")

    def add_changes(self, *told: tuple[str, int, str]) -> None:
        lines = [
            json.dumps({"_op": op, "id": key, "name": name, "_order": at})
            for at, (op, key, name) in enumerate(told)
        ]
        number = len(list(self.incoming.iterdir()))
        (self.incoming / f"{number:06d}.json").write_text("\n".join(lines), encoding="utf-8")

    def run(self, lander: Any = None, columns: str = "id BIGINT, name STRING") -> None:
        """Until all that is there was read."""
        rows = self.spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        writer = rows.json(str(self.incoming)).writeStream.foreachBatch(lander or self.lander)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        query = writer.start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def forget(self, *batches: int, planned: bool = False) -> None:
        """The checkpoint as it would be had the query died earlier."""
        for kind in ["commits", *(["offsets"] if planned else [])]:
            for number in batches:
                for name in (str(number), f".{number}.crc"):
                    (self.checkpoint / kind / name).unlink(missing_ok=True)


@pytest.fixture
def feed(spark: SparkSession, lake: Lake, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path, lake.config())


def test_a_batch_that_landed_before_the_query_died_is_not_landed_again(feed: Feed, lake: Lake) -> None:
    """EPOCH-15, FAULT-03: Spark runs its last batch again."""
    for first in (0, 10, 20):
        feed.add(first, first + 1)
    feed.run()
    assert lake.ids() == [0, 1, 10, 11, 20, 21]
    version = lake.version()
    feed.forget(2)
    feed.run()
    assert lake.version() == version, "the batch was run again, and nothing was committed"
    feed.add(30)
    feed.forget(2)
    feed.run(foreach_batch(lake.config()))
    assert lake.ids() == [0, 1, 10, 11, 20, 21, 30]


def test_a_lost_checkpoint_stops_the_query(feed: Feed, lake: Lake) -> None:
    """FAULT-23: batches are counted from 0 again, and their rows would be skipped."""
    feed.add(0)
    feed.run()
    shutil.rmtree(feed.checkpoint)
    with pytest.raises(StreamingQueryException, match=r"writer\.replaces"):
        feed.run()
    assert lake.ids() == [0]
    new = json.loads((feed.checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
    with pytest.raises(StreamingQueryException, match=new):
        feed.run()


def test_a_checkpoint_that_was_set_back_stops_the_query(feed: Feed, lake: Lake) -> None:
    """FAULT-21, FAULT-23: batches that are cut anew may have other rows under the same number."""
    for number in range(3):
        feed.add(number)
    feed.run()
    feed.forget(1, 2, planned=True)
    with pytest.raises(StreamingQueryException, match="older than the table"):
        feed.run()
    assert lake.ids() == [0, 1, 2]


def test_a_table_altered_under_a_batch_gets_the_batch_all_the_same(feed: Feed, lake: Lake) -> None:
    """What can be waited out is tried again, with a new look at the table."""
    from deltalake import DeltaTable
    from deltalake.schema import Field, PrimitiveType

    feed.add(0)
    feed.run()
    feed.add(1)
    altered = []

    def lander(batch: Any, batch_id: int) -> None:
        sink: Any = feed.lander._sink
        write = sink.write_batch

        def then_alter(rows: Any) -> Any:
            written = write(rows)
            DeltaTable(lake.path).alter.add_columns([Field("more", PrimitiveType("string"))])
            altered.append(batch_id)
            return written

        sink.write_batch = then_alter
        feed.lander(batch, batch_id)

    feed.run(lander)
    assert altered == [1]
    assert lake.ids() == [0, 1]


def test_batches_of_changes_are_merged_into_a_delta_table_once_each(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """CHG-12, EPOCH-15: one MERGE a batch; the last one, run again, does nothing."""
    config = lake.config(table={"mode": "upsert", "keys": ["id"]})
    feed, columns = Feed(spark, tmp_path, config), "_op STRING, id BIGINT, name STRING, _order BIGINT"
    feed.add_changes(("I", 1, "a"), ("I", 2, "b"), ("U", 1, "c"))
    feed.add_changes(("D", 1, ""), ("U", 2, "d"), ("I", 3, "e"))
    feed.run(columns=columns)
    assert lake.ids() == [2, 3]
    version = lake.version()
    feed.forget(1)
    feed.run(columns=columns)
    assert lake.version() == version
    read = spark.read.format("delta").load(str(lake.path)).orderBy("id").collect()
    assert [tuple(row) for row in read] == [(2, "d"), (3, "e")]


def test_a_function_for_batches_is_for_queries_only(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(ConfigError, match="no batch of a streaming query"):
        foreach_batch(lake.config())(spark.range(1), 0)
    with pytest.raises(ConfigError, match=r"writer\.stream"):
        foreach_batch(lake.config(writer={"stream": "mine"}))
