"""What a Delta table's log tells of its versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.protocol.commit import Standing
from frazil.protocol.positions import Frontier
from frazil.protocol.register import BatchId, Epoch, Generation, Register
from frazil.table.delta.log import Log, Version
from frazil.table.delta.place import Place

OURS = {"frazil.writer": "pipe", "frazil.action": "merge", "frazil.planned-in": "3", "frazil.span": "{}"}
COUNTS = {"numTargetRowsInserted": "5", "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "1"}
REGISTER = Register(Generation(1), "c0ffee", Epoch(2), BatchId("batch"), Frontier())


def merge(**info: Any) -> dict[str, Any]:
    told = {"operation": "MERGE", "operationMetrics": COUNTS, "userMetadata": json.dumps(OURS)}
    return told | info


def log_at(folder: Path, *infos: dict[str, Any]) -> Log:
    (folder / "_delta_log").mkdir()
    for number, info in enumerate(infos):
        (folder / "_delta_log" / f"{number:020d}.json").write_text(json.dumps({"commitInfo": info}))
    return Log(Place.at(str(folder)), len(infos) - 1)


def test_a_merge_tells_what_it_did_by_deltas_own_count() -> None:
    """CHG-14."""
    told = Version(4, merge())
    assert told.is_by("pipe")
    assert told.merged is not None
    assert (told.merged.inserted, told.merged.updated, told.merged.removed) == (5, 2, 1)


@pytest.mark.parametrize(
    "info",
    [
        merge(operation="OPTIMIZE"),
        merge(userMetadata="by hand"),
        merge(userMetadata="[1]"),
        {"frazil.plan": "batch"},
    ],
    ids=["compaction behind it", "somebody's text", "somebody's JSON", "written ahead"],
)
def test_what_is_no_commit_of_the_writer_is_not_taken_for_one(info: dict[str, Any]) -> None:
    """delta-spark compacts by itself behind a MERGE, in the same session and so under the same text."""
    assert not Version(4, info).is_by("pipe")
    assert Version(4, info).merged is None


WRITE, PLAN = {"operation": "WRITE"}, {"operation": "WRITE", "frazil.plan": "batch"}
RESTORE = {"operation": "RESTORE", "operationParameters": {"version": 1}}


@pytest.mark.parametrize(
    ("between", "standing"),
    [([], Standing.ANCESTOR), ([WRITE], Standing.ANCESTOR), ([WRITE, RESTORE], Standing.ROLLED_BACK)],
)
def test_a_restore_between_plan_and_merge_is_a_rollback(
    tmp_path: Path, between: list[dict[str, Any]], standing: Standing
) -> None:
    """FAULT-20: the MERGE is the head, and still what it went on from is gone."""
    log = log_at(tmp_path, WRITE, WRITE, WRITE, PLAN, *between, merge())
    landed = 4 + len(between)
    assert log.standing(REGISTER.at(landed, landed)) is standing
    gone = standing is Standing.ROLLED_BACK
    assert [kin.snapshot_id for kin in log.kin()] == ([5, 1, 0] if gone else [*range(landed, -1, -1)])
    assert [kin.snapshot_id for kin in log.kin_from(landed)] == [landed, 3, 2, 1, 0]


def test_a_restore_before_the_plan_is_past(tmp_path: Path) -> None:
    log = log_at(tmp_path, WRITE, WRITE, RESTORE, PLAN, merge())
    assert log.standing(REGISTER.at(4, 4)) is Standing.ANCESTOR
