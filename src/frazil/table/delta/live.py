"""The files that a version of a Delta table consists of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from frazil.table.storage import name_of


def live_files(table: DeltaTable) -> Iterator[tuple[str, int, int]]:
    """Path below the table, size and rows of every file, without those that a deletion vector hides."""
    live = pa.table(table.get_add_actions(flatten=True))
    hidden = hidden_rows(table)
    columns = [live[name].to_pylist() for name in ("path", "size_bytes", "num_records")]
    for path, size, rows in zip(*columns, strict=True):
        yield unquote(path), size, (rows or 0) - hidden[name_of(path)]


def hidden_rows(table: DeltaTable) -> Counter[str]:
    """By a file's name, how many of its rows a deletion vector hides."""
    hidden: Counter[str] = Counter()
    if "deletionVectors" in (table.protocol().reader_features or []):
        for batch in table.deletion_vectors():
            some = pa.record_batch(batch)
            for path, keeps in zip(some["filepath"].to_pylist(), some["selection_vector"], strict=True):
                hidden[name_of(path)] = keeps.values.false_count
    return hidden
