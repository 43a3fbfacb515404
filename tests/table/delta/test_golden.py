"""The same rows written by frazil and by Spark's own Delta writer: what readers rest on is the same, or wider."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.table.delta.landing import Landing, Readers, added

pytestmark = pytest.mark.real

UTC = dt.UTC
LONG = "é" * 40
TOP = "\U0010ffff" * 40
BIG = Decimal("9" * 28 + "." + "9" * 10)
LOW = Decimal(f"-{BIG}")

COLUMNS: dict[str, tuple[str, pa.DataType]] = {
    "flag": ("BOOLEAN", pa.bool_()),
    "tiny": ("TINYINT", pa.int32()),
    "small": ("SMALLINT", pa.int32()),
    "number": ("INT", pa.int32()),
    "long": ("BIGINT", pa.int64()),
    "weight": ("FLOAT", pa.float32()),
    "height": ("DOUBLE", pa.float64()),
    "amount": ("DECIMAL(10,2)", pa.decimal128(10, 2)),
    "huge": ("DECIMAL(38,10)", pa.decimal128(38, 10)),
    "name": ("STRING", pa.string()),
    "bytes": ("BINARY", pa.binary()),
    "day": ("DATE", pa.date32()),
    "moment": ("TIMESTAMP", pa.timestamp("us", "UTC")),
    "local": ("TIMESTAMP_NTZ", pa.timestamp("us")),
    "place": (
        "STRUCT<x: INT, inner: STRUCT<z: STRING, many: ARRAY<INT>>>",
        pa.struct(
            {"x": pa.int32(), "inner": pa.struct({"z": pa.string(), "many": pa.list_(pa.int32())})},
        ),
    ),
    "list": ("ARRAY<TINYINT>", pa.list_(pa.int32())),
    "map": ("MAP<STRING, SMALLINT>", pa.map_(pa.string(), pa.int32())),
}

NULLS = dict.fromkeys(COLUMNS)


def row(part: int, **values: Any) -> dict[str, Any]:
    assert values.keys() <= COLUMNS.keys()
    return {"part": part, **NULLS, **values}


def timed(part: int, year: int, **of_day: int) -> dict[str, Any]:
    moment = dt.datetime(year, 3, 4, **of_day)
    return row(part, day=moment.date(), moment=moment.replace(tzinfo=UTC), local=moment)


# One file each.
ROWS = [
    # 0: ordinary, with nulls here and there
    row(0, flag=True, tiny=-1, small=-2, number=-3, long=-4, weight=0.5, height=1.1, amount=Decimal("1.10")),
    row(0, flag=False, tiny=1, small=2, number=3, long=4, weight=1.1, height=2.5, amount=Decimal("100.00")),
    row(0, huge=Decimal("-1"), name="b", bytes=b"\x00\xff", place={"x": 1, "inner": {"z": "a", "many": [1, None]}}),
    row(
        0,
        huge=Decimal("2.5"),
        name="a",
        bytes=b"",
        place={"x": None, "inner": None},
        list=[1, None],
        map=[("a", 1)],
    ),
    timed(0, 1969, hour=1, microsecond=123456),
    timed(0, 2026, hour=23, minute=59, second=59, microsecond=999999),
    row(0, list=[], map=[]),
    # 1: the largest and the smallest
    row(1, tiny=-128, small=-32768, number=-(2**31), long=-(2**63), weight=-math.inf, height=-math.inf, huge=LOW),
    row(1, tiny=127, small=32767, number=2**31 - 1, long=2**63 - 1, weight=math.inf, height=math.inf, huge=BIG),
    row(1, name=LONG),
    row(1, name=TOP),
    timed(1, 1),
    timed(1, 9999, hour=23, minute=59, second=59, microsecond=999999),
    # 2: nothing but nulls
    row(2),
    row(2),
    # 3: zeros, and empty ones
    row(3, tiny=0, small=0, number=0, long=0, weight=-0.0, height=-0.0, amount=Decimal("0.00"), huge=Decimal("0")),
    row(3, weight=0.0, height=0.0, name="", bytes=b"", list=[], map=[], place={"x": 0, "inner": {"z": ""}}),
    # 4: NaN beside others, and alone
    row(4, weight=math.nan, height=math.nan),
    row(4, weight=7.0, name="z" * 33),
    row(4, weight=None, name="z" * 32),
]

WIDER = {
    (0, "maxValues", "weight"): "told to the last digit, where Spark has as few as a float needs",
    (0, "maxValues", "moment"): "rounded up to a millisecond, where Spark cuts it off",
    (0, "maxValues", "local"): "rounded up to a millisecond, where Spark cuts it off",
    (1, "minValues", "weight"): "no bound, where Spark has the text -Infinity",
    (1, "minValues", "height"): "no bound, where Spark has the text -Infinity",
    (1, "maxValues", "weight"): "no bound, where Spark has the text Infinity",
    (1, "maxValues", "height"): "no bound, where Spark has the text Infinity",
    (1, "maxValues", "moment"): "no bound beyond the year 9999, where Spark cuts a millisecond off",
    (1, "maxValues", "local"): "no bound beyond the year 9999, where Spark cuts a millisecond off",
    (3, "maxValues", "weight"): "+0.0, where Spark has whichever zero came first",
    (3, "maxValues", "height"): "+0.0, where Spark has whichever zero came first",
    (4, "maxValues", "weight"): "no bound, where Spark has the text NaN",
    (4, "maxValues", "height"): "no bound, where Spark has the text NaN",
    (4, "minValues", "height"): "no bound, where Spark has the text NaN",
    (4, "maxValues", "name"): "the last character raised, where Spark appends a high one",
}
"""By part, kind and column: every other statistic is the same as Spark's."""


def arrow_rows() -> pa.Table:
    schema = pa.schema([("part", pa.int32()), *((name, kind) for name, (_, kind) in COLUMNS.items())])
    return pa.Table.from_pylist(ROWS, schema)


@pytest.fixture(scope="module")
def golden(delta_spark: Any, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One table by frazil, one by Spark, with the same rows, a file for each part."""
    spark, root = delta_spark, tmp_path_factory.mktemp("golden")
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    for name in ("frazil", "spark"):
        spark.sql(f"CREATE TABLE delta.`{root / name}` (part INT, {declared}) USING delta PARTITIONED BY (part)")
    ours = Landing(root / "frazil").land(arrow_rows())
    read = spark.read.format("delta").load(str(root / "frazil"))
    read.coalesce(1).sortWithinPartitions("part").write.format("delta").mode("append").save(str(root / "spark"))
    return SimpleNamespace(path=root / "frazil", spark_path=root / "spark", ours=ours, theirs=added(root / "spark"))


def by_part(adds: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {int(add["partitionValues"]["part"]): add for add in adds}


def flat(stats: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in stats.items():
        if isinstance(value, dict):
            yield from flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def test_statistics_are_those_of_spark_or_wider_where_it_is_said(golden: SimpleNamespace) -> None:
    """FILE-12, TEST-01."""
    ours, theirs = by_part(golden.ours), by_part(golden.theirs)
    assert ours.keys() == theirs.keys() == {0, 1, 2, 3, 4}
    different = {}
    for part in ours:
        assert ours[part]["stats"]["numRecords"] == theirs[part]["stats"]["numRecords"]
        for kind in ("nullCount", "minValues", "maxValues"):
            mine, other = dict(flat(ours[part]["stats"][kind])), dict(flat(theirs[part]["stats"][kind]))
            for name in mine.keys() | other.keys():
                one, two = mine.get(name), other.get(name)
                if str(one) != str(two):
                    different[part, kind, name] = (one, two)
    assert different.keys() == WIDER.keys(), different
    for (_, kind, name), (one, two) in different.items():
        assert one is None or (kind == "maxValues" and str(one) > str(two)) or (one, two) == (0.0, -0.0), name


def test_files_lie_in_the_folders_that_spark_would_have_chosen(golden: SimpleNamespace) -> None:
    """FILE-10, TEST-01."""
    folders = [{add["path"].rpartition("/")[0] for add in adds} for adds in (golden.ours, golden.theirs)]
    assert folders[0] == folders[1] == {f"part={part}" for part in range(5)}


READ = ("number", "long", "amount", "huge", "name", "day", "tiny", "small", "flag", "weight", "height", "bytes")


def test_spark_duckdb_and_delta_rs_read_the_values_that_were_written(
    golden: SimpleNamespace, readers: Readers
) -> None:
    """TEST-01."""
    days = "CAST(moment AS DATE), CAST(local AS DATE)"
    found = readers.ask(golden.path, f"SELECT part, {', '.join(READ)}, place.x, place.inner.z, {days} FROM {{t}}")
    written = sorted(map(expected, arrow_rows().to_pylist()), key=str)
    for reader, rows in found.items():
        plain = [tuple(bytes(value) if isinstance(value, bytearray) else value for value in each) for each in rows]
        assert list(map(str, sorted(plain, key=str))) == list(map(str, written)), reader


def expected(each: dict[str, Any]) -> tuple[Any, ...]:
    place = each["place"] or {}
    days = (None if each[name] is None else each[name].date() for name in ("moment", "local"))
    return (
        each["part"],
        *(each[name] for name in READ),
        place.get("x"),
        (place.get("inner") or {}).get("z"),
        *days,
    )


# What is asked for, and the parts whose files Spark reads for it. It skips no file that lacks one of the two
# bounds, and none by the nulls of a list.
SKIPPING = {
    "number = 3": {0, 1},
    "number > 3": {1},
    "tiny < -1": {1},
    "small = 0": {0, 1, 3},
    "long > 4": {1},
    "weight > 1.2": {1, 4},
    "height = CAST('NaN' AS DOUBLE)": {1, 4},
    "height = 0": {1, 3, 4},
    "height < -5": {1, 4},
    "amount > 1000": set(),
    "amount = 100.00": {0},
    "huge > 3": {1},
    "name = ''": {1, 3},
    f"name = '{LONG}'": {1},
    f"name = '{TOP}'": {1},
    f"name = '{'z' * 33}'": {1, 4},
    "name > 'zz'": {1, 4},
    "day < DATE '1000-01-01'": {1},
    "moment > TIMESTAMP '2026-03-04 23:59:59.999998'": {0, 1},
    "local > TIMESTAMP_NTZ '2026-03-04 23:59:59.999998'": {0, 1},
    "moment < TIMESTAMP '1969-03-04 01:00:00.123457'": {0, 1},
    "place.x = 1": {0},
    "place.inner.z IS NOT NULL": {0, 3},
    "list IS NOT NULL": {0, 1, 2, 3, 4},
    "number IS NULL": {0, 1, 2, 3, 4},
    "number IS NOT NULL": {0, 1, 3},
}


@pytest.mark.parametrize("reader", ["duckdb", "delta-rs"])
def test_no_row_is_skipped_that_a_filter_asks_for(golden: SimpleNamespace, readers: Readers, reader: str) -> None:
    """FILE-12: what is read through the statistics is what the same reader finds without any."""
    ask = {"duckdb": readers.duckdb, "delta-rs": readers.rust}[reader]
    filters = [each.replace("TIMESTAMP_NTZ", "TIMESTAMP") for each in SKIPPING]
    skipped = " UNION ALL ".join(
        f"SELECT {number} AS n, count(*) AS c FROM {{t}} WHERE {each}" for number, each in enumerate(filters)
    )
    cases = ", ".join(f"sum(CASE WHEN {each} THEN 1 ELSE 0 END)" for each in filters)
    (whole,) = ask(golden.path, f"SELECT {cases} FROM {{t}}")
    assert dict(ask(golden.path, skipped)) == dict(enumerate(whole))
    assert sum(whole) > len(SKIPPING)


def test_spark_reads_the_files_that_match_and_skips_the_others(
    golden: SimpleNamespace, delta_spark: Any, readers: Readers
) -> None:
    """FILE-12."""
    table = delta_spark.read.format("delta").load(str(golden.path))
    read = {each: {int(file.split("part=")[1][0]) for file in table.where(each).inputFiles()} for each in SKIPPING}
    assert read == SKIPPING
    cases = ", ".join(f"max(CASE WHEN {each} THEN 1 ELSE 0 END)" for each in SKIPPING)
    for part, *matches in readers.spark(golden.path, f"SELECT part, {cases} FROM {{t}} GROUP BY part"):
        assert {
            each for each, does in zip(SKIPPING, matches, strict=True) if does and part not in read[each]
        } == set()
