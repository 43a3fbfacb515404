"""Tending Delta tables, while a pipeline writes to them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from frazil.engine import Engine, RunOptions, assemble
from frazil.engine.events import EpochLanded, Event
from frazil.engine.tend import optimize_tables, vacuum_tables
from frazil.engine.verify import verify_pipeline
from frazil.errors import ConfigError
from frazil.pipeline import PipelineSpec, parse_pipeline
from frazil.protocol.verify import Level

pytestmark = pytest.mark.real

MB = 2**20


def pipeline(folder: Path, records: int, **table: Any) -> PipelineSpec:
    declared = {"format": "delta", "path": str(folder / "orders"), **table}
    return parse_pipeline(
        {
            "pipeline": {"name": "orders"},
            "source": {"type": "generator", "records": records, "partitions": 1},
            "decode": {"format": "json", "schema": "order_id BIGINT, customer STRING", "on_error": "fail"},
            "table": {key: value for key, value in declared.items() if value is not None},
            "epoch": {"max_records": 100},
        }
    )


def run(spec: PipelineSpec, spark: Any, watch: Any = lambda _: None) -> None:
    parts = assemble(spec, spark)
    try:
        Engine(parts, watch, RunOptions(available_now=True, take_over=True)).run()
    finally:
        parts.source.close()


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    return pipeline(tmp_path, 1_200)


def ids(spec: PipelineSpec) -> list[int]:
    return sorted(DeltaTable(str(spec.table.path)).to_pyarrow_table()["order_id"].to_pylist())


def packed(spec: PipelineSpec, spark: Any, z_order: list[str] | None = None, min_files: int = 10) -> Any:
    (one,) = optimize_tables(spec, spark, z_order=z_order or [], target_bytes=64 * MB, min_files=min_files)
    return one


def test_small_files_are_packed_while_the_pipeline_goes_on(spec: PipelineSpec, spark: Any) -> None:
    """MAINT-09, MAINT-13, TEST-17: an OPTIMIZE between two epochs costs no row and stops nobody."""
    done: list[Any] = []

    def tend(event: Event) -> None:
        if isinstance(event, EpochLanded) and event.landed.epoch == 6:
            done.append(packed(spec, spark, min_files=2))

    run(spec, spark, tend)

    assert [(one.removed, one.added, one.skipped) for one in done] == [(6, 1, "")]
    assert len(DeltaTable(str(spec.table.path)).file_uris()) == 7
    assert len(set(ids(spec))) == len(ids(spec)) == 1_200
    assert verify_pipeline(spec, spark, deep=True).level is Level.HOLDS
    few = packed(spec, spark)
    assert (few.removed, few.files) == (0, 7)
    assert "7 small files are fewer than 10" in few.skipped


def test_rows_are_clustered_by_columns(spec: PipelineSpec, spark: Any) -> None:
    """MAINT-09: and a column that is not there is named."""
    run(spec, spark)
    with pytest.raises(ConfigError, match="--z-order: orders has no column custmer"):
        packed(spec, spark, ["custmer"])
    assert packed(spec, spark, ["customer", "order_id"]).added == 1
    newest = DeltaTable(str(spec.table.path)).history(1)[0]
    assert newest["operation"] == "OPTIMIZE"
    assert "customer" in str(newest["operationParameters"])
    assert len(ids(spec)) == 1_200


def test_a_vacuum_deletes_only_what_is_old_and_unreferenced(spec: PipelineSpec, spark: Any) -> None:
    """MAINT-10, FAULT-30, TEST-17: never below the floor, and a pipeline goes on behind it."""
    run(spec, spark)
    folder = Path(str(spec.table.path))
    long_ago = time.time() - 30 * 86_400
    lost, young = folder / "orders-e0-lost.parquet", folder / "orders-e99-young.parquet"
    lost.write_bytes(b"nobody knows it")
    young.write_bytes(b"an epoch that is being written")
    for file in folder.glob("*.parquet"):
        if file != young:
            os.utime(file, (long_ago, long_ago))

    for too_short in (0.0, 24.0, 167.9):
        with pytest.raises(ConfigError, match="too few"):
            list(vacuum_tables(spec, spark, retention_h=too_short, dry_run=False))
    (tried,) = vacuum_tables(spec, spark, retention_h=168, dry_run=True)
    assert (tried.files, lost.exists()) == (1, True)
    (done,) = vacuum_tables(spec, spark, retention_h=168, dry_run=False)

    assert done.files == 1
    assert (lost.exists(), young.exists()) == (False, True)
    more = pipeline(folder.parent, 1_500)
    run(more, spark)
    assert len(set(ids(more))) == len(ids(more)) == 1_500
    assert verify_pipeline(more, spark, deep=True).level is not Level.BROKEN


def test_tables_of_iceberg_are_not_tended_here(spark: Any, tmp_path: Path) -> None:
    """Their procedures are named instead."""
    spec = pipeline(tmp_path, 1, format="iceberg", name="shop.orders", path=None)
    with pytest.raises(ConfigError, match="is an Iceberg table"):
        list(vacuum_tables(spec, spark, retention_h=168, dry_run=True))
