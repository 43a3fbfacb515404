"""The last change of each key, out of changes in any order and more than fit into memory.

Changes are sorted by key, then by what orders them. Of each key its last change says what becomes of the row, and
its first one what may be there from before. As long as all changes are in memory, only their places are sorted.
Else the sorter hands them out in blocks; of a key whose changes reach the end of a block only these two are carried
into the next one, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.changes import ORDER
from frazil.write.sort import Ordering, Sorter, SortKey, comparable

Places = npt.NDArray[np.int64]

# Changes of so many keys are copied out of all that are in memory at a time.
_KEYS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class KeyedChanges:
    """Where among some changes the first and the last of each key stand; keys are in their order."""

    changes: pa.RecordBatch
    first: Places
    last: Places


class Collapse:
    """Takes changes in any order and hands back the first and the last of each key, once."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], sequence_by: str | None, max_bytes: int) -> None:
        self._keys = keys
        ordered_by = [*keys, *([sequence_by] if sequence_by else []), ORDER]
        self._sorter = Sorter(schema, Ordering([SortKey(_column(name)) for name in ordered_by]), max_bytes)

    def add(self, changes: pa.RecordBatch) -> None:
        """Keeps the changes, in memory or on disk."""
        self._sorter.add(changes)

    def keys(self, after: int | None = None) -> Iterator[KeyedChanges]:
        """All keys with a change whose ORDER is higher than `after`; what stands before it never happened."""
        whole = self._sorter.take_unsorted()
        return self._in_blocks(after) if whole is None else self._in_memory(_later(whole, after))

    def close(self) -> None:
        """Lets go of all changes."""
        self._sorter.close()

    def _in_memory(self, changes: pa.RecordBatch) -> Iterator[KeyedChanges]:
        if not changes.num_rows:
            return
        order = self._sorter.order(changes)
        starts = self._starts([changes.column(name).take(order) for name in self._keys])
        places = order.to_numpy()
        first, last = places[starts], places[np.append(starts[1:], len(places)) - 1]
        for begin in range(0, len(first), _KEYS_AT_ONCE):
            end = begin + _KEYS_AT_ONCE
            yield KeyedChanges(changes, first[begin:end], last[begin:end])

    def _in_blocks(self, after: int | None) -> Iterator[KeyedChanges]:
        open_key: list[pa.RecordBatch] = []
        for block in self._sorter.rows():
            later = _later(block, after)
            if not later.num_rows:
                continue
            changes = pa.concat_batches([*open_key, later])
            starts = self._starts([changes.column(name) for name in self._keys])
            if len(starts) > 1:
                yield KeyedChanges(changes, starts[:-1], starts[1:] - 1)
            # Copied, or two changes would keep their whole block in memory.
            open_key = [changes.take(pa.array(np.unique([starts[-1], changes.num_rows - 1])))]
        for changes in open_key:
            yield KeyedChanges(changes, np.array([0]), np.array([changes.num_rows - 1]))

    def _starts(self, keys: Sequence[pa.Array]) -> Places:
        """Where in sorted keys each one begins."""
        differs = np.zeros(len(keys[0]), bool)
        differs[0] = True
        for column in keys:
            differs[1:] |= _differs_from_next(comparable(column))
        return np.flatnonzero(differs)


def _later(changes: pa.RecordBatch, after: int | None) -> pa.RecordBatch:
    return changes if after is None else changes.filter(pc.greater(changes.column(ORDER), after))


def _column(name: str) -> Callable[[pa.RecordBatch], pa.Array]:
    return lambda rows: rows.column(name)


def _differs_from_next(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Null is a value like any other: it equals itself alone."""
    one, next_ = values.slice(0, len(values) - 1), values.slice(1)
    differs = pc.fill_null(pc.not_equal(one, next_), False)
    if values.null_count:
        differs = pc.or_(differs, pc.not_equal(one.is_null(), next_.is_null()))
    return np.asarray(differs.to_numpy(zero_copy_only=False), bool)
