"""`frazil demo`: the whole path on one machine, with nothing but real parts."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from frazil.demo.broker import Broker
from frazil.demo.orders import OrderStream
from frazil.demo.proof import Proof, prove
from frazil.engine import Engine, RunOptions, assemble, open_spark
from frazil.engine.events import EpochLanded, Event
from frazil.engine.lakehouse import open_lakehouse
from frazil.errors import SourceUnavailable
from frazil.pipeline import PipelineSpec, parse_pipeline
from frazil.serve.logs import set_up_logs
from frazil.serve.verdict import verdict_tables
from frazil.table.files import TableFormat

_TOPIC = "orders"
_PARTITIONS = 4
_RECORDS_PER_SECOND = 40_000
"""Slow enough to see epochs come and go, fast enough not to bore."""
_SCHEMA = "order_id BIGINT, customer STRING, amount DECIMAL(10,2), placed_at TIMESTAMP, note STRING"
_QUERY = """
    SELECT date_trunc('HOUR', placed_at) AS hour, count(*) AS orders, sum(amount) AS revenue
    FROM {table} GROUP BY 1 ORDER BY 1 DESC LIMIT 5
"""


def show(records: int, table_format: TableFormat, *, as_json: bool, out: Console) -> bool:
    """Runs the demo and says what it proved; False if the proof does not hold."""
    began = time.monotonic()
    set_up_logs(json=as_json, stream=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="frazil-demo-", ignore_cleanup_errors=True) as folder:
        with out.status("starting a Kafka broker …"):
            broker = Broker(Path(folder) / "kafka")
            broker.start()
        try:
            out.print(f"[green]✓[/green] Kafka is up at {broker.bootstrap}")
            spec = _pipeline(broker.bootstrap, Path(folder) / "warehouse", table_format)
            with out.status("starting Spark …"):
                spark = open_spark(spec)
            try:
                out.print(f"[green]✓[/green] Spark is up, its UI is at {spark.sparkContext.uiWebUrl}")
                proof, epochs, snapshots = _land_and_prove(spec, spark, broker.bootstrap, records, out)
            finally:
                spark.stop()
        finally:
            broker.close()
    seconds = round(time.monotonic() - began, 1)
    _conclude(proof, epochs, snapshots, seconds, out)
    if as_json:
        result = {
            "produced": proof.in_topic,
            "in_table": proof.in_table,
            "duplicates": proof.duplicates,
            "missing": proof.missing,
            "epochs": epochs,
            "snapshots": snapshots,
            "seconds": seconds,
        }
        print(json.dumps(result), flush=True)
    return proof.holds and proof.in_topic == records


def _land_and_prove(
    spec: PipelineSpec, spark: SparkSession, bootstrap: str, records: int, out: Console
) -> tuple[Proof, int, int]:
    epochs = _land(spec, spark, bootstrap, records, out)
    contents = open_lakehouse(spec, spark).contents(spec.table.name)
    assert contents is not None
    _query(spark, contents.relation, out)
    with out.status("reading the topic back and comparing every offset …"):
        proof = prove(spec, spark, bootstrap, _TOPIC, _PARTITIONS)
        seen = contents.seen(spec.pipeline.name)
        snapshots = 0 if seen is None else len(seen.history)
    return proof, epochs, snapshots


def _land(spec: PipelineSpec, spark: SparkSession, bootstrap: str, records: int, out: Console) -> int:
    """Produces and lands at the same time; returns the number of epochs."""
    _create_topic(bootstrap)
    stream = OrderStream(bootstrap, _TOPIC, records, _PARTITIONS, records / _RECORDS_PER_SECOND)
    stop = threading.Event()
    with _progress(out) as bars:
        watch = _Watch(bars, stream, records, stop)
        parts = assemble(spec, spark)
        stream.start()
        try:
            Engine(parts, watch, RunOptions(), stop).run()
        finally:
            parts.source.close()
        watch.finish()
    if stream.error:
        raise SourceUnavailable(f"the producer failed: {stream.error}")
    return watch.epochs


class _Watch:
    """Moves the bars, and asks the engine to stop when every order has landed."""

    def __init__(self, bars: Progress, stream: OrderStream, records: int, stop: threading.Event) -> None:
        self._bars = bars
        self._stream = stream
        self._records = records
        self._stop = stop
        self._landed = 0
        self.epochs = 0
        self._produced_bar: TaskID = bars.add_task("produced", total=records, note="")
        self._landed_bar: TaskID = bars.add_task("landed", total=records, note="")

    def __call__(self, event: Event) -> None:
        if isinstance(event, EpochLanded):
            self.epochs += 1
            self._landed += event.landed.counts.landed
            note = f"epoch {event.landed.epoch}, committed in {event.landed.commit_ms} ms"
            self._bars.update(self._landed_bar, completed=self._landed, note=note)
        self._bars.update(self._produced_bar, completed=self._stream.produced)
        if self._landed >= self._records or self._stream.error:
            self._stop.set()

    def finish(self) -> None:
        self._bars.update(self._produced_bar, completed=self._stream.produced)


def _progress(out: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:>9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[note]}"),
        console=out,
    )


def _query(spark: SparkSession, table: str, out: Console) -> None:
    grid = Grid(title="revenue by the hour", title_justify="left")
    for column in ("hour", "orders", "revenue"):
        grid.add_column(column, justify="right")
    for row in spark.sql(_QUERY.format(table=table)).collect():
        grid.add_row(f"{row.hour:%Y-%m-%d %H:%M}", f"{row.orders:,}", f"{row.revenue:,.2f}")
    out.print(grid)


def _conclude(proof: Proof, epochs: int, snapshots: int, seconds: float, out: Console) -> None:
    for part in verdict_tables(proof.verdict):
        out.print(part)
    mark = "[bold green]✓ exactly once[/bold green]" if proof.holds else "[bold red]✗ NOT exactly once[/bold red]"
    out.print(
        f"{mark}: {proof.in_topic:,} records in the topic, {proof.in_table:,} rows in the table, "
        f"{proof.duplicates:,} duplicates, {proof.missing:,} missing, {proof.strangers:,} not from the topic"
    )
    out.print(f"  {epochs} epochs in {snapshots} snapshots, {seconds} s in all; nothing is left behind")


def _create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(_TOPIC, num_partitions=_PARTITIONS, replication_factor=1)
    admin.create_topics([topic])[_TOPIC].result(30)


def _pipeline(bootstrap: str, warehouse: Path, table_format: TableFormat) -> PipelineSpec:
    path = {"path": str(warehouse / "orders")} if table_format == "delta" else {}
    return parse_pipeline(
        {
            "pipeline": {"name": "demo"},
            "source": {"type": "kafka", "topics": [_TOPIC], "kafka": {"bootstrap.servers": bootstrap}},
            "decode": {
                "format": "json",
                "schema": _SCHEMA,
            },
            "table": {"format": table_format, "name": "shop.orders", "partition": ["day(placed_at)"], **path},
            "catalog": {"type": "sqlite", "warehouse": str(warehouse)},
            "epoch": {"interval": "2s"},
        }
    )
