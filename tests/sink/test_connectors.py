"""Sinks by name, and sinks that run in the background."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from frazil.errors import ConfigError, InvalidState, SchemaMismatch
from frazil.sink import (
    CheckpointAdapter,
    Committed,
    Condition,
    ConnectorRegistry,
    ConnectorRuntime,
    Sink,
    Stage,
    Written,
)
from tests.sink.conftest import Lake, batch


class Notebook:
    """A sink of one's own: it writes down what it is told."""

    def __init__(self) -> None:
        self.deeds: list[Any] = []
        self.may_write = threading.Event()
        self.may_write.set()

    def open(self) -> None:
        self.deeds.append("open")

    def begin_epoch(self, epoch: int) -> None:
        self.deeds.append(("begin", epoch))

    def write_batch(self, batch: Any) -> Written:
        assert self.may_write.wait(30)
        self.deeds.append(("write", batch))
        return Written(1, 1)

    def commit_epoch(self, epoch: int) -> Committed | None:
        self.deeds.append(("commit", epoch))
        return Committed(epoch, None, 1, 1, 0)

    def rollback_epoch(self, epoch: int) -> None:
        self.deeds.append(("rollback", epoch))

    def close(self) -> None:
        self.deeds.append("close")


def options(lake: Lake) -> dict[str, str]:
    return {"connector": "delta-lake", "table.path": str(lake.path)}


def test_both_formats_are_known_by_name(lake: Lake) -> None:
    """SINK-11, CFG-01"""
    registry = ConnectorRegistry()
    assert registry.names == ["delta-lake", "iceberg"]
    sink = registry.create("delta-lake", options(lake))
    assert isinstance(sink, Sink)
    assert sink.config.table.format == "delta"
    iceberg = registry.create("iceberg", {"table.name": "shop.orders"})
    assert isinstance(iceberg, Sink)
    assert iceberg.info().connector_type == "iceberg"


def test_a_name_that_is_not_known_or_does_not_fit_is_refused(lake: Lake) -> None:
    """SINK-11"""
    registry = ConnectorRegistry()
    with pytest.raises(ConfigError, match="delta-lake, iceberg"):
        registry.create("hudi", {}).close()
    with pytest.raises(ConfigError, match="use delta-lake"):
        registry.create("iceberg", lake.config())
    with pytest.raises(ConfigError, match="already"):
        registry.register("iceberg", lambda _: Notebook())


def test_checkpoints_become_epochs() -> None:
    """SINK-11: counted from 0, and from 1"""
    sink = Notebook()
    adapter = CheckpointAdapter(sink)
    adapter.write(0, "a")  # type: ignore[arg-type]
    adapter.write(0, "b")  # type: ignore[arg-type]
    adapter.complete(0)
    adapter.complete(1)
    adapter.write(2, "c")  # type: ignore[arg-type]
    adapter.abort(2)
    adapter.abort(2)
    adapter.write(2, "c")  # type: ignore[arg-type]
    assert sink.deeds == [
        ("begin", 1),
        ("write", "a"),
        ("write", "b"),
        ("commit", 1),
        ("begin", 2),
        ("commit", 2),
        ("begin", 3),
        ("write", "c"),
        ("rollback", 3),
        ("begin", 3),
        ("write", "c"),
    ]


def test_a_sink_in_the_background_lands_what_it_is_fed(lake: Lake) -> None:
    """SINK-11"""
    with ConnectorRuntime().start_sink("delta-lake", options(lake)) as handle:
        for checkpoint in range(3):
            handle.write(checkpoint, batch(checkpoint * 2))
            handle.write(checkpoint, batch(checkpoint * 2 + 1))
            committed = handle.complete(checkpoint).result(30)
            assert committed is not None
            assert committed.epoch == checkpoint + 1
        handle.write(3, batch(99))
    assert lake.ids() == [0, 1, 2, 3, 4, 5], "a checkpoint that was not completed is rolled back"
    assert lake.files() == lake.live()
    statuses = list(handle.statuses)
    assert [status.condition for status in statuses[:2]] == [Condition.STARTING, Condition.RUNNING]
    assert statuses[-1].condition is Condition.STOPPED
    with ConnectorRuntime().start_sink("delta-lake", options(lake)) as again:
        again.write(2, batch(4))
        assert again.complete(2).result(30) is None, "it has landed before"
    assert lake.ids() == [0, 1, 2, 3, 4, 5]


def test_what_is_handed_over_may_be_made_into_rows_on_the_way(lake: Lake) -> None:
    """SINK-11: a serializer"""
    runtime = ConnectorRuntime()
    with runtime.start_sink("delta-lake", options(lake), pa.RecordBatch.from_pylist) as handle:
        handle.write(0, [{"id": 1}, {"id": 2}])
        handle.complete(0).result(30)
    assert lake.ids() == [1, 2]


def test_who_feeds_faster_than_the_sink_writes_waits() -> None:
    """SINK-11: the queue is bounded."""
    registry, sink = ConnectorRegistry(), Notebook()
    registry.register("notebook", lambda _: sink)
    sink.may_write.clear()
    handle = ConnectorRuntime(registry).start_sink("notebook", {}, queue_length=2)
    fed: list[int] = []

    def feed() -> None:
        for number in range(10):
            handle.write(0, number)
            fed.append(number)

    feeder = threading.Thread(target=feed)
    feeder.start()
    feeder.join(0.5)
    assert len(fed) <= 3
    sink.may_write.set()
    feeder.join(30)
    handle.stop()
    assert [deed[1] for deed in sink.deeds if deed[0] == "write"] == list(range(10))
    assert sink.deeds[-1] == "close"


def test_any_error_halts_the_sink_and_nobody_waits_for_it(lake: Lake) -> None:
    """SINK-12, OBS-29"""
    handle = ConnectorRuntime().start_sink("delta-lake", {**options(lake), "columns.schema": "id BIGINT"})
    handle.write(0, pa.RecordBatch.from_pydict({"id": ["one"]}))
    with pytest.raises(SchemaMismatch):
        handle.complete(0).result(30)
    statuses = list(handle.statuses)
    assert (statuses[-1].stage, statuses[-1].condition) == (Stage.WRITE, Condition.HALTING)
    assert statuses[-1].message.startswith("SchemaMismatch: ")
    with pytest.raises(SchemaMismatch):
        handle.write(1, batch(1))
    handle.stop()
    assert lake.ids() == []


def test_a_sink_that_was_stopped_takes_nothing() -> None:
    registry = ConnectorRegistry()
    registry.register("notebook", lambda _: Notebook())
    handle = ConnectorRuntime(registry).start_sink("notebook", {})
    handle.stop()
    handle.stop()
    with pytest.raises(InvalidState):
        handle.complete(0)
