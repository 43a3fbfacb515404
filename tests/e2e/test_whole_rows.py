"""Tables without a key: the row is its own, and the table is a bag of rows, as a counter has it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from frazil.engine.events import EpochWritten, Event, Retrying
from frazil.engine.verify import verify_pipeline
from frazil.errors import ConfigError, UndecodableRecord
from frazil.protocol.verify import Level

if TYPE_CHECKING:
    import duckdb

pytestmark = pytest.mark.real

WHOLE = {"mode": "upsert", "keys": ["*"]}
SCHEMA = "id BIGINT, name STRING, amount DECIMAL(10,2), placed_at TIMESTAMP"
ZSET = {"envelope": "op-column", "schema": SCHEMA, "metadata": False}
DEBEZIUM = {"envelope": "debezium", "schema": SCHEMA, "metadata": False}
FORMATS = {"version 2": {}, "version 3": {"properties": {"format-version": "3"}}}

Key = tuple[Any, ...]


def row(number: int | None, name: str | None = "a", day: int = 1) -> dict[str, Any]:
    return {"id": number, "name": name, "amount": "1.00", "placed_at": f"2026-03-{day:02d}T10:00:00Z"}


def key(row: dict[str, Any]) -> Key:
    return row["id"], row["name"], row["amount"], row["placed_at"][8:10]


def held(rig: Any) -> Counter[Key]:
    query = "SELECT id, name, CAST(amount AS STRING), date_format(placed_at, 'dd') FROM {t}"
    return Counter(tuple(found) for found in rig.sql(query))


def holds(rig: Any) -> None:
    verdict = verify_pipeline(rig.spec, rig.spark, deep=True)
    assert verdict.level is Level.HOLDS, [finding.message for _, finding in verdict.findings]


class Bag:
    """A source without keys; it knows what it holds."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.rows: list[dict[str, Any]] = []

    @property
    def content(self) -> Counter[Key]:
        return Counter(map(key, self.rows))

    def _new(self) -> dict[str, Any]:
        number = self._chance.choice([None, *range(6)])
        return row(number, self._chance.choice(["a", "b", None]), self._chance.randrange(1, 4))

    def come(self) -> dict[str, Any]:
        self.rows.append(self._new())
        return self.rows[-1]

    def go(self) -> dict[str, Any]:
        return self.rows.pop(self._chance.randrange(len(self.rows)))

    def weights(self, count: int) -> list[tuple[None, dict[str, Any]]]:
        """What happens, as a Z-set: two rows come for each one that goes, often within the same epoch."""
        goes = [len(self.rows) > 2 and self._chance.random() < 0.4 for _ in range(count)]
        return [
            (None, {"__op": -1, **self.go()} if gone and self.rows else {"__op": 1, **self.come()}) for gone in goes
        ]

    def events(self, count: int) -> list[tuple[None, dict[str, Any]]]:
        """The same as Debezium tells it of a table under REPLICA IDENTITY FULL."""
        events = []
        for _ in range(count):
            kind = self._chance.choice("ccud") if len(self.rows) > 2 else "c"
            before = None if kind == "c" else self.go()
            after = None if kind == "d" else self.come()
            events.append((None, {"op": kind, "before": before, "after": after}))
        return events


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("feed", ["zset", "debezium"])
def test_a_table_without_a_key_holds_the_bag_of_its_source(
    make_rig: Callable[..., Any], feed: str, version: str
) -> None:
    """LIM-04, CHG-07: equal rows, nulls, rows that come and go within one epoch, in every epoch and partition."""
    table = {**WHOLE, **FORMATS[version], "partition": ["day(placed_at)", "name"] if feed == "zset" else []}
    decode, changes = (ZSET, {}) if feed == "zset" else (DEBEZIUM, {"decimals": "plain"})
    rig = make_rig(table=table, decode=decode, changes=changes)
    bag = Bag(seed=7)
    for _ in range(3):
        rig.produce_keyed(bag.weights(40) if feed == "zset" else bag.events(40))
        rig.run()
        assert held(rig) == bag.content
    holds(rig)
    formats = {found[0] for found in rig.sql("SELECT DISTINCT file_format FROM {t}.delete_files")}
    assert formats == ({"PUFFIN"} if version == "version 3" else {"PARQUET"})


def op(code: Any, row: dict[str, Any], field: str = "__op") -> tuple[None, dict[str, Any]]:
    return None, {field: code, **row}


def zset(make_rig: Callable[..., Any], version: str = "version 2", **sections: Any) -> Any:
    table = {**WHOLE, **FORMATS[version], **sections.pop("table", {})}
    return make_rig(table=table, decode={**ZSET, **sections.pop("decode", {})}, **sections)


def test_of_equal_rows_as_many_go_as_are_said_to(make_rig: Callable[..., Any]) -> None:
    """LIM-04, CHG-06: weights and codes, within an epoch and over several; every record is accounted for."""
    rig = zset(make_rig, "version 3")
    rig.produce_keyed([op(3, row(1)), op(1, row(2)), op("+I", row(1), "_op"), op(-1, row(2)), op(0, row(9))])
    (first,) = rig.epochs(rig.run())
    assert held(rig) == {key(row(1)): 4}
    counts = first.landed.counts
    assert (counts.delivered, counts.landed, counts.deleted, counts.collapsed) == (5, 4, 0, 1)
    rig.produce_keyed([op(-3, row(1)), op("-U", row(1), "_op"), op("+U", row(1, "b"), "_op"), op(2, row(1))])
    (second,) = rig.epochs(rig.run())
    assert held(rig) == {key(row(1)): 2, key(row(1, "b")): 1}
    counts = second.landed.counts
    assert (counts.delivered, counts.landed, counts.deleted, counts.missing) == (4, 1, 2, 0)
    assert counts.add_up
    holds(rig)


def test_a_row_that_is_not_there_cannot_go_and_nobody_keeps_quiet_about_it(make_rig: Callable[..., Any]) -> None:
    """LIM-04: what is there goes, the rest is counted and told, and no other row is touched."""
    rig = zset(make_rig)
    rig.produce_keyed([op(1, row(1)), op(1, row(1)), op(1, row(2)), op(1, row(None, None))])
    rig.run()
    rig.produce_keyed([op(-5, row(1)), op(-1, row(7)), op(-1, row(None, None))])
    with capture_logs() as logs:
        (epoch,) = rig.epochs(rig.run())
    assert held(rig) == {key(row(2)): 1}
    counts = epoch.landed.counts
    assert (counts.deleted, counts.missing, counts.filtered) == (3, 4, 4)
    assert [entry["rows"] for entry in logs if entry["event"] == "rows that were to go are not in the table"] == [4]
    rig.produce_keyed([op(-1, row(7))])
    rig.run()
    assert held(rig) == {key(row(2)): 1}
    holds(rig)
    (last,) = [record for record in rig.open_table().history("orders") if record.counts.missing == 1]
    assert last.action == "heartbeat"


def meddling(rig: Any, meddle: Callable[[], object]) -> tuple[list[Event], int]:
    """Runs, and lets somebody else at the table between the look for rows and the commit, once."""
    meddled = 0

    def watch(event: Event) -> None:
        nonlocal meddled
        if isinstance(event, EpochWritten) and not meddled:
            meddled += 1
            meddle()

    return rig.run(observer=watch), meddled


@pytest.mark.parametrize(
    ("version", "what"), [("version 2", "compaction"), ("version 3", "compaction"), ("version 3", "delete")]
)
def test_rows_that_move_before_the_commit_are_looked_up_again(
    make_rig: Callable[..., Any], version: str, what: str
) -> None:
    """FAULT-26, LIM-04: no row comes back, none is deleted twice, and no delete is lost."""
    rig = zset(make_rig, version, epoch={"max_records": 2})
    rig.produce_keyed([op(*change) for n in range(3) for change in ((2, row(n)), (1, row(n, "b")))])
    rig.run()
    rig.tree["epoch"] = {"interval": "1s"}
    rig.produce_keyed([op(-1, row(0)), op(-1, row(2, "b")), op(1, row(5))])

    def compact() -> None:
        rig.call("rewrite_data_files", "options => map('rewrite-all', 'true')")

    def delete() -> None:
        properties = "'write.delete.mode' = 'merge-on-read'"
        rig.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({properties})")
        rig.sql("DELETE FROM {t} WHERE id = 2 AND name = 'b'")

    events, meddled = meddling(rig, compact if what == "compaction" else delete)
    assert meddled == 1
    assert [
        event for event in events if isinstance(event, Retrying) and "no longer where they were" in event.reason
    ]
    rest = {
        key(row(0)): 1,
        key(row(0, "b")): 1,
        key(row(1)): 2,
        key(row(1, "b")): 1,
        key(row(2)): 2,
        key(row(5)): 1,
    }
    assert held(rig) == rest
    (epoch,) = rig.epochs(events)
    assert epoch.landed.counts.missing == (what == "delete")
    verdict = verify_pipeline(rig.spec, rig.spark, deep=True)
    assert verdict.level is (Level.HOLDS if what == "compaction" else Level.NOTED)


def test_what_others_append_meanwhile_is_no_conflict(make_rig: Callable[..., Any]) -> None:
    """LIM-04"""
    rig = zset(make_rig)
    rig.produce_keyed([op(2, row(1))])
    rig.run()
    rig.produce_keyed([op(-1, row(1))])
    events, _ = meddling(rig, lambda: rig.sql("INSERT INTO {t} SELECT * FROM {t} LIMIT 1"))
    assert not [event for event in events if isinstance(event, Retrying)]
    assert held(rig) == {key(row(1)): 2}


def test_rows_are_found_under_former_schemas_partitions_and_formats(make_rig: Callable[..., Any]) -> None:
    """LIM-04: deletes by position of format 2 are taken into the deletion vectors of format 3."""
    rig = zset(make_rig, table={"partition": ["day(placed_at)"]})
    rig.produce_keyed([op(2, row(n, "a", day=n + 1)) for n in range(3)])
    rig.run()
    rig.produce_keyed([op(-1, row(0, "a", day=1))])
    rig.run()
    rig.sql("ALTER TABLE {t} ADD COLUMN note STRING")
    rig.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)")
    rig.sql("ALTER TABLE {t} DROP PARTITION FIELD placed_at_day")
    del rig.tree["table"]["partition"]
    rig.produce_keyed([op(2, row(5)), op(-1, row(1, "a", day=2))])
    rig.run()
    rig.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    rig.produce_keyed([op(-1, row(0, "a", day=1)), op(-1, row(2, "a", day=3)), op(-1, row(5))])
    rig.run()
    rig.produce_keyed([op(-1, row(2, "a", day=3)), op(-2, row(5))])
    (last,) = rig.epochs(rig.run())
    assert last.landed.counts.missing == 1
    assert held(rig) == {key(row(1, "a", day=2)): 1}
    formats = rig.sql("SELECT file_format, count(*) FROM {t}.delete_files GROUP BY 1 ORDER BY 1")
    assert [tuple(found) for found in formats] == [("PARQUET", 1), ("PUFFIN", 3)]
    holds(rig)


def test_rows_of_every_type_equal_themselves(make_rig: Callable[..., Any]) -> None:
    """LIM-04: nulls, not-a-number, both zeros, bytes, lists, structs, UUIDs and times."""
    schema = (
        "i INT, b BOOLEAN, f FLOAT, d DOUBLE, t TIMESTAMP_NTZ, day DATE, raw BINARY, u UUID, x FIXED(2), "
        "tags ARRAY<STRUCT<n: INT, v: DOUBLE>>, at STRUCT<city: STRING, spot: STRUCT<lat: DOUBLE>>"
    )
    full = {
        "i": 1, "b": True, "f": "NaN", "d": -0.0, "t": "2026-01-02T03:04:05.000001", "day": "1969-12-31",
        "raw": "QUI=", "u": "123E4567-e89b-12d3-a456-426614174000", "x": "QUI=",
        "tags": [{"n": 1, "v": "NaN"}, None], "at": {"city": None, "spot": {"lat": 0.0}},
    }  # fmt: skip
    zero = {**full, "d": 0.0, "at": {"city": None, "spot": {"lat": -0.0}}}
    empty = {"i": None}
    table = {"partition": ["u", "truncate(1, raw)", "month(t)", "day", "b"]}
    rig = zset(make_rig, decode={"schema": schema}, table=table)
    rig.produce_keyed([op(1, full), op(1, zero), op(1, empty), op(1, empty), op(1, {**full, "i": 2})])
    rig.run()
    rig.produce_keyed([op(-1, zero), op(-1, full), op(-1, empty), op(-1, {**full, "i": 2, "at": None})])
    (epoch,) = rig.epochs(rig.run())
    assert (epoch.landed.counts.deleted, epoch.landed.counts.missing) == (3, 1)
    assert sorted(rig.sql("SELECT i, count(*) FROM {t} GROUP BY i"), key=str) == [(2, 1), (None, 1)]
    holds(rig)


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_position_deletes_have_the_format_that_the_table_has(
    make_rig: Callable[..., Any], file_format: str
) -> None:
    """LIM-04"""
    rig = zset(make_rig, table={"file_format": file_format})
    rig.produce_keyed([op(2, row(1)), op(1, row(2))])
    rig.run()
    rig.produce_keyed([op(-1, row(1))])
    rig.run()
    assert held(rig) == {key(row(1)): 1, key(row(2)): 1}
    assert [found[0] for found in rig.sql("SELECT file_format FROM {t}.delete_files")] == [file_format.upper()]
    holds(rig)


def test_an_image_that_lacks_the_old_row_is_a_dead_letter(make_rig: Callable[..., Any]) -> None:
    """LIM-04, DEC-03: nothing is guessed; with on_error = "fail" the pipeline stops."""
    rig = make_rig(table=WHOLE, decode=DEBEZIUM, changes={"decimals": "plain"})
    rig.produce_keyed([(None, {"op": "c", "after": row(1)}), (None, {"op": "u", "before": None, "after": row(2)})])
    rig.produce_keyed([(None, {"op": "d", "before": None}), (None, {"op": "r", "after": row(3)})])
    rig.run()
    assert held(rig) == {key(row(1)): 1, key(row(3)): 1}
    assert rig.dead_offsets() == [(0, 1), (0, 2)]
    holds(rig)
    rig.tree["decode"]["on_error"] = "fail"
    rig.produce_keyed([(None, {"op": "d", "before": None})])
    with pytest.raises(UndecodableRecord, match="REPLICA IDENTITY FULL"):
        rig.run()


def test_a_truncate_empties_a_table_without_a_key_if_told_so(make_rig: Callable[..., Any]) -> None:
    """CHG-10, LIM-04: what came after it stays; what it took cannot go again."""
    rig = make_rig(table=WHOLE, decode=DEBEZIUM, changes={"decimals": "plain", "truncate": "apply"})
    rig.produce_keyed([(None, {"op": "c", "after": row(n)}) for n in (1, 1, 2)])
    rig.run()
    rig.produce_keyed([(None, {"op": "u", "before": row(1), "after": row(4)}), (None, {"op": "t"})])
    rig.produce_keyed([(None, {"op": "c", "after": row(5)}), (None, {"op": "d", "before": row(2)})])
    (epoch,) = rig.epochs(rig.run())
    assert held(rig) == {key(row(5)): 1}
    assert epoch.landed.counts.missing == 1
    rig.produce_keyed([(None, {"op": "d", "before": row(5)})])
    rig.run()
    assert held(rig) == {}
    holds(rig)


def test_a_query_hands_the_weights_on(make_rig: Callable[..., Any]) -> None:
    """LIM-04: rows that it makes equal are equal."""
    sql = "SELECT id, lower(name) AS name, amount, placed_at, _op, _order, _weight FROM source WHERE id <> 9"
    rig = zset(make_rig, transform={"sql": sql})
    rig.produce_keyed([op(2, row(1, "A")), op(1, row(1, "a")), op(1, row(9))])
    rig.run()
    rig.produce_keyed([op(-1, row(1, "a")), op(-1, row(1, "A")), op(1, row(9))])
    (epoch,) = rig.epochs(rig.run())
    assert held(rig) == {key(row(1)): 1}
    assert (epoch.landed.counts.deleted, epoch.landed.counts.filtered) == (2, 1)
    rig.tree["transform"] = {"sql": sql.replace(", _weight", "")}
    with pytest.raises(ConfigError, match="drops _weight"):
        rig.run()


@pytest.mark.parametrize("version", FORMATS)
def test_delete_files_of_a_killed_epoch_are_cleaned_up(make_rig: Callable[..., Any], version: str) -> None:
    """FAULT-02, REC-15: the rows go once, with the files of the second try."""
    rig = zset(make_rig, version)
    rig.tree["journal"] = {"dir": str(rig.folder / ".frazil" / "orders")}
    rig.produce_keyed([op(2, row(1)), op(1, row(2))])
    rig.run()
    data = rig.folder / "warehouse" / "shop" / "orders" / "data"
    before = set(data.iterdir())
    rig.produce_keyed([op(-1, row(1)), op(1, row(3))])
    rig.run_killed()
    left = {path for path in set(data.iterdir()) - before if not path.name.endswith(".crc")}
    assert sorted(path.suffix for path in left) == [".parquet", ".parquet" if version == "version 2" else ".puffin"]
    rig.run()
    assert not left & set(data.iterdir())
    assert held(rig) == {key(row(n)): 1 for n in (1, 2, 3)}
    holds(rig)


@pytest.mark.parametrize("version", FORMATS)
def test_duckdb_sees_the_same_bag(
    make_rig: Callable[..., Any], duck: duckdb.DuckDBPyConnection, version: str
) -> None:
    """TEST-02, LIM-04"""
    rig = zset(make_rig, version, table={"partition": ["name"]})
    bag = Bag(seed=3)
    for _ in range(3):
        rig.produce_keyed(bag.weights(30))
        rig.run()
    location = rig.open_table().loaded().operations().current().metadataFileLocation()
    found = duck.execute(
        "SELECT id, name, amount::VARCHAR, strftime(placed_at AT TIME ZONE 'UTC', '%d') "
        f"FROM iceberg_scan('{location}')"
    ).fetchall()
    assert Counter(found) == bag.content == held(rig)
