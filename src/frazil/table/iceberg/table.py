"""One Iceberg table: observe it, commit to it.

A commit is one transaction: the files first, the register second, so that both become visible together or
not at all. Files come as an append, as a row delta when some of them delete, or as an overwrite of all there
was. `Guard` is called by Iceberg inside the transaction, on the metadata it is based on.

The transaction is then sent by one bare compare-and-set on that same metadata, not by `commitTransaction`,
which retries by itself and cleans up when it gives up: with its retries used up by real conflicts, a last
attempt that landed but was reported as failed cost the table the manifests of its head (measured). Trying
again is the coordinator's business; it looks before it does, and never cleans up. What a failed attempt
leaves behind are manifests that nobody references.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyspark.sql import SparkSession

from frazil.changes import ChangeTarget
from frazil.errors import CatalogUnavailable, RowsMoved, TableDamaged
from frazil.pipeline.keys import is_whole
from frazil.pipeline.spec import TableSection
from frazil.protocol.commit import (
    Held,
    Lookup,
    Proposal,
    Sign,
    Standing,
    TableObserved,
)
from frazil.protocol.layout import Former, Layout
from frazil.protocol.register import Register
from frazil.protocol.summary import PREFIX, CommitRecord, Kin, read_held, read_sign
from frazil.spark import ensure_callbacks, java_exception_classes, jvm
from frazil.table.evolve import Evolution
from frazil.table.files import WriteTarget, WrittenFile
from frazil.table.iceberg.append import append_rows, layout_of
from frazil.table.iceberg.former import former
from frazil.table.iceberg.keys import change_target, whole_row_target
from frazil.table.iceberg.leftovers import referenced_paths, unreferenced_metadata
from frazil.table.iceberg.settings import data_location, with_delete_settings, with_settings
from frazil.table.refusal import require_proceed
from frazil.table.storage import files_below

log = structlog.get_logger()

REGISTER_PROPERTY = "frazil.register."
_VALIDATION = "org.apache.iceberg.exceptions.ValidationException"
_STORAGE_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "client.", "py-io-impl")
"""Workers get what opens storage, never what opens the catalog."""

Load = Callable[[], Any]
Unavailable = Callable[[str, Py4JError], CatalogUnavailable]


class IcebergTable:
    """Implements `Table` on Iceberg's Java API."""

    def __init__(self, spark: SparkSession, name: str, load: Load, unavailable: Unavailable) -> None:
        ensure_callbacks(spark)
        self._jvm = jvm(spark)
        self._name = name
        self._load_java = load
        self._unavailable = unavailable
        self.layout_seen: Layout | None = None
        self._mapper = self._jvm.org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()

    @property
    def name(self) -> str:
        return self._name

    def observe(self, writer: str, proposal: Proposal | None = None) -> TableObserved:
        with self._answering("did not answer"):
            return self._observed(self._load(), writer, proposal)

    def commit(self, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        table = self._load()
        transaction = table.newTransaction()
        guard = Guard(proposal, lambda: self._observed(transaction.table(), proposal.writer, proposal))
        update = self._update(transaction, table, files, proposal)
        for key, value in proposal.summary.items():
            update.set(key, value)
        update.validateWith(guard)
        with self._noticing_moves(proposal):
            update.commit()
        landing = transaction.table().currentSnapshot()
        register = proposal.register.at(landing.snapshotId(), landing.sequenceNumber())
        properties = transaction.updateProperties()
        properties.set(REGISTER_PROPERTY + proposal.writer, register.encode()).commit()
        operations = table.operations()
        operations.commit(transaction.startMetadata(), transaction.currentMetadata())
        self._require_shown(operations.current(), proposal.writer, register)
        return register

    def append(self, files: Sequence[WrittenFile], facts: Mapping[str, str], after: int | None = None) -> int:
        table = self._load()
        return append_rows(self._jvm, self._name, table, files, self._content_file, facts, after)

    def _update(self, transaction: Any, table: Any, files: Sequence[WrittenFile], proposal: Proposal) -> Any:
        """The files as Iceberg's own kind of change to a table."""
        replaces = proposal.replaces
        rows = [self._content_file(table, file) for file in files if file.is_data]
        deletes = [self._content_file(table, file) for file in files if not file.is_data and not replaces]
        if replaces:
            everything = self._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
            update = transaction.newOverwrite().overwriteByRowFilter(everything)
            add_rows = update.addFile
        elif deletes:
            update = transaction.newRowDelta()
            add_rows = update.addRows
            if proposal.lookup is not None:
                self._require_in_place(update, table, proposal.lookup, files)
        else:
            update = transaction.newAppend()
            add_rows = update.appendFile
        for file in rows:
            add_rows(file)
        for file in deletes:
            update.addDeletes(file)
        return update

    def _require_in_place(self, update: Any, table: Any, lookup: Lookup, files: Sequence[WrittenFile]) -> None:
        """Has Iceberg refuse the commit unless rows are still where they were found, and deleted by nobody else."""
        referenced = sorted({file.referenced_data_file for file in files if file.referenced_data_file})
        update.validateFromSnapshot(lookup.snapshot_id).validateDataFilesExist(referenced)
        update.validateDeletedFiles().validateNoConflictingDeleteFiles()
        for text in lookup.superseded:
            node = self._mapper.readTree(text)
            spec = table.specs().get(json.loads(text)["spec-id"])
            update.removeDeletes(self._jvm.org.apache.iceberg.ContentFileParser.fromJson(node, spec))

    @contextmanager
    def _noticing_moves(self, proposal: Proposal) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            if proposal.lookup is None or _VALIDATION not in java_exception_classes(error)[0]:
                raise
            raise RowsMoved(
                f"{self._name}: rows of epoch {proposal.register.epoch} are no longer where they were found: "
                f"{error.java_exception.getMessage()}",
                "they are looked up, and the epoch is written, again; its first files are not committed",
            ) from error

    def register_of(self, writer: str) -> Register | None:
        text = self.loaded().properties().get(REGISTER_PROPERTY + writer)
        return None if text is None else Register.decode(text)

    def newest(self) -> int:
        head = self.loaded().currentSnapshot()
        return 0 if head is None else int(head.sequenceNumber())

    def check_head(self) -> None:
        with self._answering("did not answer"):
            table = self._load()
            head = table.currentSnapshot()
            location = None if head is None else head.manifestListLocation()
            readable = location is None or table.io().newInputFile(location).exists()
        if not readable:
            raise TableDamaged(
                f"{self._name}: the manifest list of the head, {location}, does not exist",
                "bring the file back, or roll the table back; the next start then names your choice",
            )

    def delete_files(self, paths: Sequence[str]) -> None:
        io = self._load().io()
        for path in paths:
            io.deleteFile(path)

    def find_files(self, location: str, wanted: Callable[[str], bool]) -> list[str]:
        with self._answering("did not answer"):
            io_properties = _io_properties(self._load())
        return [path for path in files_below(location, io_properties) if wanted(path)]

    def referenced(self, paths: Sequence[str], after: int) -> set[str]:
        with self._answering("could not be read"):
            return referenced_paths(self._jvm, self._load(), paths, after)

    def unreferenced_metadata(self) -> list[str]:
        with self._answering("could not be read"):
            table = self._load()
            return unreferenced_metadata(self._jvm, table, _io_properties(table))

    def history(self, writer: str) -> list[CommitRecord]:
        with self._answering("did not answer"):
            metadata = json.loads(
                self._jvm.org.apache.iceberg.TableMetadataParser.toJson(self._load().operations().current())
            )
        snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", [])}
        return [
            CommitRecord.parse(s["snapshot-id"], s["timestamp-ms"], s["summary"])
            for s in reversed(list(_ancestors(snapshots, metadata.get("current-snapshot-id"))))
            if s.get("summary", {}).get(PREFIX + "writer") == writer
        ]

    def schema(self) -> Schema:
        with self._answering("did not answer"):
            return Schema.model_validate_json(
                self._jvm.org.apache.iceberg.SchemaParser.toJson(self._load().schema())
            )

    def former_schema(self, schema_id: int) -> Schema | None:
        """One of the schemas that the table has had; None if it no longer remembers that one."""
        with self._answering("did not answer"):
            found = self._load().schemas().get(schema_id)
            text = None if found is None else self._jvm.org.apache.iceberg.SchemaParser.toJson(found)
        return None if text is None else Schema.model_validate_json(text)

    def partition_spec(self) -> PartitionSpec:
        with self._answering("did not answer"):
            return PartitionSpec.model_validate_json(
                self._jvm.org.apache.iceberg.PartitionSpecParser.toJson(self._load().spec())
            )

    def sort_order(self) -> SortOrder:
        with self._answering("did not answer"):
            return SortOrder.model_validate_json(
                self._jvm.org.apache.iceberg.SortOrderParser.toJson(self._load().sortOrder())
            )

    def write_target(self, wish: TableSection, *, tells_before: bool = False) -> WriteTarget:
        """What workers must know to write files for the table as it is now.

        `tells_before` says whether changes come with the row as it was before them.
        """
        iceberg = self._jvm.org.apache.iceberg
        with self._answering("did not answer"):
            table = self._load()
            properties: dict[str, str] = dict(table.properties())
            target = WriteTarget(
                table=self._name,
                location=data_location(table.location(), properties),
                table_location=table.location(),
                schema_json=iceberg.SchemaParser.toJson(table.schema()),
                spec_json=iceberg.PartitionSpecParser.toJson(table.spec()),
                sort_order_json=iceberg.SortOrderParser.toJson(table.sortOrder()),
                properties={k: v for k, v in properties.items() if k.startswith("write.")},
                io_properties=_io_properties(table),
                schema_id=table.schema().schemaId(),
            )
            specs = [iceberg.PartitionSpecParser.toJson(spec) for spec in table.specs().values()]
            format_version = table.operations().current().formatVersion()
        if wish.mode == "upsert" and is_whole(wish.keys):
            return with_delete_settings(
                with_settings(replace(target, changes=whole_row_target(format_version)), wish)
            )
        if wish.mode == "upsert":
            target = replace(target, changes=_change_target(target, wish, specs, tells_before))
            return with_delete_settings(with_settings(target, wish))
        return with_settings(target, wish)

    def evolve(self, evolution: Evolution) -> None:
        """One commit of metadata; Iceberg gives new columns ids of its own."""
        parser = self._jvm.org.apache.iceberg.SchemaParser
        update = self._load().updateSchema()
        for change in (*evolution.adds, *evolution.widens):
            column = change.column
            kind = parser.fromJson(Schema(column).model_dump_json()).findType(column.name)
            if change in evolution.widens:
                update.updateColumn(change.name, kind)
            elif change.parents:
                update.addColumn(".".join(change.parents), column.name, kind)
            else:
                update.addColumn(column.name, kind)
        update.commit()
        log.info("schema evolved", table=self._name, columns=evolution.names)

    def loaded(self) -> Any:
        """Iceberg's own object, loaded afresh; for those who only look."""
        with self._answering("did not answer"):
            return self._load()

    def _require_shown(self, metadata: Any, writer: str, register: Register) -> None:
        """A catalog may say yes and not have done it; with a REST catalog this costs no further look."""
        if metadata.properties().get(REGISTER_PROPERTY + writer) != register.encode():
            raise CatalogUnavailable(
                f"{self._name}: the catalog reported epoch {register.epoch} as committed, but does not show it"
            )

    def _load(self) -> Any:
        return self._load_java()

    def _observed(self, table: Any, writer: str, proposal: Proposal | None) -> TableObserved:
        head = table.currentSnapshot()
        text = table.properties().get(REGISTER_PROPERTY + writer)
        register = None if text is None else Register.decode(text)
        standing = Standing.ANCESTOR if register is None else self._standing(table, head, register)
        self.layout_seen = layout = layout_of(table)
        strangers = frozenset() if proposal is None else proposal.shape.strangers(layout)
        return TableObserved(
            table=self._name,
            uuid=table.uuid().toString(),
            snapshot_id=None if head is None else head.snapshotId(),
            register=register,
            has_rows=head is not None and head.summary().get("total-records") != "0",
            standing=standing,
            sign=None if register is None else _sign(table, register),
            other_writers=() if register is not None else _writers(table.properties()),
            layout=layout,
            formers=frozenset(self._former(table, each) for each in strangers),
            held=_held(table, writer, register) if register and standing is Standing.ROLLED_BACK else None,
        )

    def _former(self, table: Any, layout: Layout) -> Former:
        """What the table's own metadata says of a layout that it had before."""
        iceberg = self._jvm.org.apache.iceberg
        schema, spec = table.schemas().get(layout.schema_id), table.specs().get(layout.spec_id)
        return former(
            layout,
            None if schema is None else Schema.model_validate_json(iceberg.SchemaParser.toJson(schema)),
            None if spec is None else PartitionSpec.model_validate_json(iceberg.PartitionSpecParser.toJson(spec)),
            Schema.model_validate_json(iceberg.SchemaParser.toJson(table.schema())),
        )

    def _standing(self, table: Any, head: Any, register: Register) -> Standing:
        """Whether the head descends from the register's snapshot.

        Expiry forgets snapshots but keeps the parent's id in the oldest one left. A history that goes back
        to a snapshot without a parent is therefore whole: what it does not list was never part of it.
        """
        if register.snapshot_id is None:
            return Standing.ANCESTOR
        if head is None:
            return Standing.ROLLED_BACK
        snapshots = self._jvm.org.apache.iceberg.util.SnapshotUtil
        if table.snapshot(register.snapshot_id) is not None:
            descends = snapshots.isAncestorOf(table, register.snapshot_id)
            return Standing.ANCESTOR if descends else Standing.ROLLED_BACK
        if head.sequenceNumber() < register.sequence_number:
            return Standing.ROLLED_BACK
        whole = snapshots.oldestAncestor(table).parentId() is None
        return Standing.ROLLED_BACK if whole else Standing.EXPIRED

    def _content_file(self, table: Any, file: WrittenFile) -> Any:
        node = self._mapper.readTree(file.content_file_json())
        return self._jvm.org.apache.iceberg.ContentFileParser.fromJson(node, table.specs().get(file.spec_id))

    @contextmanager
    def _answering(self, what: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            raise self._unavailable(f"{self._name} {what}", error) from error


class Guard:
    """Judges a proposal inside Iceberg's commit; called back from Java on the committing thread."""

    def __init__(self, proposal: Proposal, observe: Callable[[], TableObserved]) -> None:
        self._proposal = proposal
        self._observe = observe

    def validate(self, _ancestors: object) -> bool:
        require_proceed(self._observe(), self._proposal)
        return True

    def errorMessage(self) -> str:  # noqa: N802  # the name is Iceberg's
        return "refused by frazil"

    class Java:
        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)


def _change_target(
    target: WriteTarget, wish: TableSection, specs: Sequence[str], tells_before: bool
) -> ChangeTarget:
    return change_target(
        target.table,
        wish.keys,
        Schema.model_validate_json(target.schema_json),
        [PartitionSpec.model_validate_json(spec) for spec in specs],
        tells_before=tells_before,
    )


def _io_properties(table: Any) -> dict[str, str]:
    return {k: v for k, v in dict(table.io().properties()).items() if k.startswith(_STORAGE_PREFIXES)}


def _writers(properties: Mapping[str, str]) -> tuple[str, ...]:
    names = [key.removeprefix(REGISTER_PROPERTY) for key in properties if key.startswith(REGISTER_PROPERTY)]
    return tuple(sorted(names))


def _ancestors(snapshots: Mapping[int, Any], snapshot_id: int | None) -> Iterator[Any]:
    while snapshot_id is not None and snapshot_id in snapshots:
        yield snapshots[snapshot_id]
        snapshot_id = snapshots[snapshot_id].get("parent-snapshot-id")


def _held(table: Any, writer: str, register: Register) -> Held:
    head = table.currentSnapshot()
    return read_held(
        writer, _line(table, None if head is None else head.snapshotId()), _line(table, register.snapshot_id)
    )


def _line(table: Any, snapshot_id: int | None) -> Iterator[Kin]:
    """A snapshot and its ancestors, as far back as they are listed."""
    while snapshot_id is not None and (snapshot := table.snapshot(snapshot_id)) is not None:
        yield Kin(snapshot_id, snapshot.parentId(), snapshot.summary().get)
        snapshot_id = snapshot.parentId()


def _sign(table: Any, register: Register) -> Sign | None:
    """The last sign of life; None once its snapshot is expired, which takes longer than any courtesy."""
    snapshot = None if register.snapshot_id is None else table.snapshot(register.snapshot_id)
    if snapshot is None:
        return None
    return read_sign(snapshot.timestampMillis(), snapshot.summary().get)
