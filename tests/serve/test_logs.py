"""Log lines: JSON for machines, readable for people, without secrets."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
import structlog

from frazil.commit import Landed
from frazil.engine.events import (
    BacklogSeen,
    EpochCarried,
    EpochLanded,
    EpochPlanned,
    EpochWritten,
    Event,
    PipelineStarted,
    Retrying,
    Stopping,
)
from frazil.pipeline import secrets
from frazil.protocol.positions import Frontier, Position, Range, Span
from frazil.protocol.register import BatchId, Epoch, Generation, Register
from frazil.protocol.summary import Counts
from frazil.serve.logs import log_events, set_up_logs

FRONTIER = Frontier({("orders", 0): Position(10, 2)}, {"orders": "id"})
REGISTER = Register(Generation(3), "c0ffee", Epoch(7), BatchId("batch-7"), FRONTIER, snapshot_id=99)
LANDED = Landed(Epoch(7), REGISTER, Counts(20, 17, 2, 1), files=3, commit_ms=42)
EVENTS: list[tuple[Event, dict[str, object]]] = [
    (
        PipelineStarted(3, 6, FRONTIER, "http://ui"),
        {
            "message": "started",
            "generation": 3,
            "epoch": 6,
            "frontier": {"orders": ["id", "10@2"]},
            "ui": "http://ui",
        },
    ),
    (
        EpochPlanned(7, Span({("orders", 0): Range(10, 30)})),
        {"message": "epoch begun", "epoch": 7, "records": 20, "span": '{"orders":"0:10-30"}'},
    ),
    (EpochWritten(7, 20, 0.1234), {"message": "epoch written", "epoch": 7, "rows": 20, "duration_ms": 123}),
    (
        EpochLanded(LANDED, 1.5),
        {
            "message": "epoch committed",
            "epoch": 7,
            "batch_id": "batch-7",
            "snapshot_id": 99,
            "rows": 17,
            "filtered": 2,
            "deleted": 0,
            "dead_letters": 1,
            "files": 3,
            "commit_ms": 42,
            "duration_ms": 1500,
        },
    ),
    (EpochCarried(8), {"message": "epoch without rows", "epoch": 8}),
    (
        Retrying("Connection: no broker", 2, 0.2),
        {
            "message": "retrying",
            "level": "warning",
            "reason": "Connection: no broker",
            "attempt": 2,
            "delay_ms": 200,
        },
    ),
    (Stopping("SIGTERM"), {"message": "stopping", "reason": "SIGTERM"}),
]


@pytest.fixture(autouse=True)
def _restore(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(secrets, "_known", {"hunter2"})
    yield
    structlog.reset_defaults()


@pytest.fixture
def lines() -> Callable[[], list[dict[str, Any]]]:
    stream = io.StringIO()
    set_up_logs(json=True, stream=stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(("event", "facts"), EVENTS, ids=[type(event).__name__ for event, _ in EVENTS])
def test_every_event_is_one_json_object_on_one_line(
    event: Event, facts: dict[str, object], lines: Callable[[], list[dict[str, Any]]]
) -> None:
    """CFG-71."""
    log_events("orders", "shop.orders")(event)
    (line,) = lines()
    timestamp = datetime.fromisoformat(line.pop("timestamp"))
    assert timestamp.utcoffset() is not None
    assert line == {"pipeline": "orders", "table": "shop.orders", "level": "info", **facts}


def test_a_look_at_the_source_is_not_worth_a_line(lines: Callable[[], list[dict[str, Any]]]) -> None:
    log_events("orders", "shop.orders")(BacklogSeen(5))
    assert lines() == []


def test_secrets_are_masked_wherever_they_stand(lines: Callable[[], list[dict[str, Any]]]) -> None:
    """SEC-02."""
    structlog.get_logger().error(
        "login with hunter2 failed", error=ValueError("hunter2?"), seen=["hunter2", {"deep": "a hunter2"}], n=5
    )
    (line,) = lines()
    assert "hunter2" not in json.dumps(line)
    assert line["message"] == "login with •••• failed"
    assert line["error"] == "••••?"
    assert line["seen"] == ["••••", {"deep": "a ••••"}]
    assert line["n"] == 5


def test_an_event_with_a_secret_in_it_is_masked(lines: Callable[[], list[dict[str, Any]]]) -> None:
    """SEC-02."""
    log_events("orders", "shop.orders")(Retrying("Connection: wrong password hunter2", 1, 0.1))
    assert lines()[0]["reason"] == "Connection: wrong password ••••"


def test_text_over_several_lines_is_still_one_line(lines: Callable[[], list[dict[str, Any]]]) -> None:
    structlog.get_logger().warning("first\nsecond", error="third\nfourth")
    assert lines()[0]["message"] == "first\nsecond"


def test_people_get_a_readable_line_that_begins_with_what_happened() -> None:
    stream = io.StringIO()
    set_up_logs(json=False, stream=stream)
    log_events("orders", "shop.orders")(Stopping("SIGTERM after hunter2"))
    (line,) = stream.getvalue().splitlines()
    assert "[info     ] stopping" in line
    assert "reason='SIGTERM after ••••'" in line
    assert "message=" not in line
