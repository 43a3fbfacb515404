"""DataFrames: written by Spark's workers, as a pipeline writes the rows of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.changes import OP, ORDER
from frazil.engine.carry import unpacking
from frazil.engine.distribute import gathered, gathered_by_key
from frazil.engine.reports import reported
from frazil.engine.worker import TaskReport, run_sink
from frazil.errors import InvalidState, SchemaMismatch
from frazil.sink.staging import OpenEpoch
from frazil.table.files import WriteTarget
from frazil.write import FileName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class FramePlan:
    """What a worker must know to write its part of a DataFrame; pickled into every task."""

    writer: str
    epoch: int
    target: WriteTarget
    token: str

    by_key = True
    """the changes of each key meet in one task, so that nobody need compare keys"""

    def file_name(self, task: int, label: str | None = None) -> FileName:
        return FileName(self.writer, self.epoch, task, label or "", epoch_token=self.token)


def arrow_schema(rows: DataFrame) -> pa.Schema:
    """The columns as they arrive at the workers."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(rows.schema)
    except PySparkException as error:
        raise SchemaMismatch(
            f"rows of this DataFrame cannot be written: {error}",
            "cast the column",
            actual=rows.schema.simpleString(),
        ) from error


def write_frame(rows: DataFrame, plan: FramePlan) -> list[TaskReport]:
    """Writes the rows to files on the workers; commits nothing."""
    with unpacking():
        if plan.target.changes is not None:
            rows = gathered_by_key(rows, plan.target.changes.keys)
        elif plan.target.distribution == "hash":
            rows = gathered(rows.sparkSession, rows, plan.target)
        return reported(rows, run_sink(plan))


def require_alone(rows: DataFrame, target: WriteTarget, epoch: OpenEpoch) -> None:
    """Of each key the last change of the epoch must be known, and a DataFrame has no order of its own."""
    if target.changes is None:
        return
    if epoch.has_rows:
        raise InvalidState(
            f"{target.table}: changes of one key may be in both this DataFrame and what epoch {epoch.number} has",
            "hand over all changes of an epoch in one DataFrame, or all of them as Arrow batches",
            actual="a second batch",
            expected="one DataFrame in an epoch",
        )
    missing = [name for name in (OP, ORDER) if name not in rows.columns]
    if missing:
        raise SchemaMismatch(
            f"changes of {target.table} have no {' and no '.join(missing)}",
            f"give every row {OP} (I, U or D) and {ORDER}, a BIGINT that orders the changes of a key",
            expected=f"{OP}, {ORDER}",
            actual=", ".join(rows.columns),
        )
