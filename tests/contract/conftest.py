"""One suite over every table adapter: each brings the same few ways of interfering."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from frazil.protocol.commit import Proposal
from frazil.protocol.register import Register
from frazil.table import Table, WrittenFile
from frazil.table.memory import Fault, MemoryTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Stage(Protocol):
    """A table, and what others can do to it."""

    table: Table

    @property
    def location(self) -> str: ...
    def write(self, rows: int) -> WrittenFile: ...
    def write_changes(self, *ids: int) -> list[WrittenFile]: ...
    def live_paths(self) -> list[str]: ...
    def append_foreign(self) -> None: ...
    def compact_and_expire(self) -> None: ...
    def roll_back(self) -> None: ...
    def recreate(self) -> None: ...
    def lose_next_reply(self) -> None: ...
    def refuse_next(self, times: int) -> None: ...


class MemoryStage:
    location = "memory/data"

    def __init__(self) -> None:
        self.table = MemoryTable()
        self._files = 0

    def write(self, rows: int) -> WrittenFile:
        self._files += 1
        path = f"{self.location}/file-{self._files}"
        self.table.stored.add(path)
        return WrittenFile(self.table.name, path, 0, 0, rows, 100)

    def write_changes(self, *ids: int) -> list[WrittenFile]:
        """One row for each id, and deletes of the rows that they had before."""
        rows, deletes = self.write(len(ids)), self.write(len(ids))
        return [rows, replace(deletes, content="equality-deletes", equality_ids=(1,))]

    def live_paths(self) -> list[str]:
        return self.table.live_paths

    def append_foreign(self) -> None:
        self._files += 1
        self.table.append_foreign(f"foreign-{self._files}")

    def compact_and_expire(self) -> None:
        self.table.compact()

    def roll_back(self) -> None:
        self.table.roll_back(1)

    def recreate(self) -> None:
        self.table.recreate()

    def lose_next_reply(self) -> None:
        self.table.faults.append(Fault.REPLY_LOST)

    def refuse_next(self, times: int) -> None:
        self.table.faults.extend([Fault.REFUSED] * times)


class IcebergStage:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        from frazil.pipeline.schema import parse_schema
        from frazil.pipeline.spec import CatalogSection, TableSection
        from frazil.table.iceberg import IcebergCatalog, TableWish, spark_catalog_conf

        section = CatalogSection(warehouse=str(folder), name=f"c{abs(hash(str(folder))):x}")
        for key, value in spark_catalog_conf(section).items():
            spark.conf.set(key, value)
        self._spark = spark
        self._name = f"{section.name}.shop.orders"
        self._wish = TableWish("shop.orders", parse_schema("id BIGINT"))
        self._catalog = IcebergCatalog(spark, section)
        self._section = TableSection(name="shop.orders")
        self.table: Any = self._catalog.open(self._wish)
        self._files = 0

    @property
    def location(self) -> str:
        return str(self.table.write_target(self._section).location)

    def write(self, rows: int) -> WrittenFile:
        import pyarrow as pa

        from frazil.write import FileName, TableWriter

        self._files += 1
        target = self.table.write_target(self._section)
        writer = TableWriter(target, FileName("contract", self._files, 0))
        batch = pa.RecordBatch.from_pydict({"id": pa.array([self._files] * rows, pa.int64())})
        (file,) = [*writer.write(batch), *writer.close()]
        return file

    def write_changes(self, *ids: int) -> list[WrittenFile]:
        import pyarrow as pa

        from frazil.changes import ChangeTarget
        from frazil.write import ChangeWriter, FileName

        self._files += 1
        target = replace(self.table.write_target(self._section), changes=ChangeTarget(("id",)))
        writer = ChangeWriter(target, FileName("contract", self._files, 0))
        writer.write(pa.RecordBatch.from_pydict({"id": ids, "_op": ["U"] * len(ids), "_order": range(len(ids))}))
        return writer.close()

    def live_paths(self) -> list[str]:
        return [row[0] for row in self._spark.sql(f"SELECT file_path FROM {self._name}.files").collect()]

    def append_foreign(self) -> None:
        self._spark.sql(f"INSERT INTO {self._name} VALUES (-1)")

    def compact_and_expire(self) -> None:
        catalog = self._name.split(".")[0]
        call = f"CALL {catalog}.system"
        self._spark.sql(f"{call}.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))")
        everything = "older_than => TIMESTAMP '2100-01-01', retain_last => 1"
        self._spark.sql(f"{call}.expire_snapshots(table => 'shop.orders', {everything})")

    def roll_back(self) -> None:
        catalog = self._name.split(".")[0]
        ids = [r[0] for r in self._spark.sql(f"SELECT snapshot_id FROM {self._name}.history").collect()]
        self._spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('shop.orders', {ids[-2]})")

    def recreate(self) -> None:
        self._spark.sql(f"DROP TABLE {self._name}")
        self._catalog.open(self._wish)

    def lose_next_reply(self) -> None:
        self._once(lambda commit, proposal, files: (commit(proposal, files), self._fail()))

    def refuse_next(self, times: int) -> None:
        for _ in range(times):
            self._once(lambda *_: self._fail())

    def _fail(self) -> None:
        raise ConnectionError("the reply was lost on its way")

    def _once(self, fault: Callable[..., Any]) -> None:
        """The next commit meets the fault, later ones do not."""
        commit = self.table.commit

        def faulty(proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
            self.table.commit = commit
            fault(commit, proposal, files)
            raise AssertionError("a fault always raises")

        self.table.commit = faulty


@pytest.fixture(params=["memory", pytest.param("iceberg", marks=pytest.mark.real)])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    if request.param == "memory":
        yield MemoryStage()
    else:
        yield IcebergStage(request.getfixturevalue("spark"), tmp_path)
