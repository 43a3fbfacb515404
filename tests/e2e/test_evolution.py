"""A pipeline file that declares more than its table has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.engine.verify import verify_pipeline
from frazil.errors import SchemaMismatch
from frazil.protocol.verify import Level
from tests.e2e.conftest import place

pytestmark = pytest.mark.real


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_new_columns_are_in_the_table_before_the_first_row_that_has_them(
    make_rig: Callable[..., Any], tmp_path: Path, table_format: str
) -> None:
    """SCHEMA-03, SCHEMA-07, TEST-13: older rows have null there, and without the wish nothing is written."""
    rig = make_rig(decode={"schema": "id BIGINT, name STRING"}, table=place(table_format, tmp_path))
    rig.produce([{"id": 1, "name": "a", "city": "Oslo"}])
    rig.run()
    rig.tree["decode"]["schema"] = "id BIGINT, name STRING, city STRING"
    rig.produce([{"id": 2, "name": "b", "city": "Rome"}])

    with pytest.raises(SchemaMismatch, match="column city is not in the table"):
        rig.run()
    rig.tree["schema"] = {"evolution": True}
    rig.run()

    assert [tuple(row) for row in rig.sql("SELECT id, city FROM {t} ORDER BY id")] == [(1, None), (2, "Rome")]
    assert rig.offsets() == rig.every(2)
    assert verify_pipeline(rig.spec, rig.spark, deep=True).level is not Level.BROKEN
