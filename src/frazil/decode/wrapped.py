"""Envelopes proper: the row and the row before are fields of the value, or of Kafka Connect's `payload` in it.

One topic may hold both forms. Values are read as the first; those that turn out to be the other are read again.
Most of those are cut out beforehand: see payload.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from frazil.decode.envelopes import (
    FIELDS,
    Code,
    Images,
    Layout,
    Parts,
    Places,
    codes_of,
    in_place,
    landed_of,
    marks,
    rest_of,
)
from frazil.decode.extra import require_shallow
from frazil.decode.keys import coalesce
from frazil.decode.parser import JsonParser
from frazil.decode.payload import PAYLOAD, Unwrapping

DEBEZIUM_OPS: dict[str, int] = {
    "c": Code.INSERT,
    "r": Code.INSERT,
    "u": Code.UPDATE,
    "d": Code.DELETE,
    "t": Code.TRUNCATE,
    "m": Code.IGNORED,
}

# Whoever reads a dead letter need not know which of the two forms it has.
_PAYLOAD_PATH = re.compile(r"\bpayload\.(?=after|before|op)")


class _Wrapped:
    """The row and the row before are fields of the value, or of its `payload`."""

    prefix = "after."
    beside: Sequence[pa.Field] = ()
    """fields that are read beside them"""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._bare = _Form(layout, self.beside, ())
        self._wrapped = _Form(layout, self.beside, (PAYLOAD,))
        self._unwrapping = Unwrapping()

    def images(self, values: list[bytes]) -> tuple[Images, list[pa.Array]]:
        """All but the codes, and the fields beside the rows."""
        parts = Parts()
        left = self._read_bare(values, np.arange(len(values)), parts)
        if len(left) and self._unwrapping.learn(values[left[0]]):
            left = self._read_bare(values, left, parts)
        if len(left):
            self._read_wrapped(values, left, parts)
        rows, positions = parts.joined()
        after, before, *others = rows.columns
        beside, rest = others[: len(self.beside)], others[len(self.beside) :]
        images = Images(
            positions=positions,
            codes=np.full(len(positions), Code.UNKNOWN, np.int8),
            after=in_place([*after.flatten(), *rest], self._layout),
            has_after=marks(after.is_valid()),
            before=before.flatten(),
            has_before=marks(before.is_valid()),
            errors=parts.errors,
        )
        return images, beside

    def _read_bare(self, values: list[bytes], at: Places, parts: Parts) -> Places:
        """Reads what is an envelope, or was cut out as one; the places of the others."""
        given = values if len(at) == len(values) else [values[i] for i in at]
        texts = self._unwrapping.payloads(given)
        rows, errors = self._bare.parsed(texts)
        landed = at[landed_of(len(at), errors)]
        are_others = marks(rows.columns[self._bare.count].is_valid())
        again = [i for i in errors if texts[i] is not given[i]]
        parts.errors |= {int(at[i]): words for i, words in errors.items() if texts[i] is given[i]}
        if not are_others.any():
            parts.add(self._bare.envelopes(rows), landed)
            return at[again]
        parts.add(self._bare.envelopes(rows.filter(pa.array(~are_others))), landed[~are_others])
        return np.sort(np.concatenate([landed[are_others], at[again]]))

    def _read_wrapped(self, values: list[bytes], at: Places, parts: Parts) -> None:
        rows, errors = self._wrapped.parsed([values[i] for i in at])
        parts.add(self._wrapped.envelopes(rows), at[landed_of(len(at), errors)])
        parts.errors |= {int(at[i]): _PAYLOAD_PATH.sub("", words) for i, words in errors.items()}


class _Form:
    """An envelope that stands by itself, or within the field that a path leads to."""

    def __init__(self, layout: Layout, beside: Sequence[pa.Field], path: Sequence[str]) -> None:
        self._is_wrapped = bool(path)
        prefix = "".join(f"{name}." for name in path)
        envelope = [
            pa.field("after", pa.struct(list(layout.parsed))),
            pa.field("before", pa.struct(list(layout.old))),
            *beside,
        ]
        self.count = len(envelope)
        # Of the other form only that it is there.
        other = pa.field(PAYLOAD, pa.struct(envelope[-1:]))
        fields = [pa.field(PAYLOAD, pa.struct(envelope))] if path else [*envelope, other]
        spelling = layout.spelling(f"{prefix}after.", f"{prefix}before.")
        self._parser = JsonParser(pa.schema(fields), spelling, rest_of(layout, path=[*path, "after"]))

    def parsed(self, values: Sequence[bytes]) -> tuple[pa.RecordBatch, dict[int, str]]:
        outcome = self._parser.outcome(list(values))
        return outcome.landed, outcome.errors

    def envelopes(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The envelope's fields and the catch-all's column."""
        own, *rest = rows.columns if self._is_wrapped else [None, *rows.columns[self.count + 1 :]]
        columns = [*(rows.columns[: self.count] if own is None else own.flatten()), *rest]
        return pa.RecordBatch.from_arrays(columns, [str(i) for i in range(len(columns))])


class Debezium(_Wrapped):
    """`op` says what happened; a tombstone behind a delete says it once more, to Kafka."""

    beside = (pa.field("op", pa.string()),)
    null_is: int | None = Code.IGNORED
    known_ops: Sequence[str] = tuple(DEBEZIUM_OPS)
    deletes_are_rows = False

    def read(self, values: list[bytes]) -> Images:
        images, (op,) = self.images(values)
        images.codes, images.ops = codes_of(op, DEBEZIUM_OPS), op
        for place in np.flatnonzero(marks(op.is_null())):
            images.codes[place] = Code.DEAD
            images.errors[int(images.positions[place])] = "no op: not a Debezium envelope"
        return images

    def key(self, value: bytes, message_key: bytes | None) -> bytes | None:
        return message_key


class CockroachDb(_Wrapped):
    """A row, or none any more; or a promise that nothing older will come.

    An enriched envelope tells the time of a change in `source`, and a resolved one like any other.
    """

    # All but the first look like numbers with many digits, which the parser would have to be kept away from.
    beside = (
        pa.field("resolved", pa.string()),
        pa.field("source", pa.struct([("ts_hlc", pa.string()), ("mvcc_timestamp", pa.string())])),
        pa.field("updated", pa.string()),
        pa.field("mvcc_timestamp", pa.string()),
    )
    null_is: int | None = None
    known_ops: Sequence[str] = ()
    deletes_are_rows = False

    def read(self, values: list[bytes]) -> Images:
        images, (resolved, source, updated, _) = self.images(values)
        images.updated = coalesce(updated, source.flatten()[0])
        is_resolved = marks(resolved.is_valid()) & ~images.has_after
        images.codes = np.where(
            is_resolved, Code.IGNORED, np.where(images.has_after, Code.UPDATE, Code.DELETE)
        ).astype(np.int8)
        return images

    def key(self, value: bytes, message_key: bytes | None) -> bytes | None:
        require_shallow(value)
        fields = FIELDS.decode(value)
        fields = FIELDS.decode(fields[PAYLOAD]) if PAYLOAD in fields else fields
        if "after" not in fields:
            raise ValueError("neither after nor resolved: not a changefeed message")
        return bytes(fields["key"]) if "key" in fields else message_key
