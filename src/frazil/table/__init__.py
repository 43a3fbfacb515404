"""Tables: where epochs become snapshots.

`Table` is the port the coordinator commits through. Adapters observe and perform one attempt at a time; whether
to try again, and what an error means, is decided by the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from frazil.protocol.commit import Proposal, TableObserved
from frazil.protocol.register import Register
from frazil.protocol.summary import CommitRecord
from frazil.table.files import WriteTarget, WrittenFile

__all__ = ["Table", "WriteTarget", "WrittenFile"]


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
