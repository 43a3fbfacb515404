"""Are the spans of a table's history disjoint and gapless, and does the register tell their end?

found in the history                      answer
a span begins before the last one ended   broken: offsets landed twice
a span begins beyond it                   broken: offsets landed in no epoch
an epoch that is not later                broken: two snapshots for one epoch
a batch id that is not its span's name    broken: the summary was forged
a start without a later generation        noted: somebody removed the register and began anew
a start that gives offsets up             noted: a rollback, after which the user chose to keep the frontier
a start that went back                    holds: what the rollback took is in a later epoch
the oldest snapshot has a parent          holds from there on; what expired is known by count only
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from frazil.protocol.positions import Partition, describe_ranges, name_partition
from frazil.protocol.positions import Range as Offsets
from frazil.protocol.register import Generation, batch_id, start_id
from frazil.protocol.verify.finding import Check, Finding, broken, many, noted
from frazil.protocol.verify.seen import Commit, TableSeen


def check_history(seen: TableSeen) -> Check:
    """One snapshot an epoch, spans without gaps and overlaps."""
    findings = [*_order(seen.commits), *_positions(seen.commits), *_given_up(seen.commits), *_names(seen)]
    numbers = {
        "epochs": len(seen.epochs),
        "starts": len(seen.commits) - len(seen.epochs),
        "partitions": len(seen.known),
        "skipped_offsets": sum(commit.record.skipped.records for commit in seen.epochs),
        "given_up_offsets": sum(commit.record.given_up.records for commit in seen.commits),
        "rewinds": sum(commit.record.rewound_from is not None for commit in seen.commits),
    }
    return Check(seen.table, "history", _extent(seen, numbers), findings, numbers)


def check_register(seen: TableSeen) -> Check:
    """The register against the last commit, field by field."""
    register = seen.register
    numbers = {"epoch": register.epoch, "generation": register.generation}
    says = f"epoch {register.epoch} of generation {register.generation}"
    if not seen.commits:
        says += "; its snapshot has expired"
    else:
        says += ", as its snapshot says"
    return Check(seen.table, "register", says, list(_register(seen)), numbers)


def _order(commits: list[Commit]) -> Iterator[Finding]:
    """Epochs and generations rise, and a generation has one coordinator."""
    for before, commit in pairwise(commits):
        then, now = before.record, commit.record
        if commit.is_start:
            if now.generation <= then.generation or now.epoch < then.epoch:
                yield noted(
                    f"the pipeline began anew: generation {now.generation}, epoch {now.epoch} after "
                    f"generation {then.generation}, epoch {then.epoch}",
                    snapshot_id=now.snapshot_id,
                    epoch=now.epoch,
                )
            continue
        if now.epoch <= then.epoch:
            yield commit.broken(
                f"epoch {now.epoch} was committed after epoch {then.epoch}, in a snapshot of its own"
            )
        if (now.generation, commit.coordinator) != (then.generation, before.coordinator):
            yield commit.broken(
                f"epoch {now.epoch} is by coordinator {commit.coordinator} of generation {now.generation}, which "
                f"never started; {before.coordinator} of generation {then.generation} was at work"
            )


def _positions(commits: list[Commit]) -> Iterator[Finding]:
    ends: dict[Partition, int] = {}
    for commit in commits:
        for partition, r in sorted(commit.covered.ranges.items()):
            here = ends.get(partition, r.start)
            if r.start != here:
                yield _misplaced(commit, partition, here, r)
            ends[partition] = max(here, r.end)


def _given_up(commits: list[Commit]) -> Iterator[Finding]:
    for commit in commits:
        if lacking := commit.record.given_up:
            yield noted(
                f"{describe_ranges(lacking.ranges.items())}: given up by the user after a rollback",
                snapshot_id=commit.record.snapshot_id,
                epoch=commit.record.epoch,
            )


def _misplaced(commit: Commit, partition: Partition, here: int, r: Offsets) -> Finding:
    twice = r.start < here
    wrong = Offsets(r.start, min(here, r.end)) if twice else Offsets(here, r.start)
    ranges = describe_ranges([(partition, wrong)])
    what = "in an earlier epoch and again in this one" if twice else "in no epoch"
    return commit.broken(f"{ranges}: {what}", partition)


def _names(seen: TableSeen) -> Iterator[Finding]:
    """Batch ids repeat the span. Those before a table was renamed carry its old name, and prove nothing."""
    renamed = True
    for commit in seen.commits:
        fits = commit.record.batch_id == _name(seen, commit)
        if not fits and not renamed:
            name, span = commit.record.batch_id, commit.record.span.encode()
            yield commit.broken(f"batch id {name} is not the name of its span {span}")
        renamed = renamed and not fits


def _name(seen: TableSeen, commit: Commit) -> str:
    if commit.is_start:
        return start_id(seen.writer, seen.table, Generation(commit.record.generation), commit.coordinator)
    return batch_id(seen.writer, seen.table, commit.record.span, commit.record.resolved)


def _extent(seen: TableSeen, numbers: dict[str, int]) -> str:
    if not seen.epochs:
        return "no epoch yet" if seen.is_whole else "the snapshots of all epochs have expired"
    first, last = seen.epochs[0].record.epoch, seen.epochs[-1].record.epoch
    reach = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    says = f"{reach} in {many(numbers['epochs'], 'snapshot')}, {many(numbers['partitions'], 'partition')}"
    says += ": no gap, no overlap"
    if numbers["skipped_offsets"]:
        says += f"; {many(numbers['skipped_offsets'], 'offset')} lost with consent"
    if numbers["rewinds"]:
        says += f"; rewound after {many(numbers['rewinds'], 'rollback')}"
    return says if seen.is_whole else f"{says}; earlier snapshots have expired"


def _register(seen: TableSeen) -> Iterator[Finding]:
    register = seen.register
    if register.table_uuid != seen.uuid:
        yield broken(f"it is of another table: uuid {register.table_uuid}, this one has {seen.uuid}")
    yield from _standing(seen)
    if not seen.commits:
        return
    last = seen.commits[-1]
    facts = {
        "snapshot": (register.snapshot_id, last.record.snapshot_id),
        "epoch": (register.epoch, last.record.epoch),
        "generation": (register.generation, last.record.generation),
        "coordinator": (register.coordinator, last.coordinator),
        "batch id": (register.batch_id, last.record.batch_id),
        "resolved time": (register.frontier.resolved, last.record.resolved),
    }
    for what, (says, is_) in facts.items():
        if says != is_:
            yield last.broken(f"it says {what} {says}, the pipeline's last snapshot has {is_}")
    yield from _frontier(seen)


def _frontier(seen: TableSeen) -> Iterator[Finding]:
    for partition, r in sorted(seen.known.items()):
        here = seen.register.frontier.offset(partition)
        if here != r.end:
            way = "does not know the partition" if here is None else f"stands at {here}"
            yield broken(
                f"the frontier of {name_partition(partition)} {way}, the history ends at {r.end}",
                snapshot_id=seen.register.snapshot_id,
                epoch=seen.register.epoch,
                partition=partition,
            )


def _standing(seen: TableSeen) -> Iterator[Finding]:
    """A register whose snapshot is gone is an old one's only if snapshots have expired."""
    register, head = seen.register, seen.head
    if register.snapshot_id in {s.snapshot_id for s in seen.history}:
        return
    expired = head is not None and not seen.is_whole and head.sequence_number >= register.sequence_number
    if register.snapshot_id in seen.listed or not expired:
        yield broken(
            f"its snapshot {register.snapshot_id} is not in the history of the head: the table was rolled back "
            "or replaced",
            snapshot_id=register.snapshot_id,
            epoch=register.epoch,
        )
