"""Sources: spans are planned on the driver and read on the workers.

A source observes how far its partitions reach; the protocol decides what to read; a reader, which travels to
the workers, reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from frazil.protocol.plan import SourceObserved
from frazil.protocol.positions import Frontier, Partition, Slice, Span
from frazil.records import Records


@dataclass(frozen=True, slots=True)
class Wants:
    """What the decoder needs besides values; fetching the rest would only cost time."""

    keys: bool = True
    timestamps: bool = True
    headers: bool = False


class Reader(Protocol):
    """Reads slices on a worker; pickled into every task."""

    def read(self, part: Slice) -> Iterator[Records]:
        """Every record of the slice, in offset order, in runs of bounded size."""
        ...


class Source(Protocol):
    """The driver's side of a source."""

    def observe(self) -> SourceObserved:
        """How far every partition reaches right now."""
        ...

    def starting_frontier(self) -> Frontier:
        """Resolves the starting offsets of every partition; asked once in a pipeline's life."""
        ...

    def resume(self, frontier: Frontier) -> None:
        """Told where the tables stand, before anything is planned, and again after every fault."""
        ...

    def marks(self, span: Span) -> Mapping[Partition, str]:
        """What the frontier behind `span` must say besides its offsets, for the next start to find them."""
        ...

    def reader(self, wants: Wants, span: Span) -> Reader:
        """What the workers read the span with."""
        ...

    def acknowledge(self, frontier: Frontier) -> None:
        """Tells monitors how far the table is; nothing depends on it."""
        ...

    def close(self) -> None:
        """Lets go of connections."""
        ...
