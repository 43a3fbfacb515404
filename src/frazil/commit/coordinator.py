"""The coordinator of a pipeline: starts, commits epochs in order, stops when it is fenced.

It holds what it last left in every table. Side tables commit first and the anchor last, so that the anchor's
frontier speaks for the whole pipeline; a side table without rows is not touched.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from frazil.commit.land import land
from frazil.commit.outcome import EpochOutcome, Landed, Started, action_of, unique_files
from frazil.commit.world import World
from frazil.errors import CatalogUnavailable, Fenced, InvalidState, TableChanged
from frazil.protocol.commit import Lookup, Proposal, TableObserved, fenced, register_changed
from frazil.protocol.layout import MixedEpoch
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Partition, Span
from frazil.protocol.register import Epoch, Register, batch_id, start_id
from frazil.protocol.retry import COMMIT, Backoff
from frazil.protocol.start import (
    Amends,
    Begin,
    Circumstances,
    OnRollback,
    Resume,
    Stop,
    Wait,
    begin_at,
    decide_start,
    side_frontier,
)
from frazil.protocol.summary import NO_COUNTS, Action, Counts, EpochSummary
from frazil.table import Table, WrittenFile
from frazil.table.files import shape_of

log = structlog.get_logger()

_WAIT_STEP_S = 5.0


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
        mixed_epoch: MixedEpoch = "split",
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
        self._mixed_epoch = mixed_epoch
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
    def reached(self) -> Frontier:
        """The same, with the empty epochs that wait for the next commit."""
        return self.frontier if self._absorbed is None else _advanced(self.frontier, self._absorbed)

    @property
    def floors(self) -> dict[str, Frontier]:
        """Per side table, the position from which on it takes rows."""
        sides = [table.name for table in self._tables if table is not self._anchor]
        return {name: side_frontier(self._registers[name], self.frontier) for name in sides}

    @property
    def registers(self) -> dict[str, Register]:
        """What this coordinator last left in each table."""
        return dict(self._registers)

    @property
    def epoch(self) -> Epoch:
        """The last one committed to any table."""
        return max(register.epoch for register in self._registers.values())

    def start(
        self,
        resolve: Callable[[], Frontier],
        *,
        take_over: bool = False,
        adopt: bool = False,
        on_rollback: OnRollback | None = None,
    ) -> Started:
        """Claims every table under a new generation; from then on no older coordinator can commit.

        1. observe all tables;
        2. decide: begin, resume, wait for another coordinator, or stop;
        3. commit an empty snapshot to each, side tables first; if somebody else was quicker, wait a little and
           observe again.
        """
        seen: dict[str, TableObserved] = {}
        losses = 0
        while True:
            before, seen = seen, {table.name: self._observe(table) for table in self._tables}
            if seen != before:
                watched_since_ms = self._world.now_ms()
            anchor = seen[self._anchor.name]
            sides = [s for name, s in seen.items() if name != self._anchor.name]
            now_ms = self._world.now_ms()
            watched_s = (now_ms - watched_since_ms) / 1000
            around = Circumstances(now_ms, self._is_dead(seen), take_over, adopt, self.id, watched_s, on_rollback)
            decision = decide_start(anchor, sides, around)
            if isinstance(decision, Begin):
                decision = begin_at(decision, anchor, sides, resolve())
            match decision:
                case Stop(error):
                    raise error
                case Wait(seconds, other):
                    log.warning("another coordinator is at work", coordinator=other, waiting_s=round(seconds))
                    self._world.wait(min(seconds, _WAIT_STEP_S))
                    continue
                case Resume():
                    pass
            try:
                self._claim(seen, decision)
            except (Fenced, TableChanged) as quicker:
                # Another one started, or landed its last epoch, since the look, or the catalog forgot what it
                # acknowledged; what is truly wrong stays wrong.
                losses += 1
                log.warning("another coordinator was quicker", reason=quicker.message)
                self._world.wait(self._backoff.delay_s(losses, self._world.chance()))
                continue
            self._committed_ms = self._world.now_ms()
            return Started(decision.generation, decision.epoch, decision.frontier, self.floors)

    def commit(self, outcome: EpochOutcome, *, force: bool = False) -> Landed | None:
        """Lands the epoch in every table it has rows for; None if it was empty and is carried on.

        An epoch without rows makes no snapshot: its span joins the next one's, until the heartbeat is due or
        the caller forces it. One that is in the tables already changes nothing: what was written for it is dropped.
        """
        if outcome.epoch <= self.epoch:
            self._require_replay(outcome)
            return None
        merged = self._join(outcome)
        self._absorbed = None
        if merged.is_empty and not force and not self._heartbeat_due():
            self._absorbed = merged
            return None
        began_ms = self._world.now_ms()
        files = {name: unique_files(reported) for name, reported in merged.files.items()}
        self._require_known(files)
        if merged.replaces:
            files |= {self._anchor.name: self._rows_alone(files.get(self._anchor.name, []))}
        for table in self._tables:
            if table is self._anchor or files.get(table.name):
                self._commit_table(table, merged, files.get(table.name, []))
            if table is not self._anchor and files.get(table.name):
                self._require_landed(table)
        self._committed_ms = self._world.now_ms()
        self._delete_abandoned()
        return Landed(
            epoch=merged.epoch,
            register=self._registers[self._anchor.name],
            counts=merged.counts,
            files=sum(map(len, files.values())),
            commit_ms=self._committed_ms - began_ms,
        )

    def tend(self) -> Landed | None:
        """Lands what empty epochs left over once the heartbeat is due; for when no further epoch comes."""
        return self.settle() if self._heartbeat_due() else None

    def settle(self) -> Landed | None:
        """Lands what empty epochs left over, so that a stop loses no progress."""
        if self._absorbed is None:
            return None
        rest, self._absorbed = self._absorbed, None
        return self.commit(rest, force=True)

    def resync(self) -> None:
        """After an error whose outcome was unknown: takes up what the tables say, if they are still ours."""
        for table in self._tables:
            seen, known = self._observe(table), self._registers[table.name]
            found = seen.register
            if found is None:
                continue  # the table was changed; the judgement inside our next commit says how
            if found.overrides(known):
                raise fenced(table.name, found)
            if found != known and not found.succeeds(known):
                raise register_changed(seen, self.pipeline, known)
            self._registers[table.name] = found
        self._absorbed = None

    def abandon(self, files: Iterable[WrittenFile]) -> None:
        """Files that were never sent to a catalog; removed after our next commit."""
        for file in files:
            self._abandoned.setdefault(file.table, []).append(file.path)

    def _claim(self, seen: Mapping[str, TableObserved], resume: Resume) -> None:
        """Side tables first, but for an anchor that goes back: `protocol/start.py` says why."""
        anchor_first = resume.rewinds(self._anchor.name)
        for table in sorted(self._tables, key=lambda each: (each is self._anchor) is not anchor_first):
            before = seen[table.name].register
            amends = resume.amends.get(table.name)
            known = amends.frontier if amends else before.frontier if before else None
            self._uuids[table.name] = seen[table.name].uuid
            register = Register(
                generation=resume.generation,
                coordinator=self.id,
                epoch=before.epoch if before else resume.epoch,
                batch_id=start_id(self.pipeline, table.name, resume.generation, self.id),
                frontier=known or resume.frontier,
                table_uuid=seen[table.name].uuid,
                anchor_uuid=seen[self._anchor.name].uuid,
            )
            self._land(table, before, register, "start", EMPTY_SPAN, NO_COUNTS, (), amends=amends)
            if self._registers[table.name] != register:
                # An attempt of ours that was given up for lost has landed under the same name, with other offsets.
                raise register_changed(seen[table.name], self.pipeline, register)
            self._require_landed(table)
            if amends is not None:
                goes_on = "rewound" if amends.rewound_from is not None else "kept its frontier"
                log.warning(
                    "table was rolled back", table=table.name, now=goes_on, gives_up=amends.given_up.encode()
                )

    def _commit_table(self, table: Table, outcome: EpochOutcome, files: Sequence[WrittenFile]) -> None:
        before = self._registers[table.name]
        is_anchor = table is self._anchor
        span = outcome.span if is_anchor else before.frontier.reach(outcome.span)
        if not span:
            # Every empty span has the same batch id: the second one would be taken for committed already.
            raise InvalidState(f"{table.name}: epoch {outcome.epoch} covers nothing that is new to the table")
        rows = sum(file.record_count for file in files if file.is_data)
        counts = outcome.counts if is_anchor else Counts(delivered=rows, landed=rows)
        skipped = outcome.skipped if is_anchor else EMPTY_SPAN
        register = Register(
            generation=before.generation,
            coordinator=self.id,
            epoch=outcome.epoch,
            batch_id=batch_id(self.pipeline, table.name, span, outcome.resolved if is_anchor else None),
            frontier=_advanced(before.frontier, outcome)
            if is_anchor
            else _followed(before.frontier, span, outcome),
            table_uuid=before.table_uuid,
            anchor_uuid=before.anchor_uuid,
        )
        action = action_of(files, replaces=is_anchor and outcome.replaces)
        read = EMPTY_SPAN if is_anchor else outcome.span
        lookup = outcome.lookup if is_anchor else None
        self._land(
            table, before, register, action, span, counts, files, skipped, outcome.started_ms, read, lookup=lookup
        )

    def _rows_alone(self, files: Sequence[WrittenFile]) -> list[WrittenFile]:
        """Where all older rows go there is nothing to delete one by one: such files are never sent, and removed."""
        self.abandon(file for file in files if file.is_delete)
        return [file for file in files if not file.is_delete]

    def _require_replay(self, outcome: EpochOutcome) -> None:
        """An epoch number names one span for good; with another span it would hide rows or double them."""
        if not all((self.frontier.offset(p) or 0) >= r.end for p, r in outcome.span.ranges.items()):
            raise InvalidState(
                f"epoch {outcome.epoch} is committed, and comes again with another span",
                "start again: epochs are then counted on from what the tables say",
                actual=str(outcome.span.encode()),
                expected=f"an epoch after {self.epoch}",
            )
        log.warning("epoch is committed already", epoch=outcome.epoch, last=self.epoch)

    def _require_landed(self, table: Table) -> None:
        """Trusts the table, not the reply, where a catalog that acknowledges and forgets would do harm.

        Rows that a side table only seems to have are lost once the anchor's frontier is past them, and an
        anchor that only seems to be claimed falls behind its side tables as one does that was recreated.
        """
        seen, known = self._observe(table), self._registers[table.name]
        if seen.register is not None and seen.register.overrides(known):
            raise fenced(table.name, seen.register)
        if seen.register != known:
            raise register_changed(seen, self.pipeline, known)

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
        read: Span = EMPTY_SPAN,
        amends: Amends | None = None,
        lookup: Lookup | None = None,
    ) -> None:
        now_ms = self._world.now_ms()
        replaces = action == "overwrite" and not any(file.overwrites for file in files)
        summary = EpochSummary(
            writer=self.pipeline,
            action=action,
            register=register,
            span=span,
            skipped=skipped,
            counts=counts,
            data_files=sum(file.is_data for file in files),
            delete_files=sum(file.is_delete for file in files),
            duration_ms=now_ms - started_ms if started_ms else 0,
            interval_ms=int(self._interval_s * 1000),
            process=self._world.process,
            read=read,
            rewound_from=amends.rewound_from if amends else None,
            given_up=amends.given_up if amends else EMPTY_SPAN,
        )
        proposal = Proposal(
            self.pipeline,
            self._uuids[table.name],
            before,
            register,
            summary.properties(),
            replaces=replaces,
            shape=shape_of(files, self._mixed_epoch, replaces=replaces),
            holds=amends.holds if amends else None,
            lookup=lookup,
        )
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
            leader_epochs={**_epochs_outside(outcome.span, before.leader_epochs), **outcome.leader_epochs},
            topic_ids={**before.topic_ids, **outcome.topic_ids},
            marks={**before.marks, **outcome.marks},
            lows=outcome.lows,
            resolved=outcome.resolved,
            started_ms=before.started_ms,
            replaces=before.replaces or outcome.replaces,
            lookup=outcome.lookup,
        )

    def _require_known(self, files: Mapping[str, Sequence[WrittenFile]]) -> None:
        strangers = sorted(files.keys() - {table.name for table in self._tables})
        if strangers:
            raise InvalidState(
                f"files were written for {', '.join(strangers)}, which this pipeline does not commit to",
                actual=", ".join(strangers),
                expected=", ".join(table.name for table in self._tables),
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
        others = [s for s in seen.values() if s.register is not None and s.register.coordinator != self.id]
        signs = [s.sign for s in others if s.sign is not None]
        return bool(signs) and all(self._world.is_dead(sign.process) for sign in signs)


def _advanced(frontier: Frontier, outcome: EpochOutcome) -> Frontier:
    """The main table's frontier behind the epoch; what was lost of changes that waited lies before it already."""
    return frontier.advance(
        outcome.span.with_skipped(frontier.reach(outcome.skipped)),
        outcome.leader_epochs,
        outcome.topic_ids,
        outcome.marks,
        outcome.lows,
        outcome.resolved,
    )


def _followed(frontier: Frontier, span: Span, outcome: EpochOutcome) -> Frontier:
    """A side table's; changes never wait there, so it needs no time of theirs."""
    return frontier.advance(span, outcome.leader_epochs, outcome.topic_ids, outcome.marks)


def _epochs_outside(span: Span, leader_epochs: Mapping[Partition, int]) -> dict[Partition, int]:
    """The epoch of a record says nothing about offsets beyond it, which may be of a later one."""
    return {partition: epoch for partition, epoch in leader_epochs.items() if partition not in span.ranges}
