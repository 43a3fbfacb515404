"""What records of each envelope say of rows, laid out alike for all of them.

    envelope       the row              the row before             what happened
    none           the value            unknown                    the row is there
    op-column      the value            the value, of a delete     a field of the value: a code or a weight
    debezium       after                before                     op
    cockroachdb    after                before                     a row, or none where after is null

An envelope may stand by itself or within Kafka Connect's `payload`, and one topic may hold both. Values are read as
the first; those that turn out to be the other are read again. Most of those are cut out beforehand: see payload.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.changes import DELETE, INSERT, TRUNCATE, UPDATE, ChangePlan
from frazil.decode.extra import CatchAll, require_shallow
from frazil.decode.parser import JsonParser
from frazil.decode.payload import PAYLOAD, Unwrapping
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


DEBEZIUM_OPS: dict[str, int] = {
    "c": Code.INSERT,
    "r": Code.INSERT,
    "u": Code.UPDATE,
    "d": Code.DELETE,
    "t": Code.TRUNCATE,
    "m": Code.IGNORED,
}
COLUMN_OPS: dict[str, int] = {
    **dict.fromkeys(("I", "+I", "c", "r", "1", "+1"), Code.INSERT),
    **dict.fromkeys(("U", "+U", "u"), Code.UPDATE),
    **dict.fromkeys(("D", "-D", "d", "-U", "-1"), Code.DELETE),
}
OP_FIELDS = ("_op", "__op")

# Whoever reads a dead letter need not know which of the two forms it has.
_PAYLOAD_PATH = re.compile(r"\bpayload\.(?=after|before|op)")


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
        """The columns of a row before its change: its key, and what else is needed."""
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


def envelope_reader(layout: Layout) -> EnvelopeReader:
    match layout.changes.envelope:
        case "none":
            return _Plain(layout)
        case "op-column":
            return _WithOp(layout)
        case "debezium":
            return _Debezium(layout)
        case "cockroachdb":
            return _CockroachDb(layout)


class _Plain:
    """A value is a row; a null value is the end of one."""

    prefix = ""
    null_is: int | None = Code.DELETE
    known_ops: Sequence[str] = ()
    deletes_are_rows = False

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._parser = JsonParser(layout.parsed, layout.spelling(""), _rest(layout))

    def read(self, values: list[bytes]) -> Images:
        outcome = self._parser.outcome(values)
        count = outcome.landed.num_rows
        return Images(
            positions=_landed(len(values), outcome.errors),
            codes=np.full(count, Code.UPDATE, np.int8),
            after=_in_place(list(outcome.landed.columns), self._layout),
            has_after=np.ones(count, bool),
            before=[pa.nulls(count, each) for each in self._layout.old.types],
            has_before=np.zeros(count, bool),
            errors=outcome.errors,
        )

    def key(self, value: bytes, message_key: bytes | None) -> bytes | None:
        return message_key


class _WithOp:
    """A value is a row with one field more, which says what happened to it."""

    prefix = ""
    null_is: int | None = None
    known_ops: Sequence[str] = tuple(COLUMN_OPS)
    deletes_are_rows = True

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        named = layout.changes.op_column
        rest = _rest(layout, OP_FIELDS if named is None else [named])
        self._name = named
        self._count = len(layout.parsed)
        self._op_count = len(OP_FIELDS) if named is None else 1

        def parser(*ops: pa.Field) -> JsonParser:
            return JsonParser(pa.schema([*layout.parsed, *ops]), layout.spelling(""), rest)

        if named is None:
            text, weight = OP_FIELDS
            self._parsers = [parser(pa.field(text, pa.string()), pa.field(weight, pa.int64()))]
        else:
            self._parsers = [parser(pa.field(named, kind)) for kind in (pa.string(), pa.int64())]

    def read(self, values: list[bytes]) -> Images:
        rows, positions, errors = self._parsed(values)
        end = self._count + self._op_count
        columns = rows.columns
        op = pc.coalesce(*columns[self._count : end])
        after = _in_place([*columns[: self._count], *columns[end:]], self._layout)
        codes = codes_of(op, COLUMN_OPS)
        return Images(
            positions=positions,
            codes=codes,
            after=after,
            has_after=np.ones(len(codes), bool),
            before=[after[self._layout.columns.get_field_index(name)] for name in self._layout.old.names],
            has_before=codes == Code.DELETE,
            ops=op,
            errors=errors,
        )

    def _parsed(self, values: list[bytes]) -> tuple[pa.RecordBatch, Places, dict[int, str]]:
        """Tries the parser that fits the first value, then for each value that it refuses the one that fits it."""
        first = self._fitting(values[0]) if values else 0
        outcome = self._parsers[first].outcome(values)
        parts = _Parts()
        parts.add(self._with_texts(outcome.landed), _landed(len(values), outcome.errors))
        parts.errors = outcome.errors
        again = [i for i in sorted(outcome.errors) if self._fitting(values[i]) != first]
        if again:
            other = self._parsers[1 - first].outcome([values[i] for i in again])
            landed = np.array(again)[_landed(len(again), other.errors)]
            parts.add(self._with_texts(other.landed), landed)
            parts.errors = {i: words for i, words in outcome.errors.items() if i not in again}
            parts.errors |= {again[i]: words for i, words in other.errors.items()}
        return *parts.joined(), parts.errors

    def _with_texts(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with operations as texts, weights too."""
        columns = [
            each.cast(pa.string()) if self._count <= i < self._count + self._op_count else each
            for i, each in enumerate(rows.columns)
        ]
        return pa.RecordBatch.from_arrays(columns, [str(i) for i in range(len(columns))])

    def key(self, value: bytes, message_key: bytes | None) -> bytes | None:
        raise AssertionError("a delete without a key in its row is a dead letter by now")

    def _fitting(self, value: bytes) -> int:
        """Which parser: a field that the user named may hold codes or weights."""
        if len(self._parsers) == 1:
            return 0
        try:
            require_shallow(value)
            op = _FIELDS.decode(value).get(self._name or "", _TEXT)
        except ValueError:
            return 0
        return int(bytes(op)[:1] in _DIGITS)


class _Wrapped:
    """The row and the row before are fields of the value, or of its `payload`."""

    prefix = "after."
    texts: Sequence[str] = ()
    """fields that are read beside them; of all but the first only that they are texts"""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._bare = _Form(layout, self.texts, ())
        self._wrapped = _Form(layout, self.texts, (PAYLOAD,))
        self._unwrapping = Unwrapping()

    def images(self, values: list[bytes]) -> tuple[Images, pa.Array]:
        """All but the codes, and the first of the texts."""
        parts = _Parts()
        left = self._read_bare(values, np.arange(len(values)), parts)
        if len(left) and self._unwrapping.learn(values[left[0]]):
            left = self._read_bare(values, left, parts)
        if len(left):
            self._read_wrapped(values, left, parts)
        rows, positions = parts.joined()
        after, before, sign, *others = rows.columns
        rest = others[len(self.texts) - 1 :]
        images = Images(
            positions=positions,
            codes=np.full(len(positions), Code.UNKNOWN, np.int8),
            after=_in_place([*after.flatten(), *rest], self._layout),
            has_after=marks(after.is_valid()),
            before=before.flatten(),
            has_before=marks(before.is_valid()),
            errors=parts.errors,
        )
        return images, sign

    def _read_bare(self, values: list[bytes], at: Places, parts: _Parts) -> Places:
        """Reads what is an envelope, or was cut out as one; the places of the others."""
        given = values if len(at) == len(values) else [values[i] for i in at]
        texts = self._unwrapping.payloads(given)
        rows, errors = self._bare.parsed(texts)
        landed = at[_landed(len(at), errors)]
        are_others = marks(rows.columns[self._bare.count].is_valid())
        again = [i for i in errors if texts[i] is not given[i]]
        parts.errors |= {int(at[i]): words for i, words in errors.items() if texts[i] is given[i]}
        if not are_others.any():
            parts.add(self._bare.envelopes(rows), landed)
            return at[again]
        parts.add(self._bare.envelopes(rows.filter(pa.array(~are_others))), landed[~are_others])
        return np.sort(np.concatenate([landed[are_others], at[again]]))

    def _read_wrapped(self, values: list[bytes], at: Places, parts: _Parts) -> None:
        rows, errors = self._wrapped.parsed([values[i] for i in at])
        parts.add(self._wrapped.envelopes(rows), at[_landed(len(at), errors)])
        parts.errors |= {int(at[i]): _PAYLOAD_PATH.sub("", words) for i, words in errors.items()}


class _Form:
    """An envelope that stands by itself, or within the field that a path leads to."""

    def __init__(self, layout: Layout, texts: Sequence[str], path: Sequence[str]) -> None:
        self._is_wrapped = bool(path)
        prefix = "".join(f"{name}." for name in path)
        envelope = [
            pa.field("after", pa.struct(list(layout.parsed))),
            pa.field("before", pa.struct(list(layout.old))),
            *[pa.field(name, pa.string()) for name in texts],
        ]
        self.count = len(envelope)
        # Of the other form only that it is there.
        other = pa.field(PAYLOAD, pa.struct(envelope[-1:]))
        fields = [pa.field(PAYLOAD, pa.struct(envelope))] if path else [*envelope, other]
        spelling = layout.spelling(f"{prefix}after.", f"{prefix}before.")
        self._parser = JsonParser(pa.schema(fields), spelling, _rest(layout, path=[*path, "after"]))

    def parsed(self, values: Sequence[bytes]) -> tuple[pa.RecordBatch, dict[int, str]]:
        outcome = self._parser.outcome(list(values))
        return outcome.landed, outcome.errors

    def envelopes(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The envelope's fields and the catch-all's column."""
        own, *rest = rows.columns if self._is_wrapped else [None, *rows.columns[self.count + 1 :]]
        columns = [*(rows.columns[: self.count] if own is None else own.flatten()), *rest]
        return pa.RecordBatch.from_arrays(columns, [str(i) for i in range(len(columns))])


class _Parts:
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


class _Debezium(_Wrapped):
    """`op` says what happened; a tombstone behind a delete says it once more, to Kafka."""

    texts = ("op",)
    null_is: int | None = Code.IGNORED
    known_ops: Sequence[str] = tuple(DEBEZIUM_OPS)
    deletes_are_rows = False

    def read(self, values: list[bytes]) -> Images:
        images, op = self.images(values)
        images.codes, images.ops = codes_of(op, DEBEZIUM_OPS), op
        for place in np.flatnonzero(marks(op.is_null())):
            images.codes[place] = Code.DEAD
            images.errors[int(images.positions[place])] = "no op: not a Debezium envelope"
        return images

    def key(self, value: bytes, message_key: bytes | None) -> bytes | None:
        return message_key


class _CockroachDb(_Wrapped):
    """A row, or none any more; or a promise that nothing older will come."""

    # The last two look like numbers with many digits, which the parser would have to be kept away from.
    texts = ("resolved", "updated", "mvcc_timestamp")
    null_is: int | None = None
    known_ops: Sequence[str] = ()
    deletes_are_rows = False

    def read(self, values: list[bytes]) -> Images:
        images, resolved = self.images(values)
        is_resolved = marks(resolved.is_valid()) & ~images.has_after
        images.codes = np.where(
            is_resolved, Code.IGNORED, np.where(images.has_after, Code.UPDATE, Code.DELETE)
        ).astype(np.int8)
        return images

    def key(self, value: bytes, message_key: bytes | None) -> bytes | None:
        require_shallow(value)
        fields = _FIELDS.decode(value)
        fields = _FIELDS.decode(fields[PAYLOAD]) if PAYLOAD in fields else fields
        if "after" not in fields:
            raise ValueError("neither after nor resolved: not a changefeed message")
        return bytes(fields["key"]) if "key" in fields else message_key


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = b'"'
_DIGITS = b"-0123456789"


def codes_of(ops: pa.Array, known: Mapping[str, int]) -> Codes:
    """The code of each operation; there are few of them, however many rows."""
    encoded = ops.dictionary_encode(null_encoding="encode")
    codes = [known.get(op, Code.UNKNOWN) for op in encoded.dictionary.to_pylist()]
    found: Codes = np.array(codes, np.int8)[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def marks(values: pa.BooleanArray) -> Marks:
    found: Marks = values.to_numpy(zero_copy_only=False)
    return found


def _rest(layout: Layout, further: Sequence[str] = (), path: Sequence[str] = ()) -> CatchAll | None:
    return CatchAll([*layout.parsed.names, *further], path) if layout.catch_all else None


def _in_place(columns: list[pa.Array], layout: Layout) -> list[pa.Array]:
    """The catch-all's column, which comes last, where it was declared."""
    if layout.catch_all is not None:
        columns.insert(layout.columns.get_field_index(layout.catch_all), columns.pop())
    return columns


def _landed(count: int, errors: Mapping[int, str]) -> Places:
    return np.delete(np.arange(count), list(errors))
