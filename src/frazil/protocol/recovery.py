"""Recovery: what a crash left behind, told from the journal and checked against the tables.

Theory. Where to go on stands in the table, and only there. What the table cannot tell are the files of epochs
that never landed: nobody references them. The journal names each epoch before its first file is written, and
all of its files carry its token, so they can be found without guessing by age.

A file is deleted only if all of this holds:

    its epoch began under this journal and neither landed nor was cleaned up     the journal
    or it landed, and the file is of a task attempt that Spark gave up           the journal, and the name
    its name carries that epoch's token, under this writer and epoch             the name
    its table is the one the epoch was written for                               uuid
    a later start commit of ours is in that table: the epoch can never land      the caller, `after the start`
    no snapshot that the table still lists references it                         the table

What a lost or damaged journal does:

    lost before            the consequence
    EpochBegun             its orphans stay until the table's own orphan removal finds them
    EpochLanded            its files are looked for, found referenced, and kept
    OrphansDeleted         they are looked for once more, and are not there
    EpochLanded's winners  files of attempts that Spark gave up stay likewise
    everything             nothing is cleaned up; not a row is lost or doubled
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from frazil.protocol.entries import (
    Checkpoint,
    Entry,
    EpochBegun,
    EpochCarried,
    EpochLanded,
    FileNoted,
    FilesWritten,
    OrphansDeleted,
    Started,
)
from frazil.protocol.positions import Frontier

INCOMPLETE_MAX = 1_000
"""More than this are not remembered: a fault every few seconds must not make checkpoints without end."""

_NAME = re.compile(r".*-(?P<token>[0-9a-f]{12})-(?P<attempt>[0-9a-f]{12})-\d{5,}\.[a-z]+")


class OrphanKind(StrEnum):
    """What a file that nobody references once was (REC-15)."""

    DATA_FILE = "data file"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest list"
    STATISTICS = "statistics"
    UNKNOWN = "unknown"


_KINDS = [
    (_NAME, OrphanKind.DATA_FILE),
    (re.compile(r"snap-.*\.avro"), OrphanKind.MANIFEST_LIST),
    (re.compile(r".*-m\d+\.avro"), OrphanKind.MANIFEST),
    (re.compile(r"partition-stats-.*|.*\.(stats|puffin)"), OrphanKind.STATISTICS),
]


def orphan_kind(path: str) -> OrphanKind:
    """By its name, as frazil and Iceberg give names."""
    name = path.rpartition("/")[2]
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(name)), OrphanKind.UNKNOWN)


def attempt_of(path: str) -> str | None:
    """The task attempt that wrote a file, by its name."""
    found = _NAME.fullmatch(path.rpartition("/")[2])
    return found["attempt"] if found is not None else None


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """What the journal's entries come to (REC-14)."""

    frontier: Frontier = field(default_factory=Frontier)
    """the last one that was noted; the table's may be further"""
    snapshots: Mapping[str, int] = field(default_factory=dict)
    """the last one that was noted, by table"""
    incomplete: Mapping[str, EpochBegun] = field(default_factory=dict)
    """by token: epochs that began and neither landed nor were cleaned up, and landed ones with winners"""
    written: Mapping[str, tuple[FileNoted, ...]] = field(default_factory=dict)
    """by token: files of incomplete epochs that were noted since the last checkpoint"""
    schemas: Mapping[str, int] = field(default_factory=dict)
    """by the table's uuid: the schema that the last epoch was written for"""
    committed_files: int = 0
    entries: int = 0
    checkpoints: int = 0

    def after(self, entry: Entry) -> RecoveryState:
        """The state with one more entry."""
        state = replace(self, entries=self.entries + 1)
        match entry:
            case Started(frontier=frontier):
                return replace(state, frontier=frontier)
            case EpochBegun(token=token):
                incomplete = {**self.incomplete, token: entry}
                for oldest in list(incomplete)[:-INCOMPLETE_MAX]:
                    del incomplete[oldest]
                known = {each.uuid: each.schema_id for each in entry.tables if each.schema_id is not None}
                return replace(state, incomplete=incomplete, schemas={**self.schemas, **known})
            case FilesWritten(token=token, files=files):
                written = {**self.written, token: self.written.get(token, ()) + files}
                return replace(state, written=written)
            case EpochLanded(token=token, winners=winners):
                begun = self.incomplete.get(token)
                kept = {token: replace(begun, winners=winners)} if begun is not None and winners else {}
                rest = state._without([token])
                return replace(
                    rest,
                    incomplete={**rest.incomplete, **kept},
                    frontier=entry.frontier,
                    snapshots={**self.snapshots, **entry.snapshots},
                    committed_files=self.committed_files + entry.files,
                )
            case EpochCarried(token=token):
                return state._without([token])
            case OrphansDeleted(tokens=tokens):
                return state._without(tokens)
            case Checkpoint():
                return replace(
                    state,
                    frontier=entry.frontier,
                    snapshots=entry.snapshots,
                    incomplete={begun.token: begun for begun in entry.incomplete},
                    written={},
                    schemas=entry.schemas,
                    committed_files=entry.committed_files,
                    entries=entry.entries,
                    checkpoints=entry.number,
                )
            case _:
                return state

    def checkpoint(self, since_last: int) -> Checkpoint:
        """An entry that stands for all before it."""
        return Checkpoint(
            number=self.checkpoints + 1,
            entries=self.entries + 1,
            since_last=since_last,
            committed_files=self.committed_files,
            frontier=self.frontier,
            snapshots=self.snapshots,
            incomplete=tuple(self.incomplete.values()),
            schemas=self.schemas,
        )

    def _without(self, tokens: Iterable[str]) -> RecoveryState:
        gone = set(tokens)
        return replace(
            self,
            incomplete={token: begun for token, begun in self.incomplete.items() if token not in gone},
            written={token: files for token, files in self.written.items() if token not in gone},
        )


def replay(entries: Iterable[Entry]) -> RecoveryState:
    state = RecoveryState()
    for entry in entries:
        state = state.after(entry)
    return state


@dataclass(frozen=True, slots=True)
class Search:
    """Where to look for what is left of incomplete epochs."""

    table: str
    location: str
    epochs: Mapping[str, int]
    """by token, the epoch whose files carry it"""
    winners: Mapping[str, tuple[str, ...]]
    """by token, attempts whose files landed: they are not looked for"""
    sequence_number: int
    """no snapshot up to this one can reference any of them, where the table counts them"""

    def finds(self, path: str, writer: str) -> bool:
        """Whether a file's name says that it is of one of these epochs; `writer` as it stands in names."""
        name = path.rpartition("/")[2]
        found = _NAME.fullmatch(name)
        if found is None or found["attempt"] in self.winners.get(found["token"], ()):
            return False
        return name.startswith(f"{writer}-e{self.epochs.get(found['token'])}-t")


def plan_search(state: RecoveryState, uuids: Mapping[str, str]) -> list[Search]:
    """One search for each folder that may hold orphans; `uuids` are those of the pipeline's tables now."""
    places: dict[tuple[str, str], list[tuple[EpochBegun, int]]] = {}
    for begun in state.incomplete.values():
        for touched in begun.tables:
            if uuids.get(touched.table) == touched.uuid:
                places.setdefault((touched.table, touched.location), []).append((begun, touched.sequence_number))
    return [
        Search(
            table=table,
            location=location,
            epochs={begun.token: begun.epoch for begun, _ in some},
            winners={begun.token: begun.winners for begun, _ in some},
            sequence_number=min(number for _, number in some),
        )
        for (table, location), some in places.items()
    ]


def orphans(candidates: Sequence[str], referenced: Iterable[str]) -> list[str]:
    """What may be deleted of the files that a search found."""
    live = set(referenced)
    return sorted(path for path in candidates if path not in live)
