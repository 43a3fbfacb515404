"""A pipeline in the background: one stream of statuses, whatever stage they come from."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from frazil.commit import Landed
from frazil.engine import RunOptions
from frazil.engine.events import (
    BacklogSeen,
    EpochCarried,
    EpochLanded,
    EpochPlanned,
    EpochWritten,
    Observer,
    PipelineStarted,
    Retrying,
    Stopping,
)
from frazil.errors import DataLoss
from frazil.pipeline import parse_pipeline
from frazil.protocol.positions import EMPTY_SPAN, Frontier
from frazil.protocol.register import BatchId, Epoch, Generation, Register
from frazil.protocol.summary import Counts
from frazil.sink import Condition, PipelineHandle, Stage, start_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REGISTER = Register(Generation(1), "c", Epoch(1), BatchId("b"), Frontier())


def an_epoch(observer: Observer, _stop: threading.Event) -> None:
    observer(PipelineStarted(1, 0, Frontier(), None))
    observer(BacklogSeen(7))
    observer(EpochPlanned(1, EMPTY_SPAN))
    observer(Retrying("Connection: away", 1, 0.1))
    observer(EpochWritten(1, 7, 0.1))
    observer(EpochLanded(Landed(Epoch(1), REGISTER, Counts(7, 7), 1, 5), 0.2))
    observer(EpochCarried(2))
    observer(Stopping("finishing"))


def test_the_four_stages_are_told_in_one_stream() -> None:
    """SINK-12"""
    handle = PipelineHandle("orders", an_epoch)
    assert handle.join(30)
    assert [(status.stage, status.condition) for status in handle.statuses] == [
        (Stage.INIT, Condition.STARTING),
        (Stage.INIT, Condition.RUNNING),
        (Stage.MINT, Condition.RUNNING),
        (Stage.MINT, Condition.STALLED),
        (Stage.WRITE, Condition.RUNNING),
        (Stage.COMMIT, Condition.RUNNING),
        (Stage.COMMIT, Condition.RUNNING),
        (Stage.COMMIT, Condition.RUNNING),
        (Stage.COMMIT, Condition.STOPPED),
    ]


def test_any_error_becomes_halting_in_the_stage_it_came_from() -> None:
    """SINK-12, OBS-29"""

    def lose(observer: Observer, _stop: threading.Event) -> None:
        observer(EpochPlanned(1, EMPTY_SPAN))
        raise DataLoss("5 offsets are gone")

    handle = PipelineHandle("orders", lose)
    last = list(handle.statuses)[-1]
    assert (last.stage, last.condition) == (Stage.MINT, Condition.HALTING)
    assert last.message == "Io (DataLoss): 5 offsets are gone"
    assert isinstance(handle.error, DataLoss)


def test_a_handle_stops_its_pipeline() -> None:
    """SINK-12"""

    def wait(_observer: Observer, stop: threading.Event) -> None:
        assert stop.wait(30)

    handle = PipelineHandle("orders", wait)
    assert not handle.join(0.01)
    handle.stop(30)
    assert handle.statuses.latest.condition is Condition.STOPPED


@pytest.mark.real
def test_a_real_pipeline_goes_through_all_its_stages(spark: SparkSession, tmp_path: Path) -> None:
    """SINK-12"""
    spec = parse_pipeline(
        {
            "pipeline": {"name": "orders"},
            "source": {"type": "generator", "records": 100},
            "decode": {"format": "json", "schema": "order_id BIGINT", "on_error": "fail", "metadata": False},
            "table": {"format": "delta", "path": str(tmp_path / "orders")},
        }
    )
    handle = start_pipeline(spec, spark, RunOptions(available_now=True))
    statuses = list(handle.statuses)
    assert handle.error is None
    assert {status.stage for status in statuses} == set(Stage)
    assert statuses[-1].condition is Condition.STOPPED
