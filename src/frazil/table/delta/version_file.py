"""Writing a version of a Delta table without delta-rs, for what delta-rs cannot say.

A version is one file of the log, a line for each action, and who creates that file has made the version. So the
compare-and-set is that of delta-rs: the file is put only if there is none of that number, and the storage decides
that, a local disk as well as an object store. Afterwards the table is tended as delta-rs does it, by delta-rs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import obstore
import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction
from obstore.exceptions import AlreadyExistsError

from frazil.table.delta.place import Place
from frazil.table.delta.settings import checkpoint_interval
from frazil.table.delta.store import log_store
from frazil.table.refusal import CommitRefused

log = structlog.get_logger()

_PLAIN = "!$&'()+,-./:;=@_~"
"""What delta-rs leaves as it is in paths, beside letters and digits."""
_CLEANS_UP = "delta.enableExpiredLogCleanup"


@dataclass(frozen=True)
class Removal:
    """A file that goes, as the log tells of it."""

    path: str
    size: int
    partition_values: Mapping[str, str | None] | None = None
    deletion_vector: Mapping[str, Any] | None = None
    """which of its rows have gone before; part of what names the file"""

    @property
    def is_for_delta_rs(self) -> bool:
        """delta-rs names no deletion vector, and spells paths in its own way: what it removed would stay."""
        return self.deletion_vector is None and spelled(unquote(self.path)) == self.path

    def for_delta_rs(self, now_ms: int) -> RemoveAction:
        return RemoveAction(unquote(self.path), True, now_ms, self.size)


def spelled(path: str) -> str:
    """A path as delta-rs has it in the log."""
    return quote(path, safe=_PLAIN)


def commit_info(operation: str, parameters: Mapping[str, str], facts: Mapping[str, str]) -> dict[str, Any]:
    said = {"timestamp": _now_ms(), "operation": operation, "operationParameters": dict(parameters)}
    return {"commitInfo": {**said, "engineInfo": "frazil", **facts}}


def write_actions(
    table: DeltaTable,
    adds: Sequence[AddAction],
    removals: Sequence[Removal],
    facts: Mapping[str, str],
    numbers: Mapping[str, int],
) -> list[dict[str, Any]]:
    """The actions of a version of files."""
    now_ms = _now_ms()
    partitioning = json.dumps(table.metadata().partition_columns)
    return [
        commit_info("WRITE", {"mode": "Append", "partitionBy": partitioning}, facts),
        *({"txn": {"appId": app, "version": n, "lastUpdated": now_ms}} for app, n in numbers.items()),
        *({"add": _added(add)} for add in adds),
        *({"remove": _removed(removal, now_ms)} for removal in removals),
    ]


def put_version(place: Place, number: int, actions: Iterable[Mapping[str, Any]]) -> None:
    """Makes the version, or refuses if there is one of that number; any other error leaves the outcome open."""
    lines = [json.dumps(action, separators=(",", ":"), ensure_ascii=False) for action in actions]
    try:
        obstore.put(log_store(place), f"{number:020d}.json", "\n".join(lines).encode(), mode="create")
    except AlreadyExistsError as error:
        raise CommitRefused(f"version {number} is there: somebody else has committed it") from error


def tend(table: DeltaTable) -> None:
    """Checkpoint and clean-up behind a new version, when they are due; it stands whatever comes of them."""
    configuration = table.metadata().configuration
    version = table.version() + 1
    try:
        if (version + 1) % checkpoint_interval(configuration):
            return
        table.load_as_version(version)
        table.create_checkpoint()
        if (configuration.get(_CLEANS_UP) or "true").lower() == "true":
            table.cleanup_metadata()
    except (DeltaError, OSError, ValueError, ZeroDivisionError) as error:
        log.warning("no checkpoint was written", table=table.table_uri, version=version, error=str(error))


def _added(add: AddAction) -> dict[str, Any]:
    return {
        "path": spelled(add.path),
        "partitionValues": dict(add.partition_values),
        "size": add.size,
        "modificationTime": add.modification_time,
        "dataChange": add.data_change,
        "stats": add.stats,
    }


def _removed(removal: Removal, now_ms: int) -> dict[str, Any]:
    told: dict[str, Any] = {"path": removal.path, "deletionTimestamp": now_ms, "dataChange": True}
    if removal.partition_values is not None:
        told |= {"extendedFileMetadata": True, "partitionValues": dict(removal.partition_values)}
    told["size"] = removal.size
    if removal.deletion_vector is not None:
        told["deletionVector"] = dict(removal.deletion_vector)
    return told


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
