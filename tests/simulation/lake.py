"""A Delta table at the far end of a bad network: the product's own adapter, on a log and a MERGE that are made up.

`DeltaLakeTable`, `Log` and the register's slots are real. What is made up keeps the promises that Delta does:

    a version      lands by compare-and-set on the version that was loaded, with its numbers by application
    a MERGE        begins with whatever version is the newest then; is passed over in silence if its number is not
                   newer than the table's; is refused if a version with its application came in while it was under
                   way; lands on top of all others, and may be lost sight of and land much later
    a RESTORE      is a version too, and takes no number back

One thing that Delta allows is left out: a MERGE that lands in another table, which took the place of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction

from frazil.errors import CatalogUnavailable
from frazil.protocol.commit import Proposal, TableObserved
from frazil.protocol.layout import Layout
from frazil.protocol.register import Register
from frazil.table import WrittenFile
from frazil.table.delta.log import PLANNED_IN, REGISTER, Log, Version
from frazil.table.delta.merge import Merge, Merger
from frazil.table.delta.place import Place
from frazil.table.delta.table import DeltaLakeTable, _layout
from frazil.table.files import STAGED_FOLDER
from frazil.table.memory import Snapshot, _State
from frazil.table.refusal import CommitRefused
from tests.simulation.table import DistantTable

if TYPE_CHECKING:
    from tests.simulation.world import World

_OPERATION = "operation"
RESTORE, MERGE = "RESTORE", "MERGE"


@dataclass(frozen=True)
class _Versions(_State):
    """Version 0 creates the table."""

    numbers: Mapping[str, int] = field(default_factory=dict)
    """by application, as `txn` actions leave them"""


class DistantLake(DistantTable):
    """A snapshot is a version; `keyed` says whether rows land by MERGE."""

    def __init__(self, name: str, world: World, *, keyed: bool) -> None:
        super().__init__(name, world)
        self.keyed = keyed
        self.misplaced: set[int] = set()
        self.ambush: Callable[[], object] | None = None
        """what happens once between a plan and its MERGE"""
        self._adapter = _Adapter(self)
        self._adrift: list[Merge] = []
        self._is_late = False
        self._create()

    def _create(self) -> None:
        created = Snapshot(0, None, self._now_ms(), {_OPERATION: "CREATE TABLE"}, ())
        self.ledger = [created]
        self._state = _Versions({0: created}, head=0)
        self._readable = {self.layout}
        self._carriers: set[int] = set()
        self.misplaced.clear()

    def loaded(self) -> DeltaTable:
        return cast(DeltaTable, _Loaded(self, self._versions))

    @property
    def _versions(self) -> _Versions:
        return cast(_Versions, self._state)

    @property
    def layout(self) -> Layout:
        return _layout(self.loaded())

    @property
    def is_delayed(self) -> bool:
        return bool(self._adrift) or super().is_delayed

    def path_of(self, epoch: int, number: int) -> str:
        if not self.keyed:
            return super().path_of(epoch, number)
        return f"{self.name}/{STAGED_FOLDER}/{self._world.settings.pipeline}-e{epoch}-t0-{number}.parquet"

    def find_files(self, location: str, wanted: Callable[[str], bool]) -> list[str]:
        staged = set(self.contents) - self.deleted
        return sorted(path for path in staged if path.startswith(f"{location}/") and wanted(path))

    def _observed(self, state: _State, writer: str) -> TableObserved:
        return self._adapter._observed(cast(DeltaTable, _Loaded(self, cast(_Versions, state))), writer)

    def _land(self, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        try:
            return self._adapter.commit(proposal, files)
        except CatalogUnavailable as error:
            raise CommitRefused(error.message) from error

    def set_head(self, snapshot_id: int | None) -> None:
        """A RESTORE; what the log no longer has cannot be restored."""
        listed = self._state.snapshots
        target = snapshot_id if snapshot_id in listed else min(listed)
        self.push({_OPERATION: RESTORE, "version": str(target)}, (), {})
        restored = replace(self.ledger[-1], parent=target)
        self.ledger[-1] = restored
        self._state = replace(self._state, snapshots={**self._state.snapshots, restored.id: restored})
        self.was_moved = True

    def recreate(self) -> None:
        super().recreate()
        self._create()

    def release(self) -> int:
        adrift, self._adrift, self._is_late = self._adrift, [], True
        landed = 0
        for merge in adrift:
            with suppress(CommitRefused):
                landed += self._merge(merge)
        try:
            return landed + super().release()
        finally:
            self._is_late = False

    def merge(self, merge: Merge) -> None:
        """As a session of Spark does it for the coordinator."""
        if self._is_late:
            self._merge(merge)
            return
        self._world.pause(f"is between plan and MERGE on {self.name}")
        if self.ambush is not None:
            ambush, self.ambush = self.ambush, None
            self._world.count("rollbacks between plan and MERGE")
            ambush()
        if self._world.happens(0.2, "a MERGE fails"):
            raise CommitRefused("the job was aborted")
        if self._world.happens(0.4, "a MERGE is lost sight of"):
            self._adrift.append(merge)
            raise TimeoutError("the JVM gave no answer")
        self._merge(merge)

    def _merge(self, merge: Merge) -> bool:
        """Whether it landed, which Delta does not say."""
        base = self._versions
        self._require_readable(merge)
        if merge.number <= base.numbers.get(merge.application, -1):
            self._world.count("MERGEs passed over")
            return False
        if not self._is_late:
            self._world.pause(f"has a MERGE under way into {self.name}")
        self._require_readable(merge)
        self._require_no_conflict(base)
        is_misplaced = self._was_restored_since(int(merge.facts[PLANNED_IN]))
        if is_misplaced and self.will_expire:
            raise CommitRefused("files that were read are gone")
        number = self._state.sequence_number + 1
        path = f"{self.name}/merged-{len(self.contents)}"
        self.contents[path] = tuple(row for staged in merge.paths for row in self.contents[staged])
        if is_misplaced:
            self._world.count("MERGEs on top of a RESTORE")
            self.misplaced.add(number)
        self.push({**merge.facts, _OPERATION: MERGE}, (path,), {merge.application: merge.number})
        return True

    def _require_readable(self, merge: Merge) -> None:
        if Register.decode(merge.facts[REGISTER]).table_uuid != self._uuid:
            raise CommitRefused("the table is another one")
        layouts = {self.written_for[path] for path in merge.paths}
        if self.deleted & set(merge.paths) or not layouts <= self._readable:
            raise CommitRefused("the changes cannot be read, or do not fit")

    def _require_no_conflict(self, base: _Versions) -> None:
        came = [version for version in self.ledger if version.id > base.sequence_number]
        if any(version.id in self._carriers for version in came):
            raise CommitRefused("another version of the same application came in")
        if self._state.layout != base.layout:
            raise CommitRefused("the metadata has changed")
        if any(_OPERATION in version.summary for version in came) and self._world.random.random() < 0.5:
            raise CommitRefused("files that were read are gone")

    def _was_restored_since(self, number: int) -> bool:
        return any(each.id > number and each.summary.get(_OPERATION) == RESTORE for each in self.ledger)

    def push(self, facts: Mapping[str, str], paths: tuple[str, ...], numbers: Mapping[str, int]) -> None:
        """One more version."""
        number = self._state.sequence_number + 1
        text = facts.get(REGISTER)
        register = None if text is None else Register.decode(text).at(number, number)
        self._push(facts, paths, register)
        self._state = replace(self._versions, numbers={**self._versions.numbers, **numbers})
        if numbers:
            self._carriers.add(number)


class _Adapter(DeltaLakeTable):
    """The product's, whose log and files are in memory."""

    def __init__(self, table: DistantLake) -> None:
        super().__init__(table.name, Place(table.name), cast(Merger, table))
        self._load_table = table.loaded
        self._far = table

    def _log(self, table: DeltaTable) -> Log:
        return _MemoryLog(cast(_Loaded, table).state)

    def find_files(self, location: str, wanted: Callable[[str], bool]) -> list[str]:
        return self._far.find_files(location, wanted)

    def delete_files(self, paths: Sequence[str]) -> None:
        self._far.delete_files(paths)


class _MemoryLog(Log):
    def __init__(self, state: _Versions) -> None:
        self._state = state
        self.head = state.sequence_number
        self._known = []

    def _read(self, number: int) -> Version | None:
        version = self._state.snapshots.get(number)
        if version is None:
            return None
        operation = version.summary.get(_OPERATION, "WRITE")
        info: dict[str, Any] = {**version.summary, "timestamp": version.timestamp_ms}
        if operation == RESTORE:
            info["operationParameters"] = {"version": version.summary["version"]}
        if operation == MERGE:
            info = {"timestamp": version.timestamp_ms, "userMetadata": json.dumps(dict(version.summary))}
        return Version(number, {**info, _OPERATION: operation}, [{"path": path} for path in version.paths])


class _Loaded:
    """Stands where one load of a `DeltaTable` would."""

    def __init__(self, table: DistantLake, state: _Versions) -> None:
        self.state = state
        self._table = table

    def version(self) -> int:
        return self.state.sequence_number

    def transaction_version(self, application: str) -> int | None:
        return self.state.numbers.get(application)

    def file_uris(self) -> list[str]:
        return [path for version in self.state.lineage() for path in version.paths]

    def metadata(self) -> SimpleNamespace:
        return SimpleNamespace(id=self._table._uuid, partition_columns=[], configuration={})

    def protocol(self) -> SimpleNamespace:
        return SimpleNamespace(min_writer_version=2, writer_features=None)

    def schema(self) -> SimpleNamespace:
        told = {"comment": str(self.state.layout)}
        column = {"name": "id", "type": "long", "nullable": True, "metadata": told}
        return SimpleNamespace(to_json=lambda: json.dumps({"type": "struct", "fields": [column]}))

    def create_write_transaction(
        self, actions: Sequence[AddAction], *, commit_properties: CommitProperties, **_: object
    ) -> None:
        self._table.before_swap()
        if self._table._state is not self.state:
            raise CommitRefused(f"{self._table.name} has changed since it was loaded")
        paths = tuple(f"{self._table.name}/{action.path}" for action in actions)
        numbers = {each.app_id: each.version for each in commit_properties.app_transactions or []}
        self._table.push(commit_properties.custom_metadata or {}, paths, numbers)
