"""Rows of one partition value meet in one task, if that is wished or pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.engine import distribute

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
