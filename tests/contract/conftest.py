"""One suite over every table adapter: each brings the same few ways of interfering."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Sequence
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

    from frazil.pipeline.spec import CatalogSection, TableSection


class Stage(Protocol):
    """A table, and what others can do to it."""

    table: Table
    compares_heads_only: bool
    """whether a catalog takes a commit on a table whose schema was altered since it was loaded"""

    @property
    def location(self) -> str: ...
    def write(self, rows: int) -> WrittenFile: ...
    def write_changes(self, *ids: int) -> list[WrittenFile]: ...
    def live_paths(self) -> list[str]: ...
    def append_foreign(self) -> None: ...
    def compact_and_expire(self) -> None: ...
    def roll_back(self) -> None: ...
    def recreate(self) -> None: ...
    def alter(self, what: str) -> None: ...
    def forget_former_layouts(self) -> None: ...

    remembers_layouts: bool
    """whether the table can tell what it was like before it was altered"""

    def before_swap(self, deed: Callable[[], None]) -> None: ...
    def lose_next_reply(self) -> None: ...
    def refuse_next(self, times: int) -> None: ...


class MemoryStage:
    compares_heads_only = False
    remembers_layouts = True
    location = "memory/data"

    def __init__(self) -> None:
        self.table = MemoryTable()
        self._files = 0

    def write(self, rows: int) -> WrittenFile:
        self._files += 1
        path = f"{self.location}/file-{self._files}"
        self.table.stored.add(path)
        now = self.table.observe("pipe").layout
        return WrittenFile(
            self.table.name, path, now.spec_id, now.schema_id, rows, 100, sort_order_id=now.sort_order_id
        )

    def write_changes(self, *ids: int) -> list[WrittenFile]:
        """One row for each id, and deletes of the rows that they had before."""
        rows, deletes = self.write(len(ids)), self.write(len(ids))
        partition = (0,) if deletes.spec_id else ()
        return [rows, replace(deletes, content="equality-deletes", equality_ids=(1,), partition=partition)]

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

    def alter(self, what: str) -> None:
        now = self.table.observe("pipe").layout
        name = {"partitioning": "spec_id", "order": "sort_order_id"}.get(what, "schema_id")
        misfit = "they have no column must" if what == "required" else ""
        changed = frozenset({1}) if what == "key" else frozenset[int]()
        self.table.alter(replace(now, **{name: getattr(now, name) + 1}), misfit, changed)

    def forget_former_layouts(self) -> None:
        self.table.forget_formers()

    def before_swap(self, deed: Callable[[], None]) -> None:
        def once() -> None:
            self.table.before_swap = lambda: None
            deed()

        self.table.before_swap = once

    def lose_next_reply(self) -> None:
        self.table.faults.append(Fault.REPLY_LOST)

    def refuse_next(self, times: int) -> None:
        self.table.faults.extend([Fault.REFUSED] * times)


class _Real:
    """A table of a real adapter: files are written for it, and it is interfered with between its steps."""

    table: Any
    _section: TableSection
    _files = 0

    @property
    def location(self) -> str:
        return str(self.table.write_target(self._section).location)

    def write(self, rows: int) -> WrittenFile:
        """One file, with its number in every row."""
        import pyarrow as pa

        from frazil.write import FileName, TableWriter

        self._files += 1
        writer = TableWriter(self.table.write_target(self._section), FileName("contract", self._files, 0))
        batch = pa.RecordBatch.from_pydict({"id": pa.array([self._files] * rows, pa.int64())})
        (file,) = [*writer.write(batch), *writer.close()]
        return file

    def before_swap(self, deed: Callable[[], None]) -> None:
        """Inside the next commit, as soon as its base was looked at."""
        observed = self.table._observed

        def once(*arguments: Any) -> Any:
            seen = observed(*arguments)
            self.table._observed = observed
            deed()
            return seen

        self.table._observed = once

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


class IcebergStage(_Real):
    """A table in a namespace of its own, because the catalog may be a server that many tests share."""

    remembers_layouts = True

    def __init__(self, spark: SparkSession, section: CatalogSection) -> None:
        from frazil.pipeline.schema import parse_schema
        from frazil.pipeline.spec import TableSection
        from frazil.table.iceberg import IcebergCatalog, spark_catalog_conf
        from frazil.table.wish import TableWish

        for key, value in spark_catalog_conf(section).items():
            spark.conf.set(key, value)
        self.compares_heads_only = section.type == "rest"
        self._spark = spark
        self._wish = TableWish(f"shop_{uuid.uuid4().hex[:12]}.orders", parse_schema("id BIGINT"))
        self._name = f"{section.name}.{self._wish.name}"
        self._catalog = IcebergCatalog(spark, section)
        self._section = TableSection(name=self._wish.name)
        self.table = self._catalog.open(self._wish)

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
        self._call("rewrite_data_files", "options => map('rewrite-all', 'true')")
        self._call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01', retain_last => 1")

    def roll_back(self) -> None:
        ids = [r[0] for r in self._spark.sql(f"SELECT snapshot_id FROM {self._name}.history").collect()]
        self._call("rollback_to_snapshot", f"snapshot_id => {ids[-2]}")

    def recreate(self) -> None:
        self._spark.sql(f"DROP TABLE {self._name}")
        self._catalog.open(self._wish)

    def alter(self, what: str) -> None:
        if what == "required":
            update = self.table.loaded().updateSchema().allowIncompatibleChanges()
            text = self.table._jvm.org.apache.iceberg.types.Types.StringType.get()
            update.addRequiredColumn("must", text).commit()
            return
        fields = len(self.table.partition_spec().fields)
        changes = {
            "schema": ["ADD COLUMN more STRING"],
            "partitioning": [f"ADD PARTITION FIELD bucket({4 + fields}, id)"],
            "order": ["WRITE LOCALLY ORDERED BY id"],
            "key": ["WRITE UNORDERED", "ADD COLUMN more STRING", "DROP COLUMN id", "ADD COLUMN id BIGINT"],
        }[what]
        for change in changes:
            self._spark.sql(f"ALTER TABLE {self._name} {change}")

    def forget_former_layouts(self) -> None:
        """As a clean-up of metadata does with schemas and specs that no snapshot needs any more."""
        expiry = self.table.loaded().expireSnapshots().retainLast(1).expireOlderThan(2**62)
        expiry.cleanExpiredMetadata(True).commit()

    def _call(self, procedure: str, arguments: str) -> None:
        catalog = self._name.split(".")[0]
        self._spark.sql(f"CALL {catalog}.system.{procedure}(table => '{self._wish.name}', {arguments})")


class DeltaStage(_Real):
    """A table in a folder of its own; foreign writers are delta-rs too, which needs no session."""

    compares_heads_only = False
    remembers_layouts = False

    def __init__(self, folder: Path) -> None:
        from frazil.pipeline.schema import parse_schema
        from frazil.pipeline.spec import TableSection
        from frazil.table.delta import DeltaLake
        from frazil.table.wish import TableWish

        self._path = folder / "orders"
        self._wish = TableWish("orders", parse_schema("id BIGINT"))
        self._lake = DeltaLake({"orders": str(self._path)})
        self._section = TableSection(format="delta", name="orders", path=str(self._path))
        self.table = self._open()

    def _open(self) -> Any:
        return self._lake.open(self._wish)

    def write_changes(self, *ids: int) -> list[WrittenFile]:
        pytest.skip("changes of a Delta table land by MERGE: tests/table/test_delta_merge.py")

    def live_paths(self) -> list[str]:
        return [f"file://{uri}" for uri in self._load().file_uris()]

    def append_foreign(self) -> None:
        import pyarrow as pa
        from deltalake import write_deltalake

        write_deltalake(self._path, pa.table({"id": pa.array([-1], pa.int64())}), mode="append")

    def compact_and_expire(self) -> None:
        """The log is cleaned up as far as it goes: nothing before the checkpoint is left."""
        table = self._load()
        table.optimize.compact()
        table = self._load()
        table.create_checkpoint()
        for version in range(table.version()):
            (self._path / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)

    def roll_back(self) -> None:
        table = self._load()
        table.restore(table.version() - 1)

    def recreate(self) -> None:
        shutil.rmtree(self._path)
        self._open()

    def alter(self, what: str) -> None:
        if what != "schema":
            pytest.skip(f"a Delta table's {what} is not altered")
        self._add_column()

    def _add_column(self) -> None:
        from deltalake.schema import Field

        self._load().alter.add_columns([Field("more", "string")])

    def forget_former_layouts(self) -> None:
        """Delta never knew them."""

    def _load(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._path)


class WidenedStage(DeltaStage):
    """A Delta table whose types were widened; delta-rs writes to none, so others write to the log itself."""

    def _open(self) -> Any:
        from frazil.pipeline.schema import parse_schema

        self._lake.open(replace(self._wish, schema=parse_schema("id INT")))
        return self._lake.open(replace(self._wish, evolves=True))

    def append_foreign(self) -> None:
        import pyarrow as pa

        self._put("WRITE", {}, self._add(pa.table({"id": pa.array([-1], pa.int64())})))

    def compact_and_expire(self) -> None:
        import pyarrow.parquet as pq

        live = {Path(path).name: path for path in self._load().file_uris()}
        gone = [{"remove": {"path": name, "dataChange": False}} for name in live]
        if live:
            self._put("OPTIMIZE", {}, *gone, self._add(pq.read_table(list(live.values()))))
        self._load().create_checkpoint()
        for version in range(self._load().version()):
            (self._path / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)

    def roll_back(self) -> None:
        """By one version, which added files."""
        head = self._load().version()
        actions = map(json.loads, (self._path / "_delta_log" / f"{head:020d}.json").read_text().splitlines())
        adds = [action["add"]["path"] for action in actions if "add" in action]
        gone = [{"remove": {"path": path, "dataChange": True}} for path in adds]
        self._put("RESTORE", {"version": head - 1}, *gone)

    def _add_column(self) -> None:
        table = self._load()
        schema = json.loads(table.schema().to_json())
        schema["fields"].append({"name": "more", "type": "string", "nullable": True, "metadata": {}})
        told = {
            "id": str(table.metadata().id),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": [],
            "configuration": table.metadata().configuration,
        }
        self._put("ADD COLUMNS", {}, {"metaData": told})

    def _add(self, rows: Any) -> dict[str, Any]:
        import pyarrow.parquet as pq

        path = self._path / f"{uuid.uuid4()}.parquet"
        pq.write_table(rows, path)
        told = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size, "modificationTime": 0}
        return {"add": {**told, "dataChange": True, "stats": json.dumps({"numRecords": rows.num_rows})}}

    def _put(self, operation: str, parameters: dict[str, Any], *actions: dict[str, Any]) -> None:
        said = {"timestamp": 0, "operation": operation, "operationParameters": parameters}
        lines = map(json.dumps, [{"commitInfo": said}, *actions])
        with (self._path / "_delta_log" / f"{self._load().version() + 1:020d}.json").open("x") as file:
            file.write("\n".join(lines))


_REAL = [pytest.param(kind, marks=pytest.mark.real) for kind in ("iceberg", "iceberg-rest")]


@pytest.fixture(params=["memory", "delta", "delta-widened", *_REAL])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    if request.param == "memory":
        return MemoryStage()
    if request.param == "delta":
        return DeltaStage(tmp_path)
    if request.param == "delta-widened":
        return WidenedStage(tmp_path)
    from frazil.pipeline.spec import CatalogSection

    name = f"c{abs(hash(str(tmp_path))):x}"
    if request.param == "iceberg":
        section = CatalogSection(warehouse=str(tmp_path), name=name)
    else:
        section = CatalogSection(type="rest", uri=request.getfixturevalue("rest_catalog").uri, name=name)
    return IcebergStage(request.getfixturevalue("spark"), section)
