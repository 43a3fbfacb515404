"""Partitions of a Delta table: the values, the folders and the paths that Spark would have chosen."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pytest

from tests.table.delta.landing import Landing, Readers, added

pytestmark = pytest.mark.real

UTC = dt.UTC
WORDS = [
    None,
    "",
    "plain",
    "a b",
    "100%",
    "%20",
    "a/b",
    "a:b=c",
    "\"q\" 'r' `s`",
    "é 日本",
    "\U0010ffff",
    "a\\b",
    "a?b#c",
    "{a}[b]^",
    "a+b&c,d;e*f~g|h<i>",
    "a\nb\tc\x01",
    ".hidden",
    "_hidden",
    " lead trail ",
    "@!$()",
]
MOMENTS = [
    None,
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(2026, 3, 4, 5, 6, 7),
    dt.datetime(2026, 3, 4, 5, 6, 7, 500000),
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31, 23),
]
PARTITIONS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "word": ("STRING", pa.string(), WORDS),
    "tiny": ("TINYINT", pa.int32(), [None, -128, 127]),
    "small": ("SMALLINT", pa.int32(), [-32768, None]),
    "number": ("INT", pa.int32(), [0, None, -5]),
    "long": ("BIGINT", pa.int64(), [2**63 - 1, None, -(2**63)]),
    "flag": ("BOOLEAN", pa.bool_(), [True, False, None]),
    "amount": ("DECIMAL(38,10)", pa.decimal128(38, 10), [Decimal(0), Decimal("-1.5"), Decimal("1E-10"), None]),
    "day": ("DATE", pa.date32(), [moment and moment.date() for moment in MOMENTS]),
    "moment": ("TIMESTAMP", pa.timestamp("us", "UTC"), [m and m.replace(tzinfo=UTC) for m in MOMENTS]),
    "local": ("TIMESTAMP_NTZ", pa.timestamp("us"), MOMENTS),
}


def value_of(name: str, number: int) -> Any:
    values = PARTITIONS[name][2]
    return values[number % len(values)]


@pytest.fixture(scope="module")
def both(delta_spark: Any, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A table by frazil and one by Spark, both partitioned by every type that can be."""
    root = tmp_path_factory.mktemp("part itions é")
    declared = ", ".join(f"{name} {kind}" for name, (kind, _, _) in PARTITIONS.items())
    for name in ("frazil", "spark"):
        created = f"CREATE TABLE delta.`{root / name}` (id BIGINT, {declared}) USING delta"
        delta_spark.sql(f"{created} PARTITIONED BY ({', '.join(PARTITIONS)})")
    count = len(WORDS)
    columns = {
        name: pa.array([value_of(name, number) for number in range(count)], kind)
        for name, (_, kind, _) in PARTITIONS.items()
    }
    landing = Landing(root / "frazil")
    ours = landing.land(pa.table({"id": pa.array(range(count), pa.int64()), **columns}))
    read = delta_spark.read.format("delta").load(str(root / "frazil"))
    read.coalesce(1).write.format("delta").mode("append").save(str(root / "spark"))
    return SimpleNamespace(landing=landing, path=root / "frazil", ours=ours, theirs=added(root / "spark"))


def by_id(adds: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {add["stats"]["minValues"]["id"]: add for add in adds}


def test_values_and_folders_are_those_of_spark(both: SimpleNamespace) -> None:
    """FILE-10; but for letters beyond ASCII, which are encoded in the names of folders."""
    ours, theirs = by_id(both.ours), by_id(both.theirs)
    assert ours.keys() == theirs.keys() == set(range(len(WORDS)))
    for number, add in ours.items():
        assert add["partitionValues"] == theirs[number]["partitionValues"]
        folders = [unquote(each["path"]).rpartition("/")[0] for each in (add, theirs[number])]
        assert folders[0] == "".join(each if each.isascii() else quote(each) for each in folders[1])


def test_all_readers_find_the_files_and_the_values(both: SimpleNamespace, readers: Readers) -> None:
    """FILE-10: an empty text is null to Delta."""
    names = ["word", "tiny", "small", "number", "long", "flag", "amount", "day"]
    written = [(number, *(value_of(name, number) for name in names)) for number in range(len(WORDS))]
    expected = [(number, word or None, *rest) for number, word, *rest in written]
    for reader, rows in readers.ask(both.path, f"SELECT id, {', '.join(names)} FROM {{t}}").items():
        assert sorted(rows) == expected, reader
    for reader, rows in readers.ask(both.path, "SELECT id FROM {t} WHERE word = '100%' OR word = 'a/b'").items():
        assert rows == [(4,), (6,)], reader


def test_vacuum_would_remove_none_of_the_files(both: SimpleNamespace, delta_spark: Any) -> None:
    """FILE-10."""
    delta_spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        assert delta_spark.sql(f"VACUUM delta.`{both.path}` RETAIN 0 HOURS DRY RUN").collect() == []
    finally:
        delta_spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert both.landing.delta().vacuum(0, dry_run=True, enforce_retention_duration=False) == []


def test_computed_columns_are_what_spark_computes_and_it_prunes_and_inserts_beside_frazil(
    folder: Path, delta_spark: Any, readers: Readers
) -> None:
    """FILE-10: year, month, day and hour of a time, before 1970 and far away too."""
    units = ("year", "month", "day", "hour")
    columns = {f"{unit}_at": f"{unit}_at_{unit}" for unit in units}
    landing = Landing(
        folder,
        "id BIGINT, " + ", ".join(f"{column} TIMESTAMP" for column in columns),
        [f"{unit}({unit}_at)" for unit in units],
    )
    moments = pa.array([moment and moment.replace(tzinfo=UTC) for moment in MOMENTS], pa.timestamp("us", "UTC"))
    ours = landing.land(pa.table({"id": pa.array(range(6), pa.int64()), **dict.fromkeys(columns, moments)}))
    delta_spark.sql(
        f"INSERT INTO delta.`{folder}` (id, {', '.join(columns)}) "
        f"SELECT id + 100, {', '.join(columns)} FROM delta.`{folder}`"
    )
    assert spelled(ours, 0) == spelled(added(folder), 100)
    table = delta_spark.read.format("delta").load(str(folder))
    for column, computed in columns.items():
        asked = table.where(
            f"{column} > TIMESTAMP '2026-03-04 00:00:00' AND {column} < TIMESTAMP '2026-03-05 00:00:00'"
        )
        assert len(asked.inputFiles()) == 2, "one by each writer"
        plan = asked._jdf.queryExecution().executedPlan().toString()
        assert computed in plan.partition("PartitionFilters: [")[2].partition("]")[0]
    distinct = ", ".join(f"count(DISTINCT {computed})" for computed in columns.values())
    for reader, counted in readers.ask(folder, f"SELECT count(*), {distinct} FROM {{t}}").items():
        assert counted == [(12, 4, 4, 4, 4)], reader


def test_what_spark_deletes_is_gone_for_everybody(
    both: SimpleNamespace, delta_spark: Any, readers: Readers
) -> None:
    """FILE-10: a path is told in one way by those who add a file and by those who remove it."""
    delta_spark.sql(f"DELETE FROM delta.`{both.path}`")
    assert set(map(str, readers.ask(both.path, "SELECT count(*) FROM {t}").values())) == {"[(0,)]"}
    delta_spark.sql(f"RESTORE TABLE delta.`{both.path}` TO VERSION AS OF 2")
    assert set(map(str, readers.ask(both.path, "SELECT count(*) FROM {t}").values())) == {f"[({len(WORDS)},)]"}


def spelled(adds: list[dict[str, Any]], base: int) -> set[tuple[int, str, str]]:
    return {
        (
            add["stats"]["minValues"]["id"] - base,
            str(sorted(add["partitionValues"].items())),
            add["path"].rpartition("/")[0],
        )
        for add in adds
    }
