"""Rows from several places, put into the order of the records that they are changes of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from frazil.decode.envelopes import Codes, Layout, Marks, Places

NO_IMAGE = -1
"""in the place of a before image's number"""


@dataclass(slots=True)
class Laid:
    """Changes in their order: columns, and of which record each is."""

    columns: list[pa.Array]
    positions: Places
    seconds: Places
    codes: Codes
    before: list[pa.Array]
    has_before: Marks


class Sheet:
    """Rows from several places, put into the order of their records."""

    def __init__(self, layout: Layout) -> None:
        self._columns = layout.columns
        self._keys = layout.old.names if layout.changes.whole else layout.changes.keys
        self._sources: list[list[pa.Array]] = []
        self._count = 0
        self._puts: list[tuple[Places, Places, Places, Codes, Places]] = []
        self.befores: tuple[list[pa.Array], Marks] = ([], np.zeros(0, bool))

    def rows(self, columns: list[pa.Array]) -> int:
        """Adds rows to choose from; the number of the first one."""
        first = self._count
        self._sources.append(columns)
        self._count += len(columns[0])
        return first

    def key_rows(self, keys: list[pa.Array]) -> int:
        """The same, of rows that have but a key, which may be all of them."""
        count = len(keys[0])
        given = dict(zip(self._keys, keys, strict=False))
        return self.rows([given.get(each.name, pa.nulls(count, each.type)) for each in self._columns])

    def put(
        self,
        positions: Places,
        rows: Places,
        codes: Codes | int,
        seconds: Marks | bool,
        befores: Places | None = None,
    ) -> None:
        """Of these records, these rows; `befores` are the places of their before images."""
        count = len(positions)
        self._puts.append(
            (
                positions,
                np.broadcast_to(np.asarray(seconds, np.int64), count),
                rows,
                np.broadcast_to(np.asarray(codes, np.int8), count),
                np.full(count, NO_IMAGE) if befores is None else befores,
            )
        )

    def laid(self) -> Laid:
        positions, seconds, rows, codes, befores = map(np.concatenate, zip(*self._puts, strict=True))
        orders = positions * 2 + seconds
        if len(orders) and (np.diff(orders) <= 0).any():
            order = np.argsort(orders)
            positions, seconds, rows, codes, befores = (
                each[order] for each in (positions, seconds, rows, codes, befores)
            )
        columns = [_joined(parts) for parts in zip(*self._sources, strict=True)]
        before, has_before = self.befores
        at = np.maximum(befores, 0)
        given = (befores != NO_IMAGE) & (has_before[at] if len(has_before) else False)
        index = pa.array(at, mask=~given)
        return Laid(taken(columns, rows), positions, seconds, codes, [each.take(index) for each in before], given)


def _joined(parts: tuple[pa.Array, ...]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def taken(columns: list[pa.Array], rows: Places) -> list[pa.Array]:
    """The rows of these numbers; most often they are all of them, as they are."""
    if columns and len(rows) == len(columns[0]) and (rows == np.arange(len(rows))).all():
        return list(columns)
    index = pa.array(rows)
    return [each.take(index) for each in columns]
