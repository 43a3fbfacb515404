"""The live view: what a person sees while a pipeline runs."""

from __future__ import annotations

import pytest
from rich.console import Console

from frazil.commit import Landed
from frazil.engine.events import (
    BacklogSeen,
    EpochCarried,
    EpochLanded,
    EpochPlanned,
    EpochWritten,
    PipelineStarted,
    Retrying,
    Stopping,
)
from frazil.pipeline import secrets
from frazil.protocol.positions import EMPTY_SPAN, Frontier
from frazil.protocol.register import BatchId, Epoch, Generation, Register
from frazil.protocol.summary import Counts
from frazil.serve import console
from frazil.serve.console import LiveView


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(console, "time", fake)
    return fake


@pytest.fixture
def view(clock: Clock) -> LiveView:
    return LiveView("orders", "shop.orders", Console(file=None, width=100))


def landed(epoch: int, counts: Counts) -> EpochLanded:
    register = Register(Generation(1), "us", Epoch(epoch), BatchId("b"), Frontier())
    return EpochLanded(Landed(Epoch(epoch), register, counts, 1, commit_ms=42), 1.0)


def shown(view: LiveView) -> dict[str, str]:
    """The rows of the panel, and its title under an empty name."""
    screen = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115  # gone with the test
    screen.print(view.render())
    lines = screen.export_text().splitlines()
    rows = {"": lines[0].strip("╭╮─ ")}
    for line in lines[1:-1]:
        name, _, text = line.strip("│ ").partition("  ")
        rows[name] = text.strip()
    return rows


def test_before_anything_happened_it_says_so(view: LiveView) -> None:
    assert shown(view) == {
        "": "orders → shop.orders",
        "state": "starting",
        "epoch": "0  (0 in flight)",
        "landed": "0 rows in 0 epochs of this run",
        "rate": "0 records/s",
        "lag": "–",
        "last commit": "none yet",
    }


def test_it_tells_state_epochs_rows_rate_lag_and_the_last_commit(view: LiveView, clock: Clock) -> None:
    view(PipelineStarted(2, 7, Frontier(), "http://127.0.0.1:4040"))
    view(BacklogSeen(123_456))
    view(EpochPlanned(8, EMPTY_SPAN))
    view(EpochPlanned(9, EMPTY_SPAN))
    view(EpochWritten(8, 20_000, 1.0))
    clock.now_s += 8
    view(landed(8, Counts(delivered=20_000, landed=19_990, filtered=7, dead=3)))
    clock.now_s += 2
    assert shown(view) == {
        "": "orders → shop.orders",
        "state": "running",
        "epoch": "8  (1 in flight)",
        "landed": "19,990 rows in 1 epochs of this run",
        "rate": "2,000 records/s",
        "lag": "123,456 records",
        "aside": "3 dead letters, 7 filtered",
        "last commit": "2 s ago, took 42 ms",
        "Spark UI": "http://127.0.0.1:4040",
    }


def test_the_rate_forgets_what_is_long_ago(view: LiveView, clock: Clock) -> None:
    view(PipelineStarted(1, 0, Frontier(), None))
    clock.now_s += 10
    view(landed(1, Counts(delivered=1_000_000, landed=1_000_000)))
    assert shown(view)["rate"] == "100,000 records/s"
    clock.now_s += 600
    view(landed(2, Counts(delivered=10, landed=10)))
    assert shown(view)["rate"] == "0 records/s"


def test_an_epoch_without_rows_is_no_longer_in_flight(view: LiveView) -> None:
    view(EpochPlanned(1, EMPTY_SPAN))
    view(EpochCarried(1))
    assert shown(view)["epoch"] == "0  (0 in flight)"


def test_a_fault_is_shown_until_it_is_over_even_if_no_record_comes(view: LiveView) -> None:
    view(PipelineStarted(1, 0, Frontier(), None))
    view(EpochPlanned(1, EMPTY_SPAN))
    view(Retrying("Connection: no broker [127.0.0.1:9092]", 1, 0.25))
    assert shown(view)["state"] == "retrying in 0.2 s: Connection: no broker [127.0.0.1:9092]"
    assert shown(view)["epoch"] == "0  (0 in flight)"
    view(BacklogSeen(0))
    assert shown(view)["state"] == "running"


def test_a_pipeline_that_stops_is_not_running_again(view: LiveView) -> None:
    view(PipelineStarted(1, 0, Frontier(), None))
    view(Stopping("SIGTERM"))
    view(EpochPlanned(2, EMPTY_SPAN))
    view(BacklogSeen(5))
    assert shown(view)["state"] == "stopping: SIGTERM"


def test_secrets_are_masked(view: LiveView, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-02."""
    monkeypatch.setattr(secrets, "_known", {"hunter2"})
    view(Retrying("wrong password hunter2", 1, 0.1))
    assert shown(view)["state"] == "retrying in 0.1 s: wrong password ••••"
