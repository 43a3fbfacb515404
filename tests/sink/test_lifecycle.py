"""The life of a sink, and what it says when it is used out of order."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from frazil.errors import InvalidState, SchemaMismatch
from frazil.sink import Sink, State
from tests.sink.conftest import Lake, batch


def test_a_sink_is_created_runs_and_is_stopped(lake: Lake) -> None:
    """SINK-01"""
    sink = lake.sink()
    assert sink.state is State.CREATED
    with sink:
        assert sink.state is State.RUNNING
        lake.land(sink, 1, 1, 2)
    assert sink.state is State.STOPPED
    assert lake.ids() == [1, 2]


def refusal(error: pytest.ExceptionInfo[InvalidState]) -> tuple[str, str]:
    return error.value.actual, error.value.expected


def test_a_sink_that_is_not_open_takes_nothing(lake: Lake) -> None:
    """SINK-01, SINK-10: the error says what state it is in and what it should be in."""
    sink = lake.sink()
    for act in (
        lambda: sink.begin_epoch(1),
        lambda: sink.write_batch(batch(1)),
        sink.flush,
        lambda: sink.commit_epoch(1),
    ):
        with pytest.raises(InvalidState) as error:
            act()
        assert refusal(error) == ("Created", "Running")


def test_a_sink_is_opened_once(lake: Lake) -> None:
    """SINK-01"""
    sink = lake.opened()
    with pytest.raises(InvalidState) as error:
        sink.open()
    assert refusal(error) == ("Running", "Created")
    sink.close()
    with pytest.raises(InvalidState) as error:
        sink.open()
    assert refusal(error) == ("Stopped", "Created")
    sink.close()


def test_rows_belong_to_an_epoch_that_was_begun(lake: Lake) -> None:
    """SINK-04"""
    sink = lake.opened()
    with pytest.raises(InvalidState) as error:
        sink.write_batch(batch(1))
    assert refusal(error) == ("between epochs", "in an epoch")
    with pytest.raises(InvalidState):
        sink.commit_epoch(1)
    sink.begin_epoch(2)
    with pytest.raises(InvalidState) as error:
        sink.commit_epoch(3)
    assert refusal(error) == ("3", "2")


@pytest.mark.parametrize("epoch", [0, -1, 2**63, True])
def test_what_is_no_epoch_is_refused(lake: Lake, epoch: int) -> None:
    """EPOCH-01"""
    with pytest.raises(InvalidState):
        lake.opened().begin_epoch(epoch)


def test_what_is_no_batch_is_refused(lake: Lake) -> None:
    sink = lake.opened(columns={"schema": "id BIGINT"})
    sink.begin_epoch(1)
    with pytest.raises(TypeError, match="list"):
        sink.write_batch([{"id": 1}])  # type: ignore[arg-type]


def test_write_batch_tells_what_it_took(lake: Lake) -> None:
    """SINK-04"""
    sink = lake.opened()
    sink.begin_epoch(1)
    rows = pa.Table.from_batches([batch(1, 2), batch(3)])
    written = sink.write_batch(rows)
    assert (written.records, written.bytes) == (3, rows.nbytes)


def test_the_first_batch_makes_the_table(lake: Lake) -> None:
    """SINK-03, SINK-04: open notes that it is missing."""
    sink = lake.opened()
    assert sink.schema() is None
    assert sink.last_committed_epoch() == 0
    assert not lake.path.exists()
    lake.land(sink, 1, 1)
    found = sink.schema()
    assert found is not None
    assert [(field.name, str(field.field_type)) for field in found.fields] == [("id", "long"), ("name", "string")]


def test_declared_columns_make_the_table_at_once_and_batches_must_fit(lake: Lake) -> None:
    """SINK-03, SINK-10"""
    sink = lake.opened(columns={"schema": "id BIGINT NOT NULL, name STRING"})
    found = sink.schema()
    assert found is not None
    assert found.find_field("id").required
    sink.begin_epoch(1)
    with pytest.raises(SchemaMismatch):
        sink.write_batch(pa.RecordBatch.from_pydict({"id": ["one"]}))


def test_declared_columns_must_fit_a_table_that_is_there(lake: Lake) -> None:
    """SINK-10"""
    lake.land(lake.opened(), 1, 1)
    with pytest.raises(SchemaMismatch):
        lake.opened(columns={"schema": "id BIGINT, price DOUBLE"})


def test_a_sink_tells_what_it_is_by_its_configuration(lake: Lake) -> None:
    """SINK-07, SINK-08, DEC-07"""
    sink = lake.sink(table={"partition": ["name"]})
    can = sink.capabilities()
    assert (can.exactly_once, can.idempotent, can.transactional, can.partitioned) == (True, True, True, True)
    assert (can.two_phase_commit, can.changelog) == (False, False)
    assert not lake.sink().capabilities().partitioned
    info = sink.info()
    assert info.connector_type == "delta-lake"
    assert info.supported_formats == ("arrow", "parquet")
    keys = {key.name: key for key in info.config_keys}
    assert keys["table.name"].required
    assert keys["buffer.max_records"].default == "100000"
    assert [key.name for key in info.config_keys if not key.description or not key.example] == []


def test_health_names_the_table_its_version_and_the_last_epoch(lake: Lake) -> None:
    """SINK-09: last success is a time."""
    sink = lake.sink()
    assert not sink.health_check().healthy
    sink.open()
    lake.land(sink, 3, 1)
    health = sink.health_check()
    assert health.healthy
    assert health.last_success is not None
    assert timedelta() <= datetime.now(UTC) - health.last_success < timedelta(minutes=1)
    assert health.details == {
        "table": str(lake.path),
        "version": str(lake.version()),
        "last_committed_epoch": "3",
    }
    sink.close()
    assert not sink.health_check().healthy


def test_metrics_count_rows_commits_and_errors(lake: Lake) -> None:
    """OBS-25"""
    sink = lake.opened()
    lake.land(sink, 1, 1, 2)
    sink.begin_epoch(2)
    sink.write_batch(batch(3))
    sink.flush()
    with pytest.raises(InvalidState):
        sink.commit_epoch(9)
    found = sink.metrics()
    assert (found.records_total, found.errors_total, found.lag) == (3, 1, 1)
    assert found.bytes_total == batch(1, 2).nbytes + batch(3).nbytes
    assert found.records_per_sec > 0
    assert 0 < found.avg_batch_latency_us <= found.p99_batch_latency_us
    assert dict(found.custom) == {
        "commits": 1,
        "flush_count": 2,
        "pending_files": 1,
        "delta_version": lake.version(),
    }


def test_a_sink_of_a_delta_table_starts_no_jvm(lake: Lake) -> None:
    """And importing frazil loads nothing heavy at all."""
    script = """
import sys, frazil
assert not {"pyarrow", "pyspark", "deltalake"} & set(sys.modules), "importing frazil is cheap"
import pyarrow as pa
config = frazil.SinkConfig.from_options({"table.format": "delta", "table.path": sys.argv[1]})
with frazil.Sink(config) as sink:
    sink.begin_epoch(1)
    sink.write_batch(pa.RecordBatch.from_pydict({"id": [1, 2]}))
    sink.commit_epoch(1)
from pyspark import SparkContext
assert SparkContext._gateway is None
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(lake.path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert lake.ids() == [1, 2]


def test_a_sink_is_a_context_that_may_be_open_already(lake: Lake) -> None:
    with lake.opened() as sink:
        assert isinstance(sink, Sink)
        assert sink.state is State.RUNNING
