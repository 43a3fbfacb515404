"""Rows that had to leave memory: sorted runs in local temporary files.

A run's file has no name from the moment it is made, so the disk is free again when it is closed, when an error
lets go of it, and also when the process is killed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from frazil.errors import StorageUnavailable

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def spill_folder() -> Path:
    """A local folder of Spark's, if this is one of its workers, else where temporary files usually go."""
    spark = [Path(each) for each in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if each]
    usable = [folder for folder in spark if folder.is_dir()]
    # Spark has a folder on each local disk; workers spread over them.
    return usable[os.getpid() % len(usable)] if usable else Path(tempfile.gettempdir())


class Run:
    """Sorted rows in a file, to be read once from the front."""

    def __init__(self, folder: Path, schema: pa.Schema, blocks: Iterable[pa.RecordBatch], level: int = 0) -> None:
        self.level = level
        """how often its rows were merged before"""
        self._folder = folder
        self._reader: pa.RecordBatchReader | None = None
        with _spill_errors(folder):
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # it lives as long as the run
        try:
            self._write(schema, blocks)
        except BaseException:
            self.close()
            raise

    def _write(self, schema: pa.Schema, blocks: Iterable[pa.RecordBatch]) -> None:
        with _spill_errors(self._folder):
            writer = pa.ipc.new_stream(self._file, schema, options=_OPTIONS)
        for block in blocks:
            with _spill_errors(self._folder):
                writer.write_batch(block)
        with _spill_errors(self._folder):
            writer.close()
            self._file.flush()

    def next_block(self) -> pa.RecordBatch | None:
        """The next rows in order; None after the last."""
        with _spill_errors(self._folder):
            if self._reader is None:
                self._file.seek(0)
                self._reader = pa.ipc.open_stream(self._file)
            return next(self._reader, None)

    def close(self) -> None:
        """Gives the disk space back."""
        self._reader = None
        with contextlib.suppress(OSError):
            self._file.close()


@contextlib.contextmanager
def _spill_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as refused:
        raise StorageUnavailable(
            f"cannot keep rows that wait to be sorted in {folder}: {refused}",
            "free some space there, or point TMPDIR (in Spark's executors: spark.local.dir) at a larger disk",
        ) from refused
