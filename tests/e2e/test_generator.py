"""A pipeline without Kafka: the generator into a catalog that lives in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.real


def test_the_generator_lands_the_same_rows_whenever_and_however_often_it_runs(make_rig: Callable[..., Any]) -> None:
    rig = make_rig(
        source={"type": "generator", "seed": 7, "records": 1000, "topics": None, "kafka": None},
        decode={"schema": "order_id BIGINT, customer STRING, amount DECIMAL(10,2), placed_at TIMESTAMP"},
        catalog={"type": "memory"},
        epoch={"max_records": 300},
    )
    rig.run()
    rig.run()

    assert rig.offsets() == [(partition, offset) for partition in (0, 1) for offset in range(500)]
    assert rig.sql("SELECT count(DISTINCT order_id) FROM {t}")[0][0] == 1000
