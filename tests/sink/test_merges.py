"""Sinks of changes into Delta tables: one MERGE an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from frazil.errors import CommitConflict, Fenced, SetupError
from frazil.sink import Sink
from frazil.table.files import STAGED_FOLDER
from frazil.table.refusal import CommitRefused
from tests.sink.conftest import Lake
from tests.sink.test_frames import KEYED, changes, land

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real


class Keyed(Lake):
    """A Delta table of names by id."""

    def opened(self, **sections: Any) -> Sink:
        return super().opened(**{"table": KEYED, **sections})

    def rows(self) -> list[tuple[int, str]]:
        table = DeltaTable(self.path).to_pyarrow_table()
        return sorted(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))

    def operations(self) -> list[str]:
        """What each version did."""
        return [each["operation"] for each in DeltaTable(self.path).history()]

    def staged(self) -> list[Path]:
        return sorted((self.path / STAGED_FOLDER).rglob("*.parquet"))


@pytest.fixture
def keyed(spark: SparkSession, tmp_path: Path) -> Keyed:
    made = Keyed(tmp_path)
    made.spark = spark
    return made


def test_changes_in_arrow_batches_are_merged_and_come_but_once(
    keyed: Keyed, delta_duck: duckdb.DuckDBPyConnection
) -> None:
    """CHG-12, COMMIT-22, SINK-08: of each key the last change of the epoch counts, over all its batches."""
    sink = keyed.opened()
    assert sink.capabilities().changelog
    land(sink, 7, changes(("I", 1, "a"), ("I", 2, "b"), ("U", 1, "c")), changes(("U", 2, "d"), ("I", 3, "e")))
    second = changes(("D", 1, ""), ("U", 2, "f")), changes(("D", 3, ""), ("I", 3, "g"), ("D", 9, ""))
    committed = land(sink, 1000, *second)
    assert (committed.records, committed.version) == (5, keyed.version())
    expected = [(2, "f"), (3, "g")]
    assert keyed.rows() == expected
    assert keyed.operations().count("MERGE") == 2

    again = keyed.opened()
    assert again.last_committed_epoch() == 1000
    version = keyed.version()
    assert land(again, 7, changes(("I", 1, "a"))) is None
    assert land(again, 1000, *second) is None
    assert keyed.version() == version
    assert keyed.staged() == []
    assert delta_duck.sql(f"SELECT id, name FROM delta_scan('{keyed.path}') ORDER BY id").fetchall() == expected
    assert keyed.spark is not None
    read = keyed.spark.read.format("delta").load(str(keyed.path)).orderBy("id").collect()
    assert [tuple(row) for row in read] == expected


def test_changes_in_a_dataframe_are_merged_in_the_order_of_a_column(keyed: Keyed) -> None:
    """CHG-12, SINK-04: the latest of each key comes first in the order of rows, and counts all the same."""
    assert keyed.spark is not None
    told = [("D" if key < 5 and at == 4 else "U", key, f"v{at}", at, -at) for at in range(5) for key in range(40)]
    columns = "_op STRING, id BIGINT, name STRING, at BIGINT, _order BIGINT"
    sink = keyed.opened(columns={"sequence_by": "at"})
    land(sink, 1, keyed.spark.createDataFrame(told, columns).repartition(4))
    assert keyed.rows() == [(key, "v4") for key in range(5, 40)]
    late_first = {"_op": ["T", "U", "U"], "id": [0, 1, 1], "name": ["", "new", "old"], "at": [0, 20, 10]}
    land(sink, 2, pa.RecordBatch.from_pydict(late_first))
    assert keyed.rows() == [(1, "new")]


def test_a_replaced_sink_merges_nothing_more_and_its_staged_changes_go(keyed: Keyed) -> None:
    """FAULT-01, FAULT-05, COMMIT-22: epochs have the caller's numbers, staged files those of commits.

    So a start behind a later commit knows what is over, whoever was killed or replaced.
    """
    first = keyed.opened()
    land(first, 1000, changes(("I", 1, "a")))
    first.begin_epoch(2000)
    first.write_batch(changes(("D", 1, "")))
    second = keyed.opened()
    with pytest.raises(Fenced):
        first.commit_epoch(2000)
    (left,) = keyed.staged()
    land(second, 2000, changes(("U", 1, "b")))
    assert (keyed.rows(), keyed.staged()) == ([(1, "b")], [left])
    keyed.opened()
    assert keyed.staged() == []


def test_what_is_given_up_leaves_no_staged_changes(keyed: Keyed, fail_commits: Any) -> None:
    """SINK-05, FAULT-10: whether it was sent or not"""
    sink = keyed.opened(columns={"schema": "id BIGINT, name STRING"})
    assert keyed.spark is not None
    sink.begin_epoch(1)
    sink.write_batch(keyed.spark.sql("SELECT 'U' AS _op, 1L AS id, 'x' AS name, 1L AS _order"))
    assert len(keyed.staged()) == 1
    sink.rollback_epoch(1)
    assert keyed.staged() == []
    late = fail_commits(sink, landing=False, times=10)
    with pytest.raises(CommitConflict):
        land(sink, 1, changes(("U", 1, "x")))
    assert len(keyed.staged()) == 1
    sink.rollback_epoch(1)
    assert keyed.staged() == []
    with pytest.raises(CommitRefused):
        late()
    assert keyed.rows() == []


def test_a_merge_whose_reply_is_lost_lands_once(keyed: Keyed, fail_commits: Any) -> None:
    """FAULT-07: here of a sink that was given no session, and opens one."""
    keyed.spark = None
    sink = keyed.opened(columns={"schema": "id BIGINT, name STRING"})
    fail_commits(sink, landing=True, times=1)
    assert land(sink, 1, changes(("I", 1, "a"))).records == 1
    assert (keyed.rows(), keyed.operations().count("MERGE")) == ([(1, "a")], 1)


def test_a_spark_without_delta_is_refused_before_anything_is_written(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SINK-10: a MERGE would fail, late, and be tried again and again."""
    assert keyed.spark is not None
    get = keyed.spark.conf.get
    kept: Any = lambda key, *default: "" if key == "spark.sql.extensions" else get(key, *default)  # noqa: E731
    monkeypatch.setattr(keyed.spark.conf, "get", kept)
    with pytest.raises(SetupError, match="DeltaSparkSessionExtension"):
        keyed.opened()
    assert not keyed.path.exists()
