"""Write the rows of one task into a table's files."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import BUFFER_SIZE
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from frazil.errors import InvalidState
from frazil.table.files import MIB, WriteTarget, WrittenFile
from frazil.write.conform import Conformer
from frazil.write.file import DataFile, FileLayout
from frazil.write.formats import file_format
from frazil.write.partition import Partition, Partitioner

MAX_OPEN_FILES = 64
MAX_WAITING_BYTES = 64 * MIB

# Parquet hands over whole pages, so a stream needs no large buffer of its own; 64 open files would have 64.
_STREAM_BUFFER = {BUFFER_SIZE: str(64 * 1024)}

_NAME_PART_LENGTH_MAX = 80


def _token() -> str:
    return secrets.token_hex(6)


@dataclass(frozen=True, slots=True)
class FileName:
    """Where a file comes from. The token is new in every task attempt, so no two attempts share a path."""

    writer: str
    epoch: int
    task: int
    label: str = ""
    token: str = field(default_factory=_token)

    def numbered(self, sequence: int) -> str:
        """The name of the task's n-th file."""
        parts = [_safe(self.writer) or "writer", f"e{self.epoch}", f"t{self.task}"]
        parts += [label] if (label := _safe(self.label)) else []
        return "-".join([*parts, self.token, f"{sequence:05d}"]) + ".parquet"


def _safe(text: str) -> str:
    """Only characters every storage takes; no leading dot or underscore, which would hide the file."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).lstrip("._-")[:_NAME_PART_LENGTH_MAX]


class TableWriter:
    """Takes batches, hands back a `WrittenFile` for each file it closes.

    At most `max_open_files` files are open, and over all of them at most `max_waiting_bytes` of rows wait for
    their row group to fill. After any error the writer has removed every file it made and takes no more rows.
    """

    def __init__(
        self,
        target: WriteTarget,
        name: FileName,
        *,
        max_open_files: int = MAX_OPEN_FILES,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        schema = Schema.model_validate_json(target.schema_json)
        spec = PartitionSpec.model_validate_json(target.spec_json)
        self._target = target
        self._name = name
        self._max_open_files = max_open_files
        self._max_waiting_bytes = max_waiting_bytes
        self._io = load_file_io(_STREAM_BUFFER | dict(target.io_properties), target.location)
        order = SortOrder.model_validate_json(target.sort_order_json)
        self._layout = FileLayout(target, file_format(target, schema), spec.spec_id, order.order_id)
        columns = [each.name for each in schema.fields]
        self._conformer = Conformer(target.table, columns, self._layout.format.arrow_schema)
        self._partitioner = Partitioner(schema, spec)
        self._open: OrderedDict[Partition, DataFile] = OrderedDict()
        self._closed_paths: list[str] = []
        self._sequence = 0
        self._state = "open"

    def write(self, batch: pa.RecordBatch) -> list[WrittenFile]:
        """Add rows; returns the files that were closed meanwhile."""
        return self._guarded(lambda: self._write(batch))

    def close(self) -> list[WrittenFile]:
        """Finish all open files and return them; the writer takes no more rows."""
        closed = self._guarded(lambda: [self._finish(partition) for partition in list(self._open)])
        self._state = "closed"
        return closed

    def abort(self) -> None:
        """Remove every file this writer made, also those it handed back; for a task that will not report."""
        for file in self._open.values():
            file.abort()
        for path in self._closed_paths:
            with contextlib.suppress(OSError):
                self._io.delete(path)
        self._open.clear()
        self._closed_paths.clear()
        self._state = "aborted"

    def _guarded(self, work: Callable[[], list[WrittenFile]]) -> list[WrittenFile]:
        if self._state != "open":
            raise InvalidState(
                f"the writer of {self._target.table} is {self._state}",
                "make a new TableWriter for the next task attempt",
                actual=self._state,
                expected="open",
            )
        try:
            return work()
        except BaseException:
            self.abort()
            raise

    def _write(self, batch: pa.RecordBatch) -> list[WrittenFile]:
        closed: list[WrittenFile] = []
        for partition, rows in self._partitioner.split(self._conformer.conform(batch)):
            closed += self._append(partition, rows)
        self._limit_waiting()
        return closed

    def _append(self, partition: Partition, rows: pa.RecordBatch) -> list[WrittenFile]:
        closed: list[WrittenFile] = []
        while rows.num_rows:
            closed += self._make_room(partition)
            file = self._file_of(partition)
            rows = rows.slice(file.take(rows))
            if file.is_full:
                closed.append(self._finish(partition))
        return closed

    def _make_room(self, partition: Partition) -> list[WrittenFile]:
        """Close the file that has waited longest for a row, if another one must be opened."""
        if partition in self._open or len(self._open) < self._max_open_files:
            return []
        return [self._finish(next(iter(self._open)))]

    def _file_of(self, partition: Partition) -> DataFile:
        if partition not in self._open:
            self._open[partition] = DataFile(self._layout, self._io, self._next_path(partition), partition)
        self._open.move_to_end(partition)
        return self._open[partition]

    def _next_path(self, partition: Partition) -> str:
        self._sequence += 1
        folders = [self._target.location.rstrip("/"), *([partition.path] if partition.path else [])]
        return "/".join([*folders, self._name.numbered(self._sequence)])

    def _finish(self, partition: Partition) -> WrittenFile:
        written = self._open[partition].close()
        del self._open[partition]
        self._closed_paths.append(written.path)
        return written

    def _limit_waiting(self) -> None:
        """Give memory back by writing the largest waiting row group early."""
        while sum(file.waiting_bytes for file in self._open.values()) > self._max_waiting_bytes:
            max(self._open.values(), key=lambda file: file.waiting_bytes).flush()
