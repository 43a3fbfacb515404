"""The files that a version of a Delta table consists of."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from frazil.table.delta.log import Action, Log
from frazil.table.delta.state import live_adds


def live_files(table: DeltaTable, log: Log) -> Iterator[tuple[str, int, int]]:
    """Path below the table, size and rows of every file, without those that a deletion vector hides."""
    live = pa.table(table.get_add_actions(flatten=True))
    paths, sizes, records = (live[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    told = live_adds(log, paths) if has_deletion_vectors(table) else {}
    for path, size, rows in zip(paths, sizes, records, strict=True):
        yield unquote(path), size, (rows or 0) - hidden_rows(told.get(path, {}))


def live_sizes(table: DeltaTable) -> list[int]:
    """In bytes, of every file."""
    sizes: list[int] = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()
    return sizes


def has_deletion_vectors(table: DeltaTable) -> bool:
    return "deletionVectors" in (table.protocol().reader_features or [])


def hidden_rows(add: Action) -> int:
    """How many rows of a file its deletion vector hides."""
    return int((add.get("deletionVector") or {}).get("cardinality", 0))
