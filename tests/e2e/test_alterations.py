"""Somebody alters the table while a pipeline lands rows in it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from frazil.engine.events import EpochLanded, EpochWritten, Event, Retrying
from frazil.errors import SchemaMismatch
from frazil.journal import read_journal
from frazil.protocol.entries import EpochBegun, SchemaChanged
from frazil.serve.journal import journal_table

pytestmark = pytest.mark.real

HARMLESS = [
    "ADD COLUMN region STRING",
    "ADD PARTITION FIELD bucket(2, id)",
    "WRITE LOCALLY ORDERED BY id",
    "ALTER COLUMN id TYPE BIGINT",
]


def altering(rig: Any, when: type[Event], statements: list[str]) -> Callable[[Event], None]:
    """One statement at each of the next events of a kind."""
    left = list(statements)

    def watch(event: Event) -> None:
        if isinstance(event, when) and left:
            rig.spark.sql(f"ALTER TABLE {rig.table} {left.pop(0)}")

    return watch


def layout_of_files(rig: Any) -> dict[int, tuple[int, int]]:
    """By offset, the partition spec and the sort order that its file says it has."""
    files = {
        row.file_path: (row.spec_id, row.sort_order_id)
        for row in rig.sql("SELECT file_path, spec_id, sort_order_id FROM {t}.files")
    }
    return {row[0]: files[row[1]] for row in rig.sql("SELECT _offset, _file FROM {t}")}


@pytest.mark.parametrize("when", [EpochWritten, EpochLanded])
def test_a_table_altered_while_epochs_are_under_way_gets_every_row_in_its_new_shape(
    make_rig: Callable[..., Any], when: type[Event]
) -> None:
    """COMMIT-05, FAULT-41: after the files and before their commit, or between two epochs; three are in flight."""
    rig = make_rig(decode={"schema": "id INT, name STRING"}, epoch={"max_records": 10})
    rig.produce_orders(0, 60)

    events = rig.run(observer=altering(rig, when, HARMLESS))

    told = [event.reason for event in events if isinstance(event, Retrying)]
    assert len(told) == len(HARMLESS)
    assert all("shop.orders was altered while epoch" in reason for reason in told)
    assert rig.offsets() == rig.every(60)
    rows = rig.sql("SELECT id, name, region FROM {t} ORDER BY id")
    assert [tuple(row) for row in rows] == [(n, f"customer-{n % 17}", None) for n in range(60)]
    table = rig.open_table().loaded()
    assert table.schema().findField("id").type().toString() == "long"
    layouts, latest = layout_of_files(rig), (table.spec().specId(), table.sortOrder().orderId())
    assert latest != (0, 0)
    assert layouts[59] == latest
    # The first epoch landed before anything was altered, or was written again each time.
    assert layouts[0] == (latest if when is EpochWritten else (0, 0))
    history = [record for record in rig.open_table().history("orders") if record.action == "append"]
    assert [record.epoch for record in history] == [*range(1, 7)]


def test_the_journal_tells_what_others_did_to_the_schema(make_rig: Callable[..., Any]) -> None:
    """REC-09, SCHEMA-11: also over a restart; fields inside of others by their full name."""
    rig = make_rig(decode={"schema": "id INT, name STRING"})
    folder = rig.folder / ".frazil" / "orders"
    rig.tree["journal"] = {"dir": str(folder)}
    rig.produce_orders(0, 10)
    rig.run()
    rig.spark.sql(f"ALTER TABLE {rig.table} ADD COLUMN place STRUCT<city: STRING>")
    rig.spark.sql(f"ALTER TABLE {rig.table} RENAME COLUMN name TO customer")
    rig.tree["decode"]["schema"] = "id INT, customer STRING"
    rig.produce_orders(10, 10)
    rig.run()
    rig.produce_orders(20, 10)
    rig.run()

    recorded = read_journal(folder).recorded

    noted = [each.entry for each in recorded if isinstance(each.entry, SchemaChanged)]
    assert noted == [
        SchemaChanged(
            "shop.orders", 0, 2, fields_added=("customer", "place", "place.city"), fields_removed=("name",)
        )
    ]
    begun = [each.entry.tables[-1].schema_id for each in recorded if isinstance(each.entry, EpochBegun)]
    assert begun == [0, 2, 2]
    shown = Console(width=300, record=True, file=io.StringIO())
    shown.print(journal_table(rig.spec, recorded))
    assert "shop.orders from schema 0 to 2: +customer +place +place.city -name" in shown.export_text()


@pytest.mark.parametrize("when", [EpochWritten, EpochLanded])
@pytest.mark.parametrize("change", ["RENAME COLUMN name TO customer", "DROP COLUMN name"])
def test_a_column_that_is_declared_and_taken_from_the_table_stops_the_pipeline(
    make_rig: Callable[..., Any], when: type[Event], change: str
) -> None:
    """COMMIT-05, FAULT-41: no value lands under another name, none is dropped in silence."""
    rig = make_rig(decode={"schema": "id INT, name STRING"}, epoch={"max_records": 10})
    rig.produce_orders(0, 40)

    with pytest.raises(SchemaMismatch, match=r"(?s)name.*shop\.orders"):
        rig.run(observer=altering(rig, when, [change]))

    landed = 0 if when is EpochWritten else 10
    assert rig.offsets() == rig.every(landed)
    with pytest.raises(SchemaMismatch, match="column name is not in the table"):
        rig.run()
    if "RENAME" in change:
        rig.tree["decode"]["schema"] = "id INT, customer STRING"
    else:
        rig.tree["decode"]["schema"] = "id INT"
    rig.run()
    assert rig.offsets() == rig.every(40)
