"""What a pipeline wants a table to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.schema import Schema

from frazil.table.evolve import Evolution, plan_evolution


@dataclass(frozen=True)
class TableWish:
    """The table a pipeline wants: created like this if it is missing, checked against this if it is there."""

    name: str
    schema: Schema
    partition: Sequence[str] = ()
    sort: Sequence[str] = ()
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ()
    """the columns that name a row, or * for all; none for a table that rows are only appended to"""
    evolves: bool = False
    """whether a table that is there is given columns that it lacks"""

    def evolution(self, actual: Schema) -> Evolution:
        """What a table of these columns is given; nothing without the wish."""
        return plan_evolution(self.schema, actual) if self.evolves else Evolution()
