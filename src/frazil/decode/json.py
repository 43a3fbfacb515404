"""JSON values to Arrow, with arrow-rs, and every value accounted for.

Parsing a chunk at once is what makes it fast, and what makes it dangerous. arrow-rs reads a stream of
documents and takes commas for blanks, so plainly joined values can vanish (an empty one), double (two
documents in one value) or merge with a neighbour (two broken halves), and every later row would get the wrong
offset. So the chunk becomes one document:

    {"values": {"<token>": VALUE, "<token>": VALUE, …, "<token>": null}}

read as a map from string to the declared struct. The token is random, so no value can contain it. The chunk
counts only if its map has exactly one entry per value, every key is the token, no value is null, and the null
that we put at the end is there. Then:

    a value that vanishes or swallows the next     leaves an entry out
    a value that brings an entry of its own        brings a key that is not the token
    a value that closes the map, or the document   takes the closing null out of the map
    a value that leaves a string open              meets the token outside of quotes: a syntax error

Numbers are read wider than declared and cast with checks, because arrow-rs drops the digits that do not fit:
12.345 becomes 12.34 in a DECIMAL(10,2), 1.5 becomes 1 in a BIGINT.

A chunk that fails is split until the bad values stand alone; each of them becomes a dead letter.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import cast

import arro3.core
import arro3.io
import pyarrow as pa

from frazil.decode.columns import (
    METADATA_FIELDS,
    Decoded,
    DecodePlan,
    arrow_schema,
    dead_letters,
    metadata_columns,
    select,
)
from frazil.errors import UndecodableRecord
from frazil.records import Records

# It begins with a letter that begins no JSON value, so that it is a syntax error wherever it is unquoted.
_TOKEN = "x" + secrets.token_hex(8)
_KEY = f'"{_TOKEN}":'.encode()
_OPEN = b'{"values":{' + _KEY
_NEXT = b"," + _KEY
_CLOSE = _NEXT + b"null}}"

# Eight parts need fewer bytes parsed than two, for one bad value as for a chunk of nothing else.
_PARTS = 8

# Messages quote the value, which may be large and stands in the dead letter anyway.
_ERROR_LENGTH_MAX = 500

# What pyarrow and our wrapping put before arrow-rs's own words.
_PREFIXES = ("C Data interface error: ", "Json error: ", "Parser error: ", "whilst decoding field 'values': ")

# The escapes that the parser must not see: NUL, and the surrogates it decodes wrongly.
_TREACHEROUS = re.compile(rb"\\u(?:0000|[dD][89abAB][4-7c-fC-F])")
# Any escape, so that the search stays in step where a backslash is itself escaped.
_ESCAPE = re.compile(
    rb"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL
)

# arrow-rs names the type it parses with, which is our widened one and would only confuse.
_MISSING = re.compile(r'Encountered unmasked nulls in non-nullable StructArray child: Field \{ "(.*?)": .*')


class JsonDecoder:
    """Decodes runs of JSON objects by one plan."""

    def __init__(self, plan: DecodePlan) -> None:
        self._plan = plan
        self._row_schema = arrow_schema(plan.schema)
        declared = self._row_schema.names[: -len(METADATA_FIELDS) if plan.metadata else None]
        self._declared = pa.schema([self._row_schema.field(name) for name in declared])
        self._no_rows = pa.RecordBatch.from_pylist([], schema=self._declared)
        wide = pa.struct([_widened_field(each) for each in self._declared])
        self._chunk_schema = _parser_schema([pa.field("values", pa.map_(pa.string(), wide))])
        self._value_schema = _parser_schema(list(wide))

    def decode(self, records: Records) -> Decoded:
        """The rows of these records in their order, and those that could not be decoded."""
        outcome = self._outcome(records.values)
        if not outcome.errors:
            return Decoded(self._rows(records, outcome.landed), None)
        dead = sorted(outcome.errors)
        errors = [outcome.errors[position] for position in dead]
        if self._plan.on_error == "fail":
            raise _undecodable(records, dead[0], errors[0])
        landed = select(records, [i for i in range(len(records)) if i not in outcome.errors])
        letters = dead_letters(select(records, dead), errors, self._plan.ddl)
        return Decoded(self._rows(landed, outcome.landed), letters)

    def _outcome(self, values: list[bytes | None]) -> _Outcome:
        outcome = _Outcome()
        if None not in values:
            self._settle(cast(list[bytes], values), range(len(values)), outcome)
            return outcome
        outcome.errors = {i: "null value" for i, value in enumerate(values) if value is None}
        present = [i for i in range(len(values)) if i not in outcome.errors]
        self._settle([value for value in values if value is not None], present, outcome)
        return outcome

    def _settle(self, values: list[bytes], positions: Sequence[int], outcome: _Outcome) -> None:
        """Decodes values together, or in ever smaller parts where one of them is bad."""
        if not values:
            return
        try:
            outcome.landed.append(self._parse(values))
        except pa.ArrowInvalid as error:
            if len(values) == 1:
                outcome.errors[positions[0]] = self._complaint(values[0], error)
                return
            size = -(-len(values) // _PARTS)
            for start in range(0, len(values), size):
                part = slice(start, start + size)
                self._settle(values[part], positions[part], outcome)

    def _parse(self, values: list[bytes]) -> pa.RecordBatch:
        """One row of declared columns per value, or ArrowInvalid."""
        batch = _read(_wrapped(values), self._chunk_schema)
        entries = batch.column(0)
        if batch.num_rows != 1 or not _is_aligned(entries, len(values)):
            raise pa.ArrowInvalid("not one JSON document")
        structs = entries.items.slice(0, len(values))
        if structs.null_count:
            raise pa.ArrowInvalid("expected { got null")
        columns = [
            column if column.type == each.type else column.cast(each.type)
            for column, each in zip(structs.flatten(), self._declared, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._declared)

    def _complaint(self, value: bytes, error: pa.ArrowInvalid) -> str:
        """What is wrong with the value by itself, in words that do not speak of our wrapping."""
        try:
            alone = _read(value, self._value_schema)
        except pa.ArrowInvalid as own:
            return _own_words(own)
        except StopIteration:
            return "empty value"
        if alone.num_rows != 1:
            return f"{alone.num_rows} JSON documents in one value"
        return _misfit(alone, self._declared) or _own_words(error)

    def _rows(self, records: Records, landed: list[pa.RecordBatch]) -> pa.RecordBatch:
        rows = landed[0] if len(landed) == 1 else pa.concat_batches([self._no_rows, *landed])
        if not self._plan.metadata:
            return rows
        columns = rows.columns + metadata_columns(records)
        return pa.RecordBatch.from_arrays(columns, schema=self._row_schema)


@dataclass(slots=True)
class _Outcome:
    """What became of a run of values: parts that landed, in order, and errors by position."""

    landed: list[pa.RecordBatch] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)


def _wrapped(values: list[bytes]) -> bytes:
    """The one document; its ends go onto the outer values first, so that the chunk is copied only once."""
    parts = values.copy()
    parts[0] = _OPEN + parts[0]
    parts[-1] += _CLOSE
    return _NEXT.join(parts)


def _read(text: bytes, schema: arro3.core.Schema) -> pa.RecordBatch:
    """The first batch of a JSON text, kept away from two faults of the parser.

    arro3 aborts the whole process when an error message holds a NUL, and messages quote the text. A raw NUL
    is no JSON anyway. An escaped one is legal, so such a text is first read with another character in its
    place, which fails exactly where the original would.

    arrow-rs decodes escaped surrogate pairs of every other plane to a wrong character (U+20000 to U+10000,
    which hits names in Han characters), so those are put in as plain UTF-8.

    Most texts hold no backslash at all, and the search for one is almost free.
    """
    if b"\0" in text:
        raise pa.ArrowInvalid("NUL byte in value")
    if b"\\" in text and _TREACHEROUS.search(text):
        text = _ESCAPE.sub(_without_surrogates, text)
        _first_batch(text.replace(b"\\u0000", b"\\ufffd"), schema)
    return _first_batch(text, schema)


def _first_batch(text: bytes, schema: arro3.core.Schema) -> pa.RecordBatch:
    return pa.RecordBatchReader.from_stream(arro3.io.read_json(BytesIO(text), schema)).read_next_batch()


def _without_surrogates(escape: re.Match[bytes]) -> bytes:
    if not escape["high"]:
        return escape[0]
    pair = bytes.fromhex((escape["high"] + escape["low"]).decode())
    return pair.decode("utf-16-be").encode()


def _is_aligned(entries: pa.MapArray, count: int) -> bool:
    """Whether the map holds an entry of ours for each value, and the closing null."""
    if len(entries.keys) != count + 1 or entries.items[count].is_valid:
        return False
    return cast(bool, entries.keys.equals(pa.repeat(_TOKEN, count + 1)))


def _widened(kind: pa.DataType) -> pa.DataType:
    """The type to parse with, so that a cast to the declared one sees what does not fit."""
    if pa.types.is_integer(kind):
        return pa.decimal128(38, 19)
    if pa.types.is_decimal(kind):
        return pa.decimal256(76, 76 - kind.precision + kind.scale) if kind.precision > 28 else _spare(kind)
    if pa.types.is_struct(kind):
        return pa.struct([_widened_field(each) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_widened_field(kind.key_field), _widened_field(kind.item_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_widened_field(kind.value_field))
    return kind


def _spare(kind: pa.Decimal128Type) -> pa.DataType:
    """All the digits that 128 bits hold, those that are not needed before the point put behind it."""
    return pa.decimal128(38, 38 - kind.precision + kind.scale)


def _widened_field(each: pa.Field) -> pa.Field:
    return each.with_type(_widened(each.type))


def _parser_schema(fields: list[pa.Field]) -> arro3.core.Schema:
    return arro3.core.Schema.from_arrow(pa.schema(fields))


def _own_words(error: pa.ArrowInvalid) -> str:
    words = str(error)
    for prefix in _PREFIXES:
        words = words.removeprefix(prefix)
    return _MISSING.sub(r"\1 is NOT NULL, but null or missing", words)[:_ERROR_LENGTH_MAX]


def _misfit(alone: pa.RecordBatch, declared: pa.Schema) -> str | None:
    """Which column does not take its value; Arrow's cast does not name it."""
    for column, each in zip(alone.columns, declared, strict=True):
        try:
            column.cast(each.type)
        except pa.ArrowInvalid as error:
            return f"value does not fit {each.name}: {error}"
    return None


def _undecodable(records: Records, position: int, error: str) -> UndecodableRecord:
    return UndecodableRecord(
        f"{records.topic}[{records.partition}] offset {records.offsets[position]} cannot be decoded: {error}",
        'correct decode.schema, or set decode.on_error = "dead-letter" to set such records aside',
    )
