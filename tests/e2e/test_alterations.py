"""Somebody alters the table while a pipeline lands rows in it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from frazil.engine.events import EpochLanded, EpochWritten, Event, Retrying
from frazil.engine.verify import verify_pipeline
from frazil.errors import SchemaMismatch
from frazil.journal import read_journal
from frazil.protocol.entries import EpochBegun, SchemaChanged
from frazil.protocol.verify import Level
from frazil.serve.journal import journal_table
from tests.e2e.conftest import order

pytestmark = pytest.mark.real

HARMLESS = [
    "ADD COLUMN region STRING",
    "ADD PARTITION FIELD bucket(2, id)",
    "WRITE LOCALLY ORDERED BY id",
    "ALTER COLUMN amount TYPE DECIMAL(12,2)",
]
NEXT_EPOCH = {"mixed_epoch": "next-epoch"}
DECLARED = "id INT, name STRING, amount DECIMAL(10,2)"


class Altering:
    """One statement at each of the next events of a kind."""

    def __init__(self, rig: Any, when: type[Event], statements: Sequence[str | Callable[[], object]]) -> None:
        self._rig = rig
        self._when = when
        self._left = list(statements)
        self.written: set[str] = set()
        """the files that there were when the table was first altered"""

    def __call__(self, event: Event) -> None:
        if isinstance(event, self._when) and self._left:
            self.written = self.written or {path.name for path in data_files(self._rig)}
            statement = self._left.pop(0)
            if isinstance(statement, str):
                self._rig.spark.sql(f"ALTER TABLE {self._rig.table} {statement}")
            else:
                statement()

    @property
    def landed(self) -> set[str]:
        """Those of the files that are in the table."""
        paths = self._rig.sql("SELECT file_path FROM {t}.files")
        return self.written & {row[0].rsplit("/", 1)[-1] for row in paths}


def data_files(rig: Any) -> Iterator[Path]:
    return (rig.folder / "warehouse" / "shop" / "orders" / "data").rglob("*.parquet")


def told(events: Sequence[Event]) -> list[str]:
    return [event.reason for event in events if isinstance(event, Retrying)]


def holds(rig: Any) -> None:
    verdict = verify_pipeline(rig.spec, rig.spark, deep=True)
    assert verdict.level is Level.HOLDS, [finding.message for _, finding in verdict.findings]


def layout_of_files(rig: Any) -> dict[int, tuple[int, int]]:
    """By offset, the partition spec and the sort order that its file says it has."""
    files = {
        row.file_path: (row.spec_id, row.sort_order_id)
        for row in rig.sql("SELECT file_path, spec_id, sort_order_id FROM {t}.files")
    }
    return {row[0]: files[row[1]] for row in rig.sql("SELECT _offset, _file FROM {t}")}


def require_every_order(rig: Any, count: int) -> None:
    assert rig.offsets() == rig.every(count)
    rows = rig.sql("SELECT id, name, CAST(amount AS STRING), region FROM {t} ORDER BY id")
    assert [tuple(row) for row in rows] == [(n, order(n)["name"], f"{n}.{n:02d}", None) for n in range(count)]
    history = [record for record in rig.open_table().history("orders") if record.action == "append"]
    assert [record.epoch for record in history] == [*range(1, 1 + count // 10)]
    holds(rig)


@pytest.mark.parametrize("when", [EpochWritten, EpochLanded])
def test_a_table_altered_while_epochs_are_under_way_gets_every_row_in_its_new_shape(
    make_rig: Callable[..., Any], when: type[Event]
) -> None:
    """COMMIT-05, FAULT-41, SCHEMA-08, TEST-07: with next-epoch. After the files and before their commit, or
    between two epochs; three are in flight."""
    rig = make_rig(decode={"schema": DECLARED}, epoch={"max_records": 10}, schema=NEXT_EPOCH)
    rig.produce_orders(0, 60)
    altering = Altering(rig, when, HARMLESS)

    reasons = told(rig.run(observer=altering))

    assert len(reasons) == len(HARMLESS)
    assert all("shop.orders was altered while epoch" in reason for reason in reasons)
    require_every_order(rig, 60)
    table = rig.open_table().loaded()
    layouts, latest = layout_of_files(rig), (table.spec().specId(), table.sortOrder().orderId())
    assert latest != (0, 0)
    assert layouts[59] == latest
    # The first epoch landed before anything was altered, or was written again each time.
    assert layouts[0] == (latest if when is EpochWritten else (0, 0))
    assert altering.written
    if when is EpochWritten:
        assert altering.landed == set()


def test_epochs_that_were_written_when_the_table_was_altered_land_as_they_are(
    make_rig: Callable[..., Any],
) -> None:
    """SCHEMA-08, SCHEMA-10, SCHEMA-11, TEST-07: with split. What is planned afterwards has the new shape."""
    rig = make_rig(decode={"schema": DECLARED}, epoch={"max_records": 10})
    folder = rig.folder / "journal"
    rig.tree["journal"] = {"dir": str(folder)}
    rig.produce_orders(0, 80)
    altering = Altering(rig, EpochWritten, HARMLESS)

    events = rig.run(observer=altering)

    assert told(events) == []
    require_every_order(rig, 80)
    assert altering.written
    assert altering.landed == altering.written
    table = rig.open_table().loaded()
    layouts = layout_of_files(rig)
    assert layouts[0] == (0, 0)
    assert layouts[79] == (table.spec().specId(), table.sortOrder().orderId()) != (0, 0)
    noted = [each.entry for each in read_journal(folder).recorded if isinstance(each.entry, SchemaChanged)]
    assert (noted[0].old_schema_id, noted[-1].new_schema_id) == (0, table.schema().schemaId())
    assert len(list(data_files(rig))) == len(rig.sql("SELECT * FROM {t}.files")), "no file is left over"


@pytest.mark.parametrize("policy", ["split", "next-epoch"])
def test_changes_written_when_the_table_was_altered_leave_one_row_a_key(
    make_rig: Callable[..., Any], policy: str
) -> None:
    """SCHEMA-08, SCHEMA-10, TEST-07: deletes reach rows under every spec; not so by a key of another type."""
    rig = make_rig(
        decode={"schema": DECLARED},
        epoch={"max_records": 10},
        schema={"mixed_epoch": policy},
        table={"mode": "upsert", "keys": ["id"]},
    )
    rig.produce_keyed([(n % 7, order(n) | {"id": n % 7} if n % 5 else None) for n in range(80)])
    model: dict[int, str] = {}
    for n in range(80):
        model |= {n % 7: order(n)["name"]}
        if n % 5 == 0:
            del model[n % 7]
    key = "ALTER COLUMN id TYPE BIGINT"
    altering = Altering(rig, EpochWritten, [HARMLESS[0], "ADD PARTITION FIELD bucket(2, name)", HARMLESS[3], key])

    reasons = told(rig.run(observer=altering))

    found = rig.sql("SELECT id, name FROM {t}")
    assert sorted(map(tuple, found)) == sorted(model.items())
    holds(rig)
    assert altering.written
    if policy == "next-epoch":
        assert len(reasons) == 4
        assert altering.landed == set()
    else:
        assert ["a column of the key has changed" in reason for reason in reasons] == [True]
        assert altering.landed == altering.written


def test_epochs_that_lack_what_the_table_requires_now_are_written_again(make_rig: Callable[..., Any]) -> None:
    """SCHEMA-08, TEST-07: with split, where a reader might find nothing in a column that is never empty."""
    rig = make_rig(decode={"schema": DECLARED}, epoch={"max_records": 10})
    rig.produce_orders(0, 40)

    def require_name() -> None:
        update = rig.open_table().loaded().updateSchema().allowIncompatibleChanges()
        update.requireColumn("name").commit()

    altering = Altering(rig, EpochWritten, [require_name])

    (reason,) = told(rig.run(observer=altering))

    assert "their column name may be null, which it may not be now" in reason
    assert rig.offsets() == rig.every(40)
    assert altering.written
    assert altering.landed == set()
    holds(rig)


@pytest.mark.parametrize("change", ["RENAME COLUMN name TO customer", "DROP COLUMN name"])
def test_epochs_that_were_written_when_a_declared_column_went_land_and_the_next_one_stops(
    make_rig: Callable[..., Any], change: str
) -> None:
    """SCHEMA-05, SCHEMA-08, TEST-07: with split. A renamed column keeps its values, a dropped one is gone."""
    rig = make_rig(decode={"schema": "id INT, name STRING"}, epoch={"max_records": 10})
    rig.produce_orders(0, 60)
    altering = Altering(rig, EpochWritten, [change])

    with pytest.raises(SchemaMismatch, match=r"(?s)name.*shop\.orders"):
        rig.run(observer=altering)

    landed = len(rig.offsets())
    assert landed in {10, 20, 30}
    assert rig.offsets() == rig.every(landed)
    left = "id INT, customer STRING" if "RENAME" in change else "id INT"
    rig.tree["decode"]["schema"] = left
    if "RENAME" in change:
        names = [row[0] for row in rig.sql("SELECT customer FROM {t} ORDER BY id")]
        assert names == [order(n)["name"] for n in range(landed)]
    rig.run()
    assert rig.offsets() == rig.every(60)
    assert altering.landed
    holds(rig)


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
    """COMMIT-05, FAULT-41: with next-epoch no value lands under another name, none is dropped in silence."""
    rig = make_rig(decode={"schema": "id INT, name STRING"}, epoch={"max_records": 10}, schema=NEXT_EPOCH)
    rig.produce_orders(0, 40)

    with pytest.raises(SchemaMismatch, match=r"(?s)name.*shop\.orders"):
        rig.run(observer=Altering(rig, when, [change]))

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
