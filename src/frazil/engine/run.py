"""The running pipeline: epochs are planned, written side by side, and committed in order."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog
from pyspark.sql import SparkSession

from frazil.commit import Coordinator, Started, StopRequested, World
from frazil.commit.world import this_process
from frazil.engine.assemble import Assembly, assemble
from frazil.engine.distribute import Distribution
from frazil.engine.epoch import PlannedEpoch, Targets, WrittenEpoch, write_epoch
from frazil.engine.events import (
    BacklogSeen,
    EpochCarried,
    EpochLanded,
    EpochPlanned,
    EpochWritten,
    Observer,
    PipelineStarted,
    Retrying,
    Stopping,
)
from frazil.engine.keys import require_one_partition, require_ordered
from frazil.engine.lanes import job_group
from frazil.engine.logbook import Logbook
from frazil.engine.resolved import Resolving, require_settled, scan_marks
from frazil.errors import CommitOutcomeUnknown, FrazilError, MaxRetriesExceeded, SourceUnavailable, TransientError
from frazil.pipeline import PipelineSpec
from frazil.protocol.plan import (
    Cut,
    FlushPolicy,
    Hold,
    Ready,
    Remapping,
    SourceObserved,
    SourceStop,
    Unsure,
    added_partitions,
    backlog,
    cut,
    look_again,
    reconcile,
)
from frazil.protocol.positions import Frontier, Span
from frazil.protocol.progress import Progress
from frazil.protocol.register import Epoch
from frazil.protocol.retry import SOURCE, START, Backoff
from frazil.protocol.start import OnRollback
from frazil.write import new_token

log = structlog.get_logger()

_FIRST_GUESS_RECORD_BYTES = 1024.0
_POLL_S_MIN, _POLL_S_MAX = 0.05, 1.0

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RunOptions:
    """How `frazil run` was asked to run."""

    available_now: bool = False
    take_over: bool = False
    adopt: bool = False
    on_rollback: OnRollback | None = None


class Patience:
    """Waits transient faults out, so many in a row."""

    def __init__(self, tell: Observer, stop: threading.Event) -> None:
        self._tell = tell
        self._stop = stop
        self._failures = 0

    def restore(self) -> None:
        """All is well: what comes next is the first fault again."""
        self._failures = 0

    def wait_out(self, fault: TransientError, backoff: Backoff) -> None:
        """A pause, or the end of all patience; returns at once when somebody asks to stop."""
        self._failures += 1
        if self._failures > backoff.attempts:
            raise MaxRetriesExceeded(
                f"gave up after {backoff.attempts} attempts: {fault.message}", fault.remedy
            ) from fault
        delay_s = backoff.delay_s(self._failures, random.random())
        self._tell(Retrying(f"{fault.kind}: {fault.message}", self._failures, delay_s))
        self._stop.wait(delay_s)

    def starting(self, act: Callable[[], Answer]) -> Answer:
        """Does one step of a start, however often it takes; raises `StopRequested` if asked to stop meanwhile."""
        while True:
            try:
                answer = act()
            except TransientError as fault:
                self.wait_out(fault, START)
                if self._stop.is_set():
                    raise StopRequested from fault
            else:
                self.restore()
                return answer


def run_pipeline(
    spec: PipelineSpec, spark: SparkSession, observer: Observer, options: RunOptions, stop: threading.Event
) -> None:
    """Puts a pipeline together and runs it until it is done, stopped or broken."""
    try:
        parts = Patience(observer, stop).starting(lambda: assemble(spec, spark))
    except StopRequested:
        return
    try:
        Engine(parts, observer, options, stop).run()
    finally:
        parts.source.close()


class Engine:
    """One run of one pipeline, on the calling thread until it is done, stopped or broken."""

    def __init__(
        self, parts: Assembly, observer: Observer, options: RunOptions, stop: threading.Event | None = None
    ) -> None:
        spec = parts.spec
        self.stop = stop or threading.Event()
        self.progress = Progress()
        self._parts = parts
        self._tell = observer
        self._options = options
        self._policy = FlushPolicy(spec.epoch.interval, spec.epoch.max_records, spec.epoch.max_bytes)
        self._poll_s = min(_POLL_S_MAX, max(_POLL_S_MIN, spec.epoch.interval / 10))
        self._resolving = self._plan_resolving(parts)
        # What waits behind an epoch of a change feed is known only when it is written; rows that are their own keys
        # are looked for in a table that holds all epochs before.
        is_alone = self._resolving is not None or spec.has_whole_rows
        self._in_flight_max = 1 if is_alone else spec.epoch.in_flight
        self._coordinator = Coordinator(
            spec.pipeline.name,
            parts.anchor,
            parts.sides,
            interval_s=spec.epoch.interval,
            heartbeat_s=None if spec.epoch.heartbeat == "off" else spec.epoch.heartbeat,
            mixed_epoch=spec.schema_.mixed_epoch,
            world=World(stop=self.stop, process=this_process()),
        )
        self._logbook = Logbook(parts.journal, self._coordinator, [*parts.sides, parts.anchor])
        self._distribution = Distribution()
        self._remapping = Remapping()
        self._flight: deque[tuple[PlannedEpoch, Future[WrittenEpoch]]] = deque()
        self._record_bytes = _FIRST_GUESS_RECORD_BYTES
        self._next_epoch = Epoch(1)
        self._cut_at: float | None = None
        self._goal: SourceObserved | None = None
        self._patience = Patience(observer, self.stop)
        self._adrift = False
        self._stopping = False

    def run(self) -> None:
        """1. claim the tables, 2. clean up after a crash, 3. plan, write and commit to the end, 4. settle."""
        try:
            started = self._patience.starting(self._claim)
            self._patience.starting(self._take_up)
        except StopRequested:
            return
        with self._logbook.opened(started):
            self._run(started)

    def _claim(self) -> Started:
        return self._coordinator.start(
            self._parts.source.starting_frontier,
            take_over=self._options.take_over,
            adopt=self._options.adopt,
            on_rollback=self._options.on_rollback,
        )

    def _run(self, started: Started) -> None:
        ui = self._parts.spark.sparkContext.uiWebUrl
        self._tell(PipelineStarted(started.generation, started.epoch, started.frontier, ui))
        with ThreadPoolExecutor(self._in_flight_max, "frazil-epoch") as self._pool:
            try:
                while not self._step_or_retry():
                    pass
            except BaseException:
                self._drop_flight()
                raise
        self._logbook.settled(self._coordinator.settle())

    def _step_or_retry(self) -> bool:
        """One step; a transient fault is waited out and what was in flight is planned again."""
        try:
            self._find_bearings()
            return self._step()
        except StopRequested:
            return True
        except TransientError as fault:
            self._drop_flight()
            self._adrift = True
            self._patience.wait_out(fault, SOURCE)
            return self.stop.is_set()

    def _find_bearings(self) -> None:
        """After a fault the tables say where to go on; until they answer, that is a fault like any other."""
        if self._adrift:
            self._coordinator.resync()
            self._take_up()
            self._adrift = False

    def _step(self) -> bool:
        """Plans the next epoch if it is due, else commits the oldest one; True when all is done."""
        pause_s = self._poll_s
        finished = self._asked_to_stop()
        if not finished and len(self._flight) < self._in_flight_max:
            planned, pause_s = self._plan()
            if planned is not None:
                self._launch(planned)
                return False
            finished = self._goal is not None
        if finished and not self._flight:
            return True
        if self._flight and (finished or len(self._flight) == self._in_flight_max):
            self._commit_oldest()
        elif self._flight:
            wait([self._flight[0][1]], timeout=pause_s)
            if self._flight[0][1].done():
                self._commit_oldest()
        else:
            self._logbook.settled(self._coordinator.tend())
            self.stop.wait(pause_s)
        return False

    def _asked_to_stop(self) -> bool:
        if self.stop.is_set() and not self._stopping:
            self._stopping = True
            self._tell(Stopping(f"finishing {len(self._flight)} epochs under way"))
        return self._stopping

    def _plan(self) -> tuple[PlannedEpoch | None, float]:
        """The next epoch, or how long to wait before looking again; with a goal, None once it is reached."""
        seen = self._parts.source.observe()
        if self._goal is not None:
            seen = seen.up_to(self._goal)
        if self._resolving is not None:
            planned = self._coordinator.reached
        else:
            planned = self.progress.planned.knowing(self._coordinator.frontier)
            seen = self._ordered(planned, seen)
        match reconcile(planned, seen, fail_on_data_loss=self._fail_on_data_loss):
            case SourceStop(error):
                raise self._unless_replaced(error)
            case Unsure(reason):
                raise SourceUnavailable(reason)
            case Ready(base, skipped):
                pass
        if self._options.available_now and self._goal is None and not seen.more:
            self._goal = seen  # not before: a first answer that lacks partitions would never be reached
        self.progress.receive(self.progress.received.later(seen.ends))
        waiting = backlog(base, seen)
        self._tell(BacklogSeen(backlog(self._coordinator.frontier, seen)))
        if self._resolving is not None:
            return self._plan_resolved(self._resolving, base, skipped, seen, waiting), self._poll_s
        elapsed_s = 0.0 if self._cut_at is None else time.monotonic() - self._cut_at
        drain = self._cut_at is None or self._options.available_now
        match self._policy.decide(
            waiting=waiting, elapsed_s=elapsed_s, record_bytes=self._record_bytes, drain=drain
        ):
            case Hold(seconds):
                if self._cut_at is None:
                    self._cut_at = time.monotonic()
                if not waiting and not self._flight:
                    self._patience.restore()  # idle and well: faults with quiet times in between do not add up
                return None, min(self._poll_s, max(seconds, _POLL_S_MIN))
            case Cut(limit):
                span = cut(base, seen, limit)
                token, registers = new_token(), self._coordinator.registers
                marks = self._parts.source.marks(span)
                return PlannedEpoch(self._next_epoch, span, base, skipped, token, registers, marks), 0.0

    def _ordered(self, planned: Frontier, seen: SourceObserved) -> SourceObserved:
        """What may be read of it, so that changes of one key stay in order; of plain rows, all."""
        if self._parts.spec.table.mode != "upsert":
            return seen
        if not self._parts.spec.has_whole_rows:
            require_ordered(self._parts.spec, added_partitions(planned, seen))
        return self._remapping.readable(planned, seen)

    def _plan_resolved(
        self, resolving: Resolving, base: Frontier, skipped: Span, seen: SourceObserved, waiting: int
    ) -> PlannedEpoch | None:
        """The next epoch of a change feed; None until the source tells that its time is over."""
        found = resolving.next_epoch(base, seen, waiting)
        if found is None:
            self._patience.restore()
            if self._goal is not None and (waiting or any(at.low is not None for at in base.positions.values())):
                log.info("changes wait for the next resolved time", resolved=base.resolved, offsets_unread=waiting)
            return None
        return PlannedEpoch(
            self._next_epoch,
            found.span,
            base,
            skipped,
            new_token(),
            self._coordinator.registers,
            self._parts.source.marks(found.span),
            found.window,
        )

    @staticmethod
    def _plan_resolving(parts: Assembly) -> Resolving | None:
        policy, name = parts.spec.resolved, parts.spec.pipeline.name
        if policy is None:
            return None
        scan = partial(scan_marks, parts.spark, parts.source, name)
        return Resolving(policy, scan, parts.spec.epoch.interval)

    def _unless_replaced(self, error: FrazilError) -> FrazilError:
        """What the source shows may follow from what a newer coordinator did; then being fenced is the news.

        Or a commit of our own has landed late, and what the source no longer has is in the table.
        """
        before = self._coordinator.frontier
        self._coordinator.resync()
        if self._coordinator.frontier != before:
            return CommitOutcomeUnknown("a commit given up for lost has landed after all; planning again behind it")
        return error

    def _launch(self, planned: PlannedEpoch) -> None:
        self._cut_at = time.monotonic()
        self._next_epoch = Epoch(planned.number + 1)
        self.progress.plan(planned.base.advance(planned.span))
        self._tell(EpochPlanned(planned.number, planned.span, planned.skipped))
        future = self._pool.submit(write_epoch, self._parts, self._targets, planned)
        self._flight.append((planned, future))

    def _commit_oldest(self) -> None:
        planned, future = self._flight[0]
        written = future.result()
        self._logbook.written(planned, written.outcome)
        self._record_bytes = written.record_bytes or self._record_bytes
        self._tell(EpochWritten(planned.number, written.outcome.counts.delivered, written.seconds))
        match look_again(planned.base, planned.span, self._parts.source.observe()):
            case SourceStop(error):
                raise self._unless_replaced(error)
            case Unsure(reason):
                raise SourceUnavailable(reason)
        if written.outcome.replaces:
            require_one_partition(self._coordinator.frontier, planned.base)
        self._flight.popleft()  # from here on its files may be in a table, and nobody may give them up
        self._coordinator.abandon(written.spoiled)
        landed = self._coordinator.commit(written.outcome)
        if landed is None:
            self._logbook.carried(planned)
            self._tell(EpochCarried(planned.number))
            return
        self._logbook.landed(planned, landed, written.winners)
        self._patience.restore()
        self.progress.commit(landed.register.frontier)
        self._tell(EpochLanded(landed, written.seconds + landed.commit_ms / 1000))
        self._parts.source.acknowledge(landed.register.frontier)

    def _drop_flight(self) -> None:
        """Ends what is in flight. Files of epochs that were written but never sent are given up."""
        context = self._parts.spark.sparkContext
        flight, self._flight = list(self._flight), deque()
        for planned, future in flight:
            try:
                if not future.done():
                    context.cancelJobGroup(job_group(self._parts.spec.pipeline.name, planned.number))
                written = future.result()
                self._coordinator.abandon([*written.outcome.all_files, *written.spoiled])
                self._logbook.abandoned(planned, "dropped with the epochs in flight")
            except Exception as error:  # it has no files to give up; why it failed is told by whoever asked
                log.debug("epoch dropped", epoch=planned.number, error=str(error))
                self._logbook.abandoned(planned, str(error))

    def _take_up(self) -> None:
        """Plans on from what the tables hold; a side table may hold more than the anchor."""
        require_settled(self._parts.spec, self._coordinator.frontier)
        self._parts.source.resume(self._coordinator.frontier)
        if self._resolving is not None:
            self._resolving.forget()
        self.progress.replan(self._coordinator.frontier)
        self.progress.commit(self._coordinator.frontier)
        self._next_epoch = Epoch(self._coordinator.epoch + 1)
        dead = self._parts.dead_letters
        floor = self._coordinator.floors[dead.name] if dead is not None else Frontier()
        self._targets = Targets(self._parts, floor, self._distribution)

    @property
    def _fail_on_data_loss(self) -> bool:
        return bool(getattr(self._parts.spec.source, "fail_on_data_loss", True))
