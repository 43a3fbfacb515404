"""Judging a proposal inside of its commit."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.errors import TableAltered
from frazil.protocol.commit import Proceed, Proposal, TableObserved, judge
from frazil.protocol.layout import Layout
from frazil.table.files import WrittenFile


class CommitRefused(RuntimeError):
    """Raised inside a commit that must not land: the table moved on, or the proposal was judged out of place.

    It has to be an exception: to a validator that returns false Iceberg answers by cleaning up.
    """


def require_proceed(seen: TableObserved, proposal: Proposal) -> None:
    """Refuses a proposal that may not become the next commit of the table as it was just seen."""
    verdict = judge(seen, proposal)
    if not isinstance(verdict, Proceed):
        raise CommitRefused(f"refused inside the commit: {verdict}")


def require_written_for(table: str, layout: Layout, files: Sequence[WrittenFile]) -> None:
    """Refuses files that were written for the table as it was."""
    for file in files:
        if file.layout != layout:
            raise TableAltered(
                f"{table} was altered while files were written: they have {file.layout}, the table has {layout}",
                "write the rows again, for the table as it is now; these files are not committed",
            )
