"""What a table holds, for those who only look: its snapshots, and every file that its head references.

Everything is of one load of the table, whatever others commit meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from frazil.errors import StorageUnavailable, TableDamaged
from frazil.pipeline.terms import quoted
from frazil.protocol.register import Register
from frazil.protocol.verify import SnapshotSeen, TableSeen
from frazil.spark import first_line, java_exception_classes, jvm
from frazil.table.contents import DATA_FILE, ReferencedFile
from frazil.table.iceberg.table import REGISTER_PROPERTY, IcebergTable

_NOT_FOUND = "org.apache.iceberg.exceptions.NotFoundException"

_ENTRIES = """
    SELECT data_file.content, data_file.file_path, max(data_file.file_format), max(data_file.record_count),
           max(data_file.file_size_in_bytes), sort_array(collect_list(struct(sequence_number, snapshot_id)))
    FROM {table}.entries VERSION AS OF {snapshot} WHERE status < 2
    GROUP BY data_file.content, data_file.file_path
"""
_KINDS = {0: DATA_FILE, 1: "position delete file", 2: "equality delete file"}


class IcebergContents:
    """One load of one table."""

    def __init__(self, spark: SparkSession, catalog: str, table: IcebergTable) -> None:
        self._spark = spark
        self._jvm = jvm(spark)
        self._name = table.name
        self._sql_name = sql_name(catalog, table.name)
        self._table = table.loaded()
        self._io = self._table.io()

    @property
    def columns(self) -> list[str]:
        return [field.name() for field in self._table.schema().columns()]

    @property
    def identifier_fields(self) -> list[str]:
        """The columns that name a row, by the table's own word."""
        names = set(self._table.schema().identifierFieldNames())
        return [name for name in self.columns if name in names]

    @property
    def snapshot_id(self) -> int | None:
        head = self._table.currentSnapshot()
        return None if head is None else int(head.snapshotId())

    @property
    def relation(self) -> str:
        return f"{self._sql_name} VERSION AS OF {self.snapshot_id}"

    def seen(self, writer: str) -> TableSeen | None:
        """What it says of `writer`; None if it does not know it."""
        text = self._table.properties().get(REGISTER_PROPERTY + writer)
        if text is None:
            return None
        parser = self._jvm.org.apache.iceberg.TableMetadataParser
        metadata = json.loads(parser.toJson(self._table.operations().current()))
        snapshots = {each["snapshot-id"]: _snapshot(each) for each in metadata.get("snapshots", [])}
        return TableSeen(
            table=self._name,
            uuid=metadata["table-uuid"],
            writer=writer,
            register=Register.decode(text),
            history=list(_ancestors(snapshots, self.snapshot_id))[::-1],
            listed=frozenset(snapshots),
        )

    def manifest_list(self) -> ReferencedFile | None:
        head = self._table.currentSnapshot()
        return None if head is None else ReferencedFile("manifest list", head.manifestListLocation())

    def manifests(self) -> list[ReferencedFile]:
        """The head's; its manifest list has to be there."""
        return [ReferencedFile("manifest", m.path(), m.length()) for m in self._manifests()]

    def count_files(self) -> int:
        """How many data and delete files its manifests announce."""
        return sum((m.addedFilesCount() or 0) + (m.existingFilesCount() or 0) for m in self._manifests())

    def files(self) -> Iterator[ReferencedFile]:
        """Every live data and delete file, one after another; its manifests have to be there."""
        if self.snapshot_id is None:
            return
        try:
            yield from self._entries()
        except (Py4JJavaError, PySparkException) as error:
            raise StorageUnavailable(
                f"{self._name}: the files of snapshot {self.snapshot_id} could not be listed: {first_line(error)}",
                "its snapshot may have expired meanwhile: try again",
            ) from error

    def _entries(self) -> Iterator[ReferencedFile]:
        entries = self._spark.sql(_ENTRIES.format(table=self._sql_name, snapshot=self.snapshot_id))
        for content, path, file_format, rows, size, added in entries.toLocalIterator(prefetchPartitions=True):
            # One Puffin file holds the deletion vectors of many data files: it is listed once for each.
            once = added[:1] if file_format.upper() == "PUFFIN" else added
            yield ReferencedFile(_KINDS[content], path, size, rows, tuple(each.snapshot_id for each in once))

    def size_of(self, path: str) -> int | None:
        """How large a file is; None if it does not exist. May be called from several threads."""
        try:
            file = self._io.newInputFile(path)
            return int(file.getLength()) if file.exists() else None
        except Py4JJavaError as error:
            if _NOT_FOUND in java_exception_classes(error)[0]:
                return None
            raise StorageUnavailable(
                f"{self._name}: {path} could not be looked at: {error.java_exception}",
                "check that the storage is up and that you may read it",
            ) from error

    def _manifests(self) -> Sequence[Any]:
        head = self._table.currentSnapshot()
        try:
            return [] if head is None else list(head.allManifests(self._io))
        except Py4JJavaError as error:
            raise TableDamaged(
                f"{self._name}: the manifest list of the head cannot be read: {error.java_exception}",
                "bring the file back, or roll the table back; the next start then names your choice",
            ) from error


def _snapshot(each: Mapping[str, Any]) -> SnapshotSeen:
    summary = dict(each.get("summary", {}))
    return SnapshotSeen(
        snapshot_id=each["snapshot-id"],
        parent_id=each.get("parent-snapshot-id"),
        sequence_number=each.get("sequence-number", 0),
        timestamp_ms=each["timestamp-ms"],
        operation=summary.pop("operation", ""),
        summary=summary,
    )


def _ancestors(snapshots: Mapping[int, SnapshotSeen], snapshot_id: int | None) -> Iterator[SnapshotSeen]:
    while snapshot_id is not None and snapshot_id in snapshots:
        yield snapshots[snapshot_id]
        snapshot_id = snapshots[snapshot_id].parent_id


def sql_name(catalog: str, table: str) -> str:
    """What Spark SQL calls a table of the catalog."""
    return ".".join(map(quoted, [catalog, *table.split(".")]))
