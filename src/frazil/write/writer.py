"""Write the rows of one task into a table's files."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import BUFFER_SIZE
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import NestedField

from frazil.table.files import MIB, Content, WriteTarget, WrittenFile, safe_in_names, writer_in_names
from frazil.write.conform import Conformer
from frazil.write.file import DataFile, FileLayout
from frazil.write.formats import file_format
from frazil.write.locations import Locations
from frazil.write.order import order_to_write, partition_keys, sort_keys
from frazil.write.partition import Partition, Partitioner, picked
from frazil.write.sort import Ordering, Sorter
from frazil.write.stored import rows_in_arrow
from frazil.write.task import TaskWriter

MAX_WAITING_BYTES = 64 * MIB

# Parquet hands over whole pages, so a stream needs no large buffer of its own; all open files would have one.
_STREAM_BUFFER = {BUFFER_SIZE: str(64 * 1024)}


def new_token() -> str:
    """Twelve hexadecimal digits that nobody else has."""
    return secrets.token_hex(6)


@dataclass(frozen=True, slots=True)
class FileName:
    """Where a file comes from. The token is new in every task attempt, so no two attempts share a path.

    The epoch's own token is the same in all of them: by it the journal knows what a crash left behind.
    """

    writer: str
    epoch: int
    task: int
    label: str = ""
    token: str = field(default_factory=new_token)
    epoch_token: str = ""
    kind: str = ""
    """what the files hold, if not rows; one attempt may write both"""

    def numbered(self, sequence: int, extension: str = "parquet") -> str:
        """The name of the task's n-th file."""
        task = [f"e{self.epoch}", f"t{self.task}", safe_in_names(self.label), self.kind]
        origin = [writer_in_names(self.writer), *task]
        return (
            "-".join([*filter(None, [*origin, self.epoch_token]), self.token, f"{sequence:05d}"]) + f".{extension}"
        )


def _in_files(schema: Schema, in_folders: Sequence[str]) -> Schema:
    """The columns that files have."""
    if not in_folders:
        return schema
    return Schema(*(field for field in schema.fields if field.name not in in_folders))


class TableWriter(TaskWriter):
    """Writes rows to data files.

    At most `max_open_files` files are open, and over all of them at most `max_waiting_bytes` of rows wait for
    their row group to fill. Rows of further partitions, and all rows of a table with a sort order, wait in a
    sorter, on disk if need be, and are written by `close()`, partition after partition.

    With `equality_ids` the files hold deletes, or what `content` says. `guides` are columns that rows are
    partitioned by and that files do not have.
    """

    def __init__(
        self,
        target: WriteTarget,
        name: FileName,
        *,
        max_open_files: int | None = None,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        equality_ids: tuple[int, ...] = (),
        content: Content | None = None,
        guides: Sequence[NestedField] = (),
    ) -> None:
        super().__init__(target.table)
        declared = Schema.model_validate_json(target.schema_json)
        file_schema = _in_files(declared, target.in_folders)
        guides = [*guides, *(field for field in declared.fields if field.name in target.in_folders)]
        schema = Schema(*file_schema.fields, *guides)
        spec = PartitionSpec.model_validate_json(target.spec_json)
        order = order_to_write(SortOrder.model_validate_json(target.sort_order_json))
        self._target = target
        self._name = name
        self._max_waiting_bytes = max_waiting_bytes
        self._io = load_file_io(_STREAM_BUFFER | dict(target.io_properties), target.location)
        self._locations = Locations(
            target.location, target.properties, target.table_location, of_deletes=bool(equality_ids)
        )
        self._layout = FileLayout(
            target, file_format(target, file_schema), spec.spec_id, order.order_id, equality_ids, content
        )
        self._max_open_files = max_open_files or self._layout.format.max_open_files
        columns = [each.name for each in schema.fields]
        held = self._layout.format.arrow_schema
        rows = pa.schema([*held, *rows_in_arrow(Schema(*guides), target.stored)]) if guides else held
        self._columns_to_write = list(range(len(held))) if guides else None
        self._conformer = Conformer(target.table, columns, rows)
        self._partitioner = Partitioner(schema, spec, target.table_format)
        self._sorts_all = not order.is_unsorted
        self._sorter = Sorter(
            rows,
            Ordering([*partition_keys(schema, spec), *sort_keys(schema, order)]),
            max_waiting_bytes // 2,
        )
        self._open: dict[Partition, DataFile] = {}
        # Whose rows are written as they come. A partition stays on its side, or it would end up in two files.
        self._direct: set[Partition] = set()
        self._shares: dict[Partition, float] = {}
        self._closed_paths: list[str] = []
        self._sequence = 0

    def _discard(self) -> None:
        self._sorter.close()
        for file in self._open.values():
            file.abort()
        for path in self._closed_paths:
            with contextlib.suppress(OSError):
                self._io.delete(path)
        self._open.clear()
        self._closed_paths.clear()

    def _take(self, batch: pa.RecordBatch) -> list[WrittenFile]:
        rows = self._conformer.conform(batch)
        if self._sorts_all:
            self._sorter.add(rows)
            return []
        return self._write_direct(rows) + self._limit_waiting()

    def _write_direct(self, rows: pa.RecordBatch) -> list[WrittenFile]:
        """Rows go into the open files; those of partitions that have none go to the sorter in one piece."""
        closed: list[WrittenFile] = []
        later: list[pa.Array] = []
        for partition, places in self._partitioner.places(rows):
            if self._is_direct(partition):
                closed += self._append(partition, picked(rows, places))
            else:
                later.append(places)
        if later:
            self._sorter.add(picked(rows, pa.concat_arrays(later)))
        return closed

    def _is_direct(self, partition: Partition) -> bool:
        if len(self._direct) < self._max_open_files:
            self._direct.add(partition)
        return partition in self._direct

    def _append(self, partition: Partition, rows: pa.RecordBatch) -> list[WrittenFile]:
        """Add rows to the partition's file, and to the next one when it is full."""
        closed: list[WrittenFile] = []
        if self._columns_to_write is not None:
            rows = rows.select(self._columns_to_write)
        while rows.num_rows:
            file = self._file_of(partition)
            rows = rows.slice(file.take(rows))
            if file.is_full:
                closed += self._roll(partition)
        return closed

    def _roll(self, partition: Partition) -> list[WrittenFile]:
        """Finish the partition's file; rows it had no room for begin the next one."""
        rest = self._open[partition].give_back()
        closed = [self._finish(partition)]
        for rows in rest:
            closed += self._append(partition, rows)
        return closed

    def _file_of(self, partition: Partition) -> DataFile:
        if partition not in self._open:
            self._sequence += 1
            name = self._name.numbered(self._sequence, self._layout.format.name)
            path, share = self._locations.path(partition, name), self._shares.pop(partition, None)
            self._open[partition] = DataFile(self._layout, self._io, path, partition, share)
        return self._open[partition]

    def _finish(self, partition: Partition) -> WrittenFile:
        file = self._open[partition]
        written = file.close()
        del self._open[partition]
        self._closed_paths.append(written.path)
        if file.is_full:
            self._shares[partition] = file.compressed_share
        return written

    def _complete(self) -> list[WrittenFile]:
        closed = self._finish_others(None)
        for rows in self._sorter.rows():
            for partition, part in self._partitioner.split(rows):
                closed += self._finish_others(partition)
                closed += self._append(partition, part)
            closed += self._limit_waiting()
        return closed + self._finish_others(None)

    def _finish_others(self, partition: Partition | None) -> list[WrittenFile]:
        """Finish every file but this partition's."""
        return [file for other in list(self._open) if other != partition for file in self._drain(other)]

    def _drain(self, partition: Partition) -> list[WrittenFile]:
        """Write all rows of the partition that still wait, and finish."""
        closed: list[WrittenFile] = []
        while partition in self._open:
            self._open[partition].flush()
            closed += self._roll(partition)
        return closed

    def _limit_waiting(self) -> list[WrittenFile]:
        """Give memory back by writing the largest waiting row group early; a sorter in use has half of it."""
        closed: list[WrittenFile] = []
        limit = self._max_waiting_bytes // (2 if self._sorter.in_use else 1)
        while sum(file.waiting_bytes for file in self._open.values()) > limit:
            partition, file = max(self._open.items(), key=lambda each: each[1].waiting_bytes)
            file.flush()
            if file.is_full:
                closed += self._roll(partition)
        return closed
