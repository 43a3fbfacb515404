"""What records of each envelope say of rows, laid out alike for all of them.

envelope       the row              the row before             what happened
none           the value            unknown                    the row is there
op-column      the value            the value, of a delete     a field of the value: a code or a weight
debezium       after                before                     op
cockroachdb    after                before                     a row, or none where after is null
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.changes import DELETE, INSERT, TRUNCATE, UPDATE, ChangePlan
from frazil.decode.extra import CatchAll
from frazil.decode.wire import Spelling

Places = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int8]

LETTERS = (INSERT, UPDATE, DELETE, TRUNCATE)


class Code(IntEnum):
    """What a record does: a place among the letters, or behind them if it is no change."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    TRUNCATE = 3
    IGNORED = 4
    UNKNOWN = 5
    DEAD = 6


@dataclass(frozen=True)
class Layout:
    """The columns that are read, of the row and of the row before."""

    changes: ChangePlan
    columns: pa.Schema
    """the declared ones, all of them nullable: a delete has none but its key"""
    binary: str
    epoch_units: dict[str, str]
    catch_all: str | None = None

    @property
    def parsed(self) -> pa.Schema:
        """What the parser reads; a field of the catch-all's own name is not declared."""
        return pa.schema([each for each in self.columns if each.name != self.catch_all])

    @property
    def keys(self) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in self.changes.keys])

    @property
    def old(self) -> pa.Schema:
        """The columns of a row before its change: its key, which may be all of it, and what else is needed."""
        if self.changes.whole:
            return self.columns
        names = dict.fromkeys([*self.changes.keys, *self.changes.before])
        return pa.schema([self.columns.field(name) for name in names])

    def spelling(self, *prefixes: str) -> Spelling:
        """How values are written in columns whose paths begin with one of these."""
        units = {f"{prefix}{path}": unit for prefix in prefixes for path, unit in self.epoch_units.items()}
        return Spelling(self.binary, units, self.changes.decimals)


@dataclass(slots=True)
class Images:
    """What was read of a run of values: one entry for each that could be read."""

    positions: Places
    codes: Codes
    after: list[pa.Array]
    """the layout's columns"""
    has_after: Marks
    before: list[pa.Array]
    """the layout's old columns"""
    has_before: Marks
    ops: pa.Array | None = None
    """the operation as it was written, of envelopes that write one"""
    updated: pa.Array | None = None
    """the time as it was written, of envelopes that write one"""
    weights: Places | None = None
    """how many copies of the row each is about, of envelopes that say so"""
    errors: dict[int, str] = field(default_factory=dict)


class EnvelopeReader(Protocol):
    """Reads values of one envelope."""

    prefix: str
    """what stands before a column's name in a field's path"""
    null_is: int | None
    """what a record without a value does; None if it cannot be"""
    known_ops: Sequence[str]
    deletes_are_rows: bool
    """whether a delete has its key where other rows have it"""

    def read(self, values: list[bytes]) -> Images: ...

    def key(self, value: bytes, message_key: bytes | None) -> bytes | None:
        """The text that says which row a delete is about, where no column does; ValueError if nothing can."""


class Parts:
    """Rows that were read in several goes, and where each of them was."""

    def __init__(self) -> None:
        self.errors: dict[int, str] = {}
        self._rows: list[pa.RecordBatch] = []
        self._positions: list[Places] = []

    def add(self, rows: pa.RecordBatch, positions: Places) -> None:
        self._rows.append(rows)
        self._positions.append(positions)

    def joined(self) -> tuple[pa.RecordBatch, Places]:
        """All rows in the order of the values."""
        if len(self._rows) == 1:
            return self._rows[0], self._positions[0]
        positions = np.concatenate(self._positions)
        order = np.argsort(positions)
        return pa.concat_batches(self._rows).take(pa.array(order)), positions[order]


FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
"""of an object, each as it was written"""


def codes_of(ops: pa.Array, known: Mapping[str, int]) -> Codes:
    """The code of each operation; there are few of them, however many rows."""
    encoded = ops.dictionary_encode(null_encoding="encode")
    codes = [known.get(op, Code.UNKNOWN) for op in encoded.dictionary.to_pylist()]
    found: Codes = np.array(codes, np.int8)[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def marks(values: pa.BooleanArray) -> Marks:
    found: Marks = values.to_numpy(zero_copy_only=False)
    return found


def rest_of(layout: Layout, further: Sequence[str] = (), path: Sequence[str] = ()) -> CatchAll | None:
    return CatchAll([*layout.parsed.names, *further], path) if layout.catch_all else None


def in_place(columns: list[pa.Array], layout: Layout) -> list[pa.Array]:
    """The catch-all's column, which comes last, where it was declared."""
    if layout.catch_all is not None:
        columns.insert(layout.columns.get_field_index(layout.catch_all), columns.pop())
    return columns


def landed_of(count: int, errors: Mapping[int, str]) -> Places:
    return np.delete(np.arange(count), list(errors))
