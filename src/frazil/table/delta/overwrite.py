"""Which files of a Delta table go when others take their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from frazil.table.delta.features import is_by_delta_rs
from frazil.table.delta.live import has_deletion_vectors
from frazil.table.delta.log import Action, Log
from frazil.table.delta.state import live_adds
from frazil.table.delta.version_file import Removal

Partition = Mapping[str, str | None]
"""The values of a file's partition columns, as the log spells them."""


def removals(table: DeltaTable, log: Log, partitions: Sequence[Partition] | None) -> list[Removal]:
    """Every live file of the partitions, or of the whole table if None are given."""
    if partitions == []:
        return []
    live = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    gone = [
        Removal(each["path"], each["size_bytes"])
        for each in live
        if partitions is None or any(_is_in(each, partition) for partition in partitions)
    ]
    is_plain = is_by_delta_rs(table.protocol()) and not has_deletion_vectors(table)
    if is_plain and all(each.is_for_delta_rs for each in gone):
        return gone
    told = live_adds(log, [each.path for each in gone])
    return [_as_told(each, told[each.path]) for each in gone]


def _as_told(removal: Removal, add: Action) -> Removal:
    values, vector = add["partitionValues"], add.get("deletionVector")
    return replace(removal, partition_values=values, deletion_vector=vector or None)


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
