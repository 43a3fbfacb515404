"""At least once: every commit appends what it was given, and the table remembers nothing of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType

from frazil.errors import CommitOutcomeUnknown, ConfigError, TableAltered, TableChanged
from frazil.sink import Sink
from tests.sink.conftest import Lake, batch
from tests.sink.test_batches import Feed
from tests.sink.test_frames import House, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOSE = {"guarantee": "at-least-once"}


def opened(lake: Lake, **sections: Any) -> Sink:
    return lake.opened(delivery=LOOSE, **sections)


def log_of(lake: Lake) -> list[dict[str, Any]]:
    """Every action of every version."""
    versions = sorted((lake.path / "_delta_log").glob("*.json"))
    return [json.loads(line) for version in versions for line in version.read_text(encoding="utf-8").splitlines()]


def test_an_epoch_that_comes_twice_is_there_twice(lake: Lake) -> None:
    """COMMIT-24: in one sink, and in the next."""
    sink = opened(lake)
    for _ in range(2):
        assert lake.land(sink, 1, 1, 2).records == 2
    sink.close()
    lake.land(opened(lake), 1, 1)
    assert lake.ids() == [1, 1, 1, 2, 2]


def test_the_table_has_nothing_of_a_register(lake: Lake) -> None:
    """COMMIT-24: no start, no markers; facts for people only."""
    sink = opened(lake, columns={"schema": "id BIGINT, name STRING"})
    assert lake.version() == 0, "opening commits nothing but the table itself"
    assert lake.land(sink, 5, 1).version == 1
    assert lake.land(sink, 6).version is None, "nobody remembers an epoch without rows"
    assert lake.version() == 1
    assert not any("txn" in action for action in log_of(lake))
    (info,) = (action["commitInfo"] for action in log_of(lake)[-2:] if "commitInfo" in action)
    assert {key: value for key, value in info.items() if key.startswith("frazil.")} == {
        "frazil.at-least-once.writer": "loader",
        "frazil.at-least-once.rows": "1",
    }
    assert sink._claim is not None
    assert sink._claim.table.history("loader") == []


def test_it_says_what_it_is(lake: Lake) -> None:
    """SINK-07, SINK-08, SINK-09"""
    sink = opened(lake)
    assert sink.last_committed_epoch() is None
    can = sink.capabilities()
    assert (can.exactly_once, can.idempotent, can.transactional) == (False, False, True)
    assert "every epoch at least once" in sink.info().description
    lake.land(sink, 3, 1)
    assert sink.last_committed_epoch() is None
    assert sink.health_check().healthy
    assert sink.health_check().details == {"table": str(lake.path), "version": "1"}
    assert dict(sink.metrics().custom)["delta_version"] == 1


def test_several_sinks_append_at_once(lake: Lake) -> None:
    """COMMIT-24: there is no fence, under one name either."""
    first, second = (opened(lake, columns={"schema": "id BIGINT, name STRING"}) for _ in range(2))
    first.begin_epoch(1)
    first.write_batch(batch(1))
    lake.land(second, 1, 2)
    first.commit_epoch(1)
    lake.land(second, 2, 3)
    assert lake.ids() == [1, 2, 3]


def test_files_that_were_sent_are_not_sent_again_once_they_are_there(
    lake: Lake, fail_commits: Callable[..., Any]
) -> None:
    """COMMIT-24, FAULT-07: an epoch may come twice, a file never."""
    sink = opened(lake)
    lake.land(sink, 1, 1)
    fail_commits(sink, landing=True, times=1, deed="append")
    version = lake.version()
    assert lake.land(sink, 2, 2).records == 1
    assert (lake.ids(), lake.version()) == ([1, 2], version + 1)


def test_after_an_error_it_is_committed_again_or_given_up(lake: Lake, fail_commits: Callable[..., Any]) -> None:
    """COMMIT-24, FAULT-10: what was sent may land later, so its files stay."""
    sink = opened(lake)
    lake.land(sink, 1, 1)
    fail_commits(sink, landing=False, times=10, deed="append")
    with pytest.raises(CommitOutcomeUnknown):
        lake.land(sink, 2, 2)
    assert not sink.health_check().healthy
    assert sink.commit_epoch(2) is not None
    late = fail_commits(sink, landing=False, times=10, deed="append")
    with pytest.raises(CommitOutcomeUnknown):
        lake.land(sink, 3, 3)
    sink.rollback_epoch(3)
    lake.land(sink, 3, 3)
    late()
    assert lake.ids() == [1, 2, 3, 3]


def test_what_was_not_sent_leaves_no_file(lake: Lake) -> None:
    """SINK-05: neither a rollback nor rows for a table as it was."""
    sink = opened(lake)
    lake.land(sink, 1, 1)
    sink.begin_epoch(2)
    sink.write_batch(batch(2))
    sink.flush()
    sink.rollback_epoch(2)
    sink.begin_epoch(2)
    sink.write_batch(batch(2))
    DeltaTable(lake.path).alter.add_columns([Field("more", PrimitiveType("string"))])
    with pytest.raises(TableAltered):
        sink.commit_epoch(2)
    sink.rollback_epoch(2)
    assert lake.files() == lake.live()
    lake.land(sink, 2, 2)
    assert lake.ids() == [1, 2]


def test_a_sink_that_lands_exactly_once_takes_the_rows_for_those_of_others(lake: Lake) -> None:
    """COMMIT-24: by word only, and from then on its name is its own."""
    lake.land(opened(lake), 7, 1)
    with pytest.raises(TableChanged):
        lake.opened()
    careful = lake.opened(writer={"name": "loader", "adopt": True})
    assert careful.last_committed_epoch() == 0
    lake.land(careful, 1, 2)
    with pytest.raises(ConfigError, match=r"writer\.name: .* has a register of loader"):
        opened(lake)
    lake.land(opened(lake, writer={"name": "other"}), 1, 3)
    lake.land(careful, 2, 4)
    assert lake.ids() == [1, 2, 3, 4]
    assert lake.opened().last_committed_epoch() == 2


@pytest.mark.real
def test_a_batch_that_a_query_runs_again_is_there_twice(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """COMMIT-24: Spark runs its last batch again after a crash."""
    feed = Feed(spark, tmp_path, lake.config(delivery=LOOSE))
    feed.add(0)
    feed.add(1)
    feed.run()
    feed.forget(1)
    feed.run()
    assert lake.ids() == [0, 1, 1]


@pytest.mark.real
def test_an_iceberg_table_remembers_as_little(
    spark: SparkSession, tmp_path: Path, fail_commits: Callable[..., Any]
) -> None:
    """COMMIT-24, FAULT-07"""
    house = House(spark, tmp_path)
    sink = house.opened(delivery=LOOSE)
    for _ in range(2):
        assert land(sink, 1, batch(1), house.frame(2)).records == 2
    assert house.rows() == [1, 1, 2, 2]
    properties = [row["key"] for row in spark.sql(f"SHOW TBLPROPERTIES {house.table}").collect()]
    assert not [key for key in properties if key.startswith("frazil.")]
    assert house.actions() == [None, None], "two snapshots, and no start"
    assert sink._claim is not None
    assert sink._claim.table.history("loader") == []

    fail_commits(sink, landing=True, times=1, deed="append")
    land(sink, 2, batch(3))
    assert house.rows() == [1, 1, 2, 2, 3]
    sink.begin_epoch(3)
    sink.write_batch(batch(4))
    spark.sql(f"ALTER TABLE {house.table} ADD COLUMN more STRING")
    with pytest.raises(TableAltered):
        sink.commit_epoch(3)
    sink.rollback_epoch(3)
    land(sink, 3, batch(4))
    assert sink.health_check().details["snapshot"] == str(sink.metrics().custom["snapshot_id"])

    with pytest.raises(TableChanged):
        house.opened()
    land(house.opened(writer={"name": "loader", "adopt": True}), 1, batch(5))
    with pytest.raises(ConfigError, match="has a register of loader"):
        house.opened(delivery=LOOSE)
    assert house.rows() == [1, 1, 2, 2, 3, 4, 5]
