"""Committing: what a table shows, and what may be done about it.

Theory. Check-then-commit is not exactly-once: a delayed commit can land between the two. So `judge` runs
inside the commit, against the very metadata the commit is based on, and again on every retry of it. After
an error it runs once more, against a fresh load: an error says nothing about the outcome.

Failure matrix. Columns: what `judge` finds. Rows: when it is asked.

                     our batch id        predecessor         newer coordinator    ours, later    anything else
    inside commit    AlreadyCommitted    Proceed             Fenced               Overtaken      Unexpected
    after an error   it landed           it has not landed   Fenced               plan again     Unexpected
                                         (yet): same files,
                                         try again

The predecessor under another schema, partition spec or sort order than the files were written for is `Proceed` if
they may land as they are, else `Altered`, whenever it is found: the epoch is written again for the table as it is
now. `protocol/layout.py` has the rules.

A table that was rolled back takes no commit, but one: the start of a coordinator whose user said what to do about
it (`protocol/start.py`). That one names what it saw the head hold, and lands only while the head holds just that.

Deletes by position say where rows were in one snapshot. Iceberg refuses them inside the commit when a file they
speak of, or what else deletes its rows, has changed since (`RowsMoved`). That too is an error like any other: once
a fresh load tells that nothing has landed, the places are looked up and the epoch is written again.

"Not landed yet" never licenses a deletion: the attempt may still be under way somewhere. It is harmless all
the same, because at most one commit can follow a predecessor. An attempt that was given up for lost, and lands
after its epoch was planned anew, is the one that follows: the new plan is the one to drop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from frazil.errors import Fenced as FencedError
from frazil.errors import TableAltered, TableChanged, TerminalError
from frazil.protocol.layout import Former, Layout, Shape
from frazil.protocol.positions import Frontier, Span
from frazil.protocol.register import Register


class Standing(Enum):
    """How the snapshot that a register points at stands in the table's history."""

    ANCESTOR = "it is the head or an ancestor of the head"
    EXPIRED = "it is no longer listed, and the head is newer"
    ROLLED_BACK = "the head does not descend from it"


@dataclass(frozen=True, slots=True)
class Sign:
    """The last sign of life of the coordinator that wrote the register."""

    timestamp_ms: int
    process: str = ""
    interval_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Held:
    """What the head of a rolled-back table still holds of a writer, and what was lost with the rollback."""

    frontier: Frontier | None
    """after the writer's newest commit in the head's history; empty if there is none, None if it has expired"""
    lost: Span | None
    """what was read for the commits that are gone; None if their history has expired"""


@dataclass(frozen=True, slots=True)
class TableObserved:
    """What one load of a table showed."""

    table: str
    uuid: str
    snapshot_id: int | None
    register: Register | None
    standing: Standing = Standing.ANCESTOR
    sign: Sign | None = None
    has_rows: bool = False
    """whoever wrote them"""
    layout: Layout = field(default_factory=Layout)
    formers: frozenset[Former] = frozenset()
    """what it says of earlier layouts that files of a proposal were written for"""
    other_writers: tuple[str, ...] = ()
    """pipelines that have a register in the table, looked up where this one has none"""
    held: Held | None = None
    """only of a table that was rolled back"""
    misplaced: bool = False
    """whether the register's own commit landed on top of the rollback, which Delta cannot refuse"""


@dataclass(frozen=True, slots=True)
class Lookup:
    """What deletes by position rest on: rows were where they say in this snapshot, and must still be there."""

    snapshot_id: int
    superseded: tuple[str, ...] = ()
    """delete files, as Iceberg's JSON, that are contained in new ones and go with the commit"""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One commit to one table: allowed only on top of `predecessor`."""

    writer: str
    table_uuid: str
    predecessor: Register | None
    register: Register
    summary: Mapping[str, str]
    replaces: bool = False
    """whether all rows that are in the table go, as after a TRUNCATE at the source"""
    shape: Shape = field(default_factory=Shape)
    """what its files were written for"""
    holds: Frontier | None = None
    """what the head of a rolled-back table was seen to hold, in a start that makes amends for it"""
    lookup: Lookup | None = None
    """where rows were found that it deletes by their places"""

    def is_overtaken_by(self, found: Register) -> bool:
        """Whether `found` is a commit of the same coordinator, later than the predecessor."""
        before, ours = self.predecessor, found.coordinator == self.register.coordinator
        return ours and before is not None and found.succeeds(before)


@dataclass(frozen=True, slots=True)
class Proceed:
    """The table stands where the proposal expects it."""


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The proposal's batch is in the table, landed by `found.coordinator`."""

    found: Register


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another coordinator has taken over."""

    found: Register


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A commit of ours that was given up for lost has landed after all."""

    found: Register


@dataclass(frozen=True, slots=True)
class Altered:
    """The files do not fit the schema, partition spec or sort order that the table now has."""

    found: Layout
    misfit: str


@dataclass(frozen=True, slots=True)
class Unexpected:
    """The table was changed behind the pipeline's back."""

    error: TerminalError


Verdict = Proceed | AlreadyCommitted | Fenced | Overtaken | Altered | Unexpected


def judge(seen: TableObserved, proposal: Proposal) -> Verdict:
    """Decides whether `proposal` may become the table's next commit.

    1. another table under the same name is never written to;
    2. our own batch id comes first: it is in, whoever landed it;
    3. then a newer coordinator;
    4. then the predecessor, by value, and still part of the table's history; or gone from it as the start saw;
    5. with it, that the files were written for the table as it is, or fit it all the same;
    6. then a later commit of our own.
    """
    if seen.uuid != proposal.table_uuid:
        return Unexpected(recreated(seen, proposal.table_uuid))
    found = seen.register
    if found is not None and found.batch_id == proposal.register.batch_id:
        return AlreadyCommitted(found)
    if found is not None and found.overrides(proposal.register):
        return Fenced(found)
    if found is not None and seen.standing is Standing.ROLLED_BACK and not _is_known(seen, proposal):
        return Unexpected(rolled_back(seen))
    if seen.standing is not Standing.ROLLED_BACK and proposal.holds is not None:
        return Unexpected(restored(seen))
    if found == proposal.predecessor:
        misfit = proposal.shape.misfit(seen.layout, seen.formers)
        return Altered(seen.layout, misfit) if misfit else Proceed()
    if found is not None and proposal.is_overtaken_by(found):
        return Overtaken(found)
    return Unexpected(register_changed(seen, proposal.writer, proposal.predecessor))


def _is_known(seen: TableObserved, proposal: Proposal) -> bool:
    """Whether the rollback is the very one that the proposal makes amends for."""
    return proposal.holds is not None and seen.held is not None and seen.held.frontier == proposal.holds


def fenced(table: str, found: Register) -> FencedError:
    return FencedError(
        f"{table}: coordinator {found.coordinator} (generation {found.generation}) has taken this pipeline over",
        "this process stops; the other one goes on. Run one coordinator per pipeline",
    )


def altered(table: str, proposal: Proposal, verdict: Altered) -> TableAltered:
    return TableAltered(
        f"{table} was altered while epoch {proposal.register.epoch} was written: "
        f"its files have {proposal.shape}, the table has {verdict.found}; {verdict.misfit}",
        "the epoch is written again for the table as it is now; its first files are not committed",
    )


def recreated(seen: TableObserved, expected_uuid: str) -> TableChanged:
    return TableChanged(
        f"{seen.table} is another table than before: uuid {seen.uuid} instead of {expected_uuid}; "
        "it was dropped and created again, or its register was copied from elsewhere",
        "give the pipeline another name to fill the new table from its starting_offsets, "
        "or bring the old table back",
    )


def rolled_back(seen: TableObserved) -> TableChanged:
    register = seen.register
    assert register is not None
    if seen.misplaced:
        return TableChanged(
            f"{seen.table} was restored while epoch {register.epoch} was merged into it: version "
            f"{register.snapshot_id} has the rows of that epoch, and may lack those before it",
            "start once with --on-rollback rewind, which reads and lands the records again that it lacks, or with "
            "--on-rollback keep, which leaves them out for good and goes on behind them",
        )
    return TableChanged(
        f"{seen.table} was rolled back or replaced: epoch {register.epoch} was committed in snapshot "
        f"{register.snapshot_id}, which is not in the history of the head {seen.snapshot_id}",
        f"to have its rows back, set the current snapshot to {register.snapshot_id} again; to stay at this head, "
        "start once with --on-rollback rewind, which reads and lands the records again that it lacks, or with "
        "--on-rollback keep, which leaves them out for good and goes on behind them",
    )


def restored(seen: TableObserved) -> TableChanged:
    return TableChanged(
        f"{seen.table} was rolled back, and is not any more: somebody has restored its head meanwhile",
        "start again: a start takes up what the table says",
    )


def register_changed(seen: TableObserved, writer: str, expected: Register | None) -> TableChanged:
    return TableChanged(
        f"{seen.table}: the register of writer {writer} is not what this coordinator left there: "
        f"found {_brief(seen.register)}, expected {_brief(expected)}",
        "start again: a start takes up what the table says. If it is refused, somebody edited the property by hand",
    )


def _brief(register: Register | None) -> str:
    if register is None:
        return "none"
    return f"epoch {register.epoch} of generation {register.generation}"
