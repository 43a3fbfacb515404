"""Which changes an epoch takes: those of its window of time; earlier ones are repetitions, later ones wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.changes import ORDER, UPDATED
from frazil.protocol.resolved import TimeWindow, parse_time


@dataclass(frozen=True, slots=True)
class Sifted:
    """The changes that are due, and how many records there were of each kind."""

    rows: pa.RecordBatch
    due: int
    repeated: int
    waiting: int
    low: int | None
    """the first offset of a record that waits"""


def sift(rows: pa.RecordBatch, window: TimeWindow) -> Sifted:
    """Divides changes by their time; both changes of one record have the same."""
    times = rows.column(UPDATED)
    waits = pc.greater(times, _scalar(window.up_to, times.type))
    is_old = pa.repeat(False, len(rows))
    if window.after is not None:
        is_old = pc.less_equal(times, _scalar(window.after, times.type))
    offsets = rows.column(ORDER).to_numpy() // 2
    waiting, old = (np.asarray(each.to_numpy(zero_copy_only=False), bool) for each in (waits, is_old))
    due = ~(waiting | old)
    return Sifted(
        rows=rows if due.all() else rows.filter(pa.array(due)),
        due=len(np.unique(offsets[due])),
        repeated=len(np.unique(offsets[old])),
        waiting=len(np.unique(offsets[waiting])),
        low=int(offsets[waiting].min()) if waiting.any() else None,
    )


def _scalar(time: str, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(parse_time(time), kind)
