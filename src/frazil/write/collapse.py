"""The last change of each key, out of changes in any order and more than fit into memory.

Changes are sorted by key, then by what orders them. Of each key its last change says what becomes of the row, and
its first one what may be there from before. The sorter hands rows out in blocks; of a key whose changes reach the
end of a block only these two are carried into the next one, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.changes import ORDER
from frazil.write.hashes import hashed
from frazil.write.sort import Ordering, Sorter, SortKey, comparable


@dataclass(frozen=True, slots=True)
class KeyedChanges:
    """One row for each of some keys, in the order of keys."""

    last: pa.RecordBatch
    first: pa.RecordBatch
    """without what only the last change is asked for"""
    hashes: npt.NDArray[np.uint64]


class Collapse:
    """Takes changes in any order and hands back the first and the last of each key, once."""

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        sequence_by: str | None,
        of_first: Sequence[str],
        max_bytes: int,
    ) -> None:
        self._keys = keys
        self._of_first = of_first
        ordered_by = [*keys, *([sequence_by] if sequence_by else []), ORDER]
        self._sorter = Sorter(schema, Ordering([SortKey(_column(name)) for name in ordered_by]), max_bytes)

    def add(self, changes: pa.RecordBatch) -> None:
        """Keeps the changes, in memory or on disk."""
        self._sorter.add(changes)

    def keys(self, after: int | None = None) -> Iterator[KeyedChanges]:
        """All keys with a change whose ORDER is higher than `after`; what stands before it never happened."""
        open_key: list[pa.RecordBatch] = []
        for block in self._blocks(after):
            rows = pa.concat_batches([*open_key, block])
            starts = self._starts(rows)
            closed = int(starts[-1])
            if closed:
                yield self._keyed(rows, starts[:-1], starts[1:] - 1)
            # Copied, or two rows would keep their whole block in memory.
            open_key = [rows.take(pa.array(np.unique([closed, rows.num_rows - 1])))]
        for rows in open_key:
            yield self._keyed(rows, np.array([0]), np.array([rows.num_rows - 1]))

    def close(self) -> None:
        """Lets go of all changes."""
        self._sorter.close()

    def _blocks(self, after: int | None) -> Iterator[pa.RecordBatch]:
        for block in self._sorter.rows():
            later = block if after is None else block.filter(pc.greater(block.column(ORDER), after))
            if later.num_rows:
                yield later

    def _starts(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Where in the sorted rows each key begins."""
        differs = np.zeros(rows.num_rows, bool)
        differs[0] = True
        for name in self._keys:
            differs[1:] |= _differs_from_next(comparable(rows.column(name)))
        return np.flatnonzero(differs)

    def _keyed(
        self, rows: pa.RecordBatch, firsts: npt.NDArray[np.int64], lasts: npt.NDArray[np.int64]
    ) -> KeyedChanges:
        last = rows if len(lasts) == rows.num_rows else rows.take(pa.array(lasts))
        first = rows.select(self._of_first).take(pa.array(firsts))
        return KeyedChanges(last, first, hashed([last.column(name) for name in self._keys]))


def _column(name: str) -> Callable[[pa.RecordBatch], pa.Array]:
    return lambda rows: rows.column(name)


def _differs_from_next(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Null is a value like any other: it equals itself alone."""
    one, next_ = values.slice(0, len(values) - 1), values.slice(1)
    differs = pc.fill_null(pc.not_equal(one, next_), False)
    if values.null_count:
        differs = pc.or_(differs, pc.not_equal(one.is_null(), next_.is_null()))
    return np.asarray(differs.to_numpy(zero_copy_only=False), bool)
