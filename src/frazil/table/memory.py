"""A table in memory that fails on demand.

It keeps the promises of a catalog, one atomic compare-and-set, and breaks the ones that networks break: replies
get lost, commits are refused, or land long after everybody has given up on them. Proofs of the protocol run on
it, and so can a user's own tests.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum

from frazil.errors import CatalogUnavailable
from frazil.protocol.commit import Held, Proposal, Standing, TableObserved
from frazil.protocol.layout import Former, Layout
from frazil.protocol.register import Register
from frazil.protocol.summary import PREFIX, CommitRecord, Kin, read_held, read_sign
from frazil.table.files import WrittenFile
from frazil.table.refusal import CommitRefused, require_proceed


class Fault(Enum):
    """What happens to one commit."""

    NONE = "it works"
    REFUSED = "it fails and does not land"
    REPLY_LOST = "it lands, but an error is reported"
    DELAYED = "an error is reported, and it is tried again when `release` is called"
    ACKNOWLEDGED_ONLY = "success is reported, but nothing lands"


@dataclass(frozen=True)
class Snapshot:
    """One commit of anybody's; `register` is what it left behind, if it is one of ours."""

    id: int
    parent: int | None
    timestamp_ms: int
    summary: Mapping[str, str]
    paths: tuple[str, ...]
    register: Register | None = None


@dataclass(frozen=True)
class _State:
    snapshots: Mapping[int, Snapshot] = field(default_factory=dict)
    head: int | None = None
    sequence_number: int = 0
    registers: Mapping[str, str] = field(default_factory=dict)
    """as text, as a real table keeps them: what does not survive encoding is lost here too"""
    layout: Layout = field(default_factory=Layout)
    formers: frozenset[Former] = frozenset()

    def lineage(self) -> list[Snapshot]:
        """The head and its ancestors, oldest first."""
        return self.line(self.head)

    def line(self, at: int | None) -> list[Snapshot]:
        """A snapshot and its ancestors, oldest first, as far as they are listed."""
        found = []
        while at is not None and at in self.snapshots:
            found.append(self.snapshots[at])
            at = self.snapshots[at].parent
        return found[::-1]


class MemoryTable:
    """Implements `Table`; `faults` are used up one a commit, `silences` one an observation."""

    def __init__(self, name: str = "memory.table", now_ms: Callable[[], int] = lambda: 0) -> None:
        self._name = name
        self._uuid = str(uuid.uuid4())
        self._now_ms = now_ms
        self._state = _State()
        self.faults: deque[Fault] = deque()
        self.silences = 0
        self.delayed: list[tuple[Proposal, tuple[WrittenFile, ...]]] = []
        """commits that `release` lets go on, in this order"""
        self.before_swap: Callable[[], object] = lambda: None
        """called in every commit after it was judged: what changes the table here makes the swap fail"""
        self.stored: set[str] = set()
        """files that `find_files` can find until they are deleted"""
        self.deleted: set[str] = set()
        self.ledger: list[Snapshot] = []
        """every snapshot since the table was created, for proofs: neither expiry nor rollback shortens it"""

    @property
    def name(self) -> str:
        return self._name

    def observe(self, writer: str, proposal: Proposal | None = None) -> TableObserved:
        if self.silences > 0:
            self.silences -= 1
            raise CatalogUnavailable(f"{self._name} gave no answer")
        return self._observed(self._state, writer)

    def commit(self, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        fault = self.faults.popleft() if self.faults else Fault.NONE
        match fault:
            case Fault.REFUSED:
                raise ConnectionError("refused")
            case Fault.DELAYED:
                self.delayed.append((proposal, tuple(files)))
                raise TimeoutError("no answer")
            case Fault.ACKNOWLEDGED_ONLY:
                return proposal.register.at(-1, self._state.sequence_number + 1)
            case Fault.REPLY_LOST:
                self._land(proposal, files)
                raise ConnectionError("reply lost")
            case Fault.NONE:
                return self._land(proposal, files)

    def check_head(self) -> None:
        """Always readable: nothing here is ever cleaned up behind the table's back."""

    def delete_files(self, paths: Sequence[str]) -> None:
        self.deleted.update(paths)

    def find_files(self, location: str, wanted: Callable[[str], bool]) -> list[str]:
        below = [path for path in self.stored - self.deleted if path.startswith(f"{location}/")]
        return sorted(filter(wanted, below))

    def referenced(self, paths: Sequence[str], after: int) -> set[str]:
        later = [snapshot for snapshot in self._state.snapshots.values() if snapshot.id > after]
        return {path for snapshot in later for path in snapshot.paths} & set(paths)

    def history(self, writer: str) -> list[CommitRecord]:
        return [
            CommitRecord.parse(s.id, s.timestamp_ms, s.summary)
            for s in self._state.lineage()
            if s.summary.get(PREFIX + "writer") == writer
        ]

    @property
    def live_paths(self) -> list[str]:
        """Every path the head references, as often as it does."""
        return [path for snapshot in self._state.lineage() for path in snapshot.paths]

    def release(self) -> int:
        """Lets delayed commits go on, as a stuck server would; returns how many landed."""
        delayed, self.delayed = self.delayed, []
        landed = 0
        for proposal, files in delayed:
            with suppress(CommitRefused):
                self._land(proposal, files)
                landed += 1
        return landed

    def append_foreign(self, path: str) -> None:
        """Somebody else commits."""
        self._push({}, (path,))

    def compact(self) -> None:
        """Replaces all live files by one, in a snapshot that is not ours, and forgets the history."""
        compacted = (f"compacted-{self._state.sequence_number + 1}",)
        self._push({"operation": "replace"}, compacted, replaces=True)
        self.expire()

    def expire(self) -> None:
        """Forgets every snapshot but the head; its files stay live."""
        state = self._state
        if state.head is None:
            return
        head = replace(state.snapshots[state.head], paths=tuple(self.live_paths))
        self._state = replace(state, snapshots={head.id: head})

    def roll_back(self, snapshots: int) -> None:
        """Takes the head back, to nothing if history is shorter; registers stay, as table properties do."""
        lineage = [None, *(snapshot.id for snapshot in self._state.lineage())]
        self.set_head(lineage[max(0, len(lineage) - 1 - snapshots)])

    def set_head(self, snapshot_id: int | None) -> None:
        """Makes a snapshot that is still listed the current one."""
        self._state = replace(self._state, head=snapshot_id)

    def alter(self, layout: Layout, misfit: str = "", changed: frozenset[int] = frozenset()) -> None:
        """Gives the table another schema, partition spec or sort order.

        `misfit` says why files of earlier ones cannot be read any more, `changed` which of their columns changed.
        """
        state = self._state
        formers = {
            Former(each.layout, each.misfit or misfit, each.changed | changed)
            for each in state.formers | {Former(state.layout)}
            if each.layout != layout
        }
        self._state = replace(state, layout=layout, formers=frozenset(formers))

    def forget_formers(self) -> None:
        """Expires the schemas and partition specs that the table had before."""
        self._state = replace(self._state, formers=frozenset())

    def recreate(self) -> None:
        """Drops the table and creates it again under the same name."""
        self._uuid = str(uuid.uuid4())
        self._state = _State()
        self.ledger = []

    def _observed(self, state: _State, writer: str) -> TableObserved:
        text = state.registers.get(writer)
        register = None if text is None else Register.decode(text)
        carrier = None if register is None else state.snapshots.get(register.snapshot_id or -1)
        lineage = state.lineage()
        standing = Standing.ANCESTOR if register is None else _standing(state, lineage, register)
        return TableObserved(
            table=self._name,
            uuid=self._uuid,
            snapshot_id=state.head,
            register=register,
            has_rows=any(snapshot.paths for snapshot in lineage),
            standing=standing,
            sign=None if carrier is None else read_sign(carrier.timestamp_ms, carrier.summary.get),
            layout=state.layout,
            formers=state.formers,
            other_writers=() if register is not None else tuple(sorted(state.registers)),
            held=_held(state, writer, register) if standing is Standing.ROLLED_BACK else None,
        )

    def _land(self, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        """Judges on one state of the table and swaps that very state for the next one, or nothing."""
        base = self._state
        require_proceed(self._observed(base, proposal.writer), proposal)
        self.before_swap()
        if self._state is not base:
            raise CommitRefused(f"{self._name} has changed since this commit was judged")
        number = base.sequence_number + 1
        register = proposal.register.at(number, number)
        if proposal.replaces:
            files = [file for file in files if file.is_data]
        self._push(proposal.summary, tuple(file.path for file in files), register, replaces=proposal.replaces)
        registers = {**self._state.registers, proposal.writer: register.encode()}
        self._state = replace(self._state, registers=registers)
        return register

    def _push(
        self,
        summary: Mapping[str, str],
        paths: tuple[str, ...],
        register: Register | None = None,
        *,
        replaces: bool = False,
    ) -> None:
        state = self._state
        number = state.sequence_number + 1
        snapshots = {k: replace(s, paths=()) if replaces else s for k, s in state.snapshots.items()}
        snapshots[number] = Snapshot(number, state.head, self._now_ms(), dict(summary), paths, register)
        self.ledger.append(snapshots[number])
        self._state = replace(state, snapshots=snapshots, head=number, sequence_number=number)


def _held(state: _State, writer: str, register: Register | None) -> Held:
    lines = [state.lineage(), state.line(register.snapshot_id if register else None)]
    head, before = [[Kin(s.id, s.parent, s.summary.get) for s in reversed(line)] for line in lines]
    return read_held(writer, head, before)


def _standing(state: _State, lineage: Sequence[Snapshot], register: Register) -> Standing:
    if any(s.id == register.snapshot_id for s in lineage):
        return Standing.ANCESTOR
    if register.snapshot_id in state.snapshots or not lineage or lineage[0].parent is None:
        return Standing.ROLLED_BACK
    if lineage[-1].id < register.sequence_number:
        return Standing.ROLLED_BACK
    return Standing.EXPIRED
