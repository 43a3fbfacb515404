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

What the parser reads each type as, and why, stands in wire.py; the numbers it must not see in numbers.py.

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
from frazil.decode.extra import CatchAll
from frazil.decode.numbers import (
    Chunk,
    holds_an_exact_zero,
    holds_infinity,
    long_runs_of_digits,
    signed_exponents,
    too_large_for_a_float,
    with_plain_numbers,
)
from frazil.decode.quote import quoted_times
from frazil.decode.tokens import nodes, tree
from frazil.decode.wire import Misfit, Spelling, Wire, wire
from frazil.decode.words import in_own_words, shortened
from frazil.errors import UndecodableRecord
from frazil.records import Records

# It begins with a letter that begins no JSON value, so that it is a syntax error wherever it is unquoted.
_TOKEN = "x" + secrets.token_hex(8)
_KEY = f'"{_TOKEN}":'.encode()
_OPEN = b'{"values":{' + _KEY
_GAP = b","
_NEXT = _GAP + _KEY
_CLOSE = _NEXT + b"null}}"

# Eight parts need fewer bytes parsed than two, for one bad value as for a chunk of nothing else.
_PARTS = 8

_ZERO_TO_A_POWER = re.compile(rb"0[eE]")

# The escapes that the parser must not see: NUL, and the surrogates it decodes wrongly.
_TREACHEROUS = re.compile(rb"\\u(?:0000|[dD][89abAB][4-7c-fC-F])")
# Any escape, so that the search stays in step where a backslash is itself escaped.
_ESCAPE = re.compile(
    rb"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


class JsonDecoder:
    """Decodes runs of JSON objects by one plan."""

    def __init__(self, plan: DecodePlan) -> None:
        self._plan = plan
        self._row_schema = arrow_schema(plan.schema)
        names = self._row_schema.names[: -len(METADATA_FIELDS) if plan.metadata else None]
        self._columns = pa.schema([self._row_schema.field(name) for name in names])
        self._no_rows = pa.RecordBatch.from_arrays(
            [pa.nulls(0, each) for each in self._columns.types], schema=self._columns
        )
        # A field of the catch-all's own name is not declared either.
        self._declared = pa.schema([each for each in self._columns if each.name != plan.catch_all])
        self._catch_all = CatchAll(self._declared.names) if plan.catch_all else None
        self._tree = tree(self._declared)
        members = [list(nodes(self._tree.members[name])) for name in self._declared.names]
        self._exact = [i for i, inner in enumerate(members) if any(node.is_exact for node in inner)]
        self._floats = [i for i, inner in enumerate(members) if any(pa.types.is_floating(n.kind) for n in inner)]
        self._as_text = _Reading(self._declared, plan, as_number=False)
        self._readings = [self._as_text]
        if plan.epoch_units:
            self._readings.insert(0, _Reading(self._declared, plan, as_number=True))

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
                self._settle_alone(values[0], positions[0], error, outcome)
                return
            size = -(-len(values) // _PARTS)
            for start in range(0, len(values), size):
                part = slice(start, start + size)
                self._settle(values[part], positions[part], outcome)

    def _settle_alone(self, value: bytes, position: int, error: pa.ArrowInvalid, outcome: _Outcome) -> None:
        """The parser refuses a zero with an exponent, 0e0 for one, but takes it when it is written plainly."""
        try:
            plain = with_plain_numbers(value, self._tree) if _ZERO_TO_A_POWER.search(value) else value
            if plain == value:
                raise error
            outcome.landed.append(self._parse([plain]))
        except pa.ArrowInvalid as refusal:
            outcome.errors[position] = self._complaint(value, refusal)

    def _parse(self, values: list[bytes]) -> pa.RecordBatch:
        """One row of declared columns per value, or ArrowInvalid."""
        chunk = _chunk(values)
        plain = chunk.plain(long_runs_of_digits(chunk.text), self._tree)
        columns = self._read_columns(plain, chunk.text if plain is values else _chunk(plain).text)
        if any(holds_an_exact_zero(columns[i]) for i in self._exact):
            columns = self._without_false_zeros(plain, columns)
        if any(holds_infinity(columns[i]) for i in self._floats):
            self._require_floats_in_range(values)
        if self._catch_all is not None:
            columns.insert(self._columns.get_field_index(self._plan.catch_all), self._catch_all.column(values))
        return pa.RecordBatch.from_arrays(columns, schema=self._columns)

    def _without_false_zeros(self, values: list[bytes], columns: list[pa.Array]) -> list[pa.Array]:
        chunk = _chunk(values)
        plain = chunk.plain(signed_exponents(chunk.text), self._tree)
        return columns if plain is values else self._read_columns(plain, _chunk(plain).text)

    def _read_columns(self, values: list[bytes], text: bytes) -> list[pa.Array]:
        """Timestamps that may be numbers are tried as such, then as texts, then number by number."""
        for reading in self._readings:
            try:
                columns = reading.columns(text, len(values))
            except pa.ArrowInvalid:
                if len(self._readings) == 1:
                    raise
            else:
                # What is right for this chunk is most likely right for the next one.
                self._readings.sort(key=lambda each: each is not reading)
                return columns
        quoted = quoted_times(values, self._tree, self._plan.epoch_units)
        return self._as_text.columns(_chunk(quoted).text, len(values))

    def _require_floats_in_range(self, values: list[bytes]) -> None:
        for value in values:
            if path := too_large_for_a_float(value, self._tree):
                raise Misfit(f"value does not fit {path}: the number is too large")

    def _complaint(self, value: bytes, error: pa.ArrowInvalid) -> str:
        """What is wrong with the value by itself, in words that do not speak of our wrapping."""
        if isinstance(error, Misfit):
            return shortened(str(error))
        try:
            alone = _read(value, self._as_text.value_schema)
        except pa.ArrowInvalid as own:
            return in_own_words(own, value, self._tree)
        except StopIteration:
            return "empty value"
        if alone.num_rows != 1:
            return f"{alone.num_rows} JSON documents in one value"
        return in_own_words(error, value, self._tree)

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


def _chunk(values: list[bytes]) -> Chunk:
    """The values as one document; its ends go onto the outer values first, so that it is copied only once."""
    parts = values.copy()
    parts[0] = _OPEN + parts[0]
    parts[-1] += _CLOSE
    return Chunk(values, _NEXT.join(parts), _KEY, _GAP)


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


class _Reading:
    """One way to read the declared columns."""

    def __init__(self, declared: pa.Schema, plan: DecodePlan, as_number: bool) -> None:
        spelling = Spelling(plan.binary, plan.epoch_units, as_number)
        self._wires: list[Wire] = [wire(each.type, each.name, spelling) for each in declared]
        read = [each.with_type(inner.kind) for each, inner in zip(declared, self._wires, strict=True)]
        self._chunk_schema = _parser_schema([pa.field("values", pa.map_(pa.string(), pa.struct(read)))])
        self.value_schema = _parser_schema(read)

    def columns(self, text: bytes, count: int) -> list[pa.Array]:
        """The declared columns of a wrapped chunk of so many values."""
        batch = _read(text, self._chunk_schema)
        entries = batch.column(0)
        if batch.num_rows != 1 or not _is_aligned(entries, count):
            raise pa.ArrowInvalid("not one JSON document")
        structs = entries.items.slice(0, count)
        if structs.null_count:
            raise pa.ArrowInvalid("expected { got null")
        return [inner.landed(column) for inner, column in zip(self._wires, structs.flatten(), strict=True)]


def _parser_schema(fields: list[pa.Field]) -> arro3.core.Schema:
    return arro3.core.Schema.from_arrow(pa.schema(fields))


def _undecodable(records: Records, position: int, error: str) -> UndecodableRecord:
    return UndecodableRecord(
        f"{records.place(position)} cannot be decoded: {error}",
        'correct decode.schema, or set decode.on_error = "dead-letter" to set such records aside',
    )
