"""docs/JSON.md, row by row: what it says arrives is decoded, and what it says lands must land."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from doc_tables import shown, tables_of

from frazil.decode import decoder, plan_decode
from frazil.records import Records

PAGE = (Path(__file__).parents[2] / "docs" / "JSON.md").read_text(encoding="utf-8")
DEAD = "dead letter"

SCHEMAS: dict[str, tuple[str, dict[str, Any]]] = {
    "arrives": ("a INT NOT NULL, b INT", {}),
    "arrives, catch_all": ("a INT, rest STRING", {"catch_all": "rest"}),
    "arrives, generous": ("a INT, b INT", {}),
}


def quoted(cell: str) -> str:
    return cell[1:-1] if cell.startswith("`") else cell


def landed(ddl: str, value: bytes, **options: Any) -> str:
    """The row as the page shows it; a sound neighbour on either side must land in any case."""
    plan = plan_decode("json", ddl, metadata=False, on_error="dead-letter", **options)
    sound = b'{"a":null}' if "NOT NULL, b" not in ddl else b'{"a":1}'
    decoded = decoder(plan)(Records("t", 0, [5, 6, 7], [sound, value, sound]))
    if decoded.dead is not None:
        assert decoded.dead.column("offset").to_pylist() == [6]
        assert decoded.rows.num_rows == 2
        return DEAD
    return ", ".join(map(shown, decoded.rows.to_pylist()[1].values()))


@pytest.mark.parametrize(("declared", "arrives", "lands"), tables_of(PAGE)["declared"])
def test_a_value_lands_as_the_page_says(declared: str, arrives: str, lands: str) -> None:
    """DEC-04"""
    kind, *_ = declared.replace("&lt;", "<").split(", epoch_unit")[0].split(", binary")
    options = dict(re.findall(r'(\w+) = "(\w+)"', declared))
    assert landed(f"a {kind}", f'{{"a":{quoted(arrives)}}}'.encode(), **options) == quoted(lands)


@pytest.mark.parametrize(
    ("heading", "arrives", "lands"),
    [(heading, *row) for heading, rows in tables_of(PAGE).items() if heading in SCHEMAS for row in rows],
)
def test_a_record_lands_as_the_page_says(heading: str, arrives: str, lands: str) -> None:
    """DEC-04"""
    ddl, options = SCHEMAS[heading]
    assert landed(ddl, quoted(arrives).encode(), **options) == quoted(lands)


@pytest.mark.parametrize("arrives", [row[0] for row in tables_of(PAGE)["arrives, generous"][:6]])
def test_with_a_catch_all_what_is_not_json_is_a_dead_letter(arrives: str) -> None:
    assert landed("a INT, b INT, rest STRING", quoted(arrives).encode(), catch_all="rest") == DEAD


def test_the_page_has_the_tables_that_are_tested() -> None:
    assert tables_of(PAGE).keys() == {"declared", *SCHEMAS}
    assert len(tables_of(PAGE)["declared"]) > 100
