"""One epoch on one page: plan, read → decode → write, commit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from frazil.commit import EpochOutcome
from frazil.engine.assemble import Assembly
from frazil.engine.carry import unpack
from frazil.engine.distribute import Distribution
from frazil.engine.lanes import describe_job
from frazil.engine.worker import EpochPlan, TaskReport
from frazil.errors import FrazilError
from frazil.pipeline.spec import TableSection
from frazil.protocol.entries import EpochBegun, TableTouched
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Partition, Span
from frazil.protocol.register import Epoch, Register, batch_id
from frazil.protocol.summary import Counts
from frazil.table.files import WriteTarget, WrittenFile

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


@dataclass(frozen=True)
class WrittenEpoch:
    """Files on storage that no table references yet."""

    outcome: EpochOutcome
    record_bytes: float
    seconds: float


@dataclass
class Targets:
    """What workers must know about the tables, looked up now and then: users evolve tables."""

    parts: Assembly
    dead_floor: Frontier
    distribution: Distribution = field(default_factory=Distribution)
    _found: tuple[WriteTarget, WriteTarget | None] | None = None
    _found_at: float = 0.0
    refresh_s: float = 30.0

    def current(self) -> tuple[WriteTarget, WriteTarget | None]:
        if self._found is None or time.monotonic() - self._found_at > self.refresh_s:
            dead = self.parts.dead_letters
            self._found = (
                self.parts.anchor.write_target(self.parts.spec.table),
                dead.write_target(TableSection(name=dead.name)) if dead is not None else None,
            )
            self._found_at = time.monotonic()
        return self._found


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
    parts.journal.append(_begun(name, planned, target, dead_target), durable=True)
    tasks = min(context.defaultParallelism, -(-planned.span.records // _TASK_RECORDS_MIN))
    plan = EpochPlan(
        writer=name,
        epoch=planned.number,
        shares=planned.span.split(max(1, tasks), planned.base),
        reader=parts.source.reader(parts.wants, planned.span),
        decode=parts.decode,
        target=target,
        dead_target=dead_target,
        dead_floor=targets.dead_floor,
        shuffle=parts.lane.can_shuffle and targets.distribution.shuffles(target),
        token=planned.token,
    )
    describe_job(context, name, planned.number, planned.span.records)
    try:
        reports = parts.lane.run(plan)
    except FrazilError:
        raise
    except Exception as failure:
        raise unpack(failure) from failure
    landed = [file for report in reports for file in report.files if file.table == target.table]
    targets.distribution.learn(landed, len(plan.shares), plan.shuffle)
    return _add_up(planned, plan, reports, began_ms, time.monotonic() - began)


def _begun(pipeline: str, planned: PlannedEpoch, target: WriteTarget, dead: WriteTarget | None) -> EpochBegun:
    tables = [each for each in (dead, target) if each is not None]
    return EpochBegun(
        epoch=planned.number,
        token=planned.token,
        batch_id=batch_id(pipeline, target.table, planned.span),
        span=planned.span,
        tables=tuple(_touched(each, planned.registers[each.table]) for each in tables),
    )


def _touched(target: WriteTarget, register: Register) -> TableTouched:
    return TableTouched(target.table, register.table_uuid, target.location, register.sequence_number)


def _add_up(
    planned: PlannedEpoch, plan: EpochPlan, reports: list[TaskReport], began_ms: int, seconds: float
) -> WrittenEpoch:
    delivered = sum(report.delivered for report in reports)
    landed = sum(report.landed for report in reports)
    dead = sum(report.dead for report in reports)
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
        counts=Counts(delivered, landed, delivered - landed - dead, dead),
        files=files,
        skipped=planned.skipped,
        leader_epochs=leader_epochs,
        topic_ids=planned.base.topic_ids,
        marks=planned.marks,
        started_ms=began_ms,
    )
    size = sum(report.delivered_bytes for report in reports)
    return WrittenEpoch(outcome, size / delivered if delivered else 0.0, seconds)
