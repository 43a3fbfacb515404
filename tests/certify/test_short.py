"""The certification in short: one life after the other, and most of what can happen to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.certify.faults import FAULTS
from tests.certify.report import Report
from tests.certify.script import Round, Step, draw_script
from tests.certify.stage import set_up
from tests.certify.supervisor import Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.table.files import TableFormat

Rounds = list[tuple[list[str], str, list[str]]]

ROUNDS: Rounds = [
    (
        [
            "kill a Python worker",
            "crash before a file closes",
            "cut connections",
            "write a foreign row",
            "fill the disk",
            "kill the broker",
            "swallow traffic",
        ],
        "crash after the commit before the reply",
        ["tear the journal"],
    ),
    (["delay traffic", "expire snapshots", "pause the broker"], "pause past a take-over", []),
    (["refuse connections"], "kill the JVM", ["flip a bit of the journal"]),
]
DELTA_ROUNDS: Rounds = [
    (["write a foreign row", "kill a Python worker", "compact the table"], "crash inside the commit", []),
    (["expire snapshots"], "crash after the commit before the reply", ["delete the journal"]),
]


@pytest.mark.real
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("table_format", "rounds", "kills", "fenced"),
    [("iceberg", ROUNDS, 5, 1), ("delta", DELTA_ROUNDS, 3, 0)],
    ids=["iceberg", "delta"],
)
def test_whatever_is_broken_or_killed_every_record_is_there_once(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat, rounds: Rounds, kills: int, fenced: int
) -> None:
    """A verification after every life, and in the end the topic beside the tables.

    TEST-05, TEST-08, REC-16, REC-17, FAULT-01, FAULT-02, FAULT-03, FAULT-04, FAULT-05, FAULT-06, FAULT-43.
    """
    report = Report(seed=20261115)
    around = {"seed": report.seed, "per_second": 200, "megabytes": 256}
    with set_up(tmp_path / "certify", spark, **around, table_format=table_format) as stage:
        script = [
            Round(number, _steps(within, stage.disk.is_small), Step(FAULTS[end]), _steps(between))
            for number, (within, end, between) in enumerate(rounds, 1)
        ]
        Supervisor(stage, script, report, verify_apart=False).run()

    assert report.broken is None
    assert report.faults == {step.fault.name: 1 for each in script for step in each.steps}
    assert (report.kills, report.fenced) == (kills, fenced)
    lives = len(rounds) + 1
    assert (report.lives, report.generations) == (lives, lives)
    assert (report.verifications, report.deep_verifications) == (lives, 1)
    assert report.epochs > 5
    assert report.rows + report.dead_letters == report.records > 500
    assert report.dead_letters > 0
    assert report.foreign_rows > 0
    assert report.transactions_committed > 0
    assert report.transactions_aborted > 0


def test_a_seed_is_a_script_and_a_long_one_has_every_fault() -> None:
    """The same seed draws the same faults after the same pauses."""
    script = draw_script(7, 60)
    assert list(map(str, draw_script(7, 60))) == list(map(str, script))
    assert list(map(str, draw_script(8, 60))) != list(map(str, script))
    assert sum(each.kills for each in script) in range(60, 70)
    assert {step.fault.name for each in script for step in each.steps} == set(FAULTS)
    without = draw_script(7, 60, has_small_disk=False)
    assert "fill the disk" not in {step.fault.name for each in without for step in each.steps}


def _steps(names: list[str], has_small_disk: bool = True) -> tuple[Step, ...]:
    faults = [FAULTS[name] for name in names]
    return tuple(Step(fault) for fault in faults if has_small_disk or not fault.needs_small_disk)
