"""Memory: one epoch of many records, and how large a worker grows over it.

    python -m bench.memory --records 10000000 --json

A worker reads, decodes and writes as a stream, so its memory is bounded by settings (librdkafka's queue, a
run of records, the row group in the making) and not by the span. What is measured is the resident memory of
every Python worker, looked at ten times a second.
"""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console

from bench.append import bench_session
from bench.orders import SMALL, fill_topic
from bench.pipeline import RunningPipeline, pipeline_spec
from frazil.demo.broker import Broker
from frazil.engine import assemble

_LOOK_EVERY_S = 0.1

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_err = Console(stderr=True)


class Watch(threading.Thread):
    """The largest resident size that any Python worker below this process ever had."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._done = threading.Event()
        self.peak_bytes = 0

    def run(self) -> None:
        while not self._done.wait(_LOOK_EVERY_S):
            for process in psutil.Process().children(recursive=True):
                self.peak_bytes = max(self.peak_bytes, _worker_bytes(process))

    def finish(self) -> int:
        self._done.set()
        self.join()
        return self.peak_bytes


def _worker_bytes(process: psutil.Process) -> int:
    try:
        if "pyspark.worker" in process.cmdline():
            return int(process.memory_info().rss)
    except psutil.Error:
        pass
    return 0


@app.command()
def main(
    records: Annotated[int, typer.Option(min=1, help="orders of about 150 B, all in one epoch")] = 10_000_000,
    as_json: Annotated[bool, typer.Option("--json", help="end with one line of JSON")] = False,
) -> None:
    """Measures how large a worker grows while it lands one large epoch."""
    with tempfile.TemporaryDirectory(prefix="frazil-bench-", ignore_cleanup_errors=True) as folder:
        warehouse = Path(folder)
        with bench_session(warehouse) as spark, Broker() as broker:
            _err.print(f"producing {records:,} records …")
            topic = fill_topic(broker, SMALL, records)
            source = {"type": "kafka", "topics": [topic.name], "kafka": {"bootstrap.servers": topic.bootstrap}}
            spec = pipeline_spec(source, topic.shape.ddl, "memory.orders", warehouse)
            pipeline = RunningPipeline(assemble(spec, spark))
            watch = Watch()
            watch.start()
            _err.print("landing them in one epoch …")
            pipeline.commit(pipeline.write(pipeline.plan(records)))
            peak_mb = watch.finish() / 2**20
            pipeline.close()
    print(f"{records:,} records of {topic.record_bytes} B in one epoch: the largest worker had {peak_mb:.0f} MB")
    if as_json:
        print(json.dumps({"records": records, "worker_mb_max": round(peak_mb, 1)}))


if __name__ == "__main__":
    app()
