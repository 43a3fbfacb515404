"""A table in memory that fails on demand.

It keeps the promises of a catalog, one atomic compare-and-set, and breaks the ones that networks break: replies
get lost, commits are refused, or land long after everybody has given up on them. Proofs of the protocol run on
it, and so can a user's own tests.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from frazil.errors import CatalogUnavailable
from frazil.protocol.commit import Proceed, Proposal, Standing, TableObserved, judge
from frazil.protocol.register import Register
from frazil.protocol.summary import PREFIX, CommitRecord, read_sign
from frazil.table.files import WrittenFile


class Fault(Enum):
    """What happens to one commit."""

    NONE = "it works"
    REFUSED = "it fails and does not land"
    REPLY_LOST = "it lands, but an error is reported"
    DELAYED = "an error is reported, and it is tried again when `release` is called"
    ACKNOWLEDGED_ONLY = "success is reported, but nothing lands"


@dataclass(frozen=True)
class _Snapshot:
    id: int
    parent: int | None
    timestamp_ms: int
    summary: Mapping[str, str]
    paths: tuple[str, ...]


@dataclass(frozen=True)
class _State:
    snapshots: Mapping[int, _Snapshot] = field(default_factory=dict)
    head: int | None = None
    sequence_number: int = 0
    registers: Mapping[str, str] = field(default_factory=dict)
    """as text, as a real table keeps them: what does not survive encoding is lost here too"""


class MemoryTable:
    """Implements `Table`; `faults` are used up one a commit, `silences` one an observation."""

    def __init__(self, name: str = "memory.table", now_ms: Callable[[], int] = lambda: 0) -> None:
        self._name = name
        self._uuid = str(uuid.uuid4())
        self._now_ms = now_ms
        self._state = _State()
        self._delayed: list[tuple[Proposal, tuple[WrittenFile, ...]]] = []
        self.faults: deque[Fault] = deque()
        self.silences = 0
        self.deleted: set[str] = set()

    @property
    def name(self) -> str:
        return self._name

    def observe(self, writer: str) -> TableObserved:
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
                self._delayed.append((proposal, tuple(files)))
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

    def history(self, writer: str) -> list[CommitRecord]:
        return [
            CommitRecord.parse(s.id, s.timestamp_ms, s.summary)
            for s in self._lineage()
            if s.summary.get(PREFIX + "writer") == writer
        ]

    @property
    def live_paths(self) -> list[str]:
        """Every path the head references, as often as it does."""
        return [path for snapshot in self._lineage() for path in snapshot.paths]

    def release(self) -> int:
        """Lets delayed commits go on, as a stuck server would; returns how many landed."""
        delayed, self._delayed = self._delayed, []
        landed = 0
        for proposal, files in delayed:
            if isinstance(judge(self._observed(self._state, proposal.writer), proposal), Proceed):
                self._land(proposal, files)
                landed += 1
        return landed

    def append_foreign(self, path: str) -> None:
        """Somebody else commits."""
        self._push({}, (path,))

    def compact(self) -> None:
        """Replaces all live files by one, in a snapshot that is not ours, and forgets the history."""
        self._push({"operation": "replace"}, (f"compacted-{self._state.sequence_number + 1}",))
        self.expire()

    def expire(self) -> None:
        """Forgets every snapshot but the head; its files stay live."""
        state = self._state
        if state.head is None:
            return
        head = replace(state.snapshots[state.head], paths=tuple(self.live_paths))
        self._state = replace(state, snapshots={head.id: head})

    def roll_back(self, snapshots: int) -> None:
        """Takes the head back; registers stay, as table properties do."""
        head = self._state.head
        for _ in range(snapshots):
            head = None if head is None else self._state.snapshots[head].parent
        self._state = replace(self._state, head=head)

    def recreate(self) -> None:
        """Drops the table and creates it again under the same name."""
        self._uuid = str(uuid.uuid4())
        self._state = _State()

    def _observed(self, state: _State, writer: str) -> TableObserved:
        text = state.registers.get(writer)
        register = None if text is None else Register.decode(text)
        carrier = None if register is None else state.snapshots.get(register.snapshot_id or -1)
        return TableObserved(
            table=self._name,
            uuid=self._uuid,
            snapshot_id=state.head,
            register=register,
            has_rows=bool(self.live_paths),
            standing=Standing.ANCESTOR if register is None else self._standing(state, register),
            sign=None if carrier is None else read_sign(carrier.timestamp_ms, carrier.summary.get),
        )

    def _standing(self, state: _State, register: Register) -> Standing:
        lineage = self._lineage()
        if any(s.id == register.snapshot_id for s in lineage):
            return Standing.ANCESTOR
        if register.snapshot_id in state.snapshots or not lineage or lineage[0].parent is None:
            return Standing.ROLLED_BACK
        if lineage[-1].id < register.sequence_number:
            return Standing.ROLLED_BACK
        return Standing.EXPIRED

    def _land(self, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        verdict = judge(self._observed(self._state, proposal.writer), proposal)
        if not isinstance(verdict, Proceed):
            raise RuntimeError(f"refused inside the commit: {verdict}")
        register = proposal.register.at(self._state.sequence_number + 1, self._state.sequence_number + 1)
        self._push(proposal.summary, tuple(file.path for file in files))
        registers = {**self._state.registers, proposal.writer: register.encode()}
        self._state = replace(self._state, registers=registers)
        return register

    def _push(self, summary: Mapping[str, str], paths: tuple[str, ...]) -> None:
        state = self._state
        number = state.sequence_number + 1
        replaced = summary.get("operation") == "replace"
        snapshots = {k: replace(s, paths=()) if replaced else s for k, s in state.snapshots.items()}
        snapshots[number] = _Snapshot(number, state.head, self._now_ms(), dict(summary), paths)
        self._state = replace(state, snapshots=snapshots, head=number, sequence_number=number)

    def _lineage(self) -> list[_Snapshot]:
        """The head and its ancestors, oldest first."""
        found, at = [], self._state.head
        while at is not None and at in self._state.snapshots:
            found.append(self._state.snapshots[at])
            at = self._state.snapshots[at].parent
        return found[::-1]
