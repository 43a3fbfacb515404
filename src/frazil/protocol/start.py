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
    register's snapshot not in the head's history     Stop: rolled back or replaced
    a recent commit by a coordinator that may live    Wait: a courtesy, safety never rests on it
    otherwise                                         Resume from the anchor's frontier
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frazil.errors import TableChanged, TerminalError
from frazil.protocol.commit import Standing, TableObserved, recreated, rolled_back
from frazil.protocol.positions import Frontier
from frazil.protocol.register import Epoch, Generation, Register

SILENT_INTERVALS = 3
"""A coordinator that has not committed for this many of its intervals is taken for gone."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Resolve the starting offsets and record them; epochs are counted on from `epoch`."""

    generation: Generation
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on after `epoch`, from `frontier`."""

    generation: Generation
    epoch: Epoch
    frontier: Frontier


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


def decide_start(anchor: TableObserved, sides: Sequence[TableObserved], around: Circumstances) -> Decision:
    """Decides how a coordinator starts; the table above is the whole of it."""
    tables = [*sides, anchor]
    for seen in tables:
        if (error := _impossible(seen, adopt=around.adopt)) is not None:
            return Stop(error)
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
    if adopted:
        return Begin(generation, epoch)
    base = anchor.register or registers[0]
    return Resume(generation, epoch, base.frontier)


def _another_anchor(anchor: TableObserved, registers: Sequence[Register]) -> bool:
    return any(register.anchor_uuid not in ("", anchor.uuid) for register in registers)


def side_frontier(own: Register | None, anchor: Frontier) -> Frontier:
    """Where a side table begins to take rows: the later of its own frontier and the anchor's."""
    return anchor if own is None else own.frontier.later(anchor)


def _impossible(seen: TableObserved, *, adopt: bool) -> TerminalError | None:
    register = seen.register
    if register is None:
        if not seen.has_rows or adopt:
            return None
        return _not_ours(seen)
    if register.table_uuid != seen.uuid:
        return recreated(seen, register.table_uuid)
    return rolled_back(seen) if seen.standing is Standing.ROLLED_BACK else None


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
