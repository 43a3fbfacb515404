"""One epoch on one page: plan, read → decode → write, commit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from frazil.commit import EpochOutcome
from frazil.engine.alterations import note_alterations
from frazil.engine.assemble import Assembly
from frazil.engine.bag import Retraction
from frazil.engine.carry import unpacking
from frazil.engine.distribute import Distribution
from frazil.engine.keys import require_one_task, require_sequence, share_keys
from frazil.engine.lakehouse import dead_letter_section
from frazil.engine.lanes import Lane, describe_job, job_group
from frazil.engine.worker import EpochPlan, TaskReport
from frazil.protocol.entries import EpochBegun, TableTouched
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Partition, Slice, Span
from frazil.protocol.recovery import attempt_of
from frazil.protocol.register import Epoch, Register, batch_id
from frazil.protocol.resolved import TimeWindow, reading, split_reading
from frazil.protocol.summary import Counts
from frazil.spark import ran_more_than_once
from frazil.table.files import WriteTarget, WrittenFile
from frazil.table.iceberg import IcebergTable

log = structlog.get_logger()

_TASK_RECORDS_MIN = 25_000
"""Fewer records than this are not worth a second task and a second file."""


@dataclass(frozen=True)
class PlannedEpoch:
    """A span with a number, ready to be written."""

    number: Epoch
    span: Span
    base: Frontier
    """where the span begins, with the leader epochs known there"""
    skipped: Span = EMPTY_SPAN
    token: str = ""
    """of this attempt at it, in the name of every file"""
    registers: Mapping[str, Register] = field(default_factory=dict)
    """by table: what was committed last when it was planned"""
    marks: Mapping[Partition, str] = field(default_factory=dict)
    """what the source wants the frontier behind the span to say"""
    window: TimeWindow | None = None
    """of a change feed with resolved times: which changes it takes"""

    @property
    def reading(self) -> Span:
        """What is read for it."""
        return self.span if self.window is None else reading(self.base, self.span)

    def split(self, tasks: int, *, whole: bool) -> list[list[Slice]]:
        """A share for each task."""
        if self.window is not None:
            return split_reading(self.base, self.span, tasks)
        return (self.span.split_whole if whole else self.span.split)(tasks, self.base)


@dataclass(frozen=True)
class WrittenEpoch:
    """Files on storage that no table references yet."""

    outcome: EpochOutcome
    record_bytes: float
    seconds: float
    spoiled: Sequence[WrittenFile] = ()
    """files of a first try that must not land"""
    winners: tuple[str, ...] = ()
    """the task attempts that wrote its files, if Spark made more attempts than there were tasks"""


@dataclass
class Targets:
    """What workers must know about the tables, looked up now and then, and when one was seen altered."""

    parts: Assembly
    dead_floor: Frontier
    distribution: Distribution = field(default_factory=Distribution)
    by_key: bool = False
    """whether tasks were seen to share keys, so that changes have to be brought together by key"""
    _found: tuple[WriteTarget, WriteTarget | None] | None = None
    _found_at: float = 0.0
    refresh_s: float = 30.0

    def current(self) -> tuple[WriteTarget, WriteTarget | None]:
        if self._found is None or self._is_stale(*self._found):
            dead = self.parts.dead_letters
            self._found = (
                self.parts.anchor_target(),
                dead.write_target(dead_letter_section(self.parts.spec)) if dead is not None else None,
            )
            self._found_at = time.monotonic()
        return self._found

    def _is_stale(self, anchor: WriteTarget, dead: WriteTarget | None) -> bool:
        if time.monotonic() - self._found_at > self.refresh_s:
            return True
        known = [(self.parts.anchor, anchor), (self.parts.dead_letters, dead)]
        return any(table and target and table.layout_seen != target.layout for table, target in known)


def write_epoch(parts: Assembly, targets: Targets, planned: PlannedEpoch) -> WrittenEpoch:
    """Reads the span on the workers, decodes it, and writes it to files; commits nothing.

    1. note in the journal what is about to be written;
    2. divide the span into shares, one a task;
    3. run them through the pipeline's lane;
    4. add up what the tasks reported.
    """
    began, began_ms = time.monotonic(), time.time_ns() // 1_000_000
    name = parts.spec.pipeline.name
    context = parts.spark.sparkContext
    target, dead_target = targets.current()
    begun = _begun(name, planned, target, dead_target)
    note_alterations(parts, begun)
    parts.journal.append(begun, durable=True)
    tasks = max(1, min(context.defaultParallelism, -(-planned.reading.records // _TASK_RECORDS_MIN)))
    is_keyed = target.changes is not None
    is_bag = target.changes is not None and target.changes.whole
    plan = EpochPlan(
        writer=name,
        epoch=planned.number,
        # The changes of a key are in order within a Kafka partition, and one task has to see them all.
        shares=planned.split(tasks, whole=is_keyed and not is_bag),
        reader=parts.source.reader(parts.wants, planned.reading),
        decode=parts.decode,
        target=target,
        dead_target=dead_target,
        dead_floor=targets.dead_floor,
        shuffle=not is_keyed and parts.lane.can_shuffle and targets.distribution.shuffles(target),
        by_key=targets.by_key,
        token=planned.token,
        window=planned.window,
    )
    describe_job(context, name, planned.number, planned.span.records)
    before = planned.registers[target.table]
    retraction = None
    if is_bag:
        assert isinstance(parts.anchor, IcebergTable)
        retraction = Retraction(parts.spec.catalog, parts.anchor, plan, before)
    reports, spoiled = _run(parts.lane, plan, targets, retraction)
    if retraction is None:
        require_one_task(reports)
    files = [file for report in reports for file in report.files]
    landed = [file for file in files if file.table == target.table and file.is_data]
    targets.distribution.learn(landed, len(plan.shares), plan.shuffle)
    written = _add_up(planned, plan, reports, began_ms, time.monotonic() - began)
    if retraction is not None:
        written = replace(written, outcome=replace(written.outcome, lookup=retraction.lookup))
    winners = _attempts(files) if ran_more_than_once(context, job_group(name, planned.number)) else ()
    return replace(written, spoiled=spoiled, winners=winners)


def _run(
    lane: Lane, plan: EpochPlan, targets: Targets, retraction: Retraction | None
) -> tuple[list[TaskReport], list[WrittenFile]]:
    """The reports of the plan's tasks, and the files of a first try that turned out to be wrong.

    Two tasks that had the same key each wrote what they took for its last change. That is seen before anything
    is committed; then the changes of a key are brought together first, in this epoch and in those to come.
    """
    with unpacking():
        reports = lane.run(plan, retraction)
    if plan.by_key or not share_keys(reports):
        return reports, []
    require_sequence(plan.target)
    log.warning("keys come from several tasks and are brought together from now on", table=plan.target.table)
    targets.by_key = True
    spoiled = [file for report in reports for file in report.files]
    with unpacking():
        return lane.run(replace(plan, by_key=True)), spoiled


def _attempts(files: list[WrittenFile]) -> tuple[str, ...]:
    return tuple(sorted(filter(None, {attempt_of(file.path) for file in files})))


def _begun(pipeline: str, planned: PlannedEpoch, target: WriteTarget, dead: WriteTarget | None) -> EpochBegun:
    tables = [each for each in (dead, target) if each is not None]
    return EpochBegun(
        epoch=planned.number,
        token=planned.token,
        batch_id=batch_id(pipeline, target.table, planned.span, planned.window.up_to if planned.window else None),
        span=planned.span,
        tables=tuple(_touched(each, planned.registers[each.table]) for each in tables),
    )


def _touched(target: WriteTarget, register: Register) -> TableTouched:
    return TableTouched(
        target.table, register.table_uuid, target.location, register.sequence_number, target.schema_id
    )


def _add_up(
    planned: PlannedEpoch, plan: EpochPlan, reports: list[TaskReport], began_ms: int, seconds: float
) -> WrittenEpoch:
    counts = _counts(plan, reports)
    files: dict[str, list[WrittenFile]] = {}
    for report in reports:
        for file in report.files:
            files.setdefault(file.table, []).append(file)
    # Only the task that read a partition's last slice knows the leader epoch at its end.
    last = {(part.topic, part.partition): task for task, share in enumerate(plan.shares) for part in share}
    leader_epochs = {
        p: epoch for report in reports for p, epoch in report.leader_epochs.items() if last[p] == report.task
    }
    outcome = EpochOutcome(
        epoch=planned.number,
        span=planned.span,
        counts=counts,
        files=files,
        replaces=any(report.truncated for report in reports),
        skipped=planned.skipped,
        leader_epochs=leader_epochs,
        topic_ids=planned.base.topic_ids,
        marks=planned.marks,
        lows={partition: low for report in reports for partition, low in report.lows.items()},
        resolved=planned.window.up_to if planned.window else None,
        started_ms=began_ms,
    )
    size = sum(report.delivered_bytes for report in reports)
    return WrittenEpoch(outcome, size / counts.delivered if counts.delivered else 0.0, seconds)


def _counts(plan: EpochPlan, reports: list[TaskReport]) -> Counts:
    """What became of the records; of the last two a balance, because a query or an envelope may also multiply."""

    def total(of: str) -> int:
        return sum(getattr(report, of) for report in reports)

    delivered, landed, deleted, dead = total("delivered"), total("landed"), total("deleted"), total("dead")
    if plan.target.changes is None:
        return Counts(delivered, landed, delivered - landed - dead, dead)
    missing = total("missing")
    filtered = total("filtered") + total("decoded") - total("taken") + missing
    collapsed = delivered - landed - deleted - filtered - dead
    return Counts(delivered, landed, filtered, dead, deleted, collapsed, total("unknown_ops"), missing)
