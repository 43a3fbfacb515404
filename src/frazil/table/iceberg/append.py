"""Rows alone into an Iceberg table: no register, and nobody who judges.

It is sent by one bare compare-and-set all the same, for the reason that `table.py` gives: Iceberg's own retries
clean up when they give up, and may take what has landed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from frazil.errors import CatalogUnavailable
from frazil.protocol.layout import Layout
from frazil.table.files import WrittenFile
from frazil.table.iceberg.leftovers import referenced_paths
from frazil.table.refusal import require_written_for


def layout_of(table: Any) -> Layout:
    """What files are written for now."""
    return Layout(table.schema().schemaId(), table.spec().specId(), table.sortOrder().orderId())


def append_rows(
    jvm: Any,
    name: str,
    table: Any,
    files: Sequence[WrittenFile],
    content_file: Callable[[Any, WrittenFile], Any],
    facts: Mapping[str, str],
    after: int | None,
) -> int:
    """One attempt; returns the snapshot."""
    transaction = table.newTransaction()
    base = transaction.table()
    if after is not None and referenced_paths(jvm, base, [file.path for file in files], after):
        return int(base.currentSnapshot().snapshotId())
    require_written_for(name, layout_of(base), files)
    update = transaction.newAppend()
    for file in files:
        update.appendFile(content_file(base, file))
    for key, value in facts.items():
        update.set(key, value)
    update.commit()
    landing = int(transaction.table().currentSnapshot().snapshotId())
    operations = table.operations()
    operations.commit(transaction.startMetadata(), transaction.currentMetadata())
    if operations.current().snapshot(landing) is None:
        raise CatalogUnavailable(f"{name}: the catalog reported rows as committed, but does not show them")
    return landing
