"""What the log says of the files that are live, word for word.

delta-rs tells a file's path, size and statistics, but not its deletion vector, and of tables with type widening no
deletion vectors at all. The newest `add` of a live file tells everything. It stands in one of the versions that the
log still has, or else in a checkpoint: whatever is older than all of them is in every checkpoint behind it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

import obstore
import pyarrow.parquet as pq
from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from frazil.errors import CatalogUnavailable
from frazil.table.delta.log import Action, Log
from frazil.table.delta.store import log_store

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)")
_TOLD = ("add", "sidecar")


def live_adds(log: Log, paths: Iterable[str]) -> dict[str, Action]:
    """The `add` of each live file, by its path as the log spells it."""
    missing, found = set(paths), dict[str, Action]()

    def take(adds: Iterable[Action]) -> None:
        some = {add["path"]: add for add in adds if add["path"] in missing}
        found.update(some)
        missing.difference_update(some)

    oldest = log.head + 1
    for version in log.versions():
        if not missing:
            return found
        oldest = version.number
        take(version.adds)
    if missing:
        take(_checkpointed(log, since=oldest - 1))
    for path in sorted(missing):
        raise CatalogUnavailable(
            f"{path} is part of {log.place.described}, which tells nowhere how it was added",
            "see whether somebody cleans up the log just now",
        )
    return found


def _checkpointed(log: Log, since: int) -> list[Action]:
    """Every `add` of the newest checkpoint; one from before the log begins lacks what came in between."""
    store = log_store(log.place)
    try:
        files = _newest_checkpoint(store, since, log.head)
        return [_add(each["add"]) for each in _actions(store, files) if each.get("add")]
    except BaseError as error:
        raise CatalogUnavailable(f"the last checkpoint at {log.place.described} cannot be read: {error}") from error


def _newest_checkpoint(store: ObjectStore, since: int, head: int) -> list[str]:
    """The files of the newest one between two versions, or none: as many as the name of each says."""
    names = [each["path"] for each in obstore.list_with_delimiter(store)["objects"]]
    kinds: dict[tuple[int, int], list[str]] = defaultdict(list)
    for match in filter(None, map(_CHECKPOINT.fullmatch, names)):
        kinds[int(match[1]), int(match[2] or 1)].append(match[0])
    for (number, parts), files in sorted(kinds.items(), reverse=True):
        if since <= number <= head and len(files) >= parts:
            return files if parts > 1 else files[:1]
    return []


def _actions(store: ObjectStore, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Those in the files, and in the files that they name."""
    for name in names:
        actions = _read(store, name)
        yield from actions
        aside = [f"_sidecars/{each['sidecar']['path']}" for each in actions if each.get("sidecar")]
        yield from _actions(store, aside)


def _read(store: ObjectStore, name: str) -> list[dict[str, Any]]:
    content = bytes(obstore.get(store, name).bytes())
    if name.endswith(".json"):
        return [json.loads(line) for line in content.splitlines() if line]
    file = pq.ParquetFile(BytesIO(content))
    rows: list[dict[str, Any]] = file.read([each for each in _TOLD if each in file.schema_arrow.names]).to_pylist()
    return rows


def _add(told: Action) -> Action:
    """As in a version's file: there maps have names, and what is null is not said."""
    vector = told.get("deletionVector")
    return {
        **told,
        "partitionValues": dict(told["partitionValues"]),
        "deletionVector": vector and {key: value for key, value in vector.items() if value is not None},
    }
