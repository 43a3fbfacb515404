"""Layouts: what files are written for, and which files still fit a table that has got another one.

Theory. Anybody may alter a table while an epoch is written. Iceberg knows columns by id and lets every file name
its partition spec, so that files of an earlier layout are at home in an altered table: it has older ones anyway.
With `split` the alteration falls between two commits: what was written before it lands as it is, what is planned
after it is written for the new layout. With `next-epoch` nothing of an earlier layout lands any more.

Files are written again all the same, whatever the policy, wherever a reader would get something else of them than
was meant:

    the table no longer remembers their schema or spec      nobody can tell what they are
    they lack a column that is required now                 there is no value to read
    a column has a type that theirs does not widen to       its values cannot be read
    what they are partitioned by is gone or has another     the values of their partitions cannot be told
    type
    they are of several layouts                             one commit has one
    their deletes reach the partitions of a former spec     somebody may have rewritten rows to the new one
    their deletes are by a key whose columns changed        they might not find their rows

Facts about a former layout are the table's (`Former`), the decision is made here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

MixedEpoch = Literal["split", "next-epoch"]


@dataclass(frozen=True, slots=True)
class Layout:
    """What files are written for; anybody may alter it at any moment."""

    schema_id: int = 0
    spec_id: int = 0
    sort_order_id: int = 0

    def __str__(self) -> str:
        return f"schema {self.schema_id}, partition spec {self.spec_id}, sort order {self.sort_order_id}"


@dataclass(frozen=True, slots=True)
class Deletes:
    """What files of equality deletes were written for; they follow no sort order of the table."""

    layout: Layout
    keys: frozenset[int]
    """ids of the columns that rows are found by"""
    reach_all: bool
    """whether they find rows of every partition, under whatever spec"""

    def fit(self, table: Layout) -> bool:
        """Whether they were written for the table as it is."""
        same_spec = self.reach_all or self.layout.spec_id == table.spec_id
        return same_spec and self.layout.schema_id == table.schema_id


@dataclass(frozen=True, slots=True)
class Former:
    """What a table can tell of a layout that it had before."""

    layout: Layout
    misfit: str = ""
    """why its files cannot be read as they were meant; empty if they can"""
    changed: frozenset[int] = frozenset()
    """ids of columns that have another type now, or are gone"""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the files of one commit were written for."""

    layouts: frozenset[Layout] = frozenset()
    """of the data files: one, or none without any"""
    deletes: frozenset[Deletes] = frozenset()
    mixed: MixedEpoch = "split"

    def strangers(self, table: Layout) -> frozenset[Layout]:
        """The layouts that are not the table's, of which it has to say what became of them."""
        return (self.layouts - {table}) | {each.layout for each in self.deletes if not each.fit(table)}

    def misfit(self, table: Layout, formers: Iterable[Former]) -> str:
        """Why the files cannot land in a table of this layout; empty if they can."""
        strangers = self.strangers(table)
        if not strangers:
            return ""
        if self.mixed == "next-epoch":
            return 'schema.mixed_epoch is "next-epoch"'
        if len(self.layouts) > 1:
            return "they were not all written for the same"
        known = {former.layout: former for former in formers}
        for layout in strangers:
            if layout not in known:
                return "the table no longer knows what they were written for"
            if known[layout].misfit:
                return known[layout].misfit
        for each in self.deletes:
            if not each.reach_all and each.layout.spec_id != table.spec_id:
                return "their deletes reach rows of the former partition spec only"
            if each.layout in strangers and each.keys & known[each.layout].changed:
                return "a column of the key has changed, and their deletes might not find their rows"
        return ""

    def __str__(self) -> str:
        return "; ".join(sorted(map(str, self.layouts or {each.layout for each in self.deletes})))
