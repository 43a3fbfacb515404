"""Delta tables that the tests write to as workers and the coordinator do, and those who read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from frazil.commit import Coordinator, EpochOutcome, World
from frazil.pipeline.schema import parse_schema
from frazil.pipeline.spec import TableSection
from frazil.protocol.positions import Frontier, Position, Range, Span
from frazil.protocol.register import Epoch
from frazil.protocol.retry import Backoff
from frazil.protocol.summary import Counts
from frazil.table import WrittenFile
from frazil.table.delta import DeltaContents, DeltaLake
from frazil.table.wish import TableWish
from frazil.write import FileName, TableWriter

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

WRITER = "golden"
_PARTITION = ("orders", 0)


class Landing:
    """One Delta table that a pipeline lands in."""

    def __init__(
        self,
        path: Path | str,
        schema: str | None = None,
        partition: Sequence[str] = (),
        *,
        storage: Mapping[str, str] | None = None,
        writer: str = WRITER,
        attempts: int = 2,
        **properties: str,
    ) -> None:
        """Of a table that is there, or of a new one; in a folder, or in a store."""
        self.path = Path(path)
        self.section = section = TableSection(format="delta", path=str(path), storage=storage or {})
        self._writer = writer
        self._patience = Backoff(base_s=0.0, max_s=0.0, attempts=attempts)
        self.lake = DeltaLake({section.name: section.path}, storage=section.storage)
        if schema is not None:
            self.lake.open(TableWish(section.name, parse_schema(schema), partition, properties=properties))
        found = self.lake.find(section.name)
        assert found is not None
        self.table = found
        self._coordinator: Coordinator | None = None
        self._epoch = self._offset = 0

    def write(self, rows: pa.Table) -> list[WrittenFile]:
        """The files of one task."""
        self._epoch += 1
        writer = TableWriter(self.table.write_target(self.section), FileName(self._writer, self._epoch, 0))
        closed = [file for batch in rows.to_batches() for file in writer.write(batch)]
        return [*closed, *writer.close()]

    def commit(self, files: Sequence[WrittenFile], *, replaces: bool = False) -> None:
        """As an epoch whose records are numbered on from the one before."""
        if self._coordinator is None:
            self._coordinator = self.start()
        rows = sum(file.record_count for file in files)
        span = Span({_PARTITION: Range(self._offset, self._offset + rows)})
        counts = Counts(delivered=rows, landed=rows)
        files_of = {self.table.name: list(files)}
        self._coordinator.commit(EpochOutcome(Epoch(self._epoch), span, counts, files_of, replaces=replaces))
        self._offset += rows

    def start(self) -> Coordinator:
        """Claims the table."""
        self._coordinator = Coordinator(
            self._writer, self.table, interval_s=0.0, world=World(), backoff=self._patience
        )
        self._coordinator.start(lambda: Frontier({_PARTITION: Position(0)}, {"orders": "topic-id"}))
        return self._coordinator

    def land(self, rows: pa.Table) -> list[dict[str, Any]]:
        """One epoch; the `add` actions that it landed with."""
        self.commit(self.write(rows))
        return self.added()

    def set_properties(self, **properties: str) -> None:
        """As ALTER TABLE would; delta-rs itself takes only those it knows."""
        log = self.path / "_delta_log"
        actions = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
        (metadata,) = [action["metaData"] for action in actions if "metaData" in action]
        metadata["configuration"] |= properties
        said = {"timestamp": 0, "operation": "SET TBLPROPERTIES"}
        lines = [{"commitInfo": said}, {"metaData": metadata}]
        (log / f"{self.delta().version() + 1:020d}.json").write_text("\n".join(map(json.dumps, lines)))

    def added(self) -> list[dict[str, Any]]:
        return added(self.path)

    def delta(self) -> DeltaTable:
        return self.table.loaded()

    def contents(self) -> DeltaContents:
        found = self.lake.contents(self.section.name)
        assert found is not None
        return found


def added(path: Path) -> list[dict[str, Any]]:
    """The `add` actions of the newest version, with their statistics read."""
    newest = max((path / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    adds = [action["add"] for action in actions if "add" in action]
    return [add | {"stats": json.loads(add["stats"])} for add in adds]


class Readers:
    """The same question to Spark, DuckDB and delta-rs, who share no code; `{t}` stands for the table."""

    def __init__(self, spark: SparkSession, duck: duckdb.DuckDBPyConnection) -> None:
        self._spark, self._duck = spark, duck

    def ask(self, path: Path, query: str) -> dict[str, list[tuple[Any, ...]]]:
        return {
            "spark": self.spark(path, query),
            "duckdb": self.duckdb(path, query),
            "delta-rs": self.rust(path, query),
        }

    def spark(self, path: Path, query: str) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self._spark.sql(query.format(t=f"delta.`{path}`")).collect()), key=str)

    def duckdb(self, path: Path, query: str) -> list[tuple[Any, ...]]:
        return sorted(self._duck.execute(query.format(t=f"delta_scan('{path}')")).fetchall(), key=str)

    @staticmethod
    def rust(path: Path, query: str) -> list[tuple[Any, ...]]:
        rows = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(query.format(t="t")))
        return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True), key=str)
