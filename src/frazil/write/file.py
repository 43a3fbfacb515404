"""One file of rows or of deletes that is being written.

An encoder makes a row group of every table it is handed, so rows wait here as Arrow batches until they fill
one. What a file keeps in memory is therefore one row group, never the file.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO, OutputStream

from frazil.errors import SchemaMismatch, StorageUnavailable
from frazil.table.files import MIB, Content, WriteTarget, WrittenFile
from frazil.write.encode import Encoder, FileFormat
from frazil.write.partition import Partition

# A row group is not made smaller than this only to be sure of its size; rather it is encoded on trial.
SAFE_GROUP_BYTES = 16 * MIB

# A batch costs some kilobytes beside its data, so that many small ones take several times what their rows do.
SMALL_BATCH_BYTES = 32 * 1024
SMALL_BATCHES_MAX = 64

# A file this close to its target is done; the next row group would more likely overshoot than improve it.
FULL_ENOUGH = 0.94

# Rows that might push a file beyond this share of its target are encoded once for their size alone.
OVERFULL = 1.05

# What a footer says of one column of a row group, before a first one has shown it.
_FOOTER_BYTES_PER_COLUMN = 256

# How often at most rows are encoded to find how many of them fit.
_TRIALS_MAX = 10


@dataclass(slots=True)
class FileLayout:
    """What the files of one writer have in common."""

    target: WriteTarget
    format: FileFormat
    spec_id: int
    sort_order_id: int
    equality_ids: tuple[int, ...] = ()
    """the columns that rows are found by; data files have none"""
    holds: Content | None = None
    """what the files are of; without a word, deletes if there are equality ids, and else rows"""
    compressed_share: float = 1.0
    """Bytes in the file per byte of Arrow data, as the latest row group showed; 1 before the first."""
    footer_bytes: float = field(init=False)
    """What one row group adds to the footer, as the latest one showed."""

    def __post_init__(self) -> None:
        self.footer_bytes = _FOOTER_BYTES_PER_COLUMN * len(self.format.arrow_schema)

    @property
    def content(self) -> Content:
        return self.holds or ("equality-deletes" if self.equality_ids else "data")


@dataclass(slots=True)
class _Sink:
    """The output stream, which knows how many bytes went through and, if asked for, their CRC.

    Without a stream the bytes are only counted.
    """

    stream: OutputStream | None = None
    checksum: int | None = None
    size: int = 0
    closed: bool = False

    def write(self, data: Any) -> int:
        if self.stream is not None:
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
        if not self.closed and self.stream is not None:
            self.closed = True
            self.stream.close()


class DataFile:
    """A file from its first row to its last byte; `close()` describes it, `abort()` removes it.

    `compressed_share` is what to expect of the first row group, best known from the partition's file before.
    """

    def __init__(
        self, layout: FileLayout, io: FileIO, path: str, partition: Partition, compressed_share: float | None = None
    ) -> None:
        self.path = path
        self.is_full = False
        self.compressed_share = compressed_share or layout.compressed_share
        self._layout = layout
        self._io = io
        self._partition = partition
        self._rows = 0
        self._groups = 0
        self._waiting: list[pa.RecordBatch] = []
        self._small_batches = 0
        self._waiting_rows = 0
        self.waiting_bytes = 0
        with _storage_errors(path):
            stream = io.new_output(path).create(overwrite=False)
        self._sink = _Sink(stream, checksum=0 if layout.target.checksum else None)
        # Opened by the first row group, whose values it is set up for.
        self._encoder: Encoder | None = None

    def take(self, rows: pa.RecordBatch) -> int:
        """Take rows up to the end of the row group or of the file, and say how many that was."""
        row_bytes = max(1.0, rows.nbytes / rows.num_rows)
        count: int = min(rows.num_rows, self._rows_to_boundary(row_bytes))
        self._waiting.append(rows if count == rows.num_rows else rows.slice(0, count))
        self._waiting_rows += count
        self.waiting_bytes += int(count * row_bytes)
        self._put_small_ones_together(is_small=count * row_bytes < SMALL_BATCH_BYTES)
        if self._rows_to_boundary(row_bytes) <= 0:
            self.flush()
        return count

    def flush(self) -> None:
        """Write the waiting rows as one row group, or as many of them as the file has room for."""
        while self._waiting and not self.is_full:
            table = pa.Table.from_batches(self._waiting, schema=self._layout.format.arrow_schema)
            count = self._rows_that_fit(table)
            if count:
                self._write(table.slice(0, count))
                self._wait(table.slice(count).to_batches())
            self.is_full = not count or self._size() >= FULL_ENOUGH * self._layout.target.target_file_size_bytes

    def give_back(self) -> list[pa.RecordBatch]:
        """The rows that wait but no longer fit, for the next file."""
        rest = self._waiting
        self._wait([])
        return rest

    def _put_small_ones_together(self, is_small: bool) -> None:
        self._small_batches = self._small_batches + 1 if is_small else 0
        if self._small_batches == SMALL_BATCHES_MAX:
            self._waiting[-SMALL_BATCHES_MAX:] = [pa.concat_batches(self._waiting[-SMALL_BATCHES_MAX:])]
            self._small_batches = 0

    def _wait(self, rows: list[pa.RecordBatch]) -> None:
        self._waiting = rows
        self._small_batches = 0
        self._waiting_rows = sum(each.num_rows for each in rows)
        self.waiting_bytes = sum(each.nbytes for each in rows)

    def _size(self) -> float:
        """What the file would measure if it were closed now."""
        return self._sink.size + self._layout.format.footer_bytes_once + self._groups * self._layout.footer_bytes

    def _room(self, share: float) -> float:
        """How many bytes one more row group may have if the file is to reach this share of its target."""
        return share * self._layout.target.target_file_size_bytes - self._size() - self._layout.footer_bytes

    def _rows_to_boundary(self, row_bytes: float) -> int:
        """How many rows of this width still fit; an estimate that each written row group corrects."""
        target = self._layout.target
        # Towards the end of a file row groups shrink to what fits however badly it compresses.
        group = min(target.row_group_bytes, max(SAFE_GROUP_BYTES, self._room(OVERFULL)))
        room = self._room(1.0) / self.compressed_share
        if 0.5 < min(group, target.row_group_rows * row_bytes) / max(1.0, room) < 1:
            group = room / 2 + row_bytes  # two halves rather than a whole and a tiny rest
        count = int((min(group, room) - self.waiting_bytes) / row_bytes)
        count = min(count, target.row_group_rows - self._waiting_rows)
        # An empty buffer takes one row in any case, or a row wider than the file would never be written.
        return max(0, count) if self._waiting else max(1, count)

    def _rows_that_fit(self, table: pa.Table) -> int:
        """How many of the rows make the file full but not overfull; none if not even the first one fits."""
        # Rows hardly ever take more space in a file than in memory, so mostly there is nothing to find out.
        if self.waiting_bytes <= self._room(OVERFULL):
            return len(table)
        wanted = (self._room(1.0), self._room(OVERFULL))
        count = prefix_of_size(len(table), wanted, lambda rows: self._encoded_bytes(table.slice(0, rows)))
        return count if self._groups else max(1, count)

    def _encoded_bytes(self, table: pa.Table) -> int:
        """How large a row group these rows make; what it adds to the footer is learned on the way."""
        scale = _Sink()
        with _shape_errors(self._layout.target.table):
            encoder = self._layout.format.encoder(scale, table)
            encoder.write(table)
            size = scale.size
            encoder.close()
        self._layout.footer_bytes = max(0, scale.size - size - self._layout.format.footer_bytes_once)
        return size

    def _write(self, table: pa.Table) -> None:
        before = self._sink.size
        with _storage_errors(self.path), _shape_errors(self._layout.target.table):
            if self._encoder is None:
                self._encoder = self._layout.format.encoder(self._sink, table)
            self._encoder.write(table)
        # ORC keeps a very small row group back, which says nothing about its size.
        if self._sink.size > before:
            self.compressed_share = max(0.001, (self._sink.size - before) / max(1, table.nbytes))
            self._layout.compressed_share = self.compressed_share
        self._rows += table.num_rows
        self._groups += 1

    def close(self) -> WrittenFile:
        """Finish the file and describe it; it has taken rows, and none of them waits."""
        assert self._encoder is not None
        assert not self._waiting
        before = self._sink.size
        with _storage_errors(self.path):
            metrics = self._encoder.close()
            self._sink.close()
        self._layout.footer_bytes = (self._sink.size - before) / self._groups
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
            content=self._layout.content,
            equality_ids=self._layout.equality_ids,
            format=self._layout.format.name,
            overwrites=target.overwrites,
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


def prefix_of_size(rows: int, wanted: tuple[float, float], size_of: Callable[[int], int]) -> int:
    """How many rows from the front have about the first size and never more than the second; 0 if none do.

    Sizes are found by trying, because rows may compress well here and badly there. A guess from the sizes known so
    far takes turns with one in the middle, so that a sudden change is found as well.
    """
    aim, most = wanted
    low, low_size, high, high_size = 0, 0, rows, size_of(rows)
    if high_size <= most:
        return rows
    for trial in range(_TRIALS_MAX):
        if high - low <= 1 or low_size >= 2 * aim - most > 0:
            break
        share = 0.5 if trial % 2 else min(0.95, max(0.05, (aim - low_size) / (high_size - low_size)))
        guess = min(high - 1, low + max(1, int((high - low) * share)))
        if (size := size_of(guess)) > most:
            high, high_size = guess, size
        else:
            low, low_size = guess, size
    return low


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
