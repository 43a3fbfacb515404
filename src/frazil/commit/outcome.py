"""What goes into a commit of an epoch, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from frazil.errors import InvalidState
from frazil.protocol.commit import Lookup
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Partition, Span
from frazil.protocol.register import Epoch, Generation, Register
from frazil.protocol.summary import Action, Counts
from frazil.table import WrittenFile


@dataclass(frozen=True)
class EpochOutcome:
    """What writing one epoch came to."""

    epoch: Epoch
    span: Span
    counts: Counts
    files: Mapping[str, Sequence[WrittenFile]]
    """by table name"""
    skipped: Span = EMPTY_SPAN
    leader_epochs: Mapping[Partition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[Partition, str] = field(default_factory=dict)
    lows: Mapping[Partition, int] = field(default_factory=dict)
    """where changes wait that are later than `resolved`"""
    resolved: str | None = None
    """of a change feed: up to which time the epoch completes the main table"""
    started_ms: int = 0
    replaces: bool = False
    """whether the main table's rows so far are gone, because the source emptied its table"""
    lookup: Lookup | None = None
    """where the main table's rows were found that are deleted by their places"""

    @property
    def all_files(self) -> list[WrittenFile]:
        return [file for files in self.files.values() for file in files]

    @property
    def is_empty(self) -> bool:
        return not any(self.files.values()) and not self.skipped and not self.replaces


@dataclass(frozen=True)
class Started:
    """Where the pipeline goes on."""

    generation: Generation
    epoch: Epoch
    frontier: Frontier
    floors: Mapping[str, Frontier]
    """per side table, the position from which on it takes rows"""


@dataclass(frozen=True)
class Landed:
    """An epoch that is in the table."""

    epoch: Epoch
    register: Register
    counts: Counts
    files: int
    commit_ms: int


def action_of(files: Sequence[WrittenFile], *, replaces: bool) -> Action:
    """What a commit of these files does to the table."""
    if replaces or any(file.overwrites for file in files):
        return "overwrite"
    if not files:
        return "heartbeat"
    if any(file.is_staged for file in files):
        return "merge"
    return "row-delta" if any(file.is_delete for file in files) else "append"


def unique_files(files: Sequence[WrittenFile]) -> list[WrittenFile]:
    """A file reported twice counts once; one path with two contents is an error, but for parts of one file."""
    unique: dict[tuple[str, int | None], WrittenFile] = {}
    for file in files:
        known = unique.setdefault((file.path, file.content_offset), file)
        if known.file_hash != file.file_hash:
            raise InvalidState(
                f"{file.path} was reported twice, with different contents",
                actual=file.file_hash,
                expected=known.file_hash,
            )
    return list(unique.values())
