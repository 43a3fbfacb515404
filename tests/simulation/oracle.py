"""What must be true at the end, computed from all that ever happened to the broker and to the tables.

Nothing here asks the product for its opinion: ledgers and logs are compared number by number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from frazil.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitOutcomeUnknown,
    DataLoss,
    Fenced,
    FrazilError,
    MaxRetriesExceeded,
    SourceChanged,
    SourceUnavailable,
    TableChanged,
)
from frazil.protocol.positions import Frontier, Partition, Range, Span
from frazil.protocol.register import Register
from frazil.protocol.start import OnRollback
from frazil.protocol.summary import CommitRecord
from frazil.table.memory import Snapshot
from tests.simulation.broker import BAD, GOOD, Partitioned, Row
from tests.simulation.process import Process
from tests.simulation.stage import PATIENCE
from tests.simulation.table import DistantTable

if TYPE_CHECKING:
    from tests.simulation.world import World


TABLE_DISASTERS = {
    "rollback of the anchor",
    "rollback of the dead letters",
    "rollback of both tables",
    "recreation of the anchor",
    "recreation of the dead letters",
}


class Broken(AssertionError):
    """A promise was broken; the letter says which."""


Entry = tuple[Snapshot, Register, CommitRecord]


class Book:
    """Every commit of ours since a table was created, whatever was expired or rolled back meanwhile."""

    def __init__(self, world: World, table: DistantTable) -> None:
        self.table = table
        self.commits = [
            (snapshot, snapshot.register, CommitRecord.parse(snapshot.id, snapshot.timestamp_ms, snapshot.summary))
            for snapshot in table.ledger
            if snapshot.register is not None
        ]
        self._is_anchor = table is world.anchor
        self._amends = set(self._find_amends()) if table.was_moved else set()
        self._choices = {process.name: process.options.on_rollback for process in world.processes}
        self.entries = [entry for number, entry in enumerate(self.commits) if self._counts(number)]
        """those that the last one descends from"""
        self.origin = self._origin()
        self.frontier = frontier_of(table)

    def _counts(self, number: int) -> bool:
        """Whether the last commit goes on from this one; a misplaced one counts until somebody rewinds."""
        is_last = number == len(self.commits) - 1
        if is_last or not self.table.was_moved:
            return True
        here, then = self.commits[number][0].id, self.commits[number + 1]
        if here in self.table.misplaced and self.choice(then[1]) is OnRollback.REWIND:
            return False
        return here in self._line

    def _origin(self) -> Frontier:
        """Where the rows of all that counts begin; a first commit is a start, but for a misplaced one."""
        if not self.entries:
            return Frontier()
        first = self.commits.index(self.entries[0])
        return self.commits[first - (self.entries[0][0].id in self.table.misplaced)][1].frontier

    @cached_property
    def _line(self) -> set[int]:
        """What the last commit goes on from; a misplaced one from what it was planned on."""
        last = self.commits[-1][0].id
        if last in self.table.misplaced and len(self.commits) > 1:
            last = self.commits[-2][0].id
        return self.table.line(last)

    def rows(self) -> Counter[Row]:
        return Counter(self._rows(self.entries))

    def _rows(self, entries: Iterable[Entry]) -> Iterator[Row]:
        contents = self.table.contents
        return (row for snapshot, _, _ in entries for path in snapshot.paths for row in contents[path])

    def gone(self) -> set[Row]:
        """Rows that users took away: with a table that they dropped, or for good when they chose to keep."""
        gone = set(self.table.dropped)
        for number, (snapshot, register, _) in enumerate(self.commits):
            if self.is_amends(number) and self.choice(register) is OnRollback.KEEP:
                left = self.table.line(snapshot.id)
                gone.update(self._rows(entry for entry in self.commits[:number] if entry[0].id not in left))
        return gone

    def left_behind(self) -> set[Row]:
        """Rows of misplaced commits, which a rewind leaves in the table: they land again, if they can be read."""
        misplaced = [entry for entry in self.commits if entry[0].id in self.table.misplaced]
        return {*self._rows(misplaced)} - {*self.rows()}

    def is_amends(self, number: int) -> bool:
        """Whether a commit does not descend from the one before it: its table had been rolled back."""
        return number in self._amends

    def _find_amends(self) -> Iterator[int]:
        parents = {snapshot.id: snapshot.parent for snapshot in self.table.ledger}
        ours = {snapshot.id for snapshot, _, _ in self.commits} - self.table.misplaced
        for number, ((before, _, _), (snapshot, _, _)) in enumerate(pairwise(self.commits), 1):
            if snapshot.id in self.table.misplaced:
                continue
            at = snapshot.parent
            while at is not None and at not in ours:
                at = parents[at]
            if at != before.id:
                yield number

    def choice(self, register: Register) -> OnRollback | None:
        return self._choices[register.coordinator]

    def back(self, number: int) -> Frontier:
        """Where a rewind leads: what the head had of ours, and the first offset of partitions that came later.

        With nothing of ours it leads to the starting offsets, whatever they are then.
        """
        snapshot, register, _ = self.commits[number]
        left = self.table.line(snapshot.id)
        left -= self.table.misplaced
        held = next((r.frontier for s, r, _ in reversed(self.commits[:number]) if s.id in left), None)
        if held is None:
            return register.frontier
        later = {p: at for p, at in register.frontier.positions.items() if p not in held.positions}
        if self._is_anchor and any(at.offset > 0 for at in later.values()):
            raise Broken(f"C: {self.table.name}, snapshot {snapshot.id} goes back to {later}, which began at 0")
        return Frontier({**held.positions, **later}, register.frontier.topic_ids)

    def skipped(self) -> set[Row]:
        """Rows of ranges that the pipeline's own account gives up for lost."""
        return {
            (register.frontier.topic_ids[topic], number, offset)
            for _, register, record in self.entries
            for (topic, number), r in record.skipped.ranges.items()
            for offset in range(r.start, r.end)
        }


def require_promises(world: World) -> None:
    anchor = Book(world, world.anchor)
    books = [(anchor, GOOD)] if world.dead is None else [(anchor, GOOD), (Book(world, world.dead), BAD)]
    for book, kind in books:
        require_files(book.table)
        require_order(world, book)
        require_rows(world, book, kind, anchor)
    require_counts(world, anchor)


def require_rows(world: World, book: Book, kind: str, anchor: Book) -> None:
    """A: table and dead letters hold what a `read_committed` consumer sees up to the frontier, each row once."""
    if not book.entries:
        return
    table, landed = book.table, book.rows()
    lost = anchor.skipped() | {row for row in book.gone() if row not in landed}
    expected = Counter(row for row in visible(world, book.origin, anchor.frontier, kind) if row not in lost)
    known = set(visible(world, book.origin, book.frontier, kind))
    _require_equal(table, "landed", expected, _within(landed, expected, known))
    if not table.is_rolled_back:
        live = Counter(row for path in table.live_paths for row in table.contents[path])
        if table.keyed:
            live = Counter({*live} - book.left_behind())
        _require_equal(table, "is live", landed, live)


def _within(landed: Counter[Row], expected: Counter[Row], known: set[Row]) -> Counter[Row]:
    """A side table may be ahead of the anchor, or hold what the anchor had to skip: real records, each once."""
    return Counter({r: n for r, n in landed.items() if r in expected or r not in known or n > 1})


def _require_equal(table: DistantTable, verb: str, expected: Counter[Row], found: Counter[Row]) -> None:
    if expected != found:
        missing, surplus = sorted((expected - found).elements()), sorted((found - expected).elements())
        raise Broken(f"A: of what {verb} in {table.name}, missing {missing[:10]}, too much {surplus[:10]}")


def require_counts(world: World, anchor: Book) -> None:
    """A: each epoch's account is true: delivered = landed + filtered + dead."""
    for snapshot, register, record in anchor.commits:
        kinds = Counter(
            kind
            for (topic, number), r in record.span.ranges.items()
            for row, kind in log_of(world, register.frontier, topic, number).visible(r.start, r.end)
            if row[2] not in _offsets(record.skipped.ranges.get((topic, number)))
        )
        counts = record.counts
        rows = sum(len(world.anchor.contents[path]) for path in snapshot.paths)
        if (counts.delivered, counts.landed, counts.dead) != (kinds.total(), kinds[GOOD], kinds[BAD]):
            raise Broken(f"A: epoch {record.epoch} tells {counts}, but its span has {dict(kinds)}")
        if counts.delivered != counts.landed + counts.filtered + counts.dead or rows != counts.landed:
            raise Broken(f"A: epoch {record.epoch} tells {counts}, but its files have {rows} rows")


def _offsets(r: Range | None) -> range:
    """A span that was carried on past lost records covers them too; nobody counts them."""
    return range(0) if r is None else range(r.start, r.end)


def require_files(table: DistantTable) -> None:
    """B: no path is referenced twice, and none that ever was is deleted by a coordinator."""
    paths = Counter(path for snapshot in table.ledger for path in snapshot.paths)
    if twice := sorted(path for path, times in paths.items() if times > 1):
        raise Broken(f"B: {table.name} references {twice} more than once")
    if gone := sorted(path for path in table.deleted if path in paths):
        raise Broken(f"B: {table.name} references {gone}, which a coordinator deleted")


def require_order(world: World, book: Book) -> None:
    """C: the generation never goes back, and the frontier only as far as a rollback did and the user wanted;
    one snapshot an epoch, spans without gaps or overlaps."""
    here, generation, epoch = book.commits[0][1].frontier if book.commits else Frontier(), 0, -1
    for number, (snapshot, register, record) in enumerate(book.commits):
        name = f"{book.table.name}, snapshot {snapshot.id}"
        if book.is_amends(number):
            if record.action != "start" or book.choice(register) is None:
                raise Broken(f"C: {name} is on top of a rollback, and nobody asked for that")
            if book.choice(register) is OnRollback.REWIND:
                world.count("rewinds")
                here = book.back(number)
            else:
                world.count("frontiers kept")
        if record.action == "start":
            if register.generation <= generation:
                raise Broken(f"C: {name} starts generation {register.generation} after {generation}")
            if offsets(register.frontier) != offsets(here) or (epoch >= 0 and register.epoch != epoch):
                raise Broken(f"C: {name} starts at {register.frontier.encode()} instead of {here.encode()}")
            generation, epoch = register.generation, register.epoch
            continue
        if register.generation != generation:
            raise Broken(f"C: {name} is of generation {register.generation}, but {generation} has begun")
        if register.epoch <= epoch:
            raise Broken(f"C: {name} is epoch {register.epoch} after {epoch}")
        covered = record.span.with_skipped(record.skipped).ranges
        for partition, r in covered.items():
            if r.start != (here.offset(partition) or 0) and not _is_new_to_side(world, book, here, partition):
                raise Broken(f"C: {name} covers {partition} from {r.start}, but {here.offset(partition)} is next")
        _require_lost(world, name, register, record.skipped)
        expected = offsets(here) | {partition: r.end for partition, r in covered.items()}
        if offsets(register.frontier) != expected:
            raise Broken(f"C: {name} leaves {register.frontier.encode()}, but covers up to {expected}")
        here, epoch = register.frontier, register.epoch


def _is_new_to_side(world: World, book: Book, here: Frontier, partition: Partition) -> bool:
    """A side table hears of a partition with its first dead letter; where that may begin, its rows tell."""
    return book.table is world.dead and here.offset(partition) is None


def _require_lost(world: World, name: str, register: Register, skipped: Span) -> None:
    for (topic, number), r in skipped.ranges.items():
        if r.end > log_of(world, register.frontier, topic, number).start:
            raise Broken(f"D: {name} skips {topic}[{number}] {r}, which the brokers still have")


def require_reached(world: World) -> None:
    """D: a coordinator that ends without an error has brought everything in, up to the end of every log."""
    frontier = frontier_of(world.anchor)
    for (topic, number), log in world.broker.logs.items():
        reached = frontier.offset((topic, number))
        nothing_left = log.start == log.end and (reached is None or world.settings.allows_loss)
        if frontier.topic_ids.get(topic, log.topic_id) != log.topic_id:
            raise Broken(f"D: {topic} was recreated, and nobody noticed")
        if reached != log.end and not nothing_left:
            raise Broken(f"D: {topic}[{number}] was left at {reached}, it ends at {log.end}")


def require_explained(world: World, process: Process, *, is_last: bool) -> None:
    """D: whoever stopped had a reason that is true; the last one met no fault, so only what lasts counts."""
    error = process.error
    if error is None:
        return
    world.count(f"stopped with {type(error).__name__}")
    impatient = process.hurt >= PATIENCE.attempts
    causes: dict[type[FrazilError], object] = {
        Fenced: _others_claimed(world, process),
        CommitConflict: impatient,
        CommitOutcomeUnknown: impatient,
        CatalogUnavailable: impatient,
        SourceUnavailable: process.hurt > 0,
        MaxRetriesExceeded: impatient,
        TableChanged: world.was_lied_to or TABLE_DISASTERS & world.disasters,
        DataLoss: "loss of records" in world.disasters or world.counts["rewinds"],
        SourceChanged: {"recreation of a topic", "truncation of a log"} & world.disasters,
    }
    lasting: dict[type[FrazilError], object] = {
        TableChanged: world.ended_rolled_back or _anchor_recreated(world),
        DataLoss: _is_behind_retention(world),
        SourceChanged: _is_another_source(world),
    }
    if not (lasting if is_last else causes).get(type(error), False):
        raise Broken(f"D: {process.name} stopped with {type(error).__name__} without a cause: {error.message}")
    if not error.remedy and isinstance(error, TableChanged | DataLoss | SourceChanged | Fenced):
        raise Broken(f"D: {error.message} names no remedy")


def _others_claimed(world: World, process: Process) -> bool:
    return any(
        snapshot.register is not None and snapshot.register.coordinator != process.name
        for table in world.tables
        for snapshot in table.ledger
    )


def _anchor_recreated(world: World) -> bool:
    return "recreation of the anchor" in world.disasters and world.dead is not None


def _is_behind_retention(world: World) -> bool:
    frontier = frontier_of(world.anchor)
    return any(log.start > (frontier.offset(p) or 0) for p, log in world.broker.logs.items())


def _is_another_source(world: World) -> bool:
    frontier = frontier_of(world.anchor)
    return any(
        frontier.topic_ids.get(p[0], log.topic_id) != log.topic_id or log.end < (frontier.offset(p) or 0)
        for p, log in world.broker.logs.items()
    )


def frontier_of(table: DistantTable) -> Frontier:
    """Where our last commit left off, of all that ever landed."""
    return next((s.register.frontier for s in reversed(table.ledger) if s.register is not None), Frontier())


def log_of(world: World, frontier: Frontier, topic: str, number: int) -> Partitioned:
    """The log that a frontier speaks of, whatever has become of its topic."""
    return world.broker.everything[frontier.topic_ids[topic], number]


def visible(world: World, start: Frontier, end: Frontier, kind: str) -> Iterator[Row]:
    for (topic, number), at in end.positions.items():
        log = log_of(world, end, topic, number)
        for row, found in log.visible(start.offset((topic, number)) or 0, at.offset):
            if found is kind:
                yield row


def offsets(frontier: Frontier) -> dict[Partition, int]:
    return {partition: at.offset for partition, at in frontier.positions.items()}
