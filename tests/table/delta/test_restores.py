"""Delta tables that were restored: nothing may be lost in silence, however little of the log is left."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from frazil.commit import Coordinator, World
from frazil.errors import TableChanged
from frazil.protocol.commit import Standing
from frazil.protocol.start import OnRollback
from tests.contract.conftest import DeltaStage
from tests.contract.test_table import coordinator, epoch, start, started


def land(stage: Any, epochs: int) -> Coordinator:
    one = started(stage)
    for number in range(1, epochs + 1):
        one.commit(epoch(stage, number, number * 10 - 10, number * 10))
    return one


@pytest.fixture
def stage(tmp_path: Path) -> DeltaStage:
    return DeltaStage(tmp_path)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "orders" / "_delta_log"


def forget(log: Path, before: int) -> None:
    """As Delta's own clean-up behind a checkpoint."""
    DeltaTable(log.parent).create_checkpoint()
    for version in range(before):
        (log / f"{version:020d}.json").unlink(missing_ok=True)


@pytest.mark.parametrize("before", [2, 6, 8])
def test_a_restore_whose_target_is_gone_from_the_log_stops(stage: Any, log: Path, before: int) -> None:
    """FAULT-18, promise D: also when nothing but the RESTORE itself is left."""
    land(stage, 6)
    DeltaTable(log.parent).restore(3)
    forget(log, before)
    assert stage.table.observe("pipe").standing is Standing.ROLLED_BACK
    with pytest.raises(TableChanged):
        coordinator(stage).start(start)


def rewrite(file: Path, parameters: dict[str, Any]) -> None:
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["operationParameters"] = parameters
    file.write_text("\n".join(map(json.dumps, actions)) + "\n")


@pytest.mark.parametrize(
    "instant",
    [{"timestamp": "2026-01-01 09:00:00+09:00"}, {"timestamp": "2031-1-1"}, {"datetime": 1}, {}],
    ids=["with an offset", "as a day", "in milliseconds", "not told"],
)
def test_a_restore_as_of_a_time_is_known_by_what_it_did(stage: Any, log: Path, instant: dict[str, Any]) -> None:
    """FAULT-18: engines spell times, and reckon with them, each in its own way."""
    land(stage, 5)
    DeltaTable(log.parent).restore(4)
    rewrite(log / f"{7:020d}.json", {"version": None, **instant})

    seen = stage.table.observe("pipe")
    assert (seen.standing, seen.held.frontier.offset(("orders", 0))) == (Standing.ROLLED_BACK, 30)
    again = coordinator(stage)
    again.start(start, on_rollback=OnRollback.REWIND)
    for number in (6, 7):
        again.commit(epoch(stage, number, number * 10 - 30, number * 10 - 20))
    assert len(stage.live_paths()) == 5


def test_a_restore_that_nobody_can_explain_stops(stage: Any, log: Path) -> None:
    """Promise D: rather than to go on, or to land everything once more."""
    land(stage, 5)
    DeltaTable(log.parent).restore(4)
    rewrite(log / f"{7:020d}.json", {"version": None})
    forget(log, 6)
    for choice in (None, OnRollback.REWIND):
        with pytest.raises(TableChanged):
            coordinator(stage).start(start, on_rollback=choice)


def test_a_restore_by_the_clock_of_delta_rs(stage: Any, log: Path) -> None:
    """It goes by the times of files, which a copy of the table may have lost."""
    one = land(stage, 2)
    between = datetime.now(UTC)
    one.commit(epoch(stage, 3, 20, 30))
    DeltaTable(log.parent).restore(between)
    seen = stage.table.observe("pipe")
    assert (seen.standing, seen.held.frontier.offset(("orders", 0))) == (Standing.ROLLED_BACK, 20)


def test_a_number_without_a_register_is_refused(stage: Any, log: Path) -> None:
    """Somebody else writes under the same application."""
    from deltalake import CommitProperties, Transaction

    table = DeltaTable(log.parent)
    mine = CommitProperties(app_transactions=[Transaction("frazil:pipe", 7)])
    table.create_write_transaction([], "append", table.schema(), [], commit_properties=mine)
    with pytest.raises(TableChanged, match="no register that goes with it"):
        Coordinator("pipe", stage.table, interval_s=0.0, world=World()).start(start)
