"""A pipeline that runs in the background of a program: one stream of statuses, and a handle to stop it by.

Its four stages are those of every pipeline: the table is claimed, epochs are minted, written and committed. The
stream is what the engine tells its observers, in other words.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from frazil.engine import RunOptions, open_spark, run_pipeline
from frazil.engine.events import (
    BacklogSeen,
    EpochCarried,
    EpochLanded,
    EpochPlanned,
    EpochWritten,
    Event,
    Observer,
    PipelineStarted,
    Retrying,
    Stopping,
)
from frazil.pipeline import PipelineSpec
from frazil.sink.status import Condition, Stage, Status, StatusStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Runner = Callable[[Observer, threading.Event], None]


class PipelineHandle:
    """A running pipeline."""

    def __init__(self, name: str, run: Runner) -> None:
        self.statuses = StatusStream()
        self.error: BaseException | None = None
        self._work = run
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"frazil-{name}", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float | None = None) -> None:
        """Lets the epochs under way finish, and waits for that."""
        self._stop.set()
        self.join(timeout_s)

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits for its end; True if it has come."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.statuses.tell(Status(Stage.INIT, Condition.STARTING, "opening source and tables"))
            self._work(self._observe, self._stop)
            self.statuses.tell(Status(self.statuses.latest.stage, Condition.STOPPED, "stopped"))
        except BaseException as error:
            self.error = error
            self.statuses.halt(error)
        finally:
            self.statuses.end()

    def _observe(self, event: Event) -> None:
        status = as_status(event, self.statuses.latest.stage)
        if status is not None:
            self.statuses.tell(status)


def start_pipeline(
    spec: PipelineSpec, spark: SparkSession | None = None, options: RunOptions | None = None
) -> PipelineHandle:
    """Runs the pipeline on a thread of its own."""

    def run(observer: Observer, stop: threading.Event) -> None:
        run_pipeline(spec, spark or open_spark(spec), observer, options or RunOptions(), stop)

    return PipelineHandle(spec.pipeline.name, run)


def as_status(event: Event, stage: Stage) -> Status | None:
    """What the event says of its stage; `stage` is where the pipeline was before."""
    match event:
        case PipelineStarted(generation=generation, epoch=epoch):
            return Status(Stage.INIT, Condition.RUNNING, f"claimed as generation {generation}", epoch)
        case EpochPlanned(epoch=epoch, span=span):
            return Status(Stage.MINT, Condition.RUNNING, f"planned {span.encode()}", epoch)
        case EpochWritten(epoch=epoch, records=records):
            return Status(Stage.WRITE, Condition.RUNNING, f"wrote {records:,} records", epoch)
        case EpochLanded(landed=landed):
            return Status(Stage.COMMIT, Condition.RUNNING, f"landed {landed.counts.landed:,} rows", landed.epoch)
        case EpochCarried(epoch=epoch):
            return Status(Stage.COMMIT, Condition.RUNNING, "no rows: goes on with the next one", epoch)
        case Retrying(reason=reason):
            return Status(stage, Condition.STALLED, reason)
        case Stopping(reason=reason):
            return Status(stage, Condition.RUNNING, reason)
        case BacklogSeen():
            return None
        case other:
            assert_never(other)
