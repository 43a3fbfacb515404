"""Epochs of a sink: once, whatever is repeated, given up, lost on the way or done by others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from frazil.errors import (
    CommitConflict,
    ConfigError,
    Fenced,
    InvalidState,
    SchemaMismatch,
    SourceChanged,
    TableAltered,
    TableChanged,
)
from frazil.table.refusal import CommitRefused
from tests.sink.conftest import Lake, batch


def test_an_epoch_is_one_version_and_nothing_is_seen_before_its_commit(lake: Lake) -> None:
    """EPOCH-13, SINK-05: a flush only stages files."""
    sink = lake.opened(columns={"schema": "id BIGINT, name STRING"})
    before = lake.version()
    sink.begin_epoch(1)
    sink.write_batch(batch(1))
    sink.flush()
    sink.write_batch(batch(2))
    sink.flush()
    assert len(lake.files()) == 2
    assert (lake.ids(), lake.version()) == ([], before)
    committed = sink.commit_epoch(1)
    assert committed is not None
    assert (committed.epoch, committed.version, committed.records, committed.files) == (1, before + 1, 2, 2)
    assert (lake.ids(), lake.version()) == ([1, 2], before + 1)


def test_epochs_may_leave_numbers_out(lake: Lake) -> None:
    """EPOCH-01"""
    sink = lake.opened()
    for epoch in (3, 4, 1000, 2**63 - 1):
        lake.land(sink, epoch, epoch % 100)
    sink.close()
    assert lake.opened().last_committed_epoch() == 2**63 - 1
    assert lake.ids() == [0, 3, 4, (2**63 - 1) % 100]


def test_an_epoch_that_comes_again_is_dropped_and_leaks_nowhere(lake: Lake) -> None:
    """EPOCH-15"""
    sink = lake.opened()
    lake.land(sink, 1, 1)
    lake.land(sink, 2, 2)
    version = lake.version()
    for epoch in (1, 2):
        sink.begin_epoch(epoch)
        assert sink.write_batch(batch(99)).records == 0
        assert sink.commit_epoch(epoch) is None
    assert sink.commit_epoch(1) is None
    assert lake.version() == version
    lake.land(sink, 3, 3)
    assert lake.ids() == [1, 2, 3]
    assert lake.files() == lake.live()


def test_a_new_sink_goes_on_where_the_table_stands(lake: Lake) -> None:
    """SINK-03, FAULT-03: replay after a crash"""
    first = lake.opened()
    lake.land(first, 1, 1)
    lake.land(first, 2, 2)
    second = lake.opened()
    assert second.last_committed_epoch() == 2
    assert lake.land(second, 2, 2) is None
    lake.land(second, 3, 3)
    assert lake.ids() == [1, 2, 3]


def test_an_empty_epoch_is_as_durable_as_any(lake: Lake) -> None:
    """EPOCH-14"""
    sink = lake.opened()
    lake.land(sink, 1, 1)
    committed = lake.land(sink, 2)
    assert (committed.records, committed.files) == (0, 0)
    assert lake.opened().last_committed_epoch() == 2


def test_an_empty_epoch_before_there_is_a_table_is_forgotten(lake: Lake) -> None:
    sink = lake.opened()
    assert lake.land(sink, 1) is None
    assert sink.last_committed_epoch() == 0
    lake.land(sink, 2, 2)
    assert lake.ids() == [2]


def test_a_rolled_back_epoch_leaves_no_file_and_the_next_one_is_whole(lake: Lake) -> None:
    """TEST-09, SINK-05"""
    sink = lake.opened()
    lake.land(sink, 1, 1)
    sink.begin_epoch(2)
    sink.write_batch(batch(7))
    sink.flush()
    sink.write_batch(batch(8))
    sink.rollback_epoch(2)
    assert lake.files() == lake.live()
    lake.land(sink, 2, 2)
    assert lake.ids() == [1, 2]


def test_a_landed_epoch_cannot_be_rolled_back(lake: Lake) -> None:
    sink = lake.opened()
    lake.land(sink, 1, 1)
    with pytest.raises(InvalidState) as error:
        sink.rollback_epoch(1)
    assert error.value.actual == "committed"
    sink.rollback_epoch(2)


def test_beginning_an_epoch_clears_what_another_one_left(lake: Lake) -> None:
    """SINK-05"""
    sink = lake.opened()
    sink.begin_epoch(1)
    sink.write_batch(batch(7))
    sink.flush()
    lake.land(sink, 2, 2)
    assert lake.ids() == [2]
    assert lake.files() == lake.live()


def test_closing_inside_an_epoch_commits_nothing(lake: Lake) -> None:
    """SINK-06: an epoch that is not complete is rolled back, so that its replay is not skipped."""
    sink = lake.opened()
    lake.land(sink, 1, 1)
    sink.begin_epoch(2)
    sink.write_batch(batch(7))
    sink.flush()
    sink.close()
    assert lake.files() == lake.live()
    lake.land(lake.opened(), 2, 2, 3)
    assert lake.ids() == [1, 2, 3]


@pytest.mark.parametrize(
    "limit", [{"buffer": {"max_records": 2}}, {"table": {"target_file_size": batch(1).nbytes + 1}}]
)
def test_rows_go_into_files_when_there_are_enough_of_them(lake: Lake, limit: dict[str, Any]) -> None:
    """EPOCH-12: by number, and by bytes"""
    sink = lake.opened(**limit)
    sink.begin_epoch(1)
    sink.write_batch(batch(1))
    assert sink.metrics().custom["pending_files"] == 0
    sink.write_batch(batch(2))
    pending = sink.metrics().custom["pending_files"]
    assert pending > 0
    sink.write_batch(batch(3))
    assert sink.metrics().custom["pending_files"] == pending
    sink.commit_epoch(1)
    assert lake.ids() == [1, 2, 3]


def test_rows_go_into_files_when_they_have_waited_long_enough(lake: Lake) -> None:
    """EPOCH-12: also when no further row comes"""
    sink = lake.opened(buffer={"max_age": "50ms"})
    sink.begin_epoch(1)
    sink.write_batch(batch(1))
    deadline = time.monotonic() + 30
    while not sink.metrics().custom["pending_files"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sink.metrics().custom["pending_files"] == 1
    sink.commit_epoch(1)
    assert lake.ids() == [1]


def test_an_epoch_that_lacks_a_batch_is_never_committed(lake: Lake) -> None:
    """Rows of a batch that failed would be lost, because the epoch is not handed over again."""
    sink = lake.opened()
    lake.land(sink, 1, 1)
    sink.begin_epoch(2)
    sink.write_batch(batch(2))
    with pytest.raises(SchemaMismatch):
        sink.write_batch(pa.RecordBatch.from_pydict({"stranger": [1]}))
    for act in (lambda: sink.commit_epoch(2), lambda: sink.write_batch(batch(3))):
        with pytest.raises(InvalidState) as error:
            act()
        assert (error.value.actual, error.value.expected) == ("failed", "in an epoch")
    assert not sink.health_check().healthy
    sink.rollback_epoch(2)
    lake.land(sink, 2, 2, 3)
    assert sink.health_check().healthy
    assert lake.ids() == [1, 2, 3]
    assert lake.files() == lake.live()


def test_a_second_sink_of_the_writer_fences_the_first(lake: Lake) -> None:
    """FAULT-05, FAULT-06: whoever is replaced commits nothing more, nor does it take its place again."""
    first = lake.opened()
    lake.land(first, 1, 1)
    first.begin_epoch(2)
    first.write_batch(batch(2))
    second = lake.opened()
    with pytest.raises(Fenced):
        first.commit_epoch(2)
    assert not first.health_check().healthy
    lake.land(second, 2, 22)
    with pytest.raises(Fenced):
        first.rollback_epoch(2)
    with pytest.raises(Fenced):
        lake.land(first, 3, 3)
    assert lake.ids() == [1, 22]


def test_others_may_write_to_the_table_meanwhile(lake: Lake) -> None:
    sink = lake.opened()
    lake.land(sink, 1, 1)
    sink.begin_epoch(2)
    sink.write_batch(batch(2))
    write_deltalake(lake.path, pa.Table.from_batches([batch(100)]), mode="append")
    sink.commit_epoch(2)
    other = lake.opened(writer={"name": "other", "adopt": True})
    lake.land(other, 1, 11)
    lake.land(sink, 3, 3)
    assert lake.ids() == [1, 2, 3, 11, 100]


def test_a_table_with_rows_of_others_is_taken_only_by_word(lake: Lake) -> None:
    write_deltalake(lake.path, pa.Table.from_batches([batch(100)]))
    with pytest.raises(TableChanged):
        lake.opened()
    lake.land(lake.opened(writer={"name": "loader", "adopt": True}), 1, 1)
    assert lake.ids() == [1, 100]


def test_a_stream_that_lost_its_place_is_not_skipped_in_silence(lake: Lake) -> None:
    """FAULT-23"""
    former = lake.opened(writer={"name": "loader", "stream": "a"})
    lake.land(former, 1, 1)
    lake.land(former, 2, 2)
    with pytest.raises(SourceChanged) as error:
        lake.opened(writer={"name": "loader", "stream": "b"})
    assert 'writer.replaces = "a"' in error.value.remedy
    lake.land(former, 3, 3)
    replacing = {"name": "loader", "stream": "b", "replaces": "a"}
    successor = lake.opened(writer=replacing)
    assert successor.last_committed_epoch() == 0
    lake.land(successor, 1, 11)
    again = lake.opened(writer=replacing)
    assert again.last_committed_epoch() == 1
    assert lake.land(again, 1, 11) is None
    lake.land(again, 2, 12)
    assert lake.ids() == [1, 2, 3, 11, 12]
    with pytest.raises(SourceChanged):
        lake.opened(writer={"name": "loader", "stream": "a"})


def test_a_refused_stream_fences_nobody(lake: Lake) -> None:
    """FAULT-23: it is refused before it claims the table."""
    running = lake.opened(writer={"name": "loader", "stream": "a"})
    lake.land(running, 1, 1)
    with pytest.raises(SourceChanged):
        lake.opened(writer={"name": "loader", "stream": "b"})
    lake.land(running, 2, 2)
    assert lake.ids() == [1, 2]


def test_a_commit_whose_reply_is_lost_lands_once(lake: Lake, fail_commits: Callable[..., Any]) -> None:
    """FAULT-07"""
    sink = lake.opened()
    lake.land(sink, 1, 1)
    fail_commits(sink, landing=True, times=1)
    assert lake.land(sink, 2, 2).records == 1
    lake.land(sink, 3, 3)
    assert lake.ids() == [1, 2, 3]


def test_a_commit_that_raises_can_be_tried_again(lake: Lake, fail_commits: Callable[..., Any]) -> None:
    """SINK-10"""
    sink = lake.opened()
    lake.land(sink, 1, 1)
    fail_commits(sink, landing=False, times=10)
    with pytest.raises(CommitConflict):
        lake.land(sink, 2, 2)
    with pytest.raises(InvalidState) as error:
        sink.write_batch(batch(3))
    assert error.value.actual == "committing", "what was sent may have landed without these rows"
    assert sink.commit_epoch(2) is not None
    assert lake.ids() == [1, 2]


def test_an_epoch_whose_commit_raised_can_be_rolled_back_for_good(
    lake: Lake, fail_commits: Callable[..., Any]
) -> None:
    """FAULT-10: a new claim makes sure that what was sent cannot land any more; only then its files are deleted."""
    sink = lake.opened()
    lake.land(sink, 1, 1)
    late = fail_commits(sink, landing=False, times=10)
    with pytest.raises(CommitConflict):
        lake.land(sink, 2, 77)
    claimed = lake.version()
    sink.rollback_epoch(2)
    assert lake.version() == claimed + 1
    assert lake.files() == lake.live()
    with pytest.raises(CommitRefused):
        late()
    lake.land(sink, 2, 2)
    assert lake.ids() == [1, 2]


def test_an_epoch_that_landed_without_a_reply_cannot_be_rolled_back(
    lake: Lake, fail_commits: Callable[..., Any]
) -> None:
    """FAULT-10: its files are in the table, and stay."""
    sink = lake.opened()
    lake.land(sink, 1, 1)
    late = fail_commits(sink, landing=False, times=10)
    with pytest.raises(CommitConflict):
        lake.land(sink, 2, 2)
    late()
    with pytest.raises(InvalidState, match="has landed"):
        sink.rollback_epoch(2)
    assert lake.land(sink, 2, 2) is None
    lake.land(sink, 3, 3)
    assert lake.ids() == [1, 2, 3]


def test_an_epoch_that_landed_late_is_not_committed_again(lake: Lake, fail_commits: Callable[..., Any]) -> None:
    """FAULT-10"""
    sink = lake.opened()
    lake.land(sink, 1, 1)
    late = fail_commits(sink, landing=False, times=10)
    with pytest.raises(CommitConflict):
        lake.land(sink, 2, 2)
    late()
    assert sink.commit_epoch(2) is None
    assert sink.last_committed_epoch() == 2
    lake.land(sink, 3, 3)
    assert lake.ids() == [1, 2, 3]


def test_rows_that_were_written_for_a_table_as_it_was_do_not_land(lake: Lake) -> None:
    from deltalake.schema import Field, PrimitiveType

    sink = lake.opened()
    lake.land(sink, 1, 1)
    sink.begin_epoch(2)
    sink.write_batch(batch(2))
    DeltaTable(lake.path).alter.add_columns([Field("more", PrimitiveType("string"))])
    with pytest.raises(TableAltered):
        sink.commit_epoch(2)
    with pytest.raises(InvalidState):
        sink.commit_epoch(2)
    sink.rollback_epoch(2)
    lake.land(sink, 2, 2)
    assert lake.ids() == [1, 2]


def test_a_table_that_was_rolled_back_is_rewound_by_word(lake: Lake) -> None:
    sink = lake.opened()
    for epoch in (1, 2, 3):
        lake.land(sink, epoch, epoch)
    table = DeltaTable(lake.path)
    table.restore(table.version() - 2)
    with pytest.raises(TableChanged):
        lake.opened()
    again = lake.opened(writer={"name": "loader", "on_rollback": "rewind"})
    assert again.last_committed_epoch() == 1
    lake.land(again, 2, 2)
    lake.land(again, 3, 3)
    assert lake.ids() == [1, 2, 3]


def test_the_name_of_a_pipeline_is_no_name_for_a_sink(lake: Lake) -> None:
    from frazil.commit import Coordinator
    from frazil.protocol.positions import Frontier, Position

    sink = lake.opened(columns={"schema": "id BIGINT"})
    assert sink._claim is not None
    pipeline = Coordinator("orders", sink._claim.table, interval_s=0)
    pipeline.start(lambda: Frontier({("orders", 0): Position(5)}, {"orders": "id"}))
    with pytest.raises(ConfigError, match=r"writer\.name"):
        lake.opened(writer={"name": "orders"})
