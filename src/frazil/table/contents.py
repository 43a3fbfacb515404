"""What a table holds, for those who only look: its snapshots, and every file that its head references."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from frazil.protocol.verify import TableSeen

DATA_FILE = "data file"


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """A file that somebody counts on."""

    kind: str
    path: str
    size: int | None = None
    """as recorded, where it is"""
    rows: int = 0
    added_by: Sequence[int] = ()
    """the snapshots that added it, in order: one, unless it is live twice"""

    @property
    def is_data(self) -> bool:
        return self.kind == DATA_FILE

    @property
    def is_live_twice(self) -> bool:
        return len(self.added_by) > 1


class Contents(Protocol):
    """One load of one table: everything is of that load, whatever others commit meanwhile."""

    @property
    def columns(self) -> list[str]: ...

    @property
    def identifier_fields(self) -> list[str]:
        """The columns that the table itself says to name a row; none if it says nothing of it."""
        ...

    @property
    def snapshot_id(self) -> int | None:
        """The head."""
        ...

    @property
    def relation(self) -> str:
        """The head's rows, as Spark SQL names them behind FROM."""
        ...

    def seen(self, writer: str) -> TableSeen | None:
        """What it says of `writer`; None if it does not know it."""
        ...

    def manifest_list(self) -> ReferencedFile | None:
        """The one file that leads to all others; None if there are none, or no such file."""
        ...

    def manifests(self) -> list[ReferencedFile]:
        """The files that name data and delete files."""
        ...

    def count_files(self) -> int:
        """How many data and delete files there are, or nearly."""
        ...

    def files(self) -> Iterator[ReferencedFile]:
        """Every live data and delete file, one after another."""
        ...

    def size_of(self, path: str) -> int | None:
        """How large a file is; None if it does not exist. May be called from several threads."""
        ...
