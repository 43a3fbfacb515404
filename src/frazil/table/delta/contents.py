"""What a Delta table holds, for those who only look.

Everything is of one load of the table, whatever others commit meanwhile. What Iceberg counts in its summaries is
counted here, version by version, from what the log says of files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from frazil.errors import CatalogUnavailable, StorageUnavailable
from frazil.protocol.verify import COPIED, SnapshotSeen, TableSeen
from frazil.table.contents import DATA_FILE, ReferencedFile
from frazil.table.delta.live import hidden_rows, live_files
from frazil.table.delta.log import Log, Version, log_file
from frazil.table.delta.table import DeltaLakeTable, read_register

_KINDS = {"OPTIMIZE": "replace", "WRITE": "append"}
"""What Iceberg calls it; the others are overwrites."""
_BEFORE_THE_LOG = -1


class DeltaContents:
    """One load of one Delta table."""

    def __init__(self, table: DeltaLakeTable) -> None:
        self._owner = table
        self._table = table.loaded()
        self._log = Log(table.place, self._table.version())
        self._io = table.place.io()

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self._table.schema().fields]

    @property
    def identifier_fields(self) -> list[str]:
        """Delta has none."""
        return []

    @property
    def snapshot_id(self) -> int | None:
        return self._table.version()

    @property
    def relation(self) -> str:
        return f"delta.`{self._owner.place.spark_uri}` VERSION AS OF {self.snapshot_id}"

    def seen(self, writer: str) -> TableSeen | None:
        register = read_register(self._table, self._log, writer)
        if register is None:
            return None
        return TableSeen(
            table=self._owner.name,
            uuid=str(self._table.metadata().id),
            writer=writer,
            register=register,
            history=self._history(),
            listed=frozenset(version.number for version in self._log.versions()),
        )

    def manifest_list(self) -> ReferencedFile:
        return ReferencedFile("log file", log_file(self._owner.uri, self._table.version()))

    def manifests(self) -> list[ReferencedFile]:
        """None to look for one by one: a log that could be loaded has all that is needed of it."""
        return []

    def count_files(self) -> int:
        return len(self._table.file_uris())

    def files(self) -> Iterator[ReferencedFile]:
        added_by: dict[str, int] = {}
        for version in self._log.versions():
            # What a RESTORE brings back was added before.
            for add in version.adds if version.operation != "RESTORE" else []:
                added_by.setdefault(_path(add), version.number)
        for path, size, rows in live_files(self._table, self._log):
            yield ReferencedFile(
                DATA_FILE, f"{self._owner.uri}/{path}", size, rows, (added_by.get(path, _BEFORE_THE_LOG),)
            )

    def size_of(self, path: str) -> int | None:
        try:
            return len(self._io.new_input(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageUnavailable(
                f"{self._owner.name}: {path} could not be looked at: {error}",
                "check that the storage is up and that you may read it",
            ) from error

    def _history(self) -> list[SnapshotSeen]:
        """The head and its ancestors, oldest first, each with what it did to the rows."""
        line = list(self._log.line())[::-1]
        rows = self._rows_before(line) if line else {}
        return [self._snapshot(version, rows) for version in line]

    def _snapshot(self, version: Version, rows: dict[str, int]) -> SnapshotSeen:
        """Takes `rows`, those of each live file, from the version's parent on to the version itself."""
        adds, removes = version.adds, version.removes
        if version.operation == "RESTORE":
            # Its files are told against the version before it; against its parent nothing changes.
            adds, removes = [], []
        added = {_path(action): _rows(action) for action in adds}
        is_told = all(_path(action) in rows for action in removes)
        removed = sum(rows.pop(_path(action), 0) for action in removes)
        if version.operation == "OPTIMIZE" and not is_told:
            # What it packed was added before the log begins.
            removed = sum(added.values())
        rows |= added
        merged, copied = version.merged, 0
        if merged is not None:
            # Rows that stay move with their file; what is new or gone is counted by Delta.
            copied = sum(added.values()) - merged.inserted - merged.updated
            removed = merged.updated + merged.removed
        counts = {
            "added-records": sum(added.values()) - copied,
            "deleted-records": removed,
            "added-data-files": len(added),
            "deleted-data-files": len(removes),
            "total-records": sum(rows.values()),
            **({COPIED: copied} if merged is not None else {}),
        }
        return SnapshotSeen(
            snapshot_id=version.number,
            parent_id=self._log.parent(version),
            sequence_number=version.number,
            timestamp_ms=version.timestamp_ms,
            operation=_KINDS.get(version.operation, "overwrite"),
            summary={**version.facts, **{key: str(count) for key, count in counts.items()}},
        )

    def _rows_before(self, line: Sequence[Version]) -> dict[str, int]:
        """The rows of each file that was there before the log begins."""
        oldest = line[0]
        if oldest.number == 0:
            return {}
        try:
            table = self._owner.loaded(oldest.number)
            state = {path: rows for path, _, rows in live_files(table, Log(self._owner.place, oldest.number))}
        except CatalogUnavailable:
            return self._reckoned_back(line)
        for action in oldest.adds:
            state.pop(_path(action), None)
        return state

    def _reckoned_back(self, line: Sequence[Version]) -> dict[str, int]:
        """The same from the head, where the log begins between two checkpoints: no state can be loaded there."""
        told = {_path(add): _rows(add) for version in line for add in version.adds}
        state = {path: rows for path, _, rows in live_files(self._table, self._log)}
        for version in reversed(line):
            if version.operation != "RESTORE":
                for add in version.adds:
                    state.pop(_path(add), None)
                state |= _removed(version, told)
        return state


def _removed(version: Version, told: Mapping[str, int]) -> dict[str, int]:
    """The rows of each file that it removed; delta-rs does not say, but a compaction keeps as many as it packs."""
    rows = {_path(each): _rows(each) if each.get("stats") else told.get(_path(each)) for each in version.removes}
    known = {path: count for path, count in rows.items() if count is not None}
    untold = [path for path in rows if path not in known]
    if untold and version.operation == "OPTIMIZE":
        known[untold[0]] = sum(map(_rows, version.adds)) - sum(known.values())
    return dict.fromkeys(untold, 0) | known


def _path(action: Mapping[str, Any]) -> str:
    """Below the table; writers encode it each in their own way."""
    return unquote(action["path"])


def _rows(action: Mapping[str, Any]) -> int:
    """Those that a deletion vector does not hide."""
    stats = json.loads(action.get("stats") or "{}")
    return int(stats.get("numRecords", 0)) - hidden_rows(action)
