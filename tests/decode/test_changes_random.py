"""Any mix of records becomes the changes that each of them is, in order, however they are cut into runs."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.changes import BEFORE, OP, ORDER, ChangePlan
from frazil.decode import decoder, plan_decode
from frazil.decode.blobs import decimals_of_texts
from frazil.records import Records

DDL = "id BIGINT NOT NULL, name STRING NOT NULL, more ARRAY<STRING>"

DEAD, IGNORED = "dead", "ignored"
Change = tuple[str, int | None, str | None, str | None]
"""The letter, the id, the name, and the name before."""


@dataclass(frozen=True)
class Case:
    """A record, and what it is: changes, or nothing."""

    value: bytes | None
    key: bytes | None
    expected: tuple[Change, ...] | str


@dataclass(frozen=True)
class Row:
    """A row of the model."""

    id: int
    name: str

    @property
    def fields(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "more": ["x", None], "other": {"after": [1]}}


rows = st.builds(Row, st.integers(0, 3), st.sampled_from(["a", "ä\u0000", '"payload":{', "😀", ""]))


def text(value: object) -> bytes:
    return json.dumps(value).encode()


def connected(payload: bytes, how: int) -> bytes:
    """The payload by itself, or as Kafka Connect or somebody else might wrap it."""
    return [
        payload,
        b'{"schema":{"a":1},"payload":' + payload + b"}",
        b'{"schema":{"a":2},"payload":' + payload + b"}",
        b'{"payload":' + payload + b',"schema":{"a":1}}',
        b' {"schema" : {"a":1}, "payload" : ' + payload + b" } ",
    ][how]


hows = st.integers(0, 4)


def message_keys(id: int) -> st.SearchStrategy[bytes | None]:
    """Keys that name the row, or say nothing of it."""
    named = hows.map(lambda how: connected(text({"id": id}), how))
    return named | st.sampled_from([None, b"", b"k", b"[9]", b"9", b'{"other":9}', b"{", b'{"payload":9}'])


@st.composite
def debezium(draw: st.DrawFn) -> Case:
    """An event of Debezium."""
    row, old, how = draw(rows), draw(rows), draw(hows)
    kind = draw(st.sampled_from(["c", "r", "u", "u", "move", "d", "d", "d by key", "t", "m", "x", "dead", None]))
    if kind is None:
        return Case(None, text({"id": row.id}), IGNORED)
    if kind == "dead":
        value, key = draw(dead_debezium(row))
        return Case(connected(value, how), key, DEAD)
    if kind == "d by key":
        key = connected(text({"id": row.id}), draw(hows))
        value = draw(st.sampled_from([{"op": "d"}, {"op": "d", "before": {"name": "q"}, "after": None}]))
        before = "q" if "before" in value else None
        return Case(connected(text(value), how), key, (("D", row.id, None, before),))
    event: dict[str, Any] = {"op": kind, "source": {"op": "c", "after": {"id": 9}}}
    key = draw(message_keys(row.id))
    expected: tuple[Change, ...] | str = IGNORED
    match kind:
        case "c" | "r":
            event["after"] = row.fields
            expected = (("I", row.id, row.name, None),)
        case "x":
            event["after"] = row.fields
            expected = (("U", row.id, row.name, None),)
        case "u":
            has_before = draw(st.booleans())
            event |= {"after": row.fields, "before": {**old.fields, "id": row.id} if has_before else None}
            expected = (("U", row.id, row.name, old.name if has_before else None),)
        case "move":
            event |= {"op": "u", "after": row.fields, "before": {"id": old.id + 10, "name": old.name}}
            expected = (("D", old.id + 10, None, old.name), ("U", row.id, row.name, old.name))
        case "d":
            event |= {"before": row.fields, "after": None}
            expected = (("D", row.id, None, row.name),)
        case "t":
            expected = (("T", None, None, None),)
    return Case(connected(text(event), how), key, expected)


@st.composite
def dead_debezium(draw: st.DrawFn, row: Row) -> tuple[bytes, bytes | None]:
    """A value and a key that are no change."""
    unavailable = "__debezium_unavailable_value"
    key = text({"id": row.id})
    return draw(
        st.sampled_from(
            [
                (text({"op": "u", "after": {**row.fields, "name": None}}), key),
                (text({"op": "u", "after": {**row.fields, "name": unavailable}}), key),
                (text({"op": "u", "after": {**row.fields, "more": ["x", unavailable]}}), key),
                (text({"op": "u", "after": {**row.fields, "id": None}}), key),
                (text({"op": "u", "after": {**row.fields, "id": 1.5}}), key),
                (text({"op": "u", "after": row.fields}), text({"id": row.id + 50})),
                (text({"op": "u", "after": None}), key),
                (text({"op": "d", "before": row.fields}), text({"id": row.id + 50})),
                (text({"op": "d", "before": None}), None),
                (text({"op": None, "after": row.fields}), key),
                (text({"op": 5, "after": row.fields}), key),
                (text({"op": "u", "after": row.fields})[:-1], key),
                (text([]), key),
            ]
        )
    )


@st.composite
def plain(draw: st.DrawFn) -> Case:
    """A record of a keyed topic."""
    row = draw(rows)
    match draw(st.sampled_from(["row", "delete", "dead", "dead delete"])):
        case "row":
            return Case(text(row.fields), draw(message_keys(row.id)), (("U", row.id, row.name, None),))
        case "delete":
            form = draw(st.sampled_from([row.id, str(row.id), [row.id], {"id": row.id}]))
            return Case(
                None, connected(text(form), draw(hows.filter(lambda how: how != 4))), (("D", row.id, None, None),)
            )
        case "dead":
            value = draw(st.sampled_from([b"", b"null", b"{", text({"id": row.id}), text({"name": "a"})]))
            return Case(value, text(row.id), DEAD)
        case _:
            return Case(
                None, draw(st.sampled_from([None, b"", b"x", b"[1,2]", b"{}", b"null", b'{"id":{}}'])), DEAD
            )


@st.composite
def cockroach(draw: st.DrawFn) -> Case:
    """A message of a changefeed."""
    row, how = draw(rows), draw(hows)
    stamp = {"updated": "1700000000123456789.0000000000"} if draw(st.booleans()) else {}
    match draw(st.sampled_from(["row", "delete", "delete by value", "delete by before", "resolved", "dead"])):
        case "row":
            value = {"after": row.fields, "before": None, **stamp}
            return Case(connected(text(value), how), text([row.id]), (("U", row.id, row.name, None),))
        case "delete":
            value = {"after": None, **stamp}
            return Case(connected(text(value), how), text([row.id]), (("D", row.id, None, None),))
        case "delete by value":
            value = {"after": None, "key": [row.id], **stamp}
            return Case(connected(text(value), how), None, (("D", row.id, None, None),))
        case "delete by before":
            value = {"after": None, "before": row.fields, **stamp}
            return Case(connected(text(value), how), None, (("D", row.id, None, row.name),))
        case "resolved":
            return Case(connected(text({"resolved": "1700000000123456789.0000000000"}), how), None, IGNORED)
        case _:
            value = draw(st.sampled_from([{}, row.fields, {"after": {"id": row.id}}, {"after": 5}]))
            return Case(connected(text(value), how), text([row.id]), DEAD)


CODES = {
    "I": "I",
    "+I": "I",
    "c": "I",
    "r": "I",
    "U": "U",
    "+U": "U",
    "u": "U",
    "D": "D",
    "-D": "D",
    "d": "D",
    "-U": "D",
}


@st.composite
def with_op(draw: st.DrawFn) -> Case:
    """A row with a code or a weight, in a field of any name."""
    row = draw(rows)
    op = draw(st.sampled_from([*CODES, 1, -1]))
    letter = CODES[op] if isinstance(op, str) else {1: "I", -1: "D"}[op]
    match draw(st.sampled_from(["sound", "sound", "unknown", "dead"])):
        case "sound":
            is_delete = letter == "D"
            change = (letter, row.id, None if is_delete else row.name, row.name if is_delete else None)
            return Case(text({**row.fields, "kind": op}), None, (change,))
        case "unknown":
            other = draw(st.sampled_from(["x", 0, 2, None]))
            return Case(text({**row.fields, "kind": other}), None, (("U", row.id, row.name, None),))
        case _:
            wrong = draw(
                st.sampled_from([{"kind": True}, {"kind": []}, {"id": None, "kind": "D"}, {"more": 5, "kind": 1}])
            )
            return Case(text({**row.fields, **wrong}), None, DEAD)


ENVELOPES: dict[str, tuple[st.SearchStrategy[Case], dict[str, Any]]] = {
    "none": (plain(), {}),
    "debezium": (debezium(), {"truncate": "apply"}),
    "cockroachdb": (cockroach(), {}),
    "op-column": (with_op(), {"op_column": "kind"}),
}


@pytest.mark.parametrize("envelope", ENVELOPES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_records_become_exactly_the_changes_they_are(envelope: Any, data: st.DataObject) -> None:
    """CHG-04, CHG-07, CHG-10, SRC-10, TEST-14"""
    cases, options = ENVELOPES[envelope]
    records = data.draw(st.lists(cases, max_size=24))
    cut = data.draw(st.integers(0, len(records)))
    changes = ChangePlan(("id",), envelope, before=("name",), unknown_op="warn-insert", **options)
    decode = decoder(plan_decode("json", DDL, metadata=True, on_error="dead-letter", changes=changes))
    found: list[tuple[int, Change]] = []
    dead: list[int] = []
    ignored = 0
    for first, run in ((0, records[:cut]), (cut, records[cut:])):
        offsets = [7 + first + i for i in range(len(run))]
        keys = [case.key for case in run]
        decoded = decode(Records("t", 0, offsets, [case.value for case in run], keys, [5] * len(run)))
        decoded.rows.validate(full=True)
        dead += decoded.dead.column("offset").to_pylist() if decoded.dead else []
        ignored += decoded.ignored
        seconds = sum(order % 2 for order in decoded.rows.column(ORDER).to_pylist())
        assert decoded.rows.num_rows - seconds + (
            decoded.dead.num_rows if decoded.dead else 0
        ) + decoded.ignored == len(run)
        for row in decoded.rows.to_pylist():
            assert row["_offset"] == row[ORDER] // 2
            old = row[BEFORE]["name"] if row[BEFORE] else None
            found.append((row[ORDER], (row[OP], row["id"], row["name"], old)))
    expected = [
        (2 * (7 + i) + second, change)
        for i, case in enumerate(records)
        if not isinstance(case.expected, str)
        for second, change in enumerate(case.expected)
    ]
    assert found == expected
    assert dead == [7 + i for i, case in enumerate(records) if case.expected == DEAD]
    assert ignored == sum(case.expected == IGNORED for case in records)


def base64_of(digits: int, spare: int) -> str:
    """As Java's BigInteger writes it, or with bytes more than it needs."""
    length = min(digits.bit_length() // 8 + 1 + spare, 16)
    return base64.b64encode(digits.to_bytes(length, "big", signed=True)).decode()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.tuples(st.integers(1 - 10**38, 10**38 - 1), st.integers(0, 3)), max_size=9))
def test_digits_as_bytes_become_the_decimal_they_are(numbers: list[tuple[int, int] | None]) -> None:
    texts = pa.array([None if each is None else base64_of(*each) for each in numbers], pa.string())
    digits = [None if each is None else each[0] for each in numbers]
    for offset in (0, min(1, len(texts))):
        found = decimals_of_texts(texts.slice(offset), pa.decimal128(38, 0))
        assert [None if each is None else int(each) for each in found.to_pylist()] == digits[offset:]
