"""One Parquet file that is being written.

pyarrow's Parquet writer makes a row group of every table it is handed, so rows wait here as Arrow batches
until they fill one. What a file keeps in memory is therefore one row group, never the file.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyiceberg.io import FileIO, OutputStream
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping, schema_to_pyarrow
from pyiceberg.schema import Schema, sanitize_column_names

from frazil.errors import SchemaMismatch, StorageUnavailable
from frazil.table.files import MIB, WriteTarget, WrittenFile
from frazil.write.metrics import MetricsPlan
from frazil.write.partition import Partition

# A row group holds at most this much Arrow data, however wide its rows are.
ROW_GROUP_BYTES = 64 * MIB

# After a table of many chunks pyarrow keeps a page or two in memory per open file, after one of a single
# chunk next to nothing. Small row groups mean many open files, and cost little to put together first.
COMBINE_BYTES_MAX = 8 * MIB

# A file this close to its target is done; the next row group would more likely overshoot than improve it.
FULL_ENOUGH = 0.95

# How far to look for values that repeat, and how often at least a value must come again.
SAMPLE_ROWS = 5_000
DISTINCT_SHARE_MAX = 0.5


class ParquetLayout:
    """Everything the files of one table share, worked out once per writer."""

    def __init__(self, target: WriteTarget, schema: Schema, spec_id: int) -> None:
        file_schema = sanitize_column_names(schema)
        self.target = target
        self.spec_id = spec_id
        self.arrow_schema: pa.Schema = schema_to_pyarrow(file_schema)
        self.metrics = MetricsPlan(schema, file_schema, target.properties)
        self._leaves = list(parquet_path_to_id_mapping(file_schema))
        self.compressed_share = 1.0
        """Bytes in the file per byte of Arrow data, as the latest row group showed; 1 before the first."""

    def open_writer(self, sink: Any, rows: pa.Table) -> pq.ParquetWriter:
        """A pyarrow writer with the target's Parquet settings, for a file that begins with these rows."""
        target = self.target
        return pq.ParquetWriter(
            sink,
            self.arrow_schema,
            compression="none" if target.compression == "uncompressed" else target.compression,
            compression_level=target.compression_level,
            use_dictionary=self._leaves_that_repeat(rows) if target.dictionary else False,
            data_page_size=target.page_size_bytes,
            write_statistics=True,
            store_decimal_as_integer=True,
            store_schema=False,
        )

    def _leaves_that_repeat(self, rows: pa.Table) -> list[str]:
        """The columns worth a dictionary; of nested ones, all.

        Arrow builds a dictionary of whatever comes until a megabyte of it is full. Where values hardly repeat,
        that makes a file of small orders 30 % larger, and encoding it takes half as long again (measured).
        """
        sample = rows.slice(0, SAMPLE_ROWS)
        unique = {name for name in sample.column_names if not _repeats(sample.column(name))}
        return [path for path in self._leaves if path.partition(".")[0] not in unique]


def _repeats(values: pa.ChunkedArray) -> bool:
    if pt.is_nested(values.type) or isinstance(values.type, pa.BaseExtensionType):
        return True
    return bool(pc.count_distinct(values).as_py() <= DISTINCT_SHARE_MAX * len(values))


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


class ParquetFile:
    """A file from its first row to its footer; `close()` describes it, `abort()` removes it."""

    def __init__(self, layout: ParquetLayout, io: FileIO, path: str, partition: Partition) -> None:
        self.path = path
        self._layout = layout
        self._io = io
        self._partition = partition
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self.waiting_bytes = 0
        self._nan_counts: dict[int, int] = dict.fromkeys(layout.metrics.nan_columns.values(), 0)
        with _storage_errors(path):
            stream = io.new_output(path).create(overwrite=False)
        self._sink = _Sink(stream, checksum=0 if layout.target.checksum else None)
        # Opened by the first row group, whose values it is set up for.
        self._writer: pq.ParquetWriter | None = None

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
        table = pa.Table.from_batches(self._waiting, schema=self._layout.arrow_schema)
        if self.waiting_bytes <= COMBINE_BYTES_MAX:
            table = table.combine_chunks()
        before = self._sink.size
        with _storage_errors(self.path), _shape_errors(self._layout.target.table):
            if self._writer is None:
                self._writer = self._layout.open_writer(self._sink, table)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._layout.compressed_share = max(0.001, (self._sink.size - before) / max(1, self.waiting_bytes))
        self._count_nans(table)
        self._waiting, self._waiting_rows, self.waiting_bytes = [], 0, 0

    def _count_nans(self, table: pa.Table) -> None:
        for position, field_id in self._layout.metrics.nan_columns.items():
            self._nan_counts[field_id] += pc.sum(pc.is_nan(table.column(position))).as_py() or 0

    def close(self) -> WrittenFile:
        """Finish the file and describe it; it has taken rows."""
        self.flush()
        assert self._writer is not None
        with _storage_errors(self.path):
            self._writer.close()
            self._sink.close()
        footer = self._writer.writer.metadata
        target = self._layout.target
        return WrittenFile(
            table=target.table,
            path=self.path,
            spec_id=self._layout.spec_id,
            schema_id=target.schema_id,
            record_count=footer.num_rows,
            file_size_bytes=self._sink.size,
            partition=self._partition.values,
            sort_order_id=target.sort_order_id,
            checksum=None if self._sink.checksum is None else f"crc32:{self._sink.checksum:08x}",
            **self._layout.metrics.measure(footer, self._nan_counts),
        )

    def abort(self) -> None:
        """Let go of the file and remove what is there of it."""
        self._waiting.clear()
        if self._writer is not None:
            self._writer.is_open = False  # otherwise pyarrow writes a footer when the writer is collected
        self._remove()

    def _remove(self) -> None:
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
