"""Rows of a table by their places: where to look for them, and how a table of format 3 is told that they go.

A table is loaded once, and rows are looked up in it as it is then, or later. If it moves on in a way that matters,
that is seen inside the commit, which knows the snapshot of that load (`Lookup`).

In format 3 a data file has one deletion vector at most, so a new one takes in whatever deleted its rows by their
places before: an older vector, or files of positions from the time when the table had format 2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from frazil.errors import CatalogUnavailable, StorageUnavailable
from frazil.protocol.register import Register
from frazil.spark import jvm
from frazil.table.files import PartitionShapes, RowPlaces, WrittenFile
from frazil.table.iceberg.table import REGISTER_PROPERTY, IcebergTable

_PATH_ID = 2147483546
"""Iceberg's id of the column that says which file a position is in."""

_EARLIER = f"""
    SELECT asked.path, file_path, file_format, record_count, file_size_in_bytes, content_offset,
           content_size_in_bytes, referenced_data_file
    FROM {{table}}.delete_files VERSION AS OF {{snapshot}} AS deletes JOIN {{asked}} AS asked
      ON deletes.referenced_data_file = asked.path
      OR (deletes.referenced_data_file IS NULL
          AND (lower_bounds[{_PATH_ID}] IS NULL OR lower_bounds[{_PATH_ID}] <= CAST(asked.path AS BINARY))
          AND (upper_bounds[{_PATH_ID}] IS NULL OR upper_bounds[{_PATH_ID}] >= CAST(asked.path AS BINARY)))
    WHERE deletes.content = 1
"""
_ASKED = "frazil_asked"


@dataclass(frozen=True, slots=True)
class Vectors:
    """Deletion vectors, all in one file, and the delete files that are now contained in them."""

    files: Sequence[WrittenFile]
    superseded: tuple[str, ...]


class PinnedTable:
    """A table as one load of it showed it."""

    def __init__(self, spark: SparkSession, table: IcebergTable, sql_name: str) -> None:
        """`spark` is a session that knows the table by its name in SQL."""
        self._spark = spark
        self._jvm = jvm(spark)
        self._name = table.name
        self._sql_name = sql_name
        self._table = table.loaded()

    @property
    def snapshot_id(self) -> int | None:
        head = self._table.currentSnapshot()
        return None if head is None else int(head.snapshotId())

    def require_register(self, writer: str, expected: Register) -> None:
        """Rows are looked for behind all epochs before; a catalog may show less than it has acknowledged."""
        text = self._table.properties().get(REGISTER_PROPERTY + writer)
        if text is None or Register.decode(text) != expected:
            raise CatalogUnavailable(
                f"{self._name}: the catalog does not show epoch {expected.epoch} as the last one, "
                "behind which rows would have to be looked for"
            )

    def shapes(self) -> PartitionShapes:
        """How to read the partitions that Spark tells of its rows."""
        iceberg = self._jvm.org.apache.iceberg
        fields = iceberg.Partitioning.partitionType(self._table).asSchema()
        specs = {
            int(spec_id): tuple(int(each.fieldId()) for each in spec.fields())
            for spec_id, spec in self._table.specs().items()
        }
        return PartitionShapes(iceberg.SchemaParser.toJson(fields), specs)

    def write_vectors(self, path: str, gone: Sequence[RowPlaces], schema_id: int) -> Vectors:
        """One file with a vector for each data file: what went before, and what goes now."""
        with self._storing(path):
            earlier = self._earlier(gone)
            loader = self._jvm.org.apache.iceberg.data.BaseDeleteLoader(
                _Function(lambda file: self._table.io().newInputFile(file.location()))
            )

            def before(data_file: str) -> Any:
                return loader.loadPositionDeletes(earlier[data_file], data_file) if data_file in earlier else None

            writer = self._jvm.org.apache.iceberg.deletes.BaseDVFileWriter(
                _Supplier(lambda: self._table.io().newOutputFile(path)), _Function(before)
            )
            for places in gone:
                spec = self._table.specs().get(places.spec_id)
                partition = self._described(
                    places, {"file-path": places.path, "file-format": "parquet"}
                ).partition()
                writer.delete(places.path, self._index(places), spec, partition)
            writer.close()
            result = writer.result()
            return Vectors(
                [self._vector(file, schema_id) for file in result.deleteFiles()],
                tuple(self._json(file) for file in result.rewrittenDeleteFiles()),
            )

    def _index(self, places: RowPlaces) -> Any:
        """The positions as Iceberg's own set of them; they cross into Java in one piece."""
        java, iceberg = self._jvm.java, self._jvm.org.apache.iceberg
        gateway: Any = self._spark.sparkContext._gateway
        numbers = gateway.new_array(self._jvm.long, places.count)
        buffer = java.nio.ByteBuffer.wrap(places.positions).order(java.nio.ByteOrder.LITTLE_ENDIAN)
        buffer.asLongBuffer().get(numbers)
        boxed = java.util.Arrays.stream(numbers).boxed().toList()
        # Not `withNoopClose`: there is one more for a single value, and py4j takes whichever it finds first.
        closeable = iceberg.io.CloseableIterable.combine(boxed, java.io.InputStream.nullInputStream())
        return iceberg.deletes.Deletes.toPositionIndex(closeable)

    def _earlier(self, gone: Sequence[RowPlaces]) -> Mapping[str, list[Any]]:
        """By data file, what deletes its rows by their places so far; a vector stands for all before it."""
        if self.snapshot_id is None:
            return {}
        by_path = {places.path: places for places in gone}
        asked = self._spark.createDataFrame([(path,) for path in by_path], "path STRING")
        asked.createOrReplaceTempView(_ASKED)
        query = _EARLIER.format(table=self._sql_name, snapshot=self.snapshot_id, asked=_ASKED)
        found: dict[str, list[Any]] = {}
        for row in self._spark.sql(query).collect():
            found.setdefault(row.path, []).append(row)
        return {
            path: [self._delete_file(by_path[path], row) for row in _latest(rows)] for path, rows in found.items()
        }

    def _delete_file(self, places: RowPlaces, row: Any) -> Any:
        """It lies in the spec and partition of the data file, or it would not apply to it."""
        facts: dict[str, Any] = {
            "content": "position-deletes",
            "file-path": row.file_path,
            "file-format": row.file_format,
            "file-size-in-bytes": row.file_size_in_bytes,
            "record-count": row.record_count,
        }
        if row.referenced_data_file is not None:
            facts["referenced-data-file"] = row.referenced_data_file
        if row.content_offset is not None:
            facts |= {"content-offset": row.content_offset, "content-size-in-bytes": row.content_size_in_bytes}
        return self._described(places, facts)

    def _described(self, places: RowPlaces, facts: Mapping[str, Any]) -> Any:
        """A file in the partition of the places, as Iceberg's own object."""
        whole = {
            "spec-id": places.spec_id,
            "content": "data",
            "file-size-in-bytes": 1,
            "record-count": 1,
            **facts,
            "partition": list(places.partition),
        }
        iceberg = self._jvm.org.apache.iceberg
        node = iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper().readTree(json.dumps(whole))
        return iceberg.ContentFileParser.fromJson(node, self._table.specs().get(places.spec_id))

    def _json(self, file: Any) -> str:
        text = self._jvm.org.apache.iceberg.ContentFileParser.toJson(file, self._table.specs().get(file.specId()))
        return str(text)

    def _vector(self, file: Any, schema_id: int) -> WrittenFile:
        facts = json.loads(self._json(file))
        return WrittenFile(
            table=self._name,
            path=facts["file-path"],
            spec_id=facts["spec-id"],
            schema_id=schema_id,
            record_count=facts["record-count"],
            file_size_bytes=facts["file-size-in-bytes"],
            partition=tuple(facts["partition"]),
            content="position-deletes",
            format=facts["file-format"],
            referenced_data_file=facts["referenced-data-file"],
            content_offset=facts["content-offset"],
            content_size=facts["content-size-in-bytes"],
        )

    @contextmanager
    def _storing(self, path: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            raise StorageUnavailable(
                f"{self._name}: the deletion vectors in {path} could not be written: {error.java_exception}",
                "check free space and permissions; the epoch is written again",
            ) from error


class _Function:
    """A Python function that Java may call."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def apply(self, argument: Any) -> Any:
        return self._function(argument)

    class Java:
        implements = ("java.util.function.Function",)


class _Supplier:
    """The same, of a function without arguments."""

    def __init__(self, supply: Callable[[], Any]) -> None:
        self._supply = supply

    def get(self) -> Any:
        return self._supply()

    class Java:
        implements = ("java.util.function.Supplier",)


def _latest(rows: Sequence[Any]) -> Sequence[Any]:
    vectors = [row for row in rows if row.content_offset is not None]
    return vectors or rows
