"""Starting: who may begin, where, and under which generation.

Theory. A start is itself a commit: an empty snapshot that raises the generation on every table of the
pipeline before anything is planned, side tables first and the anchor last. The first start also records the
resolved starting offsets, so that `latest` is decided once. From then on an older coordinator cannot commit.

A pipeline has one anchor and any number of side tables. Side tables commit before the anchor, epoch by epoch,
so a crash leaves a side table at most one commit ahead. What lies between the anchor's frontier and a side
table's own is read again for the anchor and left out for the side table.

    observed                                          decision
    nothing anywhere, anchor empty                    Begin: resolve the starting offsets
    nothing on the anchor, a side table at epoch 0    Resume at the offsets the first start resolved
    nothing on the anchor, a side table further on,   Stop: the anchor was recreated
      or of an anchor with another uuid
    data on the anchor, but no register               Stop, unless told to adopt it
    the same, told to adopt it, side tables further   Begin: resolve anew, epochs are counted on from theirs
    register of another table uuid                    Stop
    register's snapshot not in the head's history     Stop: rolled back or replaced, unless told what to do: below
    a recent commit by a coordinator that may live    Wait: a courtesy, safety never rests on it
    otherwise                                         Resume from the anchor's frontier

A table that was rolled back or replaced. Its register, a table property, outlives that and points past rows that
are gone. The head's own history tells what it still **holds**: the frontier after the newest commit of ours in it.
Only the user can know which is right, and says so with `--on-rollback`:

    rewind    the table goes on from what its head holds; what it lacks is read and lands again
    keep      the table goes on from its register; what it lacks is given up, and recorded as that

The choice is for all tables that were rolled back; one that was not goes on from its register, as ever.

    anchor         side table     rewind                                     keep
    rolled back    untouched      anchor goes back; what the side table      anchor gives up; the side table
                                  has, below its own frontier, is left       keeps its dead letters of what
                                  out for it                                 the anchor gave up
    rolled back    rolled back    both go back, if nothing that the side     both give up
                                  table lost is before where the anchor
                                  goes on
    untouched      rolled back    side table goes back, if it had lost       side table gives up
                                  only what it was ahead of the anchor;
                                  else Stop: its rows are not read again

    held by the head                                  rewind                                keep
    some of ours, not beyond the register             goes back to it                       gives up what is between
    nothing of ours, no rows                          a side table begins with the anchor,  gives up everything
                                                      the anchor at its starting offsets;
                                                      Stop if those are beyond the register
    nothing of ours, but rows                         Stop, unless told to adopt them       gives up everything
    more than the register says: another branch       Stop                                  Stop
    not known: the snapshots have expired             Stop                                  Stop

Generations and epochs are counted on in every case, so that a rewound span lands again under the same batch id but
never under the same epoch; the start between the two has a name of its own, so that no commit is taken for the one
that was rolled back. A rewinding anchor is claimed before its side tables: were it the last, and its head restored
in between, side tables would have gone back and nobody would read their rows again. A rewind that was cut short is
taken up by the next start under the same choice. Each claim lands only while the head holds what was decided upon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from frazil.errors import TableChanged, TerminalError
from frazil.protocol.commit import Standing, TableObserved, recreated, rolled_back
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Partition, Position, Range, Span, describe_ranges
from frazil.protocol.register import Epoch, Generation, Register

SILENT_INTERVALS = 3
"""A coordinator that has not committed for this many of its intervals is taken for gone."""


class OnRollback(Enum):
    """What the user wants of tables that were rolled back or replaced."""

    REWIND = "rewind"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Amends:
    """How a start goes on with a table that was rolled back."""

    holds: Frontier
    """what its head was seen to hold"""
    frontier: Frontier | None
    """where the table goes on; None where the anchor does"""
    rewound_from: Frontier | None = None
    """where its register had stood, if it goes back"""
    given_up: Span = EMPTY_SPAN
    """what it may lack from now on, if it does not"""


@dataclass(frozen=True, slots=True)
class Begin:
    """Resolve the starting offsets, see `begin_at`, and record them; epochs are counted on from `epoch`."""

    generation: Generation
    epoch: Epoch
    amends: Mapping[str, Amends] = field(default_factory=dict)
    """by the name of the table"""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on after `epoch`, from `frontier`."""

    generation: Generation
    epoch: Epoch
    frontier: Frontier
    amends: Mapping[str, Amends] = field(default_factory=dict)
    """by the name of the table"""

    def rewinds(self, table: str) -> bool:
        return table in self.amends and self.amends[table].rewound_from is not None


@dataclass(frozen=True, slots=True)
class Wait:
    """Another coordinator may be alive; look again after `seconds`."""

    seconds: float
    other: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody has to decide something."""

    error: TerminalError


Decision = Begin | Resume | Wait | Stop


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the starter knows besides the tables."""

    now_ms: int
    dead_process: bool = False
    """the coordinator that committed last is known to be dead"""
    take_over: bool = False
    """the user said so"""
    adopt: bool = False
    """the user lets frazil append to a table that already has data"""
    coordinator: str = ""
    """the starter's own id: it need not wait for itself after a start that landed on some tables only"""
    watched_s: float = 0.0
    """how long the tables have been seen to stand still; clocks of two hosts may differ by more than that"""
    on_rollback: OnRollback | None = None
    """what the user wants of tables that were rolled back"""


def decide_start(anchor: TableObserved, sides: Sequence[TableObserved], around: Circumstances) -> Decision:
    """Decides how a coordinator starts; the tables above are the whole of it."""
    tables = [*sides, anchor]
    amends: dict[str, Amends] = {}
    for seen in tables:
        if (error := _impossible(seen, adopt=around.adopt)) is not None:
            return Stop(error)
        if seen.register is not None and seen.standing is Standing.ROLLED_BACK:
            made = _amends(seen, seen.register, around)
            if isinstance(made, TerminalError):
                return Stop(made)
            amends[seen.table] = made
    registers = [seen.register for seen in tables if seen.register is not None]
    if not registers:
        return Begin(Generation(1), Epoch(0))
    generation = Generation(max(r.generation for r in registers) + 1)
    epoch = Epoch(max(r.epoch for r in registers))
    adopted = anchor.register is None and anchor.has_rows
    if anchor.register is None and not adopted and (epoch > 0 or _another_anchor(anchor, registers)):
        return Stop(_anchor_recreated(anchor, sides))
    if (wait := _courtesy(tables, around)) is not None:
        return wait
    base = anchor.register.frontier if anchor.register else registers[0].frontier
    here = amends[anchor.table].frontier if anchor.table in amends else base
    if adopted or here is None:
        return Begin(generation, epoch, amends)
    return _with_sides(Resume(generation, epoch, here, amends), sides)


def begin_at(
    begin: Begin, anchor: TableObserved, sides: Sequence[TableObserved], resolved: Frontier
) -> Resume | Stop:
    """How it goes on once the starting offsets are known; who begins again never begins further on than it was."""
    amends = dict(begin.amends)
    if (rewound := amends.get(anchor.table)) is not None and rewound.rewound_from is not None:
        known = {p: at for p, at in resolved.positions.items() if p in rewound.rewound_from.positions}
        if not rewound.rewound_from.covers(Frontier(known)):
            return Stop(_begins_beyond(anchor, Frontier(known).since(rewound.rewound_from)))
        amends[anchor.table] = replace(rewound, frontier=resolved)
    return _with_sides(Resume(begin.generation, begin.epoch, resolved, amends), sides)


def _with_sides(resume: Resume, sides: Sequence[TableObserved]) -> Resume | Stop:
    """Side tables that go back have to find what they lost beyond the place where the anchor goes on."""
    amends = dict(resume.amends)
    for side in sides:
        if not resume.rewinds(side.table):
            continue
        lost = side.held.lost if side.held is not None else None
        if lost is None or (behind := _behind(lost, resume.frontier)):
            return Stop(_not_read_again(side, behind if lost is not None else None))
        made = amends[side.table]
        amends[side.table] = replace(made, frontier=made.frontier or resume.frontier)
    return replace(resume, amends=amends)


def _behind(lost: Span, frontier: Frontier) -> dict[Partition, Range]:
    """What of it lies before the frontier."""
    ends = {p: min(r.end, frontier.offset(p) or 0) for p, r in lost.ranges.items()}
    return {p: Range(r.start, ends[p]) for p, r in lost.ranges.items() if r.start < ends[p]}


def _amends(seen: TableObserved, register: Register, around: Circumstances) -> Amends | TerminalError:
    """What the user's choice means for one table that was rolled back."""
    if around.on_rollback is None:
        return rolled_back(seen)
    holds = seen.held.frontier if seen.held is not None else None
    if holds is None:
        return _unknown(seen, register)
    if not register.frontier.covers(holds):
        return _another_branch(seen, register)
    if around.on_rollback is OnRollback.KEEP:
        return Amends(holds, register.frontier, given_up=register.frontier.since(holds))
    if holds.positions:
        return Amends(holds, _back_to(holds, register, seen), rewound_from=register.frontier)
    if seen.has_rows and not around.adopt:
        return _rows_of_others(seen)
    return Amends(holds, None, rewound_from=register.frontier)


def _another_anchor(anchor: TableObserved, registers: Sequence[Register]) -> bool:
    return any(register.anchor_uuid not in ("", anchor.uuid) for register in registers)


def side_frontier(own: Register | None, anchor: Frontier) -> Frontier:
    """Where a side table begins to take rows: the later of its own frontier and the anchor's."""
    return anchor if own is None else own.frontier.later(anchor)


def _back_to(holds: Frontier, register: Register, seen: TableObserved) -> Frontier:
    """What the head holds; partitions that came later go back to where they began, not to where they begin now."""
    lost = seen.held.lost.ranges if seen.held is not None and seen.held.lost is not None else {}
    later = [p for p in register.frontier.positions if p not in holds.positions]
    begun = {p: Position(lost[p].start if p in lost else 0) for p in later}
    return Frontier(
        {**holds.positions, **begun}, {**register.frontier.topic_ids, **holds.topic_ids}, holds.resolved
    )


def _impossible(seen: TableObserved, *, adopt: bool) -> TerminalError | None:
    register = seen.register
    if register is None:
        if not seen.has_rows or adopt:
            return None
        return _not_ours(seen)
    return recreated(seen, register.table_uuid) if register.table_uuid != seen.uuid else None


def _unknown(seen: TableObserved, register: Register) -> TableChanged:
    return TableChanged(
        f"{seen.table} was rolled back or replaced, and how far its head {seen.snapshot_id} has come cannot be "
        "told: the snapshots of this pipeline in its history have expired",
        f"set the current snapshot to {register.snapshot_id} again; or remove the table property of this writer, "
        "name the offsets to go on from as starting_offsets, and start once with --adopt",
    )


def _another_branch(seen: TableObserved, register: Register) -> TableChanged:
    return TableChanged(
        f"{seen.table} was set to snapshot {seen.snapshot_id}, which holds more than epoch {register.epoch} had "
        "read: it is of a branch that this pipeline has left",
        f"set the current snapshot to {register.snapshot_id} again, or to an ancestor of it",
    )


def _rows_of_others(seen: TableObserved) -> TableChanged:
    return TableChanged(
        f"{seen.table} was replaced: its head has rows, but no snapshot of this pipeline",
        "if they are the pipeline's own rows, copied, start with --on-rollback keep, which goes on behind them; if "
        "not, add --adopt to --on-rollback rewind, which lands every record again beside them",
    )


def _begins_beyond(anchor: TableObserved, between: Span) -> TableChanged:
    return TableChanged(
        f"{anchor.table} holds nothing of this pipeline any more, and starting_offsets are beyond what it had "
        f"read: {describe_ranges(between.ranges.items())} would be left out",
        "name the offsets to go back to as starting_offsets, or start with --on-rollback keep",
    )


def _not_read_again(side: TableObserved, behind: Mapping[Partition, Range] | None) -> TableChanged:
    what = "of what offsets is not known" if behind is None else describe_ranges(behind.items())
    assert side.register is not None
    return TableChanged(
        f"{side.table} was rolled back and has lost rows ({what}), and the main table was not rolled back as "
        "far: its records are not read again, so these rows would not come back",
        f"set the current snapshot of {side.table} to {side.register.snapshot_id} again, roll the main table back "
        "as far, or give the rows up with --on-rollback keep",
    )


def _not_ours(seen: TableObserved) -> TableChanged:
    found, remedy = "", "choose another table, or run with --adopt to append to it from starting_offsets"
    if seen.other_writers:
        found = f"; it has those of {', '.join(seen.other_writers)}"
        remedy = (
            f"if this pipeline was renamed, give pipeline.name back: {' or '.join(seen.other_writers)}; otherwise "
            f"{remedy}: what the other one landed is then landed again"
        )
    return TableChanged(f"{seen.table} already has data, but no frontier of this pipeline{found}", remedy)


def _anchor_recreated(anchor: TableObserved, sides: Sequence[TableObserved]) -> TableChanged:
    known = [s for s in sides if s.register is not None]
    ahead = max(known, key=lambda s: (s.register.epoch, s.register.generation) if s.register else (0, 0))
    assert ahead.register is not None
    return TableChanged(
        f"{anchor.table} has no frontier, but its side table {ahead.table} is at epoch {ahead.register.epoch} of "
        f"generation {ahead.register.generation}: {anchor.table} was dropped and created again",
        f"bring it back, or drop {ahead.table} as well to begin anew from starting_offsets",
    )


def _courtesy(tables: Sequence[TableObserved], around: Circumstances) -> Wait | None:
    """Spares two supervisors from fencing each other in turns."""
    if around.take_over or around.dead_process:
        return None
    waits = []
    for seen in tables:
        if seen.register is None or seen.sign is None or seen.register.coordinator == around.coordinator:
            continue
        silent_s = max(around.watched_s, (around.now_ms - seen.sign.timestamp_ms) / 1000)
        remaining_s = SILENT_INTERVALS * seen.sign.interval_s - silent_s
        if remaining_s > 0:
            waits.append(Wait(min(remaining_s, SILENT_INTERVALS * seen.sign.interval_s), seen.register.coordinator))
    return max(waits, key=lambda wait: wait.seconds, default=None)
