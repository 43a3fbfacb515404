"""Judging a proposal inside of its commit."""

from __future__ import annotations

from frazil.protocol.commit import Proceed, Proposal, TableObserved, judge


class CommitRefused(RuntimeError):
    """Raised inside a commit that must not land: the table moved on, or the proposal was judged out of place.

    It has to be an exception: to a validator that returns false Iceberg answers by cleaning up.
    """


def require_proceed(seen: TableObserved, proposal: Proposal) -> None:
    """Refuses a proposal that may not become the next commit of the table as it was just seen."""
    verdict = judge(seen, proposal)
    if not isinstance(verdict, Proceed):
        raise CommitRefused(f"refused inside the commit: {verdict}")
