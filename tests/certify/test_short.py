"""The certification in short, and how the long one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
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

WITHIN = {
    "iceberg": ["kill a Python worker", "write a foreign row", "fill the disk", "kill the broker"],
    "delta": ["crash before a file closes", "cut connections", "write a foreign row", "expire snapshots"],
}
END = {
    "iceberg": ("crash after the commit before the reply", "tear the journal"),
    "delta": ("crash inside the commit", "flip a bit of the journal"),
}


@pytest.mark.real
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_whatever_is_broken_or_killed_every_record_is_there_once(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """One life that survives what others break around it and dies in mid-commit, and one that makes good.

    A verification after the first, and in the end the topic beside the tables. Each kind of table has other faults
    than the other. This is the short form, with two starts of `frazil run` for a kind: fences, dead JVMs, every
    crash point and keyed tables are left to `make certify`.

    TEST-05, TEST-08, REC-17, FAULT-01, FAULT-02, FAULT-03, FAULT-04, FAULT-05, FAULT-43.
    """
    report = Report(seed=20261115, kind=kind)
    around = {"seed": report.seed, "per_second": 200, "megabytes": 256}
    with set_up(tmp_path / "certify", spark, **around, kind=kind) as stage:
        end, between = END[kind]
        script = [Round(1, _steps(WITHIN[kind], stage.disk.is_small), Step(FAULTS[end]), _steps([between]))]
        Supervisor(stage, script, report, verify_apart=False).run()

    assert report.broken is None
    assert report.faults == {step.fault.name: 1 for each in script for step in each.steps}
    assert report.kills == sum(each.kills for each in script) >= 2
    assert (report.lives, report.generations) == (2, 2)
    assert (report.verifications, report.deep_verifications) == (2, 1)
    assert report.epochs > 5
    assert report.rows + report.dead_letters == report.records > 500
    assert report.dead_letters > 0
    assert report.foreign_rows > 0
    assert report.transactions_committed > 0
    assert report.transactions_aborted > 0


def test_a_seed_is_a_script_and_a_long_one_has_every_fault() -> None:
    """The same seed draws the same faults after the same pauses."""
    script = draw_script(7, 70, merges=True)
    assert list(map(str, draw_script(7, 70, merges=True))) == list(map(str, script))
    assert list(map(str, draw_script(8, 70, merges=True))) != list(map(str, script))
    assert sum(each.kills for each in script) in range(70, 80)
    assert _names(script) == set(FAULTS)
    without = _names(draw_script(7, 70, has_small_disk=False))
    assert set(FAULTS) - without == {"fill the disk", "crash between plan and MERGE", "crash after the MERGE"}


def _steps(names: list[str], has_small_disk: bool = True) -> tuple[Step, ...]:
    faults = [FAULTS[name] for name in names]
    return tuple(Step(fault) for fault in faults if has_small_disk or not fault.needs_small_disk)


def _names(script: Sequence[Round]) -> set[str]:
    return {step.fault.name for each in script for step in each.steps}
