"""Changes: what a stream says of rows that have a key.

A change is a row of the table with a few columns more, which no table keeps: what happens to the row, where
the change stands among the others of its partition, and, where it is needed, when it was made and what the row was
before.

Within an epoch only the last change of each key counts. Only the key's columns of a delete have a meaning.

Where the whole row is its own key, the table is a bag of rows: changes come with a weight, and within an epoch the
sum of the weights of equal rows counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OP = "_op"
"""STRING: one of the letters below"""
ORDER = "_order"
"""BIGINT: rises within a Kafka partition; two changes of one record stand one behind the other"""
UPDATED = "_updated"
"""DECIMAL(38,10), with `ChangePlan.timed`: when the change was committed, by the source's own clock"""
BEFORE = "_before"
"""STRUCT of `ChangePlan.before` columns: the row as it was, null where the source does not say"""
WEIGHT = "_weight"
"""BIGINT, with `ChangePlan.whole`: how many copies of the row come, or go if it is negative"""

WEIGHT_MAX = 1_000_000
"""A record that speaks of more copies than this is a mistake."""

INSERT, UPDATE, DELETE, TRUNCATE = "I", "U", "D", "T"
"""A row whose key is new by the source's word · a row, new or not · no row any more · no rows at all."""

Envelope = Literal["none", "debezium", "cockroachdb", "op-column"]
UnknownOp = Literal["fail", "warn-insert", "dead-letter"]
Truncate = Literal["fail", "ignore", "apply"]
KeyFormat = Literal["json", "text"]
Decimals = Literal["plain", "bytes"]
Resolved = Literal["each", "latest", "off"]

KEY_TELLING: frozenset[Envelope] = frozenset({"debezium", "cockroachdb"})
"""Envelopes whose records may name the columns of their key."""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """How records become changes. Made on the driver, pickled to the workers."""

    keys: tuple[str, ...]
    """columns of the declared schema, in the order of the source's own key; none while nobody has said them"""
    envelope: Envelope = "none"
    before: tuple[str, ...] = ()
    """columns whose old values are needed, to know which partition a row was in"""
    op_column: str | None = None
    """of envelope op-column: the field with the operation; `_op` or `__op`, whichever is there, if absent"""
    unknown_op: UnknownOp = "fail"
    truncate: Truncate = "fail"
    key_format: KeyFormat = "json"
    """how the message key is written; it alone says which row a record without a value deletes"""
    decimals: Decimals = "plain"
    """bytes: a text in a DECIMAL column is base64 of its unscaled digits, as Debezium writes them"""
    timed: bool = False
    """of envelope cockroachdb: whether every change must tell its time"""
    ordered: bool = True
    """whether the keys' order is known, so that a message key may list its values without names"""
    whole: bool = False
    """whether the row is its own key; there are no key columns then"""


@dataclass(frozen=True, slots=True)
class ChangeTarget:
    """How changes become files of one table. Made on the driver, pickled to the workers."""

    keys: tuple[str, ...]
    """columns whose values name a row"""
    scope: Literal["partition", "before", "global", "merge"] = "partition"
    """where deletes apply: in the partition of the new row, in that of the old one, or everywhere; merge: changes
    are kept as such, for a table that finds its rows itself"""
    delete_spec_json: str = ""
    """for scope global: the unpartitioned spec of the table that delete files are written under"""
    sequence_by: str | None = None
    """a column that orders changes of one key across Kafka partitions; ORDER alone if absent"""
    trust_inserts: bool = False
    """whether a key whose first change is an INSERT is known to be new, so that nothing need be deleted"""
    whole: bool = False
    """whether the row is its own key, so that rows are taken away by their place in a file; no key columns then"""
    vectors: bool = False
    """of whole rows: whether the table wants deletion vectors, not files of positions"""
