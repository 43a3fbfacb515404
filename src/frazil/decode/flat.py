"""Envelopes that are none: a value is the row, beside a field that says what happened to it, if anything does."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.changes import WEIGHT_MAX
from frazil.decode.envelopes import (
    FIELDS,
    Code,
    Codes,
    Images,
    Layout,
    Parts,
    Places,
    codes_of,
    in_place,
    landed_of,
    rest_of,
)
from frazil.decode.extra import require_shallow
from frazil.decode.parser import JsonParser

COLUMN_OPS: dict[str, int] = {
    **dict.fromkeys(("I", "+I", "c", "r", "1", "+1"), Code.INSERT),
    **dict.fromkeys(("U", "+U", "u"), Code.UPDATE),
    **dict.fromkeys(("D", "-D", "d", "-U", "-1"), Code.DELETE),
}
WHOLE_ROW_OPS: dict[str, int] = {**COLUMN_OPS, "+U": Code.INSERT}
"""Where rows are their own keys, an old row goes with `-U`, and the new one comes as any other."""
OP_FIELDS = ("_op", "__op")

_WEIGHT = re.compile(r"[+-]?[0-9]{1,19}")
_TEXT = b'"'
_DIGITS = b"-0123456789"


class Plain:
    """A value is a row; a null value is the end of one."""

    prefix = ""
    null_is: int | None = Code.DELETE
    known_ops: Sequence[str] = ()
    deletes_are_rows = False

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._parser = JsonParser(layout.parsed, layout.spelling(""), rest_of(layout))

    def read(self, values: list[bytes]) -> Images:
        outcome = self._parser.outcome(values)
        count = outcome.landed.num_rows
        return Images(
            positions=landed_of(len(values), outcome.errors),
            codes=np.full(count, Code.UPDATE, np.int8),
            after=in_place(list(outcome.landed.columns), self._layout),
            has_after=np.ones(count, bool),
            before=[pa.nulls(count, each) for each in self._layout.old.types],
            has_before=np.zeros(count, bool),
            errors=outcome.errors,
        )

    def key(self, value: bytes, message_key: bytes | None) -> bytes | None:
        return message_key


class WithOp:
    """A value is a row with one field more, which says what happened to it."""

    prefix = ""
    null_is: int | None = None
    known_ops: Sequence[str] = tuple(COLUMN_OPS)
    deletes_are_rows = True

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        named = layout.changes.op_column
        rest = rest_of(layout, OP_FIELDS if named is None else [named])
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
        after = in_place([*columns[: self._count], *columns[end:]], self._layout)
        codes, weights = weighed(op) if self._layout.changes.whole else (codes_of(op, COLUMN_OPS), None)
        return Images(
            positions=positions,
            codes=codes,
            after=after,
            has_after=np.ones(len(codes), bool),
            before=[after[self._layout.columns.get_field_index(name)] for name in self._layout.old.names],
            has_before=codes == Code.DELETE,
            ops=op,
            weights=weights,
            errors=errors,
        )

    def _parsed(self, values: list[bytes]) -> tuple[pa.RecordBatch, Places, dict[int, str]]:
        """Tries the parser that fits the first value, then for each value that it refuses the one that fits it."""
        first = self._fitting(values[0]) if values else 0
        outcome = self._parsers[first].outcome(values)
        parts = Parts()
        parts.add(self._with_texts(outcome.landed), landed_of(len(values), outcome.errors))
        parts.errors = outcome.errors
        again = [i for i in sorted(outcome.errors) if self._fitting(values[i]) != first]
        if again:
            other = self._parsers[1 - first].outcome([values[i] for i in again])
            landed = np.array(again)[landed_of(len(again), other.errors)]
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
            op = FIELDS.decode(value).get(self._name or "", _TEXT)
        except ValueError:
            return 0
        return int(bytes(op)[:1] in _DIGITS)


def weighed(ops: pa.Array) -> tuple[Codes, Places]:
    """What each operation does to a row that is its own key, and to how many copies of it."""
    encoded = ops.dictionary_encode(null_encoding="encode")
    known = [_weighed(op) for op in encoded.dictionary.to_pylist()]
    at = encoded.indices.to_numpy(zero_copy_only=False)
    codes, weights = (
        np.array([code for code, _ in known], np.int8),
        np.array([weight for _, weight in known], np.int64),
    )
    return codes[at], weights[at]


def _weighed(op: str | None) -> tuple[int, int]:
    if op is None or op in WHOLE_ROW_OPS:
        return WHOLE_ROW_OPS.get(op or "", Code.UNKNOWN), 1
    if not _WEIGHT.fullmatch(op) or not 0 <= abs(weight := int(op)) <= WEIGHT_MAX:
        return Code.UNKNOWN, 1
    if weight == 0:
        return Code.IGNORED, 1
    return (Code.INSERT if weight > 0 else Code.DELETE), abs(weight)
