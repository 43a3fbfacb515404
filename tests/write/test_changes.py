"""Changes of keyed rows become rows and deletes that leave each key with its last row."""

from __future__ import annotations

import datetime as dt
import json
import random
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.changes import ChangeTarget
from frazil.errors import ConfigError, InvalidState, OldRowUnknown, SchemaMismatch
from frazil.protocol.recovery import Search
from frazil.table.files import DeleteSettings, WriteTarget, WrittenFile
from frazil.write import ChangeWriter, FileName
from frazil.write.hashes import hashed

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType(), required=True),
    NestedField(3, "text", StringType()),
    NestedField(4, "version", LongType()),
)
UNPARTITIONED = PartitionSpec(spec_id=0).model_dump_json()
BEFORE_TYPE = pa.struct([pa.field("region", pa.string())])
Change = dict[str, Any]
ON_DISK = {"max_waiting_bytes": 200}
"""so few bytes that changes leave memory two by two"""
HASHES = [8910569251444813302, 7209185797198579883]
"""of (1, 'a') and (2, 'b'), in whatever process"""


@dataclass
class Written:
    """What a writer left: its files, read back."""

    writer: ChangeWriter
    files: list[WrittenFile]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for file in self.files if file.content == "data" for row in read(file)]

    @property
    def deletes(self) -> list[tuple[tuple[Any, ...], int]]:
        """The partition and the id of every delete."""
        return [(file.partition, row["id"]) for file in self.delete_files for row in read(file)]

    @property
    def delete_files(self) -> list[WrittenFile]:
        return [file for file in self.files if file.content == "equality-deletes"]

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.writer.landed, self.writer.deleted, self.writer.collapsed


def read(file: WrittenFile) -> list[dict[str, Any]]:
    return pq.ParquetFile(file.path.removeprefix("file:")).read().to_pylist()


def target_at(folder: Path, *partition: tuple[int, Transform[Any, Any]], **changes: Any) -> WriteTarget:
    fields = [PartitionField(source, 1000 + n, how, f"p{n}") for n, (source, how) in enumerate(partition)]
    spec = PartitionSpec(*fields, spec_id=1 if partition else 0)
    how = ChangeTarget(**{"keys": ("id",), **changes})
    return WriteTarget(
        "shop.orders", f"file:{folder}", SCHEMA.model_dump_json(), spec.model_dump_json(), changes=how
    )


def change(op: str, id: int | None, order: int, region: str | None = "eu", **more: Any) -> Change:
    text = more.pop("text", f"{op}{order}")
    return {"id": id, "region": region, "text": text, "_op": op, "_order": order, **more}


def batch(changes: Sequence[Change]) -> pa.RecordBatch:
    kinds = {"id": pa.int64(), "_order": pa.int64(), "version": pa.int64(), "_before": BEFORE_TYPE}
    names = dict.fromkeys(name for each in changes for name in each)
    arrays = {n: pa.array([each.get(n) for each in changes], kinds.get(n, pa.string())) for n in names}
    return pa.record_batch(arrays)


def land(target: WriteTarget, *batches: Sequence[Change], **limits: int) -> Written:
    writer = ChangeWriter(target, FileName("orders", 7, 0, "0-100", epoch_token="0123456789ab"), **limits)
    files = [file for each in batches for file in writer.write(batch(each))]
    return Written(writer, files + writer.close())


def texts(written: Written) -> dict[int, str]:
    assert len({row["id"] for row in written.rows}) == len(written.rows), "a key has one row at most"
    return {row["id"]: row["text"] for row in written.rows}


def test_only_the_last_change_of_a_key_counts_in_whatever_order_they_come(tmp_path: Path) -> None:
    """CHG-08, CHG-10: also for a key that is inserted, deleted and inserted again within the epoch."""
    changes = [
        change("I", 1, 0),
        change("D", 1, 1, region=None, text=None),
        change("I", 1, 2),
        change("U", 2, 3),
        change("D", 2, 4, region=None, text=None),
        change("U", 3, 5),
    ]
    shuffled = random.Random(3).sample(changes, len(changes))
    written = land(target_at(tmp_path), shuffled[:2], shuffled[2:])
    assert texts(written) == {1: "I2", 3: "U5"}
    assert written.deletes == [((), 1), ((), 2), ((), 3)]
    assert written.counts == (2, 1, 3)


@pytest.mark.parametrize(
    ("ops", "trusted", "rows", "deletes"),
    [
        ("I", True, 1, 0),
        ("I", False, 1, 1),
        ("ID", True, 0, 0),
        ("ID", False, 0, 1),
        ("IDI", True, 1, 0),
        ("DI", True, 1, 1),
        ("U", True, 1, 1),
        ("D", True, 0, 1),
    ],
)
def test_a_trusted_insert_has_nothing_to_delete(
    tmp_path: Path, ops: str, trusted: bool, rows: int, deletes: int
) -> None:
    """CHG-08: what the first change of a key says, whatever follows."""
    changes = [change(op, 1, order) for order, op in enumerate(ops)]
    written = land(target_at(tmp_path, trust_inserts=trusted), changes)
    assert (len(written.rows), len(written.deletes)) == (rows, deletes)
    assert written.counts == (rows, 1 - rows, len(ops) - 1)


def test_a_sequence_column_goes_before_the_order_of_arrival(tmp_path: Path) -> None:
    """CHG-10: nulls are the oldest, and what is equal is ordered by arrival."""
    changes = [
        change("U", 1, 5, version=1, text="late"),
        change("U", 1, 4, version=2, text="last"),
        change("U", 1, 9, version=None, text="unknown"),
        change("U", 2, 1, version=7, text="first"),
        change("U", 2, 2, version=7, text="second"),
    ]
    assert texts(land(target_at(tmp_path, sequence_by="version"), changes)) == {1: "last", 2: "second"}


def test_for_a_merge_the_last_change_of_each_key_is_staged_as_it_is(tmp_path: Path) -> None:
    """CHG-12: deletes too, without what is required of rows; in one hidden folder, whatever the partitions."""
    changes = [
        change("I", 1, 0),
        change("U", 1, 1, region="us"),
        change("D", 2, 2, region=None, text=None),
        change("I", 3, 3),
    ]
    target = target_at(tmp_path, (2, IdentityTransform()), scope="merge", trust_inserts=True)
    written = land(replace(target, in_folders=("region",)), changes)
    (file,) = written.files
    assert [(row["id"], row["region"], row["text"], row["_op"]) for row in read(file)] == [
        (1, "us", "U1", "U"),
        (2, None, None, "D"),
        (3, "eu", "I3", "I"),
    ]
    assert (file.content, file.equality_ids, file.partition) == ("changes", (1,), ())
    assert written.counts == (2, 1, 1)
    folder, _, name = file.path.removeprefix(f"file:{tmp_path}/").partition("/")
    assert folder == "_frazil"
    assert Search("t", "", {"0123456789ab": 7}, {}, 0).finds(name, "orders"), "the journal knows them by their name"


def test_a_truncate_before_a_merge_leaves_only_what_came_after(tmp_path: Path) -> None:
    changes = [change("U", 1, 0), change("T", None, 1, region=None, text=None), change("U", 2, 2)]
    written = land(target_at(tmp_path, scope="merge"), changes)
    assert [row["id"] for file in written.files for row in read(file)] == [2]
    assert written.writer.truncated


def test_a_sequence_column_need_not_be_one_of_the_tables(tmp_path: Path) -> None:
    changes = [change("U", 1, 2, lsn="0/A", text="old"), change("U", 1, 1, lsn="0/B", text="new")]
    written = land(target_at(tmp_path, sequence_by="lsn"), changes)
    assert texts(written) == {1: "new"}
    assert "lsn" not in written.rows[0]
    with pytest.raises(SchemaMismatch, match="lsn"):
        land(target_at(tmp_path, sequence_by="lsn"), [change("U", 1, 2)])


def test_deletes_go_to_the_partition_that_the_key_tells(tmp_path: Path) -> None:
    """CHG-09, FILE-08: a delete needs no other column than those of its key."""
    target = target_at(tmp_path, (1, BucketTransform(4)))
    changes = [change("U", id, id) for id in range(20)] + [change("D", 30, 30, region=None)]
    written = land(target, changes)
    buckets = {row["id"]: file.partition for file in written.files if file.content == "data" for row in read(file)}
    places = {id: partition for partition, id in written.deletes}
    assert places.keys() == {*range(20), 30}
    assert all(places[id] == buckets[id] for id in range(20))
    assert all(file.spec_id == 1 for file in written.delete_files)


def test_delete_files_lie_in_no_partitions_folder(tmp_path: Path) -> None:
    """FILE-05: DuckDB would take a folder's name for the key."""
    written = land(target_at(tmp_path, (1, IdentityTransform())), [change("U", 7, 0), change("D", 8, 1)])
    folders = {(file.content, file.path.rpartition("/")[0]) for file in written.files}
    assert folders == {("data", f"file:{tmp_path}/p0=7"), ("equality-deletes", f"file:{tmp_path}")}


def test_a_batch_without_changes_changes_nothing(tmp_path: Path) -> None:
    writer = ChangeWriter(target_at(tmp_path), FileName("orders", 7, 0))
    writer.write(batch([change("U", 7, 0)]).slice(1))
    assert (writer.close(), writer.changes) == ([], 0)


def test_a_table_whose_key_does_not_tell_the_partition_is_refused(tmp_path: Path) -> None:
    """CHG-11."""
    with pytest.raises(ConfigError, match="partitioned by region"):
        land(target_at(tmp_path, (2, IdentityTransform())), [change("U", 1, 1)])


def test_global_deletes_are_written_under_the_spec_without_fields(tmp_path: Path) -> None:
    """CHG-11."""
    target = target_at(tmp_path, (2, IdentityTransform()), scope="global", delete_spec_json=UNPARTITIONED)
    written = land(target, [change("U", 1, 1, region="eu"), change("U", 2, 2, region="us")])
    (deletes,) = written.delete_files
    assert (deletes.spec_id, deletes.partition, deletes.record_count) == (0, (), 2)
    assert {file.spec_id for file in written.files if file.content == "data"} == {1}


def by_before(folder: Path, **more: Any) -> WriteTarget:
    return target_at(folder, (2, IdentityTransform()), (1, BucketTransform(2)), scope="before", **more)


@pytest.mark.parametrize("limits", [{}, ON_DISK], ids=["in memory", "on disk"])
def test_deletes_go_to_the_partition_that_the_first_change_tells(tmp_path: Path, limits: dict[str, int]) -> None:
    """CHG-11: a key that moves twice is deleted where earlier snapshots have it."""
    changes = [
        change("U", 1, 1, region="us", _before={"region": "eu"}),
        change("U", 1, 2, region="asia", _before={"region": "us"}),
        change("D", 2, 3, region=None, _before={"region": "us"}),
        change("I", 3, 4, region="eu", _before=None),
        change("I", 4, 5, region="eu", _before={"region": "us"}),
    ]
    written = land(by_before(tmp_path), *([one] for one in reversed(changes)), **limits)
    assert {(partition[0], id) for partition, id in written.deletes} == {("eu", 1), ("us", 2), ("us", 4)}
    assert {(row["region"], row["id"]) for row in written.rows} == {("asia", 1), ("eu", 3), ("eu", 4)}
    for file in written.delete_files:
        assert pq.ParquetFile(file.path.removeprefix("file:")).schema_arrow.names == ["id"]


@pytest.mark.parametrize("op", ["U", "D"])
def test_a_change_that_hides_its_old_row_is_refused(tmp_path: Path, op: str) -> None:
    """CHG-11: or a row would stay that is gone."""
    changes = [change("U", 1, 1, _before={"region": "eu"}), change(op, 2, 2, _before=None)]
    with pytest.raises(OldRowUnknown, match=r"id = 2") as refused:
        land(by_before(tmp_path), changes)
    assert "REPLICA IDENTITY FULL" in refused.value.remedy
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(SchemaMismatch, match="old region"):
        land(by_before(tmp_path), [change("U", 1, 1)])


@pytest.mark.parametrize("limits", [{}, ON_DISK], ids=["in memory", "on disk"])
def test_a_truncation_makes_void_what_stands_before_it(tmp_path: Path, limits: dict[str, int]) -> None:
    """CHG-08: nothing is deleted one by one, because all older rows go."""
    early = [change("U", 1, 1), change("D", 5, 0), change("U", 2, 5)]
    truncated = [change("U", 1, 2), change("T", None, 3, region=None), change("T", None, 1, region=None)]
    late = [change("D", 3, 6), change("U", 4, 0), change("T", None, 2, region=None)]
    written = land(target_at(tmp_path), early, truncated, late, **limits)
    assert written.writer.truncated
    assert (texts(written), written.deletes) == ({2: "U5"}, [])
    assert written.counts == (1, 1, 7)
    assert len(written.writer.key_hashes()) == 2
    hidden = land(by_before(tmp_path), [change("T", None, 1, _before=None), change("U", 2, 2, _before=None)])
    assert texts(hidden) == {2: "U2"}


def test_a_writer_without_changes_writes_nothing(tmp_path: Path) -> None:
    written = land(target_at(tmp_path))
    assert (written.files, written.counts, written.writer.truncated) == ([], (0, 0, 0), False)
    assert len(written.writer.key_hashes()) == 0
    assert land(target_at(tmp_path), [change("T", None, 1)]).files == []


def test_a_run_of_records_of_which_none_is_a_change_is_nothing_to_write(tmp_path: Path) -> None:
    """FAULT-08: tombstones, marks or dead letters only; the changes of other runs land."""
    writer = ChangeWriter(target_at(tmp_path), FileName("orders", 7, 0, "0-100", epoch_token="0123456789ab"))
    some = batch([change("U", 1, 1)])
    assert [*writer.write(some.slice(0, 0)), *writer.write(some)] == []
    assert len(writer.close()) == 2
    assert (writer.landed, writer.changes) == (1, 1)


def test_an_unknown_letter_is_not_taken_for_a_row(tmp_path: Path) -> None:
    with pytest.raises(InvalidState, match="'X'"):
        land(target_at(tmp_path), [change("X", 1, 1)])
    with pytest.raises(SchemaMismatch, match="_op"):
        land(target_at(tmp_path), [change("U", 1, 1) | {"_op": None}])


def test_required_columns_are_required_of_rows_and_not_of_deletes(tmp_path: Path) -> None:
    land(target_at(tmp_path / "deletes"), [change("D", 1, 1, region=None)])
    with pytest.raises(SchemaMismatch, match="region"):
        land(target_at(tmp_path / "rows"), [change("U", 1, 1, region=None)])
    with pytest.raises(SchemaMismatch, match="column id"):
        land(target_at(tmp_path / "key"), [change("D", None, 1)])


def test_an_aborted_writer_leaves_no_file_and_takes_no_more(tmp_path: Path) -> None:
    writer = ChangeWriter(target_at(tmp_path), FileName("orders", 1, 0))
    writer.write(batch([change("U", 1, 1)]))
    writer.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(InvalidState, match="closed"):
        writer.write(batch([change("U", 1, 1)]))
    writer.abort()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_delete_files_hold_the_keys_in_order_and_say_so(tmp_path: Path) -> None:
    """FILE-12, FILE-13: with ids, metrics and a name that recovery knows."""
    target = target_at(tmp_path, keys=("region", "id"))
    written = land(
        target, [change("U", id, id, region=f"r{id % 3}") for id in random.Random(1).sample(range(99), 99)]
    )
    (file,) = written.delete_files
    assert (file.equality_ids, file.record_count) == ((1, 2), 99)
    assert json.loads(file.content_file_json())["equality-ids"] == [1, 2]
    assert (file.value_counts, file.lower_bounds[2], file.upper_bounds[2]) == (
        {1: 99, 2: 99},
        b"r0".hex(),
        b"r2".hex(),
    )
    keys = [(row["region"], row["id"]) for row in read(file)]
    assert keys == sorted(keys)
    footer = pq.ParquetFile(file.path.removeprefix("file:")).schema_arrow
    assert [(each.name, each.metadata[b"PARQUET:field_id"]) for each in footer] == [("id", b"1"), ("region", b"2")]
    search = Search("shop.orders", str(tmp_path), {"0123456789ab": 7}, {}, 0)
    assert all(search.finds(each.path, "orders") for each in written.files)
    assert "-deletes-" in file.path
    assert WrittenFile.from_json(file.to_json()) == file
    with pytest.raises(InvalidState, match="changed on its way"):
        WrittenFile.from_json(file.to_json().replace('"equality_ids": [1, 2]', '"equality_ids": [1]'))


def test_a_long_label_does_not_hide_what_a_file_holds(tmp_path: Path) -> None:
    name = FileName("orders", 1, 0, "x" * 500)
    writer = ChangeWriter(target_at(tmp_path), name)
    writer.write(batch([change("U", 1, 1)]))
    assert len({file.path for file in writer.close()}) == 2


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_delete_files_may_have_a_format_of_their_own(tmp_path: Path, file_format: str) -> None:
    """FILE-01."""
    look = DeleteSettings(file_format, 2**20, 2**20, 2**20, "zstd", None, {})
    written = land(replace(target_at(tmp_path), deletes=look), [change("U", 1, 1)])
    assert [file.format for file in written.files] == ["parquet", file_format]
    assert written.delete_files[0].path.endswith(file_format)
    assert written.delete_files[0].lower_bounds.keys() == {1}


def test_keys_that_fall_on_the_border_of_a_block_are_not_taken_twice(tmp_path: Path) -> None:
    """CHG-10: changes are sorted on disk in tiny blocks, and one key has more changes than a block holds."""
    ids = [5] * 3_000 + [id for id in range(10) for _ in range(50)]
    changes = [change("U", id, order, text=f"{order:050}") for order, id in enumerate(ids)]
    random.Random(5).shuffle(changes)
    parts = [changes[n : n + 500] for n in range(0, len(changes), 500)]
    written = land(target_at(tmp_path), *parts, max_waiting_bytes=128 * 1024)
    latest = {each["id"]: each["text"] for each in sorted(changes, key=lambda each: each["_order"])}
    assert texts(written) == latest
    assert written.counts == (10, 0, 3_490)
    assert [id for _, id in written.deletes] == list(range(10))


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[str, int, str]]]:
    """Epochs of (letter, id, region); few keys, so that they come again."""
    one = st.tuples(st.sampled_from("IUDD" + "U" * 3), st.integers(0, 5), st.sampled_from(["eu", "us", "asia"]))
    return draw(st.lists(st.lists(one, max_size=12), min_size=1, max_size=4))


@settings(max_examples=60, deadline=None)
@given(
    history=histories(),
    scope=st.sampled_from(["partition", "before", "global"]),
    trusted=st.booleans(),
    spills=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_history_leaves_what_a_dictionary_would(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[list[tuple[str, int, str]]],
    scope: str,
    trusted: bool,
    spills: bool,
    seed: int,
) -> None:
    """CHG-08, CHG-10, CHG-11: keys reused, deleted and inserted within an epoch, and moved between partitions."""
    folder = tmp_path_factory.mktemp("history")
    partition = (1, BucketTransform(2)) if scope == "partition" else (2, IdentityTransform())
    target = target_at(folder, partition, scope=scope, trust_inserts=trusted, delete_spec_json=UNPARTITIONED)
    model: dict[int, str] = {}
    table: list[tuple[tuple[Any, ...], int, str]] = []
    order = 0
    for epoch in history:
        changes = []
        for letter, id, region in epoch:
            old, order = model.get(id), order + 1
            if letter == "I" and old is not None and trusted:
                letter = "U"  # noqa: PLW2901  # an insert that is trusted is of a new key
            if letter != "I" and old is None and scope == "before":
                letter = "I"  # noqa: PLW2901  # a source that tells old rows has one to tell
            before = None if old is None else {"region": old}
            changes.append(change(letter, id, order, region, _before=before))
            model.pop(id, None)
            if letter != "D":
                model[id] = region
        shuffled = random.Random(seed).sample(changes, len(changes))
        written = land(target, *([one] for one in shuffled), **(ON_DISK if spills else {}))
        table = applied(table, written)
        assert sorted((id, region) for _, id, region in table) == sorted(model.items())
        landed, deleted, collapsed = written.counts
        assert landed + deleted + collapsed == len(changes)
        assert len(written.writer.key_hashes()) == len({each["id"] for each in changes}) == landed + deleted


def applied(
    table: Iterable[tuple[tuple[Any, ...], int, str]], written: Written
) -> list[tuple[tuple[Any, ...], int, str]]:
    """A row delta as Iceberg applies it: deletes reach older rows of their partition, or all with no partition."""
    deletes = set(written.deletes)
    left = [row for row in table if ((), row[1]) not in deletes and (row[0], row[1]) not in deletes]
    added = [
        (file.partition, row["id"], row["region"])
        for file in written.files
        if file.content == "data"
        for row in read(file)
    ]
    return left + added


KEYS: list[tuple[IcebergType, Sequence[Any]]] = [
    (BooleanType(), [True, False]),
    (IntegerType(), [1, -1]),
    (LongType(), [2**62, -(2**62)]),
    (DecimalType(10, 2), [Decimal("1.10"), Decimal("-1.10")]),
    (DateType(), [dt.date(2026, 1, 1), dt.date(1960, 1, 1)]),
    (TimeType(), [dt.time(1, 2, 3), dt.time(0)]),
    (TimestamptzType(), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)]),
    (StringType(), ["ä", ""]),
    (BinaryType(), [b"\x00\xff", b""]),
    (FixedType(2), [b"ab", b"ba"]),
    (UUIDType(), [uuid.UUID(int=2**127), uuid.UUID(int=1)]),
]


@pytest.mark.parametrize(
    ("kind", "values"), KEYS, ids=lambda each: str(each) if isinstance(each, IcebergType) else ""
)
def test_keys_may_be_of_any_type_that_names_a_row(tmp_path: Path, kind: IcebergType, values: Sequence[Any]) -> None:
    """CHG-10: a null is a key of its own where the column may be null."""
    schema = Schema(NestedField(1, "key", kind), NestedField(2, "text", StringType()))
    target = WriteTarget(
        "shop.orders",
        f"file:{tmp_path}",
        schema.model_dump_json(),
        UNPARTITIONED,
        changes=ChangeTarget(("key",)),
    )
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    storage = schema_to_pyarrow(schema).field("key").type
    given_values = [each.bytes if isinstance(each, uuid.UUID) else each for each in [*values, None] * 3]
    if isinstance(kind, UUIDType):
        keys: pa.Array = pa.ExtensionArray.from_storage(storage, pa.array(given_values, storage.storage_type))
    else:
        keys = pa.array(given_values, storage)
    rows = pa.record_batch(
        {"key": keys, "text": [str(n) for n in range(9)], "_op": ["U"] * 9, "_order": list(range(9))}
    )
    for limits in ({}, ON_DISK):
        writer = ChangeWriter(target, FileName("orders", 1, 0), **limits)
        for n in range(9):
            writer.write(rows.slice(n, 1))
        data, deletes = sorted(writer.close(), key=lambda file: file.content)
        assert {row["text"] for row in read(data)} == {"6", "7", "8"}
        assert deletes.record_count == len(writer.key_hashes()) == 3


def test_a_keys_hash_is_the_same_in_every_process_and_beside_any_other_key() -> None:
    """Two tasks must find that they had the same key, nulls among the others or not."""
    ids, names = pa.array([1, 2, None, 2**40]), pa.array(["a", "b", None, "ä"], pa.large_string())
    together = hashed([ids, names])
    alone = [hashed([ids.slice(n, 1), names.slice(n, 1)])[0] for n in range(4)]
    assert together.tolist() == alone
    assert len(set(alone)) == 4
    assert hashed([pa.array([1]), pa.array([2])])[0] != hashed([pa.array([2]), pa.array([1])])[0]
    assert alone[:2] == HASHES


def test_two_tasks_find_the_keys_that_both_had(tmp_path: Path) -> None:
    one = land(target_at(tmp_path), [change("U", id, id) for id in range(100)])
    two = land(target_at(tmp_path), [change("D", id, id) for id in range(90, 200)])
    both = np.intersect1d(one.writer.key_hashes(), two.writer.key_hashes(), assume_unique=True)
    assert len(both) == 10
    assert both.dtype == np.uint64
