"""Delta tables whose columns have become wider, and versions that frazil writes by itself."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.table import ProtocolVersions
from pyiceberg.io.pyarrow import schema_to_pyarrow
from structlog.testing import capture_logs

from frazil.pipeline.schema import parse_schema
from frazil.table.delta.evolve import TYPE_CHANGES
from frazil.table.delta.features import with_features
from frazil.table.delta.version_file import commit_info, put_version
from frazil.table.refusal import CommitRefused
from frazil.table.wish import TableWish
from tests.table.delta.landing import WRITER, Landing, Readers
from tests.table.delta.test_others import verified
from tests.table.test_evolve import GROWN, NESTED

NARROW = "id INT, price FLOAT, amount DECIMAL(4,2), part INT, size SMALLINT"
WIDE = "id BIGINT, price DOUBLE, amount DECIMAL(12,2), part BIGINT, size BIGINT"
BEYOND = 5_000_000_000


def widen(landing: Landing, declared: str = WIDE) -> None:
    landing.lake.open(TableWish(landing.path.name, parse_schema(declared), evolves=True))


def rows(*ids: int, part: int = 1) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "price": pa.array([each / 10 for each in ids], pa.float64()),
            "amount": pa.array([Decimal("1.25")] * len(ids), pa.decimal128(12, 2)),
            "part": pa.array([part] * len(ids), pa.int64()),
            "size": pa.array([7] * len(ids), pa.int64()),
        }
    )


def narrow() -> pa.Table:
    """Two rows, in the types that the table has before it is widened."""
    return pa.table(
        {
            "id": pa.array([1, 2], pa.int32()),
            "price": pa.array([0.1, None], pa.float32()),
            "amount": pa.array([Decimal("1.25"), None], pa.decimal128(4, 2)),
            "part": pa.array([1, 1], pa.int32()),
            "size": pa.array([7, 7], pa.int32()),
        }
    )


def log_of(folder: Path) -> Callable[[str], dict[str, Any]]:
    """The last action of a kind."""
    lines = [
        line for file in sorted((folder / "_delta_log").glob("*.json")) for line in file.read_text().splitlines()
    ]
    actions = [json.loads(line) for line in lines]
    return lambda kind: next(action[kind] for action in reversed(actions) if kind in action)


def forget_log(landing: Landing) -> None:
    """What is before the newest version, which becomes a checkpoint."""
    landing.delta().create_checkpoint()
    for version in range(landing.delta().version()):
        (landing.path / "_delta_log" / f"{version:020d}.json").unlink()


def test_checkpoints_are_written_on_time_and_hold_the_register(folder: Path) -> None:
    """MAINT-11, SCHEMA-04: whenever the number of versions is a multiple; the log before may go."""
    landing = Landing(folder, NARROW, ["part"], **{"delta.checkpointInterval": "3"})
    widen(landing)
    for number in range(6):
        landing.land(rows(number))
    checkpoints = sorted((folder / "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(file.name.split(".")[0]) for file in checkpoints] == [2, 5, 8]
    before = landing.table.observe(WRITER).register
    for file in (folder / "_delta_log").glob("*.json"):
        file.unlink()
    assert landing.table.observe(WRITER).register == before
    landing.land(rows(BEYOND))
    assert len(list(landing.contents().files())) == 7


@pytest.mark.parametrize("interval", ["abc", "0"])
def test_an_interval_that_is_none_is_no_error_of_the_version(folder: Path, interval: str) -> None:
    """MAINT-11"""
    landing = Landing(folder, NARROW)
    widen(landing)
    landing.set_properties(**{"delta.checkpointInterval": interval})
    with capture_logs() as logged:
        landing.land(rows(1))
    assert {each["event"] for each in logged if each["log_level"] == "warning"} == {"no checkpoint was written"}


def test_a_checkpoint_that_fails_is_no_error_of_the_version(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MAINT-11: the epoch stands."""

    def fail(_: DeltaTable) -> None:
        raise DeltaError("the disk is full")

    landing = Landing(folder, NARROW, **{"delta.checkpointInterval": "1"})
    widen(landing)
    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    with capture_logs() as logged:
        landing.land(rows(1))
    assert [each["event"] for each in logged if each["log_level"] == "warning"] == ["no checkpoint was written"] * 2
    assert not [each for each in logged if each["event"] == "commit had landed"], "no error came up"
    assert (landing.delta().version(), len(landing.delta().file_uris())) == (3, 1)
    assert len(list((folder / "_delta_log").glob("*.checkpoint.parquet"))) == 1


def test_of_many_who_make_the_same_version_one_does(folder: Path) -> None:
    """COMMIT-05, FAULT-12: all at the same moment; the others are told, and leave nothing behind."""
    landing = Landing(folder, NARROW)
    widen(landing)
    many, rounds = 6, range(2, 12)
    together = Barrier(many)

    def put(writer: int, number: int) -> bool:
        together.wait()
        try:
            put_version(landing.table.place, number, [commit_info("WRITE", {}, {"frazil.writer": str(writer)})])
        except CommitRefused:
            return False
        return True

    with ThreadPoolExecutor(many) as pool:
        for number in rounds:
            won = list(pool.map(put, range(many), [number] * many))
            assert won.count(True) == 1
            assert log_of(folder)("commitInfo")["frazil.writer"] == str(won.index(True))
    assert landing.delta().version() == rounds[-1]
    assert {file.suffix for file in (folder / "_delta_log").iterdir()} == {".json"}


def test_two_pipelines_that_commit_at_once_lose_and_double_nothing(folder: Path) -> None:
    """COMMIT-06, FAULT-12, SCHEMA-04: each version of a widened table goes on from the one it was judged by."""
    widen(Landing(folder, NARROW))

    def land(writer: str) -> None:
        landing = Landing(folder, writer=writer, attempts=100)
        for number in range(10):
            landing.land(rows(number))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(land, ["left", "right"]))
    landing = Landing(folder)
    assert len(set(landing.delta().file_uris())) == 20
    assert landing.delta().version() == 1 + 2 + 20
    for writer in ("left", "right"):
        assert [each.action for each in landing.table.history(writer)] == ["start"] + ["append"] * 10


def test_starts_that_widen_at_once_all_go_on(folder: Path) -> None:
    """SCHEMA-04: whoever was not first finds the table as wished; a change is noted once."""
    Landing(folder, NARROW)
    for wished in (WIDE, f"{WIDE}, more STRING"):
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(widen, [Landing(folder) for _ in range(3)], [wished] * 3))
    landing = Landing(folder)
    assert landing.delta().version() == 2
    fields = json.loads(landing.delta().schema().to_json())["fields"]
    assert {len(each["metadata"].get(TYPE_CHANGES, [])) for each in fields} == {0, 1}


def test_a_table_of_an_old_protocol_that_delta_rs_does_not_write_is_written(folder: Path) -> None:
    """Version 6 stands for identity columns, of which it need not have any."""
    landing = Landing(folder, NARROW)
    put_version(landing.table.place, 1, [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 6}}])
    landing.land(rows(1))
    assert (landing.delta().version(), len(landing.delta().file_uris())) == (3, 1)


def test_features_that_versions_stood_for_are_listed_by_name() -> None:
    """SCHEMA-04: as delta-spark lists them for the same versions."""

    def lifted(reader: int, writer: int) -> tuple[list[str], list[str]]:
        told = with_features(ProtocolVersions(reader, writer, None, None), {"typeWidening"})
        assert told is not None
        assert (told["minReaderVersion"], told["minWriterVersion"]) == (3, 7)
        return told["readerFeatures"], told["writerFeatures"]

    widening = "typeWidening"
    plain = ["appendOnly", "invariants", widening]
    assert lifted(1, 2) == ([widening], plain)
    more = ["changeDataFeed", "checkConstraints", "generatedColumns"]
    assert lifted(1, 4) == ([widening], sorted([*plain, *more]))
    assert lifted(1, 5) == lifted(1, 4), "readers of version 1 never knew mapped columns"
    mapped = sorted([*plain, *more, "columnMapping", "identityColumns"])
    assert lifted(2, 6) == (["columnMapping", widening], mapped)
    listed = ProtocolVersions(1, 7, ["appendOnly"], None)
    assert with_features(listed, {widening}) == {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [widening],
        "writerFeatures": ["appendOnly", widening],
    }
    assert with_features(ProtocolVersions(3, 7, [widening], [widening]), {widening}) is None


@pytest.mark.real
@pytest.mark.parametrize("mapping", [None, "name"])
def test_a_table_that_was_widened_says_what_it_says_after_the_same_deed_of_spark(
    folder: Path, delta_spark: Any, mapping: str | None
) -> None:
    """SCHEMA-04, TEST-13: protocol and metadata, but for the moment."""
    properties = f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}')" if mapping else ""
    delta_spark.sql(f"CREATE TABLE delta.`{folder}` ({NARROW}) USING delta PARTITIONED BY (part) {properties}")
    twin = folder.with_name("twin")
    shutil.copytree(folder, twin)
    widen(Landing(folder), f"{WIDE}, more STRING")
    delta_spark.sql(f"ALTER TABLE delta.`{twin}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    for column in WIDE.split(", "):
        name, kind = column.split(" ")
        delta_spark.sql(f"ALTER TABLE delta.`{twin}` ALTER COLUMN {name} TYPE {kind}")
    delta_spark.sql(f"ALTER TABLE delta.`{twin}` ADD COLUMN more STRING")
    assert told(folder) == told(twin)


@pytest.mark.real
@pytest.mark.parametrize("mapping", ["none", "name"])
def test_what_is_inside_of_columns_evolves_as_spark_would_do_it(
    folder: Path, delta_spark: Any, readers: Readers, mapping: str
) -> None:
    """SCHEMA-03, SCHEMA-04, TEST-13: the way to what was widened in lists and maps is noted with the column."""
    mapped = f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}')"
    delta_spark.sql(f"CREATE TABLE delta.`{folder}` ({NESTED}) USING delta {mapped}")
    landing = Landing(folder)
    landing.land(boxes(NESTED, {"a": 1, "list": [{"x": 0.5}]}, 1))
    twin = folder.with_name("twin")
    shutil.copytree(folder, twin)
    widen(landing, GROWN)
    for deed in (
        "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "ADD COLUMN box.b STRING",
        "ADD COLUMN box.list.element.y STRING",
        "ALTER COLUMN box.a TYPE BIGINT",
        "ALTER COLUMN box.list.element.x TYPE DOUBLE",
        "ALTER COLUMN m.value TYPE BIGINT",
    ):
        delta_spark.sql(f"ALTER TABLE delta.`{twin}` {deed}")
    assert told(folder) == told(twin)

    landing.land(boxes(GROWN, {"a": BEYOND, "list": [{"x": 0.1, "y": "new"}], "b": "new"}, BEYOND))
    query = "SELECT box.a, box.b, box.list[{first}].x, box.list[{first}].y, m['k'] FROM {{t}}"
    expected = [(1, None, 0.5, None, 1), (BEYOND, "new", 0.1, "new", BEYOND)]
    assert readers.spark(folder, query.format(first=0)) == expected
    assert readers.duckdb(folder, query.format(first=1)) == expected


def boxes(declared: str, box: dict[str, Any], value: int) -> pa.Table:
    schema = schema_to_pyarrow(parse_schema(declared), include_field_ids=False)
    return pa.Table.from_pylist([{"box": box, "m": [("k", value)]}], schema)


def told(folder: Path) -> dict[str, Any]:
    last = log_of(folder)
    metadata, protocol = last("metaData"), last("protocol")
    made_up = r'"delta.columnMapping.physicalName":"col-[0-9a-f-]{36}"'
    schema = json.loads(re.sub(made_up, '"named":true', metadata.pop("schemaString")))["fields"]
    features = {key: set(value) if isinstance(value, list) else value for key, value in protocol.items()}
    return {**metadata, "schema": schema, "protocol": features}


@pytest.mark.real
def test_old_and_new_files_are_read_alike_by_all_readers(folder: Path, delta_spark: Any, readers: Readers) -> None:
    """SCHEMA-04, TEST-13: by what was written before and after, also once the log is a checkpoint of delta-rs."""
    delta_spark.sql(
        f"CREATE TABLE delta.`{folder}` ({NARROW}) USING delta PARTITIONED BY (part) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    landing = Landing(folder)
    landing.land(narrow())
    widen(landing)
    (add,) = landing.land(rows(BEYOND, part=BEYOND))
    assert add["stats"]["maxValues"]["id"] == BEYOND
    assert add["partitionValues"] == {"part": str(BEYOND)}
    delta_spark.sql(f"INSERT INTO delta.`{folder}` VALUES (3, 0.3, 1.25, 1, 7), (4, 0.4, 1.25, {BEYOND}, 7)")
    delta_spark.sql(f"DELETE FROM delta.`{folder}` WHERE id = 2")
    one, price = "SELECT id, amount, part, size FROM {t}", Decimal("1.25")
    expected = [(1, price, 1, 7), (3, price, 1, 7), (4, price, BEYOND, 7), (BEYOND, price, BEYOND, 7)]

    skipping = [
        "SELECT 'old', max(id) FROM {t} WHERE price < 0.2",
        f"SELECT 'new', min(id) FROM {{t}} WHERE id >= {BEYOND} AND price > 1",
        f"SELECT 'part', count(*) FROM {{t}} WHERE part = {BEYOND}",
    ]

    def look() -> None:
        for ask in (readers.spark, readers.duckdb):
            assert ask(folder, one) == expected
            assert ask(folder, " UNION ALL ".join(skipping)) == [("new", BEYOND), ("old", 1), ("part", 2)]
        assert verified(landing)["rows"].numbers["live"] == len(expected)

    look()
    forget_log(landing)
    landing.land(rows(5))
    expected.insert(3, (5, price, 1, 7))
    look()
    assert log_of(folder)("txn")["appId"].startswith("frazil:")


@pytest.mark.real
@pytest.mark.parametrize("account", ["log", "v2"])
def test_files_with_deletion_vectors_are_replaced(
    folder: Path, delta_spark: Any, readers: Readers, account: str
) -> None:
    """FILE-10, CHG-08: a remove names the vector, whoever still knows it; of other partitions nothing goes."""
    policy = "v2" if account == "v2" else "classic"
    delta_spark.sql(
        f"CREATE TABLE delta.`{folder}` (id BIGINT, word STRING) USING delta PARTITIONED BY (word) TBLPROPERTIES "
        f"('delta.enableDeletionVectors' = 'true', 'delta.checkpointPolicy' = '{policy}', "
        "'delta.checkpointInterval' = '4')"
    )
    landing = Landing(folder)
    landing.section = landing.section.model_copy(update={"mode": "overwrite"})
    landing.land(pa.table({"id": pa.array([1], pa.int64()), "word": ["other"]}))
    delta_spark.sql(f"INSERT INTO delta.`{folder}` SELECT /*+ COALESCE(1) */ id, 'é b' FROM range(10)")
    delta_spark.sql(f"DELETE FROM delta.`{folder}` WHERE id IN (3, 4)")
    (checkpoint,) = (folder / "_delta_log").glob("0*4.checkpoint.*")
    assert ("_sidecars" in {each.name for each in checkpoint.parent.iterdir()}) == (account == "v2")
    landing.land(pa.table({"id": pa.array([2], pa.int64()), "word": ["last"]}))
    for version in range(5 if account != "log" else 0):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()
    landing.land(pa.table({"id": pa.array([70], pa.int64()), "word": ["é b"]}))
    removed = log_of(folder)("remove")
    assert removed["deletionVector"]["cardinality"] == 2
    assert removed["partitionValues"] == {"word": "é b"}
    for reader, found in readers.ask(folder, "SELECT word, count(*) FROM {t} GROUP BY word").items():
        assert found == [("last", 1), ("other", 1), ("é b", 1)], reader
    assert verified(landing)["rows"].numbers["live"] == 3
