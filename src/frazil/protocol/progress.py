"""The three frontiers of a running pipeline, none of which ever goes back.

`received` is how far the source has been seen to reach, `planned` where the newest epoch ends, and `committed`
what the table holds: committed ≤ planned ≤ received. Only `committed` is durable; it is the one that others
may rely on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from frazil.errors import InvalidState
from frazil.protocol.positions import Frontier


@dataclass(slots=True)
class Progress:
    """Moves forward only; `replan` alone takes `planned` back, to what is committed."""

    received: Frontier = field(default_factory=Frontier)
    planned: Frontier = field(default_factory=Frontier)
    committed: Frontier = field(default_factory=Frontier)

    def receive(self, frontier: Frontier) -> None:
        self.received = _forward("received", self.received, frontier)

    def plan(self, frontier: Frontier) -> None:
        self.planned = _forward("planned", self.planned, frontier)

    def commit(self, frontier: Frontier) -> None:
        self.committed = _forward("committed", self.committed, frontier)

    def replan(self, committed: Frontier) -> None:
        """Epochs in flight were dropped; what comes next is planned from the table again."""
        self.planned = committed


def _forward(name: str, before: Frontier, after: Frontier) -> Frontier:
    if not after.covers(before):
        raise InvalidState(
            f"the {name} frontier would go back", actual=str(after.encode()), expected=str(before.encode())
        )
    return after
