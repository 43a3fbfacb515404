"""Rows of one partition value meet in one task, if that is wished or pays."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from frazil.engine import distribute, epoch
from frazil.errors import ConfigError
from frazil.table.iceberg import IcebergCatalog

pytestmark = pytest.mark.real

COUNT = 30_000


def test_hash_writes_one_file_for_each_partition_value_however_many_tasks_read(
    make_rig: Callable[..., Any],
) -> None:
    """FILE-08: and every record lands once, with dead letters beside."""
    partition = ["day(placed_at)", "bucket(4, id)", "truncate(9, name) AS start"]
    rig = make_rig(partitions=2, table={"partition": partition, "distribution": "hash"})
    rig.produce_orders(0, COUNT)
    rig.produce_orders(COUNT, COUNT, partition=1)
    rig.produce([b"not json"], partition=1)
    rig.run()
    assert rig.offsets() == rig.every(COUNT) + rig.every(COUNT, partition=1)
    assert rig.dead_offsets() == [(1, COUNT)]
    (row,) = rig.sql("SELECT count(*) AS files, count(DISTINCT partition) AS values FROM {t}.files")
    assert row.files == row["values"] == 28 * 4


@pytest.mark.parametrize(
    "partition",
    ["bucket(4, key)", "truncate(1, data)", "`st.user-agent`"],
)
def test_rows_are_brought_together_whatever_they_are_partitioned_by(
    make_rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, partition: str
) -> None:
    """FILE-08: UUIDs, which Spark has as texts, bytes, and fields of structs with odd names."""
    monkeypatch.setattr(epoch, "_TASK_RECORDS_MIN", 500)
    schema = "key UUID, data BINARY, st STRUCT<`user-agent`: INT>"
    rig = make_rig(
        partitions=2,
        decode={"schema": schema},
        table={"partition": [partition], "distribution": "hash"},
    )
    for number in (0, 1):
        rig.produce([odd_record(n) for n in range(1_000)], partition=number)
    rig.run()
    assert rig.offsets() == rig.every(1_000) + rig.every(1_000, partition=1)
    (row,) = rig.sql("SELECT count(*) AS files, count(DISTINCT partition) AS values FROM {t}.files")
    assert row.files == row["values"] == 4


def odd_record(number: int) -> dict[str, Any]:
    few = number % 4
    return {
        "key": f"00000000-0000-0000-0000-{number:012d}",
        "data": base64.b64encode(bytes([few, number % 7])).decode(),
        "st": {"user-agent": few},
    }


def test_without_it_every_task_writes_the_values_it_meets(make_rig: Callable[..., Any]) -> None:
    rig = make_rig(partitions=2, table={"partition": ["day(placed_at)"], "distribution": "none"})
    rig.produce_orders(0, COUNT)
    rig.produce_orders(COUNT, COUNT, partition=1)
    rig.run()
    (row,) = rig.sql("SELECT count(*) AS files, count(DISTINCT partition) AS values FROM {t}.files")
    assert (row.files, row["values"]) == (2 * 28, 28)


def test_auto_measures_the_first_epoch_and_shuffles_the_second(
    make_rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FILE-08: also behind a transform, whose rows Spark has anyway."""
    monkeypatch.setattr(distribute, "FILES_SPARED_MIN", 16)
    rig = make_rig(
        partitions=2,
        table={"partition": ["day(placed_at)"]},
        transform={"sql": "SELECT * FROM source"},
        epoch={"max_records": 2 * COUNT, "in_flight": 1},
    )
    for first in (0, COUNT):
        rig.produce_orders(first, COUNT)
        rig.produce_orders(first, COUNT, partition=1)
    rig.run()
    counts = rig.sql("SELECT count(*) AS files FROM {t}.entries GROUP BY snapshot_id ORDER BY min(sequence_number)")
    assert [row.files for row in counts] == [2 * 28, 28]
    assert rig.offsets() == rig.every(2 * COUNT) + rig.every(2 * COUNT, partition=1)


@pytest.mark.parametrize("schema", ["`x.y` INT", "`a``b` INT", "at TIME", "at TIMESTAMP_NS"])
def test_columns_that_spark_cannot_take_are_refused_with_hash_and_stay_where_they_are_with_auto(
    make_rig: Callable[..., Any], schema: str
) -> None:
    rig = make_rig(decode={"schema": f"id BIGINT, {schema}"}, table={"distribution": "hash", "partition": ["id"]})
    with pytest.raises(ConfigError, match=r"table\.distribution"):
        rig.run()
    rig.tree["table"]["distribution"] = "auto"
    rig.produce([{"id": 1}])
    rig.run()
    assert IcebergCatalog(rig.spark, rig.spec.catalog).find("shop.orders").observe("orders").has_rows
