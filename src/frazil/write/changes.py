"""Write the changes of one task: rows to data files, keys of rows that went before to files of equality deletes.

A table that finds its rows itself, by MERGE, is given the last change of each key as it is.

An equality delete removes rows of older snapshots only, never of its own. So of each key there is at most one
delete and at most one row in an epoch, whatever happened to it in between:

    first change        last change    delete    row
    any                 I or U         yes       yes
    any                 D              yes       no
    I, and trusted      I or U         no        yes
    I, and trusted      D              no        no
    I, no row before    as above       no        as above     (only where `_before` tells it)
    after a TRUNCATE    as above       no        as above     (all older rows go)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from frazil.changes import BEFORE, DELETE, INSERT, OP, ORDER, TRUNCATE, UPDATE
from frazil.errors import InvalidState, OldRowUnknown, SchemaMismatch
from frazil.table.files import WriteTarget, WrittenFile
from frazil.write.collapse import Collapse, KeyedChanges
from frazil.write.conform import Conformer
from frazil.write.deletes import delete_target, guides
from frazil.write.hashes import hashed
from frazil.write.staged import staged_target
from frazil.write.task import TaskWriter
from frazil.write.writer import MAX_WAITING_BYTES, FileName, TableWriter

_LETTERS = pa.array([INSERT, UPDATE, DELETE, TRUNCATE])

# Whether the change tells what its row was, and the old value of one column.
_KNOWN_BEFORE = f"{BEFORE}?"


def _old(column: str) -> str:
    return f"{BEFORE}.{column}"


class ChangeWriter(TaskWriter):
    """Takes changes in any order, keeps the last of each key, and writes all of them at the end.

    Changes wait in a sorter, on disk if need be. Counts, hashes and `truncated` are known once it is closed:
    `changes = landed + deleted + collapsed`.
    """

    def __init__(self, target: WriteTarget, name: FileName, *, max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        assert target.changes is not None, "the table is not one of keyed rows"
        super().__init__(target.table)
        self._target = target
        self._how = target.changes
        self._guides = guides(target, self._how)
        self._told_by_first = [
            OP,
            *([_KNOWN_BEFORE] if self._guides else []),
            *(_old(g.name) for g in self._guides),
        ]
        self._columns = Schema.model_validate_json(target.schema_json).fields
        self._max_waiting_bytes = max_waiting_bytes
        self._conformer: Conformer | None = None
        self._collapse: Collapse | None = None
        key_ids = tuple(each.field_id for each in self._columns if each.name in self._how.keys)
        self._deletes: TableWriter | None = None
        if self._how.scope == "merge":
            self._rows = TableWriter(
                staged_target(target),
                replace(name, kind="changes"),
                max_waiting_bytes=max_waiting_bytes,
                equality_ids=key_ids,
                content="changes",
            )
        else:
            self._rows = TableWriter(target, name, max_waiting_bytes=max_waiting_bytes)
            self._deletes = TableWriter(
                delete_target(target, self._how),
                replace(name, kind="deletes"),
                max_waiting_bytes=max_waiting_bytes // 4,
                equality_ids=key_ids,
                guides=self._guides,
            )
        self._truncated_at: int | None = None
        self._hashes: list[npt.NDArray[np.uint64]] = []
        self.changes = 0
        self.landed = 0
        """rows in data files"""
        self.deleted = 0
        """keys that have no row in the end"""

    @property
    def collapsed(self) -> int:
        """Changes that a later one of their key, or a truncation, made void."""
        return self.changes - self.landed - self.deleted

    @property
    def truncated(self) -> bool:
        """Whether every row of older snapshots must go."""
        return self._truncated_at is not None

    def key_hashes(self) -> npt.NDArray[np.uint64]:
        """One number for each key, sorted: a key that two tasks had has the same number in both."""
        return np.unique(np.concatenate([np.empty(0, np.uint64), *self._hashes]))

    def _discard(self) -> None:
        if self._collapse is not None:
            self._collapse.close()
        for writer in self._writers:
            writer.abort()

    def _take(self, batch: pa.RecordBatch) -> list[WrittenFile]:
        changes = self._conformed(batch)
        self.changes += changes.num_rows
        assert self._collapse is not None
        self._collapse.add(self._without_truncates(changes))
        return []

    def _complete(self) -> list[WrittenFile]:
        closed: list[WrittenFile] = []
        if self._collapse is not None:
            for some in self._collapse.keys(after=self._truncated_at):
                closed += self._write_keys(some)
        return closed + [file for writer in self._writers for file in writer.close()]

    @property
    def _writers(self) -> list[TableWriter]:
        return [self._rows, *([self._deletes] if self._deletes is not None else [])]

    def _write_keys(self, some: KeyedChanges) -> list[WrittenFile]:
        keys = some.changes.select(self._how.keys).take(pa.array(some.last))
        self._hashes.append(hashed(keys.columns))
        is_delete = pc.equal(some.changes.column(OP).take(pa.array(some.last)), DELETE)
        landing = some.last[~np.asarray(is_delete)]
        self.landed += len(landing)
        self.deleted += len(some.last) - len(landing)
        columns = [each.name for each in self._columns]
        if self._deletes is None:
            return self._rows.write(some.changes.select([*columns, OP]).take(pa.array(some.last)))
        closed: list[WrittenFile] = []
        if len(landing):
            closed += self._rows.write(some.changes.select(columns).take(pa.array(landing)))
        if not self.truncated:
            closed += self._write_deletes(self._deletes, keys, some)
        return closed

    def _write_deletes(self, writer: TableWriter, keys: pa.RecordBatch, some: KeyedChanges) -> list[WrittenFile]:
        """Writes the keys that older snapshots may have rows of, and where."""
        first = some.changes.select(self._told_by_first).take(pa.array(some.first))
        was_inserted = pc.equal(first.column(OP), INSERT)
        may_exist = pc.invert(was_inserted) if self._how.trust_inserts else pa.repeat(True, len(first))
        if self._guides:
            is_known = first.column(_KNOWN_BEFORE)
            unknown = pc.index(pc.or_(is_known, was_inserted), False).as_py()
            if unknown >= 0:
                raise self._old_row_unknown(keys.slice(unknown, 1))
            may_exist = pc.and_(may_exist, is_known)
        for each in self._guides:
            keys = keys.append_column(each.name, first.column(_old(each.name)))
        keys = keys.filter(may_exist)
        return writer.write(keys) if len(keys) else []

    def _old_row_unknown(self, keys: pa.RecordBatch) -> OldRowUnknown:
        key = ", ".join(f"{name} = {value!r}" for name, value in keys.to_pylist()[0].items())
        columns = ", ".join(each.name for each in self._guides)
        return OldRowUnknown(
            f"{self._target.table}: a change of the row with {key} does not say what {columns} was before, "
            "so the partition of its old row is not known",
            "have the source send the whole old row (in PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL), "
            f"or make {columns} part of table.keys",
        )

    def _conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        flat = self._with_old_values(batch)
        if self._conformer is None:
            schema = self._schema(flat.schema)
            self._conformer = Conformer(self._target.table, schema.names, schema)
            # Half: while rows are handed out, those that wait for their row group are in memory as well.
            self._collapse = Collapse(schema, self._how.keys, self._how.sequence_by, self._max_waiting_bytes // 2)
        changes = self._conformer.conform(flat)
        if not pc.all(pc.is_in(changes.column(OP), _LETTERS), min_count=0).as_py():
            unknown = changes.filter(pc.invert(pc.is_in(changes.column(OP), _LETTERS)))
            raise InvalidState(
                f"{self._target.table}: {unknown.column(OP)[0].as_py()!r} is no operation",
                "this is a defect in frazil: please report it",
                expected=", ".join(_LETTERS.to_pylist()),
            )
        return changes

    def _schema(self, arriving: pa.Schema) -> pa.Schema:
        """Of changes while they wait. A delete need not have what the table requires of rows."""
        held = schema_to_pyarrow(Schema(*self._columns))
        extra = [pa.field(OP, pa.string(), nullable=False), pa.field(ORDER, pa.int64(), nullable=False)]
        sequence_by = self._how.sequence_by
        if sequence_by is not None and sequence_by not in held.names:
            if sequence_by not in arriving.names:
                raise SchemaMismatch(
                    f"changes of {self._target.table} have no column {sequence_by}, which is to order them",
                    "name a column that the records have, or leave the ordering column out",
                    expected=sequence_by,
                    actual=", ".join(arriving.names),
                )
            extra.append(arriving.field(sequence_by).with_nullable(True))
        if self._guides:
            extra.append(pa.field(_KNOWN_BEFORE, pa.bool_(), nullable=False))
            extra += [_named(_old(each.name), held.field(each.name)) for each in self._guides]
        return pa.schema([*(each.with_nullable(True) for each in held), *extra])

    def _with_old_values(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The old values that are needed as columns of their own; those that are not are left out."""
        place = batch.schema.get_field_index(BEFORE)
        if not self._guides:
            return batch.remove_column(place) if place >= 0 else batch
        before = batch.column(place) if place >= 0 else None
        flat = batch if before is None else batch.remove_column(place)
        flat = flat.append_column(_KNOWN_BEFORE, self._known(before))
        for each in self._guides:
            flat = flat.append_column(_old(each.name), pc.struct_field(before, each.name))
        return flat

    def _known(self, before: Any) -> pa.Array:
        """Whether each change tells what its row was; refuses changes that never could."""
        missing = [each.name for each in self._guides if before is None or not _has(before.type, each)]
        if missing:
            raise SchemaMismatch(
                f"changes of {self._target.table} do not bring the old {', '.join(missing)}, which tells the "
                "partition of a row that is to be deleted",
                "this is a defect in frazil: please report it",
                expected=f"{BEFORE} with {', '.join(missing)}",
                actual="nothing" if before is None else str(before.type),
            )
        return before.is_valid()

    def _without_truncates(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The changes that stand behind the last truncation seen so far."""
        is_truncate = pc.equal(changes.column(OP), TRUNCATE)
        if pc.any(is_truncate).as_py():
            latest = pc.max(changes.column(ORDER).filter(is_truncate)).as_py()
            self._truncated_at = latest if self._truncated_at is None else max(latest, self._truncated_at)
        if self._truncated_at is None:
            return changes
        return changes.filter(pc.greater(changes.column(ORDER), self._truncated_at))


def _named(name: str, field: pa.Field) -> pa.Field:
    return field.with_name(name).with_nullable(True)


def _has(kind: pa.DataType, field: NestedField) -> bool:
    return bool(pa.types.is_struct(kind) and kind.get_field_index(field.name) >= 0)
