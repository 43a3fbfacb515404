"""From checkpoints of somebody else to epochs of a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa

from frazil.sink.facts import Committed, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows: TypeAlias = "pa.RecordBatch | pa.Table | DataFrame"


class EpochSink(Protocol):
    """What takes epochs: a `Sink`, or one that somebody registers under a name of their own."""

    def open(self) -> object: ...
    def begin_epoch(self, epoch: int) -> None: ...
    def write_batch(self, batch: Rows) -> Written: ...
    def commit_epoch(self, epoch: int) -> Committed | None: ...
    def rollback_epoch(self, epoch: int) -> None: ...
    def close(self) -> None: ...


def epoch_of(checkpoint: int) -> int:
    """Checkpoints, as batches of a query, are counted from 0, epochs from 1."""
    return checkpoint + 1


class CheckpointAdapter:
    """Rows come with the checkpoint that they belong to, which begins its epoch; its completion commits it."""

    def __init__(self, sink: EpochSink) -> None:
        self._sink = sink
        self._begun: int | None = None

    def write(self, checkpoint: int, rows: Rows) -> Written:
        self._begin(checkpoint)
        return self._sink.write_batch(rows)

    def complete(self, checkpoint: int) -> Committed | None:
        """Also of a checkpoint that no rows came for."""
        self._begin(checkpoint)
        committed = self._sink.commit_epoch(epoch_of(checkpoint))
        self._begun = None
        return committed

    def abort(self, checkpoint: int) -> None:
        """Its rows are given up, and may come again."""
        if self._begun == checkpoint:
            self._begun = None
            self._sink.rollback_epoch(epoch_of(checkpoint))

    def _begin(self, checkpoint: int) -> None:
        if self._begun != checkpoint:
            self._begun = None
            self._sink.begin_epoch(epoch_of(checkpoint))
            self._begun = checkpoint
