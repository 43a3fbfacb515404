"""Tables: where epochs become snapshots.

`Table` is the port the coordinator commits through. Adapters observe and perform one attempt at a time; whether
to try again, and what an error means, is decided by the protocol. `LakeTable` is what the engine needs of one
beyond that, `Lakehouse` is where it finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from frazil.protocol.commit import Proposal, TableObserved
from frazil.protocol.register import Register
from frazil.protocol.summary import CommitRecord
from frazil.table.files import WriteTarget, WrittenFile

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from frazil.pipeline.spec import TableSection
    from frazil.protocol.layout import Layout
    from frazil.table.contents import Contents
    from frazil.table.wish import TableWish

__all__ = ["LakeTable", "Lakehouse", "Table", "WriteTarget", "WrittenFile"]


class Table(Protocol):
    """One table of one pipeline."""

    @property
    def name(self) -> str:
        """Namespace and table, as the user wrote it."""
        ...

    def observe(self, writer: str, proposal: Proposal | None = None) -> TableObserved:
        """Loads the table afresh and tells what it says of `writer`, and of what a proposal was written for."""
        ...

    def commit(self, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        """One attempt at one atomic commit of files and register; returns the register that landed.

        Delete files remove rows of earlier commits only. A proposal that replaces has nothing to delete one by
        one, so delete files are then left out.

        The proposal is judged inside the commit, against the metadata it is based on. Whatever is raised,
        the outcome is unknown until `observe` answers.
        """
        ...

    def check_head(self) -> None:
        """Raises TableDamaged unless the head of the table can be read."""
        ...

    def delete_files(self, paths: Sequence[str]) -> None:
        """Removes files that no snapshot can ever reference."""
        ...

    def find_files(self, location: str, wanted: Callable[[str], bool]) -> list[str]:
        """The files anywhere below a folder whose path is wanted, as the table would reference them."""
        ...

    def referenced(self, paths: Sequence[str], after: int) -> set[str]:
        """Those of the paths that a snapshot references, on whatever branch.

        Snapshots up to sequence number `after` are known not to, and need not be looked at.
        """
        ...

    def history(self, writer: str) -> list[CommitRecord]:
        """The commits of `writer` that the table still remembers, oldest first."""
        ...


class LakeTable(Table, Protocol):
    """A table that pipelines are declared for."""

    layout_seen: Layout | None
    """what it was like when it was last observed, which every commit does"""

    def schema(self) -> Schema:
        """The columns that rows are given for."""
        ...

    def former_schema(self, schema_id: int) -> Schema | None:
        """One of the schemas that the table has had; None if it no longer remembers that one."""
        ...

    def write_target(self, wish: TableSection, *, tells_before: bool = False) -> WriteTarget:
        """What workers must know to write files for the table as it is now.

        `tells_before` says whether changes come with the row as it was before them.
        """
        ...

    def register_of(self, writer: str) -> Register | None:
        """What it says of a writer, and nothing else."""
        ...

    def newest(self) -> int:
        """The number of its newest commit: what is there now has no later one."""
        ...

    def append(self, files: Sequence[WrittenFile], facts: Mapping[str, str], after: int | None = None) -> int:
        """One attempt at one atomic commit of rows alone; returns the snapshot or version.

        Nothing is judged but that the files fit the table, and nothing tells later who landed them: `facts` are
        for people. `after` says that the same files were sent before, when that was the newest commit: they are
        looked for first, because no table may have a file twice. Whatever is raised, the outcome is unknown.
        """
        ...

    def unreferenced_metadata(self) -> list[str]:
        """Metadata files that the table does not know: of commits that failed, or are under way."""
        ...


class Lakehouse(Protocol):
    """Where the tables of a pipeline are found, and created if they are truly missing."""

    address: str
    """for people: which catalog or folder was asked"""

    def find(self, name: str) -> LakeTable | None:
        """The table, or None if there certainly is none; any other answer is an error."""
        ...

    def open(self, wish: TableWish) -> LakeTable:
        """The table as wished: created if missing, otherwise checked."""
        ...

    def fits(self, wish: TableWish) -> bool:
        """Whether the table is there; one that is there and cannot take the pipeline's rows is an error."""
        ...

    def contents(self, name: str) -> Contents | None:
        """One load of a table, for those who only look; None if there is no such table."""
        ...
