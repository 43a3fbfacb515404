"""One data file that is being written.

An encoder makes a row group of every table it is handed, so rows wait here as Arrow batches until they fill
one. What a file keeps in memory is therefore one row group, never the file.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO, OutputStream

from frazil.errors import SchemaMismatch, StorageUnavailable
from frazil.table.files import MIB, WriteTarget, WrittenFile
from frazil.write.encode import Encoder, FileFormat
from frazil.write.partition import Partition

# A row group holds at most this much Arrow data, however wide its rows are.
ROW_GROUP_BYTES = 64 * MIB

# After a table of many chunks pyarrow keeps a page or two in memory per open file, after one of a single
# chunk next to nothing. Small row groups mean many open files, and cost little to put together first.
COMBINE_BYTES_MAX = 8 * MIB

# A file this close to its target is done; the next row group would more likely overshoot than improve it.
FULL_ENOUGH = 0.95


@dataclass(slots=True)
class FileLayout:
    """What the files of one writer have in common."""

    target: WriteTarget
    format: FileFormat
    spec_id: int
    sort_order_id: int
    compressed_share: float = 1.0
    """Bytes in the file per byte of Arrow data, as the latest row group showed; 1 before the first."""


@dataclass(slots=True)
class _Sink:
    """The output stream, which knows how many bytes went through and, if asked for, their CRC."""

    stream: OutputStream
    checksum: int | None
    size: int = 0
    closed: bool = False

    def write(self, data: Any) -> int:
        self.stream.write(data)
        if self.checksum is not None:
            self.checksum = zlib.crc32(data, self.checksum)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Nothing to do: a file counts only once it is closed."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.stream.close()


class DataFile:
    """A file from its first row to its last byte; `close()` describes it, `abort()` removes it."""

    def __init__(self, layout: FileLayout, io: FileIO, path: str, partition: Partition) -> None:
        self.path = path
        self._layout = layout
        self._io = io
        self._partition = partition
        self._rows = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self.waiting_bytes = 0
        with _storage_errors(path):
            stream = io.new_output(path).create(overwrite=False)
        self._sink = _Sink(stream, checksum=0 if layout.target.checksum else None)
        # Opened by the first row group, whose values it is set up for.
        self._encoder: Encoder | None = None

    @property
    def is_full(self) -> bool:
        """Whether the bytes already in the file are close enough to its target size."""
        return self._sink.size >= FULL_ENOUGH * self._layout.target.target_file_size_bytes

    def take(self, rows: pa.RecordBatch) -> int:
        """Take rows up to the end of the row group or of the file, and say how many that was."""
        row_bytes = max(1.0, rows.nbytes / rows.num_rows)
        count: int = min(rows.num_rows, self._rows_to_boundary(row_bytes))
        self._waiting.append(rows if count == rows.num_rows else rows.slice(0, count))
        self._waiting_rows += count
        self.waiting_bytes += int(count * row_bytes)
        if self._rows_to_boundary(row_bytes) <= 0:
            self.flush()
        return count

    def _rows_to_boundary(self, row_bytes: float) -> int:
        """How many rows of this width still fit; an estimate that each written row group corrects."""
        target = self._layout.target
        file_room = (target.target_file_size_bytes - self._sink.size) / self._layout.compressed_share
        group_room = min(file_room, ROW_GROUP_BYTES) - self.waiting_bytes
        count = min(target.row_group_rows - self._waiting_rows, int(group_room / row_bytes))
        # An empty buffer takes one row in any case, or a row wider than the file would never be written.
        # Another file's row group may have shown that rows compress worse than thought: then there is no room left.
        return max(0, count) if self._waiting else max(1, count)

    def flush(self) -> None:
        """Write the waiting rows as one row group."""
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, schema=self._layout.format.arrow_schema)
        if self.waiting_bytes <= COMBINE_BYTES_MAX:
            table = table.combine_chunks()
        before = self._sink.size
        with _storage_errors(self.path), _shape_errors(self._layout.target.table):
            if self._encoder is None:
                self._encoder = self._layout.format.encoder(self._sink, table)
            self._encoder.write(table)
        self._layout.compressed_share = max(0.001, (self._sink.size - before) / max(1, self.waiting_bytes))
        self._rows += self._waiting_rows
        self._waiting, self._waiting_rows, self.waiting_bytes = [], 0, 0

    def close(self) -> WrittenFile:
        """Finish the file and describe it; it has taken rows."""
        self.flush()
        assert self._encoder is not None
        with _storage_errors(self.path):
            metrics = self._encoder.close()
            self._sink.close()
        target = self._layout.target
        return WrittenFile(
            table=target.table,
            path=self.path,
            spec_id=self._layout.spec_id,
            schema_id=target.schema_id,
            record_count=self._rows,
            file_size_bytes=self._sink.size,
            partition=self._partition.values,
            sort_order_id=self._layout.sort_order_id,
            format=self._layout.format.name,
            checksum=None if self._sink.checksum is None else f"crc32:{self._sink.checksum:08x}",
            **metrics,
        )

    def abort(self) -> None:
        """Let go of the file and remove what is there of it."""
        self._waiting.clear()
        if self._encoder is not None:
            self._encoder.abandon()
        with contextlib.suppress(OSError):
            self._sink.close()
        with contextlib.suppress(OSError):
            self._io.delete(self.path)


@contextlib.contextmanager
def _storage_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as refused:
        raise StorageUnavailable(
            f"cannot write {path}: {refused}",
            "check free space, permissions and the storage settings; the epoch is written again",
        ) from refused


@contextlib.contextmanager
def _shape_errors(table: str) -> Iterator[None]:
    """Arrow checks nested required fields only while it writes them."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError) as refused:
        raise SchemaMismatch(
            f"rows do not fit the schema of {table}: {refused}",
            "make the nested field optional in the table, or fill it in the pipeline's SQL",
        ) from refused
