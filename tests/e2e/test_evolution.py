"""A pipeline file that declares more than its table has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.engine.check import check_connections
from frazil.engine.verify import verify_pipeline
from frazil.errors import SchemaMismatch
from frazil.protocol.verify import Level
from tests.e2e.conftest import place

pytestmark = pytest.mark.real


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_new_columns_are_in_the_table_before_the_first_row_that_has_them(
    make_rig: Callable[..., Any], tmp_path: Path, table_format: str
) -> None:
    """SCHEMA-03, SCHEMA-07, TEST-13: older rows have null there, and without the wish nothing is written.

    Looking whether everything fits writes nothing either.
    """
    rig = make_rig(decode={"schema": "id BIGINT, name STRING"}, table=place(table_format, tmp_path))
    rig.produce([{"id": 1, "name": "a", "city": "Oslo"}])
    rig.run()
    rig.tree["decode"]["schema"] = "id BIGINT, name STRING, city STRING"
    rig.produce([{"id": 2, "name": "b", "city": "Rome"}])

    with pytest.raises(SchemaMismatch, match="column city is not in the table"):
        rig.run()
    rig.tree["schema"] = {"evolution": True}
    assert any("is there and fits" in finding for finding in check_connections(rig.spec, rig.spark))
    assert "city" not in rig.sql("SELECT * FROM {t}")[0].asDict()
    rig.run()

    assert [tuple(row) for row in rig.sql("SELECT id, city FROM {t} ORDER BY id")] == [(1, None), (2, "Rome")]
    assert rig.offsets() == rig.every(2)
    assert verify_pipeline(rig.spec, rig.spark, deep=True).level is not Level.BROKEN


@pytest.mark.parametrize(
    ("table_format", "mode"), [("iceberg", "upsert"), ("delta", "append"), ("delta", "upsert")]
)
def test_a_column_that_is_declared_wider_is_wider_before_the_first_row_that_needs_it(
    make_rig: Callable[..., Any], tmp_path: Path, table_format: str, mode: str
) -> None:
    """SCHEMA-04, SCHEMA-07, TEST-13: rows of before and after, each once; a restart goes on from there."""
    keys = {"keys": ["id"]} if mode == "upsert" else {}
    place_of = {**place(table_format, tmp_path), "mode": mode, **keys}
    rig = make_rig(decode={"schema": "id INT, price FLOAT"}, table=place_of)
    rig.produce_keyed([(1, {"id": 1, "price": 0.5}), (2, {"id": 2, "price": 1.5})])
    rig.run()
    rig.tree["decode"]["schema"] = "id BIGINT, price DOUBLE"
    beyond = 5_000_000_000
    rig.produce_keyed([(beyond, {"id": beyond, "price": 0.1}), (3, {"id": 3, "price": 2.5})])

    with pytest.raises(SchemaMismatch, match="column id is long as declared, but int in the table"):
        rig.run()
    rig.tree["schema"] = {"evolution": True}
    rig.run()
    rig.produce_keyed([(4, {"id": 4, "price": 3.5})])
    rig.run()

    expected = [(1, 0.5), (2, 1.5), (3, 2.5), (4, 3.5), (beyond, 0.1)]
    assert [tuple(row) for row in rig.sql("SELECT id, price FROM {t} ORDER BY id")] == expected
    assert rig.offsets() == rig.every(5)
    assert verify_pipeline(rig.spec, rig.spark, deep=True).level is not Level.BROKEN
