"""PySpark's worker daemon with the heavy imports already done.

Spark runs this module once per executor (`spark.python.daemon.module`) and forks a worker from it for every
task slot. What is imported here is shared by all of them, so that a fresh worker is ready in milliseconds
rather than after a second of imports.

Import only. A thread or a librdkafka handle made before the fork would be dead in every child.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

PRELOADED = (
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyiceberg.io.pyarrow",
    "arro3.io",
    "confluent_kafka",
    "frazil.errors",
    "frazil.records",
)


def preload() -> None:
    """Import what workers use; a package missing here is reported by the task that needs it."""
    for module in PRELOADED:
        with suppress(ImportError):
            import_module(module)


if __name__ == "__main__":
    preload()
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
