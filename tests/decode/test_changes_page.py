"""docs/CHANGES.md, row by row: what it says arrives is decoded, and must become what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from doc_tables import shown, tables_of

from frazil.changes import ChangePlan
from frazil.decode import Decoded, decoder, plan_decode
from frazil.errors import UndecodableRecord
from frazil.records import Records

PAGE = (Path(__file__).parents[2] / "docs" / "CHANGES.md").read_text(encoding="utf-8")
DDL = "id BIGINT NOT NULL, name STRING NOT NULL, total DECIMAL(9,2)"

SOUND = {
    "none": b'{"id":8,"name":"sound"}',
    "debezium": b'{"op":"u","after":{"id":8,"name":"sound"}}',
    "cockroachdb": b'{"after":{"id":8,"name":"sound"},"updated":"1.0"}',
    "op-column": b'{"id":8,"name":"sound","_op":"U"}',
}


def bytes_of(cell: str) -> bytes | None:
    return None if cell == "null" else cell.strip("`").encode()


def changes_of(heading: str) -> ChangePlan:
    named = next((name for name in SOUND if name in heading), "op-column" if "op_column" in heading else "none")
    options: dict[str, Any] = dict(re.findall(r'(\w+) = "([\w-]+)"', heading))
    timed, whole = options.pop("resolved", "off") != "off", '["*"]' in heading
    return ChangePlan(() if whole else ("id",), named, timed=timed, whole=whole, **options)  # type: ignore[arg-type]


def shown_change(row: dict[str, Any]) -> str:
    if "_weight" in row:
        return f"{row['_weight']:+d} {shown_row(row)}"
    match row["_op"]:
        case "T":
            return "T"
        case "D":
            assert row["name"] is None
            return f"D {row['id']}"
        case letter:
            return f"{letter} {shown_row(row)}"


def shown_row(row: dict[str, Any]) -> str:
    return ", ".join("NULL" if row[name] is None else str(row[name]) for name in COLUMNS)


COLUMNS = ("id", "name", "total")


def becomes(decoded: Decoded) -> str:
    """What the record in the middle became; a sound neighbour on either side must land in any case."""
    rows = decoded.rows.to_pylist()
    assert [row["id"] for row in (rows[0], rows[-1])] == [8, 8]
    if decoded.dead is not None:
        assert decoded.dead.column("offset").to_pylist() == [6]
        assert len(rows) == 2
        return "dead letter"
    if decoded.ignored:
        assert len(rows) == 2
        return "ignored"
    assert [row["_order"] for row in rows[1:-1]] == [12, 13][: len(rows) - 2]
    return "; ".join(map(shown_change, rows[1:-1]))


TABLES = tables_of(PAGE)
CASES = [(heading, *row) for heading, rows in TABLES.items() if heading.startswith("arrives") for row in rows]


@pytest.mark.parametrize(("heading", "value", "key", "expected"), CASES)
def test_a_record_becomes_what_the_page_says(heading: str, value: str, key: str, expected: str) -> None:
    """CHG-04, CHG-05, CHG-06, CHG-07, DEC-03, SRC-07, SRC-12, TEST-14"""
    changes = changes_of(heading)
    sound = SOUND[changes.envelope].replace(b"_op", (changes.op_column or "_op").encode())
    if changes.whole:
        sound = sound.replace(b'"U"', b'"I"').replace(b'"u"', b'"c"')
    plan = plan_decode("json", DDL, metadata=False, on_error="dead-letter", changes=changes)
    records = Records("t", 0, [5, 6, 7], [sound, bytes_of(value), sound], [None, bytes_of(key), None])
    if expected == "stops":
        with pytest.raises(UndecodableRecord, match=r"t\[0\] offset 6 "):
            decoder(plan)(records)
    else:
        assert becomes(decoder(plan)(records)) == expected.strip("`")


@pytest.mark.parametrize("form", ["bare", "wrapped"])
@pytest.mark.parametrize(("declared", "arrives", "lands"), TABLES["declared"])
def test_a_value_of_debezium_lands_as_the_page_says(declared: str, arrives: str, lands: str, form: str) -> None:
    """DEC-03"""
    kind = declared.replace("&lt;", "<").split(", decimals")[0].split(", epoch_unit")[0]
    options = dict(re.findall(r'(\w+) = "(\w+)"', declared))
    changes = ChangePlan(keys=("id",), envelope="debezium", decimals=options.pop("decimals", "plain"))  # type: ignore[arg-type]
    plan = plan_decode("json", f"id INT, a {kind}", False, "dead-letter", changes=changes, **options)  # type: ignore[arg-type]
    value = f'{{"op":"u","after":{{"id":1,"a":{arrives.strip("`")}}}}}'.encode()
    if form == "wrapped":
        value = b'{"schema":{},"payload":' + value + b"}"
    sound = b'{"op":"u","after":{"id":1,"a":null}}'
    decoded = decoder(plan)(Records("t", 0, [5, 6, 7], [sound, value, sound], [None] * 3))
    if lands == "dead letter":
        assert decoded.dead is not None
        assert decoded.dead.column("offset").to_pylist() == [6]
        assert "payload" not in decoded.dead.column("error")[0].as_py()
    else:
        assert decoded.dead is None, decoded.dead.column("error")
        assert shown(decoded.rows.column("a")[1].as_py()) == lands.strip("`")


def test_the_page_has_the_tables_that_are_tested() -> None:
    assert len(CASES) > 80
    assert {changes_of(heading).envelope for heading, *_ in CASES} == SOUND.keys()
    assert len(TABLES["declared"]) > 25
