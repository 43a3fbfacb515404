"""Which files of a Delta table go when others take their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from frazil.errors import TableChanged
from frazil.table.delta.live import hidden_rows
from frazil.table.storage import name_of

Partition = Mapping[str, str | None]
"""The values of a file's partition columns, as the log spells them."""


def removes(table: DeltaTable, partitions: Sequence[Partition] | None, now_ms: int) -> Iterator[RemoveAction]:
    """Removes every live file of the partitions, or of the whole table if None are given."""
    if partitions == []:
        return
    hidden = hidden_rows(table)
    for live in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        if partitions is None or any(_is_in(live, partition) for partition in partitions):
            _require_removable(live["path"], hidden)
            yield RemoveAction(unquote(live["path"]), True, now_ms, live["size_bytes"])


def _require_removable(path: str, hidden: Mapping[str, int]) -> None:
    """delta-rs encodes letters beyond ASCII, and names no deletion vector: such files would stay."""
    if name_of(unquote(path)) in hidden:
        raise TableChanged(
            f"{path} cannot be replaced: it has a deletion vector, and delta-rs removes only files without one",
            "REORG TABLE … APPLY (PURGE) in Spark, and start again",
        )
    if not path.isascii():
        raise TableChanged(
            f"{path} cannot be removed: whoever added it spelled its path in another way than delta-rs does",
            "DELETE the rows of its partition in Spark; frazil then goes on",
        )


def _is_in(live: Mapping[str, Any], partition: Partition) -> bool:
    return all(_is_same(live[f"partition.{column}"], text) for column, text in partition.items())


def _is_same(value: Any, text: str | None) -> bool:
    """delta-rs tells values, the log spells them, and times in more than one way."""
    if value is None or text is None:
        return value is None and text is None
    if isinstance(value, datetime):
        return datetime.fromisoformat(text) == value
    if isinstance(value, Decimal):
        return Decimal(text) == value
    return (str(value).lower() if isinstance(value, bool) else str(value)) == text
