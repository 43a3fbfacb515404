"""The journal's entries: what a coordinator notes on its own disk about epochs in progress.

The table is the authority. An entry is for people to read, and for a start to know which files a crash left
behind; no entry ever decides where to go on. Each epoch attempt is known by its **token**, which was chosen
before any task began and stands in the name of every file that its tasks write.

    entry            when                                               requirement
    Started          the start commit is in every table                 seek and resume of REC-13
    SchemaChanged    the first epoch for a table whose schema is another    REC-09 SchemaEvolution
    EpochBegun       before the first task of an epoch; on disk first   REC-02 OffsetMarker, REC-03 FlushStart
    FilesWritten     all tasks have reported                            REC-04 ParquetWritten
    EpochLanded      the commit is in every table it has rows for       REC-05 FlushComplete, REC-06, REC-07
    EpochCarried     it had no rows, its span goes on with the next     REC-05
    EpochAbandoned   it was given up; its files are nobody's            REC-24
    OrphansDeleted   what is left of such epochs is gone                REC-13
    Checkpoint       all that the entries before it come to             REC-08, REC-10
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from frazil.protocol.positions import EMPTY_SPAN, Frontier, Span


@dataclass(frozen=True, slots=True)
class TableTouched:
    """A table that an epoch may write files for."""

    table: str
    uuid: str
    location: str
    """the folder that its data files go to"""
    sequence_number: int
    """of the last commit before: whatever the epoch lands has a higher one, where the table counts them"""
    schema_id: int | None = None
    """that the epoch's files are written for"""


@dataclass(frozen=True, slots=True)
class FileNoted:
    """One closed data file."""

    table: str
    path: str
    size: int
    rows: int
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """A coordinator has claimed the tables; no older one can commit any more."""

    generation: int
    coordinator: str
    epoch: int
    frontier: Frontier
    process: str = ""


@dataclass(frozen=True, slots=True)
class SchemaChanged:
    """Somebody altered a table since the epoch before; a renamed field is both removed and added."""

    table: str
    old_schema_id: int
    new_schema_id: int
    fields_added: tuple[str, ...] = ()
    fields_removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """An epoch is about to be written; the table may come to hold any of it, or nothing."""

    epoch: int
    token: str
    batch_id: str
    span: Span
    tables: tuple[TableTouched, ...]
    winners: tuple[str, ...] = ()
    """the task attempts whose files landed, once it has and others may have left files of theirs behind"""


@dataclass(frozen=True, slots=True)
class FilesWritten:
    """Files that no table references yet; many of them take several entries."""

    epoch: int
    token: str
    files: tuple[FileNoted, ...]


@dataclass(frozen=True, slots=True)
class EpochLanded:
    """An epoch is in its tables; a commit of nothing but empty epochs has no token."""

    epoch: int
    token: str
    batch_id: str
    frontier: Frontier
    snapshots: Mapping[str, int]
    """by table"""
    files: int
    span: Span = EMPTY_SPAN
    winners: tuple[str, ...] = ()
    """the task attempts whose files landed, if Spark ran some task more than once; else none"""


@dataclass(frozen=True, slots=True)
class EpochCarried:
    """An epoch without rows: there is nothing of it to land, and nothing to clean up."""

    epoch: int
    token: str


@dataclass(frozen=True, slots=True)
class EpochAbandoned:
    """An epoch is not going to be committed by whoever began it."""

    epoch: int
    token: str
    reason: str


@dataclass(frozen=True, slots=True)
class OrphansDeleted:
    """Epochs of earlier lives are cleaned up: these files were theirs, and no snapshot had them."""

    tokens: tuple[str, ...]
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The sum of all entries before it; replay begins at the last one."""

    number: int
    entries: int
    """since the journal was begun"""
    since_last: int
    committed_files: int
    frontier: Frontier = field(default_factory=Frontier)
    snapshots: Mapping[str, int] = field(default_factory=dict)
    incomplete: tuple[EpochBegun, ...] = ()
    schemas: Mapping[str, int] = field(default_factory=dict)


Entry = (
    Started
    | SchemaChanged
    | EpochBegun
    | FilesWritten
    | EpochLanded
    | EpochCarried
    | EpochAbandoned
    | OrphansDeleted
    | Checkpoint
)
KINDS: tuple[type[Entry], ...] = (
    Started,
    SchemaChanged,
    EpochBegun,
    FilesWritten,
    EpochLanded,
    EpochCarried,
    EpochAbandoned,
    OrphansDeleted,
    Checkpoint,
)
