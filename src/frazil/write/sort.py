"""Sort more rows than fit into memory.

Rows collect up to a bound, are sorted, and leave for a local file as a run. In the end the runs are merged:
of each run the next few blocks are in memory, and every row up to the smallest of their last rows can be handed
out, because nothing that is still in a file comes before it. Runs are numbered as their rows came, and equal rows
of an earlier run go first, so that the sort is stable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from frazil.write.run import Run, spill_folder

# Merging this many runs at a time keeps the number of open files and of blocks in memory small.
FAN_IN = 64


@dataclass(frozen=True, slots=True)
class SortKey:
    """What rows are ordered by: a value of each row, and which way."""

    values: Callable[[pa.RecordBatch], pa.Array]
    descending: bool = False
    nulls_first: bool = True

    @property
    def arrow(self) -> tuple[str, str]:
        """Direction and place of nulls as Arrow spells them."""
        return (
            "descending" if self.descending else "ascending",
            "at_start" if self.nulls_first else "at_end",
        )


class Ordering:
    """Several keys, the first one counting most."""

    def __init__(self, keys: Sequence[SortKey]) -> None:
        self._keys = keys
        self._arrow = [(str(position), *key.arrow) for position, key in enumerate(keys)]

    def keys_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What has to be compared, made comparable."""
        columns = [comparable(key.values(rows)) for key in self._keys]
        return pa.RecordBatch.from_arrays(columns, names=[name for name, _, _ in self._arrow])

    def permutation(self, keys: pa.RecordBatch) -> pa.Array:
        """Positions in sorted order; equal rows keep theirs."""
        return pc.sort_indices(keys, sort_keys=self._arrow)


def comparable(values: pa.Array) -> pa.Array:
    """The same order, in a type and with values that Arrow sorts as Iceberg does.

    Arrow puts every NaN next to the nulls and takes -0.0 for 0.0. Iceberg orders -NaN, -∞ … -0.0, 0.0 … ∞, NaN,
    which is the order of the bits once those of negative numbers are turned around.
    """
    if isinstance(values, pa.ExtensionArray):
        return comparable(values.storage)
    if not pt.is_floating(values.type):
        return values
    kind = pa.int32() if pt.is_float32(values.type) else pa.int64()
    bits = values.view(kind)
    turned = pc.bit_wise_xor(bits, pa.scalar(2 ** (kind.bit_width - 1) - 1, kind))
    return pc.if_else(pc.less(bits, pa.scalar(0, kind)), turned, bits)


class Sorter:
    """Takes batches in any order and hands all rows back sorted, once.

    At most `max_bytes` of rows wait in memory before a run is spilled; while merging, half of that is loaded.
    """

    def __init__(self, schema: pa.Schema, ordering: Ordering, max_bytes: int, *, fan_in: int = FAN_IN) -> None:
        self._schema = schema
        self._ordering = ordering
        self._max_bytes = max_bytes
        self._fan_in = fan_in
        self._folder = spill_folder()
        # One block of each run that is merged makes half of what may be in memory.
        self._block_bytes = max(1, max_bytes // (2 * fan_in))
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._runs: list[Run] = []
        self.in_use = False

    def add(self, rows: pa.RecordBatch) -> None:
        """Keeps the rows, in memory or on disk."""
        if rows.num_rows:
            self.in_use = True
            self._waiting.append(rows)
            self._waiting_bytes += rows.nbytes
        if self._waiting_bytes > self._max_bytes:
            self._spill()

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All rows in order, in blocks; what was handed out is no longer kept."""
        if not self._runs:
            yield from self._take_waiting()
            return
        self._spill()
        yield from self._merged(self._runs)

    def take_unsorted(self) -> pa.RecordBatch | None:
        """All rows as they came, if there are any and none has left memory; now they belong to whoever asked."""
        if self._runs or not self._waiting:
            return None
        self._waiting_bytes = 0
        return _combined(self._schema, self._waiting)

    def order(self, rows: pa.RecordBatch) -> pa.Array:
        """Where the rows stand in sorted order."""
        return self._ordering.permutation(self._ordering.keys_of(rows))

    def close(self) -> None:
        """Lets go of all rows, in memory and on disk."""
        for run in self._runs:
            run.close()
        self._runs.clear()
        self._waiting.clear()
        self._waiting_bytes = 0

    def _spill(self) -> None:
        if self._waiting:
            self._runs.append(Run(self._folder, self._schema, self._take_waiting()))
            pa.default_memory_pool().release_unused()  # otherwise it keeps some 100 MB for later (measured)
        # Only neighbours of one level are merged: rows keep their order, and each is written again rarely.
        while len(group := self._runs[-self._fan_in :]) == self._fan_in and len({run.level for run in group}) == 1:
            merged = Run(self._folder, self._schema, self._merged(group), group[0].level + 1)
            self._runs[-self._fan_in :] = [merged]

    def _take_waiting(self) -> Iterator[pa.RecordBatch]:
        """The waiting rows in order, block by block; from now on they belong to whoever asked."""
        if not self._waiting:
            return
        rows = _combined(self._schema, self._waiting)
        self._waiting_bytes = 0
        yield from _blocks(rows, self.order(rows), self._block_bytes)

    def _merged(self, runs: list[Run]) -> Iterator[pa.RecordBatch]:
        try:
            share = max(1, self._max_bytes // (2 * len(runs)))
            fronts = [_Front(run, self._ordering, share) for run in runs]
            while fronts := [front for front in fronts if front.load()]:
                yield from self._step(fronts)
        finally:
            for run in runs:
                run.close()

    def _step(self, fronts: list[_Front]) -> Iterator[pa.RecordBatch]:
        """The rows that come before everything which is still in a file."""
        taking, limit = self._within_reach(fronts)
        if len(taking) == 1:
            yield taking[0].pop(taking[0].rows.num_rows)
            return
        order = self._ordering.permutation(pa.concat_batches([front.keys for front in taking]))
        ends = np.cumsum([front.rows.num_rows for front in taking])
        if limit is not None:
            last = int(ends[taking.index(limit)]) - 1
            order = order.slice(0, pc.index(order, pa.scalar(last, order.type)).as_py() + 1)
        yield from self._pop(taking, order.to_numpy().astype(np.int64), ends)

    def _within_reach(self, fronts: list[_Front]) -> tuple[list[_Front], _Front | None]:
        """The run with the smallest last loaded row, if any has more to load, and those that begin before it."""
        edges = self._ordering.permutation(pa.concat_batches([front.edges() for front in fronts]))
        place = np.empty(len(edges), np.int64)
        place[edges.to_numpy()] = np.arange(len(edges))
        unfinished = [position for position, front in enumerate(fronts) if front.has_more]
        if not unfinished:
            return fronts, None
        limit = min(unfinished, key=lambda position: int(place[2 * position + 1]))
        reach = place[2 * limit + 1]
        return [front for n, front in enumerate(fronts) if place[2 * n] <= reach], fronts[limit]

    def _pop(
        self, taking: list[_Front], order: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        """The rows at these places of the runs' loaded rows, which are the first few of each."""
        owner = np.searchsorted(ends, order, side="right")
        counts = np.bincount(owner, minlength=len(taking))
        starts = ends - [front.rows.num_rows for front in taking]
        rows = pa.concat_batches([front.pop(int(count)) for front, count in zip(taking, counts, strict=True)])
        moved = order - (starts - (np.cumsum(counts) - counts))[owner]
        yield from _blocks(rows, pa.array(moved), self._block_bytes)


class _Front:
    """The rows of one run that are loaded: the smallest of those not handed out yet."""

    def __init__(self, run: Run, ordering: Ordering, share_bytes: int) -> None:
        self._run = run
        self._ordering = ordering
        self._share_bytes = share_bytes
        self.rows: pa.RecordBatch = run.next_block()
        self.keys: pa.RecordBatch = ordering.keys_of(self.rows)
        self._next = run.next_block()

    @property
    def has_more(self) -> bool:
        return self._next is not None

    def load(self) -> bool:
        """Fills up to the run's share of memory; False when no row is left."""
        # Arrow counts a few bytes even for no rows.
        loaded, size = ([self.rows], self.rows.nbytes) if self.rows.num_rows else ([], 0)
        before = len(loaded)
        if size < self._share_bytes / 2:
            while self._next is not None and size < self._share_bytes:
                loaded.append(self._next)
                size += self._next.nbytes
                self._next = self._run.next_block()
        if len(loaded) > before:
            self.rows = pa.concat_batches(loaded)
            self.keys = self._ordering.keys_of(self.rows)
        return bool(self.rows.num_rows)

    def edges(self) -> pa.RecordBatch:
        """The keys of the first and the last row."""
        return self.keys.take(pa.array([0, self.keys.num_rows - 1]))

    def pop(self, count: int) -> pa.RecordBatch:
        rows = self.rows.slice(0, count)
        self.rows, self.keys = self.rows.slice(count), self.keys.slice(count)
        return rows


def _combined(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of all rows; the list is emptied, and each column freed as soon as it is copied."""
    table = pa.Table.from_batches(batches, schema=schema)
    batches.clear()
    columns = []
    while table.num_columns:
        column = table.column(0)
        table = table.remove_column(0)
        columns.append(column.combine_chunks() if column.num_chunks > 1 else column.chunk(0))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _blocks(rows: pa.RecordBatch, order: pa.Array, block_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows in that order, in blocks of about that size."""
    count = max(1, int(block_bytes * len(rows) / max(1, rows.nbytes)))
    for start in range(0, len(order), count):
        yield rows.take(order.slice(start, count))
