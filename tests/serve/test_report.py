"""Status and history, for people and for machines."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table as Grid

from frazil.engine.inspect import PipelineStatus, TableStatus
from frazil.errors import TableChanged
from frazil.pipeline import PipelineSpec, parse_pipeline, secrets
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Position, Range, Span
from frazil.protocol.summary import NO_COUNTS, CommitRecord, Counts, Merged
from frazil.serve.report import history_json, history_table, status_json, status_tables

NOW_S = 1_700_000_000.0


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> PipelineSpec:
    monkeypatch.setattr("frazil.serve.report.time.time", lambda: NOW_S)
    return parse_pipeline(
        {
            "pipeline": {"name": "orders"},
            "source": {"type": "generator"},
            "decode": {"format": "json", "schema": "a INT"},
            "table": {"name": "shop.orders"},
        }
    )


FRONTIER = Frontier({("orders", 10): Position(7), ("orders", 2): Position(1_234_567)})
ANCHOR = TableStatus("shop.orders", True, 41, 3, 99, int((NOW_S - 12) * 1000), FRONTIER)
DEAD = TableStatus("shop.orders__dead_letters", exists=False)
FOUND = PipelineStatus([ANCHOR, DEAD], {("orders", 2): 5, ("orders", 10): 1_000, ("orders", 11): 3})


def text(*parts: Grid | str) -> str:
    screen = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115  # gone with the test
    for part in parts:
        screen.print(part)
    return screen.export_text()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]


def test_status_as_json_has_every_fact(spec: PipelineSpec) -> None:
    """CLI-02."""
    found = json.loads(json.dumps(status_json(spec, FOUND)))
    assert found == {
        "pipeline": "orders",
        "tables": [
            {
                "table": "shop.orders",
                "exists": True,
                "epoch": 41,
                "generation": 3,
                "snapshot_id": 99,
                "committed_at": "2023-11-14T22:13:08Z",
                "freshness_s": 12.0,
                "frontier": {"orders[2]": 1234567, "orders[10]": 7},
                "waiting_from": {},
                "resolved": None,
                "resolved_at": None,
                "trouble": None,
                "remedy": None,
            },
            {
                "table": "shop.orders__dead_letters",
                "exists": False,
                "epoch": None,
                "generation": None,
                "snapshot_id": None,
                "committed_at": None,
                "freshness_s": None,
                "frontier": {},
                "waiting_from": {},
                "resolved": None,
                "resolved_at": None,
                "trouble": None,
                "remedy": None,
            },
        ],
        "lag": {"orders[2]": 5, "orders[10]": 1000, "orders[11]": 3},
        "lag_total": 1008,
        "source_error": None,
    }


def test_status_as_json_without_a_source_says_why(spec: PipelineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-02."""
    monkeypatch.setattr(secrets, "_known", {"hunter2"})
    found = status_json(spec, PipelineStatus([ANCHOR], None, "no broker for ada:hunter2"))
    assert (found["lag"], found["lag_total"]) == (None, None)
    assert found["source_error"] == "no broker for ada:••••"


def test_status_for_people(spec: PipelineSpec) -> None:
    shown = text(*status_tables(spec, FOUND))
    rows = [cells(line) for line in shown.splitlines() if "│" in line]
    assert ["shop.orders", "41", "3", "99", "12 s ago"] in rows
    assert rows[1][:2] == ["shop.orders__dead_letters", "not there yet"]
    assert rows[2:] == [
        ["orders[2]", "1,234,567", "5"],
        ["orders[10]", "7", "1,000"],
        ["orders[11]", "–", "3"],
    ]


def test_status_of_tables_that_are_not_ours_or_whose_snapshot_is_gone(spec: PipelineSpec) -> None:
    """FAULT-18."""
    stranger = TableStatus("shop.orders", exists=True)
    assert "no frontier of this pipeline" in text(*status_tables(spec, PipelineStatus([stranger], {})))
    expired = TableStatus("shop.orders", True, 41, 3, 99, None, FRONTIER)
    assert "its snapshot has expired" in text(*status_tables(spec, PipelineStatus([expired], {})))


def test_status_without_a_source_says_why_whatever_brackets_the_reason_has(
    spec: PipelineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_known", {"hunter2"})
    found = PipelineStatus([ANCHOR], None, "[thrd:main] no broker [/bold] for hunter2")
    shown = text(*status_tables(spec, found))
    assert "lag is unknown: [thrd:main] no broker [/bold] for ••••" in shown
    assert ["orders[10]", "7", "?"] in [cells(line) for line in shown.splitlines()]


SPAN = Span({("orders", 1): Range(5, 6), ("orders", 0): Range(0, 10)})
EPOCH = CommitRecord(
    99, 1_700_000_000_000, "append", 3, 41, "batch", SPAN, EMPTY_SPAN, Counts(11, 8, 2, 1), 4, 1530
)
START = CommitRecord(98, 1_699_999_990_000, "start", 3, 40, "start", EMPTY_SPAN, EMPTY_SPAN, NO_COUNTS, 0, 0)


def test_history_as_json_has_every_fact() -> None:
    """COMMIT-14."""
    assert json.loads(json.dumps(history_json(EPOCH))) == {
        "epoch": 41,
        "action": "append",
        "generation": 3,
        "snapshot_id": 99,
        "committed_at": "2023-11-14T22:13:20Z",
        "batch_id": "batch",
        "span": '{"orders":"0:0-10 1:5-6"}',
        "skipped": "{}",
        "given_up": "{}",
        "rewound": False,
        "resolved": None,
        "resolved_at": None,
        "delivered": 11,
        "landed": 8,
        "filtered": 2,
        "deleted": 0,
        "collapsed": 0,
        "merged": None,
        "dead_letters": 1,
        "files": 4,
        "duration_ms": 1530,
    }


def test_history_for_people(spec: PipelineSpec) -> None:
    lines = text(history_table(spec, [START, EPOCH])).splitlines()
    assert "orders → shop.orders" in lines[0]
    rows = [re.split(r" {2,}", line.strip()) for line in lines if "11-14" in line]
    assert rows == [
        ["40", "11-14 22:13:10", "start 3", "0", "0"],
        [
            "41",
            "11-14 22:13:20",
            "append",
            "8",
            "4",
            "1.53",
            "orders[0] 0-10 orders[1] 5-6, 2 filtered, 1 dead letters",
        ],
    ]


def test_a_merge_tells_what_it_did_to_rows(spec: PipelineSpec) -> None:
    """CHG-14."""
    record = replace(EPOCH, action="merge", merged=Merged(5, 3, 1))
    assert history_json(record)["merged"] == {"inserted": 5, "updated": 3, "removed": 1}
    assert "5 inserted, 3 updated, 1 removed" in text(history_table(spec, [record]))


def test_an_empty_history_is_an_empty_table(spec: PipelineSpec) -> None:
    assert "epoch" in text(history_table(spec, []))


def test_loss_that_was_allowed_is_shown(spec: PipelineSpec) -> None:
    """FAULT-33: never in silence."""
    record = replace(EPOCH, skipped=Span({("orders", 0): Range(3, 9)}))
    assert history_json(record)["skipped"] == '{"orders":"0:3-9"}'
    assert "skipped orders[0] 3-9" in text(history_table(spec, [record]))


def test_status_tells_of_a_rollback_and_of_the_choices(spec: PipelineSpec) -> None:
    """FAULT-20."""
    trouble = TableChanged("shop.orders was rolled back", "start with --on-rollback rewind or [keep]")
    found = PipelineStatus([replace(ANCHOR, trouble=trouble), DEAD], {})
    shown = text(*status_tables(spec, found))
    assert "✗ shop.orders was rolled back" in shown
    assert "→ start with --on-rollback rewind or [keep]" in shown
    assert status_json(spec, found)["tables"][0]["remedy"] == trouble.remedy


def test_history_tells_which_starts_followed_a_rollback(spec: PipelineSpec) -> None:
    """FAULT-20."""
    kept = replace(START, given_up=Span({("orders", 0): Range(3, 9)}))
    shown = text(history_table(spec, [kept, replace(START, rewound_from=FRONTIER)]))
    assert "rolled back, given up orders[0] 3-9" in shown
    assert "rolled back, rewound" in shown


def test_the_resolved_time_of_a_change_feed_is_told_with_its_date(spec: PipelineSpec) -> None:
    """CLI-02, EPOCH-02: what the table is complete up to, and where later changes wait."""
    frontier = Frontier({("orders", 0): Position(9, low=7)}, resolved="1536242855577149065.0000000001")
    found = PipelineStatus([replace(ANCHOR, frontier=frontier), DEAD], {})
    table = status_json(spec, found)["tables"][0]
    assert (table["resolved"], table["waiting_from"]) == ("1536242855577149065.0000000001", {"orders[0]": 7})
    assert table["resolved_at"] == "2018-09-06T14:07:35.577149Z"
    said = text(*status_tables(spec, found))
    assert "resolved" in said
    assert "1536242855577149065.0000000001 (2018-09-06T14:07:35.577149Z)" in said
    assert "resolved" not in text(*status_tables(spec, FOUND))
