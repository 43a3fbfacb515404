"""The coordinator of a pipeline: starts, commits epochs in order, stops when it is fenced.

It holds what it last left in every table. Side tables commit first and the anchor last, so that the anchor's
frontier speaks for the whole pipeline; a side table without rows is not touched.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from frazil.commit.land import land
from frazil.commit.world import World
from frazil.errors import CatalogUnavailable, Fenced, InvalidState
from frazil.protocol.commit import Proposal, TableObserved, fenced
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Partition, Span
from frazil.protocol.register import Epoch, Generation, Register, batch_id, start_id
from frazil.protocol.retry import COMMIT, Backoff
from frazil.protocol.start import (
    Begin,
    Circumstances,
    Resume,
    Stop,
    Wait,
    decide_start,
    side_frontier,
)
from frazil.protocol.summary import NO_COUNTS, Action, Counts, EpochSummary
from frazil.table import Table, WrittenFile

log = structlog.get_logger()

_WAIT_STEP_S = 5.0


@dataclass(frozen=True)
class EpochOutcome:
    """What writing one epoch came to."""

    epoch: Epoch
    span: Span
    counts: Counts
    files: Mapping[str, Sequence[WrittenFile]]
    """by table name"""
    skipped: Span = EMPTY_SPAN
    leader_epochs: Mapping[Partition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    started_ms: int = 0

    @property
    def is_empty(self) -> bool:
        return not any(self.files.values()) and not self.skipped


@dataclass(frozen=True)
class Started:
    """Where the pipeline goes on."""

    generation: Generation
    epoch: Epoch
    frontier: Frontier
    floors: Mapping[str, Frontier]
    """per side table, the position from which on it takes rows"""


@dataclass(frozen=True)
class Landed:
    """An epoch that is in the table."""

    epoch: Epoch
    register: Register
    counts: Counts
    files: int
    commit_ms: int


class Coordinator:
    """One life of one pipeline's committer."""

    def __init__(
        self,
        pipeline: str,
        anchor: Table,
        sides: Sequence[Table] = (),
        *,
        interval_s: float,
        heartbeat_s: float | None = None,
        world: World | None = None,
        backoff: Backoff = COMMIT,
    ) -> None:
        self.pipeline = pipeline
        self.id = secrets.token_hex(6)
        self._tables = [*sides, anchor]
        self._anchor = anchor
        self._world = world or World()
        self._backoff = backoff
        self._interval_s = interval_s
        self._heartbeat_s = heartbeat_s
        self._registers: dict[str, Register] = {}
        self._uuids: dict[str, str] = {}
        self._absorbed: EpochOutcome | None = None
        self._abandoned: dict[str, list[str]] = {}
        self._committed_ms = 0

    @property
    def frontier(self) -> Frontier:
        """The anchor's: what is durably committed."""
        return self._registers[self._anchor.name].frontier

    @property
    def epoch(self) -> Epoch:
        """The last one committed to any table."""
        return max(register.epoch for register in self._registers.values())

    def start(self, resolve: Callable[[], Frontier], *, take_over: bool = False, adopt: bool = False) -> Started:
        """Claims every table under a new generation; from then on no older coordinator can commit.

        1. observe all tables;
        2. decide: begin, resume, wait for another coordinator, or stop;
        3. commit an empty snapshot to each, side tables first; if somebody else was quicker, observe again.
        """
        while True:
            seen = {table.name: self._observe(table) for table in self._tables}
            anchor = seen[self._anchor.name]
            sides = [s for name, s in seen.items() if name != self._anchor.name]
            around = Circumstances(self._world.now_ms(), self._is_dead(seen), take_over, adopt)
            match decide_start(anchor, sides, around):
                case Stop(error):
                    raise error
                case Wait(seconds, other):
                    log.warning("another coordinator is at work", coordinator=other, waiting_s=round(seconds))
                    self._world.wait(min(seconds, _WAIT_STEP_S))
                    continue
                case Begin(generation):
                    epoch, frontier = Epoch(0), resolve()
                case Resume(generation, epoch, frontier):
                    pass
            try:
                self._claim(seen, generation, epoch, frontier)
            except Fenced as quicker:
                log.warning("another coordinator started first", reason=quicker.message)
                continue
            self._committed_ms = self._world.now_ms()
            floors = {s.table: side_frontier(self._registers[s.table], frontier) for s in sides}
            return Started(generation, epoch, frontier, floors)

    def commit(self, outcome: EpochOutcome, *, force: bool = False) -> Landed | None:
        """Lands the epoch in every table it has rows for; None if it was empty and is carried on.

        An epoch without rows makes no snapshot: its span joins the next one's, until the heartbeat is due or
        the caller forces it.
        """
        merged = self._join(outcome)
        self._absorbed = None
        if merged.is_empty and not force and not self._heartbeat_due():
            self._absorbed = merged
            return None
        began_ms = self._world.now_ms()
        for table in self._tables:
            files = unique_files(merged.files.get(table.name, ()))
            if table is self._anchor or files:
                self._commit_table(table, merged, files)
        self._committed_ms = self._world.now_ms()
        self._delete_abandoned()
        return Landed(
            epoch=merged.epoch,
            register=self._registers[self._anchor.name],
            counts=merged.counts,
            files=sum(len(files) for files in merged.files.values()),
            commit_ms=self._committed_ms - began_ms,
        )

    def settle(self) -> Landed | None:
        """Lands what empty epochs left over, so that a stop loses no progress."""
        if self._absorbed is None:
            return None
        rest, self._absorbed = self._absorbed, None
        return self.commit(rest, force=True)

    def resync(self) -> None:
        """After an error whose outcome was unknown: takes up what the tables say, if they are still ours."""
        for table in self._tables:
            seen = self._observe(table)
            mine = self._registers[table.name]
            if seen.register is None or seen.register.overrides(mine):
                raise fenced(table.name, seen.register or mine)
            self._registers[table.name] = seen.register
        self._absorbed = None

    def abandon(self, outcome: EpochOutcome) -> None:
        """Files of an epoch that was never sent to a catalog; removed after our next commit."""
        for name, files in outcome.files.items():
            self._abandoned.setdefault(name, []).extend(file.path for file in files)

    def _claim(
        self, seen: Mapping[str, TableObserved], generation: Generation, epoch: Epoch, frontier: Frontier
    ) -> None:
        for table in self._tables:
            before = seen[table.name].register
            self._uuids[table.name] = seen[table.name].uuid
            register = Register(
                generation=generation,
                coordinator=self.id,
                epoch=before.epoch if before else epoch,
                batch_id=start_id(self.pipeline, table.name, generation, self.id),
                frontier=before.frontier if before else frontier,
                table_uuid=seen[table.name].uuid,
            )
            self._land(table, before, register, "start", EMPTY_SPAN, NO_COUNTS, ())

    def _commit_table(self, table: Table, outcome: EpochOutcome, files: Sequence[WrittenFile]) -> None:
        before = self._registers[table.name]
        is_anchor = table is self._anchor
        span = outcome.span if is_anchor else before.frontier.reach(outcome.span)
        rows = sum(file.record_count for file in files)
        counts = outcome.counts if is_anchor else Counts(delivered=rows, landed=rows)
        register = Register(
            generation=before.generation,
            coordinator=self.id,
            epoch=outcome.epoch,
            batch_id=batch_id(self.pipeline, table.name, span),
            frontier=before.frontier.advance(span, outcome.leader_epochs, outcome.topic_ids),
            table_uuid=before.table_uuid,
        )
        action: Action = "append" if files else "heartbeat"
        skipped = outcome.skipped if is_anchor else EMPTY_SPAN
        self._land(table, before, register, action, span, counts, files, skipped, outcome.started_ms)

    def _land(
        self,
        table: Table,
        before: Register | None,
        register: Register,
        action: Action,
        span: Span,
        counts: Counts,
        files: Sequence[WrittenFile],
        skipped: Span = EMPTY_SPAN,
        started_ms: int = 0,
    ) -> None:
        now_ms = self._world.now_ms()
        summary = EpochSummary(
            writer=self.pipeline,
            action=action,
            register=register,
            span=span,
            skipped=skipped,
            counts=counts,
            data_files=len(files),
            duration_ms=now_ms - started_ms if started_ms else 0,
            interval_ms=int(self._interval_s * 1000),
            process=self._world.process,
        )
        proposal = Proposal(self.pipeline, self._uuids[table.name], before, register, summary.properties())
        self._registers[table.name] = land(table, proposal, files, self._world, self._backoff)

    def _join(self, outcome: EpochOutcome) -> EpochOutcome:
        before = self._absorbed
        if before is None:
            return outcome
        return EpochOutcome(
            epoch=outcome.epoch,
            span=before.span.then(outcome.span),
            counts=before.counts + outcome.counts,
            files=outcome.files,
            skipped=before.skipped.then(outcome.skipped),
            leader_epochs={**before.leader_epochs, **outcome.leader_epochs},
            topic_ids={**before.topic_ids, **outcome.topic_ids},
            started_ms=before.started_ms,
        )

    def _heartbeat_due(self) -> bool:
        if self._heartbeat_s is None:
            return False
        return self._world.now_ms() - self._committed_ms >= self._heartbeat_s * 1000

    def _delete_abandoned(self) -> None:
        """Safe now: the commit that just landed makes it impossible for those files to land."""
        for table in self._tables:
            paths = self._abandoned.pop(table.name, [])
            if not paths:
                continue
            try:
                table.delete_files(paths)
            except Exception as error:  # left-over files cost space, never correctness
                log.warning("left-over files could not be deleted", table=table.name, error=str(error))

    def _observe(self, table: Table) -> TableObserved:
        failures = 0
        while True:
            try:
                return table.observe(self.pipeline)
            except CatalogUnavailable as silence:
                failures += 1
                if failures >= self._backoff.attempts:
                    raise
                log.warning("catalog gives no answer", table=table.name, attempt=failures, error=silence.message)
                self._world.wait(self._backoff.delay_s(failures, self._world.chance()))

    def _is_dead(self, seen: Mapping[str, TableObserved]) -> bool:
        """Whether every coordinator that left a recent sign is known to be dead."""
        signs = [s.sign for s in seen.values() if s.sign is not None]
        return bool(signs) and all(self._world.is_dead(sign.process) for sign in signs)


def unique_files(files: Sequence[WrittenFile]) -> list[WrittenFile]:
    """A file reported twice counts once; one path with two contents is an error."""
    unique: dict[str, WrittenFile] = {}
    for file in files:
        known = unique.setdefault(file.path, file)
        if known.file_hash != file.file_hash:
            raise InvalidState(
                f"{file.path} was reported twice, with different contents",
                actual=file.file_hash,
                expected=known.file_hash,
            )
    return list(unique.values())
