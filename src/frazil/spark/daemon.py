"""PySpark's worker daemon with the heavy imports already done.

Spark runs this module once per executor (`spark.python.daemon.module`) and forks a worker from it for every
task slot. What is imported here is shared by all of them, so that a fresh worker is ready in milliseconds
rather than after a second of imports.

Around every task PySpark's worker does two things that cost more than a small epoch itself, 0.2 s of CPU
instead of 0.04 (measured). They are made cheap here:

    importlib.invalidate_caches()   reads the directory of every archive on the path anew: Spark's own jar, and
                                    pyspark.zip once for each of its packages
    gc.collect()                    walks through everything that was ever imported

Import only. A thread or a librdkafka handle made before the fork would be dead in every child.
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

PRELOADED = (
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyiceberg.io.pyarrow",
    "arro3.io",
    "confluent_kafka",
    "pyspark.worker",
    "frazil.errors",
    "frazil.records",
    "frazil.engine.worker",
    "frazil.source.generator",
    "frazil.source.kafka",
)


def leave_archives() -> None:
    """Takes Spark's archives off the path: its jar holds no Python, and its zips only copies of packages.

    A zip stays where PySpark is not installed beside it, as on a cluster with a Spark of its own.
    """
    homes = [Path(entry) / "pyspark" for entry in sys.path if (Path(entry) / "pyspark" / "daemon.py").is_file()]
    sys.path[:] = [entry for entry in sys.path if not _is_surplus(Path(entry), homes)]
    for entry in set(sys.path_importer_cache) - set(sys.path):
        del sys.path_importer_cache[entry]


def _is_surplus(entry: Path, homes: list[Path]) -> bool:
    return entry.suffix == ".jar" or (entry.suffix == ".zip" and any(home in entry.parents for home in homes))


def preload() -> None:
    """Import what workers use; a package missing here is reported by the task that needs it."""
    for module in PRELOADED:
        with suppress(ImportError):
            import_module(module)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    leave_archives()
    preload()
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
