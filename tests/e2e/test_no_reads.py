"""Ingesting reads and lists no storage: files are described by whoever wrote them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.engine.events import EpochLanded, EpochWritten, Event
from frazil.table.iceberg import IcebergTable

pytestmark = pytest.mark.real

WRITE_ONLY = '''
from pyiceberg.io.pyarrow import PyArrowFileIO


class WriteOnly(PyArrowFileIO):
    """Storage that can be written to, and neither read nor deleted from."""

    def new_input(self, location):
        raise AssertionError(f"{location} was read")

    def delete(self, location):
        raise AssertionError(f"{location} was deleted")
'''


@pytest.mark.parametrize("sql", [None, "SELECT * FROM source WHERE id >= 0"])
def test_neither_workers_nor_the_coordinator_read_or_list_data(
    make_rig: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str | None
) -> None:
    """TEST-11: workers can only write; between writing and commit the table's data is not even there."""
    module = tmp_path / "write_only.py"
    module.write_text(WRITE_ONLY)
    more = {} if sql is None else {"transform": {"sql": sql}}
    partition = ["bucket(4, id)"]
    rig = make_rig(epoch={"max_records": 50, "in_flight": 1}, table={"partition": partition}, **more)
    rig.produce_orders(0, 10)
    rig.run()
    rig.spark.sparkContext.addPyFile(str(module))
    rig.tree["catalog"]["prop"] = {"py-io-impl": "write_only.WriteOnly"}
    rig.produce_orders(10, 150)
    data = tmp_path / "warehouse" / "shop" / "orders" / "data"
    away = tmp_path / "away"
    hidden = 0

    def listed(*_: object) -> list[str]:
        raise AssertionError("the folder was listed")

    def hide(event: Event) -> None:
        nonlocal hidden
        if isinstance(event, EpochWritten):
            shutil.move(data, away)
            hidden += 1
        elif isinstance(event, EpochLanded):
            assert not data.exists()
            shutil.move(away, data)

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "find_files", listed)
        rig.run(observer=hide)

    assert hidden == 3
    del rig.tree["catalog"]["prop"]
    assert rig.offsets() == rig.every(160)
