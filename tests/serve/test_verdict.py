"""What a verification found, for people and for machines."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from frazil.pipeline import secrets
from frazil.protocol.verify import Check, Finding, Level, Verdict
from frazil.serve.verdict import progress_bars, verdict_json, verdict_tables

FILES = Check("shop.orders", "files", "3 data files exist", numbers={"data_files": 3})
OTHERS = Check(
    "shop.orders", "others", "others changed the table", [Finding(Level.NOTED, "spark added 1 row", snapshot_id=7)]
)
HISTORY = Check(
    "shop.dead",
    "history",
    "no gap",
    [Finding(Level.BROKEN, "t[0] offsets 1 to 2: in no epoch", 8, 41, ("t", 0), "file:/x")],
)


def lines(*checks: Check, deep: bool = False) -> list[str]:
    screen = Console(width=160, file=io.StringIO(), record=True)
    for part in verdict_tables(Verdict("orders", checks, deep)):
        screen.print(part)
    return [" ".join(line.split()) for line in screen.export_text().splitlines() if line.strip()]


def test_what_holds_has_a_tick_and_its_numbers() -> None:
    assert lines(FILES, deep=True) == [
        "shop.orders",
        "✓ files 3 data files exist",
        "✓ orders: nothing was lost or doubled",
    ]


def test_what_is_noted_stands_below_what_holds() -> None:
    assert lines(FILES, OTHERS) == [
        "shop.orders",
        "✓ files 3 data files exist",
        "! others others changed the table",
        "snapshot 7: spark added 1 row",
        "! orders: the pipeline kept its promises; what is marked with ! is not its doing "
        "(from metadata; --deep compares with the topic)",
    ]


def test_what_is_broken_says_where_and_not_what_would_have_been_right() -> None:
    assert lines(OTHERS, HISTORY, deep=True)[3:] == [
        "shop.dead",
        "✗ history epoch 41, snapshot 8: t[0] offsets 1 to 2: in no epoch",
        "✗ orders: 1 finding: something was lost, doubled or damaged",
    ]


def test_many_findings_are_cut_short_for_people_only() -> None:
    many = Check("t", "history", "", [Finding(Level.BROKEN, f"finding {n}") for n in range(25)])
    shown = lines(many)
    assert shown[-3:-1] == ["finding 9", "and 15 more"]
    assert len(verdict_json(Verdict("orders", [many]))["checks"][0]["findings"]) == 25


def test_brackets_are_no_markup_and_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", {"hunter2"})
    said = Check("t", "files", "", [Finding(Level.BROKEN, "[red]hunter2 [/bold]")])
    assert "✗ files [red]•••• [/bold]" in lines(said)
    assert "hunter2" not in json.dumps(verdict_json(Verdict("orders", [said])))


def test_machines_get_every_fact() -> None:
    told = json.loads(json.dumps(verdict_json(Verdict("orders", [FILES, HISTORY], deep=True))))
    assert (told["pipeline"], told["verdict"], told["deep"]) == ("orders", "broken", True)
    assert told["checks"][0] == {
        "table": "shop.orders",
        "check": "files",
        "level": "holds",
        "says": "3 data files exist",
        "numbers": {"data_files": 3},
        "findings": [],
    }
    assert told["checks"][1]["findings"] == [
        {
            "level": "broken",
            "message": "t[0] offsets 1 to 2: in no epoch",
            "snapshot_id": 8,
            "epoch": 41,
            "partition": "t[0]",
            "path": "file:/x",
        }
    ]


def test_bars_move_and_leave_nothing_behind() -> None:
    screen = io.StringIO()
    with progress_bars(Console(file=screen, force_terminal=True, width=100)) as tell:
        tell("files of [shop]", 1, 4)
        tell("files of [shop]", 4, 4)
    assert "files of [shop]" in screen.getvalue()
    assert "4/4" in screen.getvalue()
