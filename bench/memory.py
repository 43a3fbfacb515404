"""Memory: one epoch of many records, and how large a worker grows over it.

    python -m bench.memory --records 10000000 --json
    python -m bench.memory --records 5000000 --partitions 1000
    python -m bench.memory --records 5000000 --sorted

A worker reads, decodes and writes as a stream, so its memory is bounded by settings (librdkafka's queue, a
run of records, the row group in the making, the rows that wait to be sorted) and not by the span. What is
measured is the resident memory of every Python worker, looked at ten times a second. With `--sorted` there is
no pipeline: one process writes all rows into a table that is sorted by a random column.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import psutil
import pyarrow as pa
import typer
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, LongType, NestedField, StringType, TimestamptzType
from rich.console import Console

from bench.append import bench_session
from bench.orders import BETWEEN_ORDERS, FIRST_ORDER, SMALL, Chance, fill_topic
from bench.pipeline import RunningPipeline, pipeline_spec
from frazil.demo.broker import Broker
from frazil.engine import assemble
from frazil.table.files import WriteTarget
from frazil.write import FileName, TableWriter

_LOOK_EVERY_S = 0.1
_BATCH_ROWS = 10_000
_SPAWN = multiprocessing.get_context("spawn")

_ORDERS = Schema(
    NestedField(1, "order_id", LongType()),
    NestedField(2, "customer", StringType()),
    NestedField(3, "amount", DecimalType(10, 2)),
    NestedField(4, "placed_at", TimestamptzType()),
    NestedField(5, "note", StringType()),
)
_BY_CUSTOMER = SortOrder(SortField(2, IdentityTransform()), order_id=1)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_err = Console(stderr=True)


class Watch(threading.Thread):
    """The largest resident size that any of some processes below this one ever had."""

    def __init__(self, is_watched: Callable[[psutil.Process], bool]) -> None:
        super().__init__(daemon=True)
        self._is_watched = is_watched
        self._done = threading.Event()
        self.peak_bytes = 0

    def run(self) -> None:
        while not self._done.wait(_LOOK_EVERY_S):
            for process in psutil.Process().children(recursive=True):
                self.peak_bytes = max(self.peak_bytes, self._bytes_of(process))

    def finish(self) -> float:
        """Stops watching and returns the peak in MB."""
        self._done.set()
        self.join()
        return self.peak_bytes / 2**20

    def _bytes_of(self, process: psutil.Process) -> int:
        try:
            return int(process.memory_info().rss) if self._is_watched(process) else 0
        except psutil.Error:
            return 0


def _is_spark_worker(process: psutil.Process) -> bool:
    return "pyspark.worker" in process.cmdline()


@app.command()
def main(
    records: Annotated[int, typer.Option(min=1, help="orders of about 150 B, all in one epoch")] = 10_000_000,
    partitions: Annotated[int, typer.Option(min=0, help="of the table, by bucket of the order; 0 for none")] = 0,
    in_order: Annotated[
        bool, typer.Option("--sorted", help="write into a sorted table, without a pipeline")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="end with one line of JSON")] = False,
) -> None:
    """Measures how large a worker grows while it lands one large epoch."""
    with tempfile.TemporaryDirectory(prefix="frazil-bench-", ignore_cleanup_errors=True) as folder:
        peak_mb = _sorted_peak_mb(records, folder) if in_order else _peak_mb(records, partitions, Path(folder))
    way = "sorted" if in_order else f"into {partitions or 'no'} partitions"
    print(f"{records:,} records in one epoch, {way}: the largest worker had {peak_mb:.0f} MB")
    if as_json:
        facts = {"records": records, "partitions": partitions, "sorted": in_order}
        print(json.dumps(facts | {"worker_mb_max": round(peak_mb, 1)}))


def _peak_mb(records: int, partitions: int, warehouse: Path) -> float:
    with bench_session(warehouse) as spark, Broker() as broker:
        _err.print(f"producing {records:,} records …")
        topic = fill_topic(broker, SMALL, records)
        source = {"type": "kafka", "topics": [topic.name], "kafka": {"bootstrap.servers": topic.bootstrap}}
        by = [f"bucket({partitions}, order_id)"] if partitions else []
        spec = pipeline_spec(source, topic.shape.ddl, "memory.orders", warehouse, partition=by)
        pipeline = RunningPipeline(assemble(spec, spark))
        watch = Watch(_is_spark_worker)
        watch.start()
        _err.print("landing them in one epoch …")
        pipeline.commit(pipeline.write(pipeline.plan(records)))
        peak_mb = watch.finish()
        pipeline.close()
    return peak_mb


def _sorted_peak_mb(records: int, folder: str) -> float:
    writer = _SPAWN.Process(target=_write_sorted, args=(records, folder))
    watch = Watch(lambda process: process.pid == writer.pid)
    writer.start()
    watch.start()
    writer.join()
    if writer.exitcode:
        raise RuntimeError(f"the writer ended with {writer.exitcode}")
    return watch.finish()


def _write_sorted(records: int, folder: str) -> None:
    target = WriteTarget(
        "memory.orders",
        folder,
        _ORDERS.model_dump_json(),
        PartitionSpec().model_dump_json(),
        sort_order_json=_BY_CUSTOMER.model_dump_json(),
    )
    writer = TableWriter(target, FileName("memory", 1, 0))
    for batch in _batches(records):
        writer.write(batch)
    landed = sum(file.record_count for file in writer.close())
    if landed != records:
        raise RuntimeError(f"{landed:,} of {records:,} rows were written")


def _batches(records: int) -> Iterator[pa.RecordBatch]:
    chance = Chance()
    for start in range(0, records, _BATCH_ROWS):
        numbers = range(start, min(records, start + _BATCH_ROWS))
        amounts = [Decimal(chance.number(500_000)).scaleb(-2) for _ in numbers]
        yield pa.record_batch(
            {
                "order_id": pa.array(numbers, pa.int64()),
                "customer": [chance.hex(12) for _ in numbers],
                "amount": pa.array(amounts, pa.decimal128(10, 2)),
                "placed_at": pa.array([_moment_us(number) for number in numbers], pa.timestamp("us", "UTC")),
                "note": [chance.words(36) for _ in numbers],
            }
        )


def _moment_us(number: int) -> int:
    return int(FIRST_ORDER.timestamp() * 1_000_000) + number * (BETWEEN_ORDERS // timedelta(microseconds=1))


if __name__ == "__main__":
    app()
