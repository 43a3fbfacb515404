"""Sinks that replace whole partitions of a Delta table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from frazil.errors import CommitConflict, Fenced
from frazil.sink import Sink
from tests.sink.conftest import Lake, batch

DAYS = {"mode": "overwrite", "partition": ["day"]}


def of_day(day: str, *ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), "day": [day] * len(ids)})


def land(sink: Sink, epoch: int, *batches: pa.RecordBatch) -> Any:
    sink.begin_epoch(epoch)
    for each in batches:
        sink.write_batch(each)
        sink.flush()
    return sink.commit_epoch(epoch)


def rows(lake: Lake) -> dict[str, list[int]]:
    table = DeltaTable(lake.path).to_pyarrow_table()
    return {day: sorted(table.filter(pa.compute.field("day") == day)["id"].to_pylist()) for day in "abc"}


def test_an_epoch_replaces_the_partitions_that_it_has_rows_of(lake: Lake) -> None:
    """CHG-13: all batches of an epoch come together; an epoch without rows replaces nothing."""
    sink = lake.opened(table=DAYS)
    land(sink, 1, of_day("a", 1, 2), of_day("b", 3))
    land(sink, 2, of_day("b", 4), of_day("b", 5), of_day("c", 6))
    assert rows(lake) == {"a": [1, 2], "b": [4, 5], "c": [6]}
    land(sink, 3)
    assert rows(lake) == {"a": [1, 2], "b": [4, 5], "c": [6]}


def test_an_epoch_replaces_a_table_without_partitions(lake: Lake) -> None:
    """CHG-13"""
    sink = lake.opened(table={"mode": "overwrite"})
    lake.land(sink, 1, 1, 2)
    lake.land(sink, 2, 3)
    assert lake.ids() == [3]


def test_an_epoch_that_comes_again_does_not_undo_a_later_one(lake: Lake) -> None:
    """CHG-13, EPOCH-15: nor does a sink that was replaced."""
    first = lake.opened(table=DAYS)
    land(first, 1, of_day("a", 1))
    land(first, 2, of_day("a", 2))
    assert land(first, 1, of_day("a", 1)) is None
    first.begin_epoch(3)
    first.write_batch(of_day("a", 33))
    second = lake.opened(table=DAYS)
    assert land(second, 2, of_day("a", 22)) is None
    with pytest.raises(Fenced):
        first.commit_epoch(3)
    assert rows(lake)["a"] == [2]
    land(second, 3, of_day("a", 3))
    assert rows(lake)["a"] == [3]


def test_what_was_rolled_back_replaces_nothing(lake: Lake, fail_commits: Callable[..., Any]) -> None:
    """CHG-13, FAULT-10"""
    sink = lake.opened(table={"mode": "overwrite"})
    lake.land(sink, 1, 1)
    sink.begin_epoch(2)
    sink.write_batch(batch(2))
    sink.rollback_epoch(2)
    fail_commits(sink, landing=False, times=10)
    with pytest.raises(CommitConflict):
        lake.land(sink, 2, 2)
    sink.rollback_epoch(2)
    assert lake.ids() == [1]
    assert lake.files() == lake.live()
