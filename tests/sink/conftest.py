"""Sinks of Delta tables: they need no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from frazil.commit import World
from frazil.sink import Sink, SinkConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batch(*ids: int) -> pa.RecordBatch:
    """One row for each id."""
    names = pa.array([f"n{each}" for each in ids], pa.string())
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), names], ["id", "name"])


class Lake:
    """A folder with one Delta table, and what is in it; pauses take no time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "orders"
        self.sinks: list[Sink] = []
        self.spark: SparkSession | None = None
        """given to sinks that need one"""

    def config(self, **sections: Any) -> SinkConfig:
        table = {"format": "delta", "path": str(self.path), **sections.pop("table", {})}
        return SinkConfig.parse({"table": table, "writer": {"name": "loader"}, **sections})

    def sink(self, **sections: Any) -> Sink:
        """Not open yet."""
        made = Sink(self.config(**sections), self.spark, world=World(sleep=lambda _: None))
        self.sinks.append(made)
        return made

    def opened(self, **sections: Any) -> Sink:
        return self.sink(**sections).open()

    def land(self, sink: Sink, epoch: int, *ids: int) -> Any:
        sink.begin_epoch(epoch)
        if ids:
            sink.write_batch(batch(*ids))
        return sink.commit_epoch(epoch)

    def ids(self) -> list[int]:
        """Of all rows, sorted."""
        return sorted(DeltaTable(self.path).to_pyarrow_table()["id"].to_pylist())

    def version(self) -> int:
        return DeltaTable(self.path).version()

    def files(self) -> set[str]:
        """On disk, whether a table knows them or not."""
        return {path.name for path in self.path.rglob("*.parquet") if "_delta_log" not in path.parts}

    def live(self) -> set[str]:
        return {Path(uri).name for uri in DeltaTable(self.path).file_uris()}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    for sink in made.sinks:
        sink.close()


@pytest.fixture
def fail_commits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`fail_commits(sink, landing=…, times=…)`: commits, or what the `deed` is, raise, having landed or not.

    Returns a function by which the last one that did not land arrives after all.
    """

    def arm(sink: Sink, *, landing: bool, times: int, deed: str = "commit") -> Callable[[], Any]:
        assert sink._claim is not None
        table: Any = sink._claim.table
        commit, left, sent = getattr(table, deed), [times], []

        def faulty(*told: Any) -> Any:
            if left[0] == 0:
                return commit(*told)
            left[0] -= 1
            sent.append(told)
            if landing:
                commit(*told)
            raise ConnectionError("the reply was lost on its way")

        monkeypatch.setattr(table, deed, faulty)
        return lambda: commit(*sent[-1])

    return arm
