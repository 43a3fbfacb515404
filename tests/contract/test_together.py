"""Several coordinators of one pipeline at the same moment, on a real table."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from frazil.commit import Coordinator, EpochOutcome, World
from frazil.errors import Fenced
from frazil.pipeline.spec import CatalogSection
from frazil.protocol.positions import Frontier, Position, Range, Span
from frazil.protocol.register import Epoch
from frazil.protocol.retry import Backoff
from frazil.protocol.summary import Counts
from tests.contract.conftest import IcebergStage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

PARTITION = ("orders", 0)
TOGETHER = 4


def test_of_coordinators_that_start_together_one_wins_each_generation_and_one_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    """FAULT-06, COMMIT-12: none was told to wait, and all look, decide and commit side by side."""
    stage = IcebergStage(spark, CatalogSection(warehouse=str(tmp_path), name="together"))
    patience = Backoff(base_s=0.01, max_s=0.1, attempts=30)
    starters = [
        Coordinator("pipe", stage.table, interval_s=0.0, world=World(), backoff=patience) for _ in range(TOGETHER)
    ]
    together = threading.Barrier(TOGETHER)

    def start(one: Coordinator) -> int:
        together.wait(30)
        begun = one.start(lambda: Frontier({PARTITION: Position(0)}, {"orders": "id"}), take_over=True)
        return begun.generation

    def commit(one: Coordinator) -> Any:
        file = stage.write(10)
        span = Span({PARTITION: Range(0, 10)})
        together.wait(30)
        try:
            return one.commit(EpochOutcome(Epoch(1), span, Counts(10, 10), {stage.table.name: [file]}))
        except Fenced as fenced:
            return fenced

    with ThreadPoolExecutor(TOGETHER) as pool:
        generations = list(pool.map(start, starters))
        outcomes = list(pool.map(commit, starters))

    starts = [record for record in stage.table.history("pipe") if record.action == "start"]
    assert [record.generation for record in starts] == sorted({record.generation for record in starts})
    assert len(set(generations)) == TOGETHER
    last = generations.index(max(generations))
    assert [isinstance(outcome, Fenced) for outcome in outcomes] == [n != last for n in range(TOGETHER)]
    assert len(stage.live_paths()) == 1
    register = stage.table.observe("pipe").register
    assert register is not None
    assert (register.generation, register.coordinator) == (max(generations), starters[last].id)
