"""What the manifest says of a file is what it would say had Iceberg's own Java writer written it.

The same rows go into two tables: through Spark's Iceberg writer, and through frazil's writer and a Java append.
Then the two manifest entries are compared, field by field.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from frazil.table.files import WriteTarget, WrittenFile
from frazil.write import FileName, TableWriter

pytestmark = pytest.mark.real

SEED = 20261115

# But uuid: see its own test.
EVERY_TYPE = {
    "id": "long",
    "flag": "boolean",
    "small": "int",
    "ratio": "float",
    "weight": "double",
    "cents": "decimal(9,2)",
    "amount": "decimal(18,4)",
    "huge": "decimal(38,10)",
    "name": "string",
    "blob": "binary",
    "five": "fixed[5]",
    "day": "date",
    "at": "timestamptz",
    "local": "timestamp",
    "nothing": "string",
    "no_number": "double",
    "place": {"city": "string", "spot": {"x": "double", "y": "float", "depth": "decimal(20,2)"}},
    "tags": ["string"],
    "lines": [{"sku": "string", "price": "double"}],
    "notes": ("string", {"text": "string", "score": "float"}),
    "counts": ("string", "int"),
}

NAN, INFINITY = float("nan"), float("inf")
LAST = "\U0010ffff"


@dataclass(frozen=True)
class Shape:
    """What the two tables have in common."""

    fields: Mapping[str, Any] = field(default_factory=lambda: EVERY_TYPE)
    properties: Mapping[str, str] = field(default_factory=dict)
    order: Sequence[str] = ()
    partition: Sequence[Mapping[str, Any]] = ()


class Side:
    """A table in a folder of its own, as Iceberg's Java API sees it."""

    def __init__(self, spark: Any, place: str, shape: Shape) -> None:
        iceberg = spark._jvm.org.apache.iceberg
        self.spark, self.iceberg, self.place = spark, iceberg, place
        schema = iceberg.SchemaParser.fromJson(schema_json(shape.fields))
        spec = iceberg.PartitionSpecParser.fromJson(schema, json.dumps({"spec-id": 0, "fields": shape.partition}))
        sorting = iceberg.SortOrder.builderFor(schema)
        for column in shape.order:
            sorting.asc(column)
        settings = spark._jvm.java.util.HashMap()
        for key, value in {"write.distribution-mode": "none", **shape.properties}.items():
            settings.put(key, value)
        tables = iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration())
        self.table = tables.create(schema, spec, sorting.build(), settings, place)

    @property
    def target(self) -> WriteTarget:
        return WriteTarget(
            "t",
            f"{self.table.location()}/data",
            self.iceberg.SchemaParser.toJson(self.table.schema()),
            self.iceberg.PartitionSpecParser.toJson(self.table.spec()),
            properties=dict(self.table.properties()),
            sort_order_json=self.iceberg.SortOrderParser.toJson(self.table.sortOrder()),
        )

    def write_with_spark(self, rows: pa.Table) -> None:
        frame = self.spark.createDataFrame(rows).coalesce(1)
        frame.write.format("iceberg").option("fanout-enabled", "true").mode("append").save(self.place)

    def append(self, files: list[WrittenFile]) -> None:
        mapper = self.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
        append = self.table.newAppend()
        for file in files:
            node = mapper.readTree(file.content_file_json())
            append.appendFile(self.iceberg.ContentFileParser.fromJson(node, self.table.spec()))
        append.commit()

    def entries(self) -> list[dict[str, Any]]:
        """The files of the current snapshot, as their manifest describes them."""
        self.table.refresh()
        files = self.table.currentSnapshot().addedDataFiles(self.table.io())
        read = [json.loads(self.iceberg.ContentFileParser.toJson(file, self.table.spec())) for file in files]
        return sorted(map(_with_maps, read), key=lambda entry: str(entry["partition"]))


def _with_maps(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        key: dict(zip(value["keys"], value["values"], strict=True)) if isinstance(value, dict) else value
        for key, value in entry.items()
    }


def schema_json(fields: Mapping[str, Any]) -> str:
    ids = iter(range(1, 10_000))

    def typed(kind: Any) -> Any:
        if isinstance(kind, str):
            return kind
        if isinstance(kind, list):
            return {"type": "list", "element-id": next(ids), "element-required": False, "element": typed(kind[0])}
        if isinstance(kind, tuple):
            key, value = next(ids), next(ids)
            pair = {"key-id": key, "key": typed(kind[0]), "value-id": value, "value": typed(kind[1])}
            return {"type": "map", "value-required": False, **pair}
        return {"type": "struct", "fields": list(members(kind))}

    def members(kinds: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        numbered = [(next(ids), name, kind) for name, kind in kinds.items()]
        for field_id, name, kind in numbered:
            yield {"id": field_id, "name": name, "required": False, "type": typed(kind)}

    return json.dumps({"type": "struct", "schema-id": 0, "fields": list(members(fields))})


def row_of(chance: random.Random, number: int) -> dict[str, Any]:
    """A row in which every type has its awkward values."""
    text = ["", "a" * 15 + "😀" + "b", "a" * 16, LAST * 20, "\ud7ff" * 20, "ÄÖÜ", f"customer {number}"]
    return {
        "id": chance.randint(-(2**63), 2**63 - 1),
        "flag": chance.random() < 0.5,
        "small": chance.randint(-(2**31), 2**31 - 1),
        "ratio": chance.choice([NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.5, -2.25]),
        "weight": chance.choice([NAN, 0.0, 3.5, 1e300]),
        "cents": Decimal(chance.randint(-(10**9) + 1, 10**9 - 1)).scaleb(-2),
        "amount": Decimal(chance.randint(-300, 300)).scaleb(-4),
        "huge": Decimal(chance.randint(-(10**27), 10**27)).scaleb(-10),
        "name": chance.choice(text),
        "blob": chance.choice([b"", b"\xff" * 20, b"a" * 15 + b"\xff" * 3, chance.randbytes(20)]),
        "five": chance.randbytes(5),
        "day": dt.date(1, 1, 1) + dt.timedelta(days=chance.randrange(3_000_000)),
        "at": dt.datetime(1900, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=chance.randrange(10**16)),
        "local": dt.datetime(1900, 1, 1) + dt.timedelta(microseconds=chance.randrange(10**16)),
        "nothing": None,
        "no_number": NAN,
        "place": {
            "city": chance.choice(text),
            "spot": {"x": chance.choice([NAN, -0.0, 1.0]), "y": -0.0, "depth": Decimal(number).scaleb(-2)},
        },
        "tags": chance.choice([None, [], ["x", None, "y" * 30]]),
        "lines": [{"sku": "s", "price": chance.choice([NAN, 1.0, None])} for _ in range(chance.randrange(3))],
        "notes": [("k", {"text": "t", "score": NAN})],
        "counts": [("a", 1), ("b", None)],
    }


def some_rows(count: int, null_share: float = 0.2) -> list[dict[str, Any]]:
    chance = random.Random(SEED)
    rows = [row_of(chance, number) for number in range(count)]
    return [{name: None if chance.random() < null_share else row[name] for name in row} for row in rows]


class Pair:
    """Two tables of one shape, one for each writer."""

    def __init__(self, spark: Any, folder: Any) -> None:
        self._spark, self._folder, self._made = spark, folder, 0

    def entries(self, rows: list[dict[str, Any]], row_group_rows: int = 1000, **shape: Any) -> Iterator[Any]:
        """For each file, what Java's manifest says of it as Java wrote it, and as frazil wrote it."""
        self._made += 1
        place = f"{self._folder}/{self._made}"
        java, ours = (Side(self._spark, f"{place}/{who}", Shape(**shape)) for who in ("java", "ours"))
        target = replace(ours.target, row_group_rows=row_group_rows)
        schema = arrow_schema(target)
        ours.append(write(target, pa.Table.from_pylist(rows, schema=schema)))
        for_spark = pa.schema([(each.name, spark_type(each.type)) for each in schema])
        texts = [{k: str(v) if isinstance(v, uuid.UUID) else v for k, v in row.items()} for row in rows]
        java.write_with_spark(pa.Table.from_pylist(texts, schema=for_spark))
        return zip(java.entries(), ours.entries(), strict=True)

    def entry(self, rows: list[dict[str, Any]], **shape: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same for tables that get one file each."""
        (pair,) = self.entries(rows, **shape)
        return pair


def arrow_schema(target: WriteTarget) -> pa.Schema:
    return schema_to_pyarrow(Schema.model_validate_json(target.schema_json), include_field_ids=False)


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Spark knows neither uuid nor fixed; its Iceberg writer takes text and bytes for them."""
    if kind == pa.uuid():
        return pa.string()
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind


def write(target: WriteTarget, rows: pa.Table) -> list[WrittenFile]:
    writer = TableWriter(target, FileName("w", 1, 0))
    closed = [file for batch in rows.to_batches() for file in writer.write(batch)]
    return closed + writer.close()


@pytest.fixture(scope="module")
def pair(spark, tmp_path_factory):
    return Pair(spark, tmp_path_factory.mktemp("pairs"))


def comparable(entry: dict[str, Any]) -> dict[str, Any]:
    """All that does not depend on how a writer lays out and compresses its file."""
    sizes = {"file-size-in-bytes", "file-path", "split-offsets", "column-sizes"}
    # To have no entry in a map and to have no map means the same.
    return {
        **{key: value for key, value in entry.items() if key not in sizes and value != {}},
        "columns with a size": set(entry.get("column-sizes", {})),
    }


def assert_alike(java: dict[str, Any], ours: dict[str, Any]) -> None:
    assert comparable(ours) == comparable(java)
    assert all(size > 0 for size in ours.get("column-sizes", {}).values())
    assert ours["split-offsets"][0] == java["split-offsets"][0] == 4


def test_every_type_has_the_metrics_of_java(pair):
    """FILE-12, FILE-13"""
    java, ours = pair.entry(some_rows(300))
    assert_alike(java, ours)
    assert ours["record-count"] == 300
    assert len(ours["lower-bounds"]) == 18


def test_several_row_groups_have_the_metrics_of_java(pair):
    small = {"write.parquet.row-group-size-bytes": "20000", "write.parquet.row-group-check-min-record-count": "50"}
    java, ours = pair.entry(some_rows(400), properties=small, row_group_rows=90)
    assert_alike(java, ours)
    assert len(java["split-offsets"]) > 1
    assert len(ours["split-offsets"]) == 5


def test_every_file_of_a_partitioned_table_is_described_as_by_java(pair):
    """FILE-08, FILE-12"""
    partition = [
        {"source-id": 8, "field-id": 1000, "transform": "bucket[3]", "name": "huge_bucket"},
        {"source-id": 2, "field-id": 1001, "transform": "identity", "name": "flag"},
    ]
    both = list(pair.entries(some_rows(60), partition=partition))
    for java, ours in both:
        assert_alike(java, ours)
        assert "/".join(java["file-path"].split("/")[-3:-1]) == "/".join(ours["file-path"].split("/")[-3:-1])
    assert len(both) == 12


def test_a_single_row_has_the_metrics_of_java(pair):
    assert_alike(*pair.entry(some_rows(1, null_share=0)))


def test_a_row_of_nulls_has_the_metrics_of_java(pair):
    java, ours = pair.entry([dict.fromkeys(EVERY_TYPE) | {"place": {"spot": {}}}])
    assert_alike(java, ours)
    assert ours.get("lower-bounds", {}) == {}


def test_a_bound_is_the_zero_that_was_written(pair):
    """A column for each case, once as double and once as float."""
    cases = [[0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0], [0.0, 1.0], [-0.0, 1.0], [0.0, -1.0], [-0.0, -1.0]]
    fields = {f"{kind}{n}": kind for kind in ("double", "float") for n in range(len(cases))}
    rows = [{name: (cases[int(name[-1])] * 2)[row] for name in fields} for row in range(2)]
    java, ours = pair.entry(rows, fields=fields)
    assert_alike(java, ours)
    assert len(set(ours["lower-bounds"].values())) == 6


def test_values_over_four_kilobytes_have_the_bounds_of_java(pair):
    """Arrow leaves them out of the footer of their row group; the other row groups alone would be too narrow."""
    fields = {"text": "string", "blob": "binary", "fixed": "fixed[5000]", "in": {"text": "string"}}
    texts = ["m", "n", "a" * 5000, "z" * 5000, LAST * 2000, "k", None, None]
    rows = [
        {"text": text, "blob": text and text.encode(), "fixed": bytes([n]) * 5000, "in": text and {"text": text}}
        for n, text in enumerate(texts)
    ]
    for properties in ({}, {"write.metadata.metrics.default": "full"}):
        java, ours = pair.entry(rows, fields=fields, properties=properties, row_group_rows=2)
        assert_alike(java, ours)
        assert len(ours["lower-bounds"]) == 4


MODES = [
    {"default": "none"},
    {"default": "NONE", "column.name": "Counts", "column.place.spot.x": "full", "column.tags.element": "full"},
    {"default": "counts", "column.place.city": "truncate(2)", "column.lines.element.price": "none"},
    {"default": "truncate(1)", "column.blob": "truncate(3)", "column.notes.value.score": "none"},
    {"default": "full", "column.ratio": "none", "column.place.spot.y": "counts"},
    {"default": "truncate(0)", "column.name": "nonsense"},
    {"max-inferred-column-defaults": "7"},
    {"max-inferred-column-defaults": "20", "column.huge": "full", "column.counts.key": "counts"},
    {"max-inferred-column-defaults": "0"},
    {"max-inferred-column-defaults": "-1"},
]


@pytest.mark.parametrize("modes", MODES, ids=str)
def test_the_metrics_properties_mean_what_they_mean_to_java(pair, modes):
    """FILE-12"""
    properties = {f"write.metadata.metrics.{key}": value for key, value in modes.items()}
    assert_alike(*pair.entry(some_rows(20), properties=properties))


@pytest.mark.parametrize("default", ["none", "truncate(3)", None])
def test_columns_a_table_is_sorted_by_have_bounds_and_files_say_which_order(pair, default):
    """FILE-12, FILE-13"""
    properties = {} if default is None else {"write.metadata.metrics.default": default}
    java, ours = pair.entry(some_rows(20), properties=properties, order=("name", "place.spot.depth"))
    assert_alike(java, ours)
    assert len(ours["lower-bounds"]) == (2 if default == "none" else 18)


@pytest.mark.parametrize("limit", [None, 105, 107, 108])
def test_a_wide_table_has_metrics_for_as_many_columns_as_java_gives_it(pair, limit):
    nested = {
        "s": {"a": "int", "t": {"b": "int"}},
        "l": [{"c": "int"}],
        "m": ("string", {"d": "int"}),
        "n": ("int", "int"),
    }
    fields = {f"c{n}": "int" for n in range(50)} | nested | {f"d{n}": "double" for n in range(50)}
    row = {
        "s": {"a": 1, "t": {"b": 2}},
        "l": [{"c": 3}],
        "m": [("k", {"d": 4})],
        "n": [(5, 6)],
        "c0": 7,
        "d49": 8.0,
    }
    properties = {} if limit is None else {"write.metadata.metrics.max-inferred-column-defaults": str(limit)}
    assert_alike(*pair.entry([row], fields=fields, properties=properties))


def test_uuids_have_no_bounds_because_java_would_not_find_them(pair, spark):
    """FILE-12: Java looks for a UUID between bounds that it reads in another order than it writes them."""
    keys = [uuid.UUID(int=n << 120) for n in (0x10, 0x7F, 0x80, 0xFF)]
    java, ours = pair.entry([{"key": key} for key in [*keys, None]], fields={"key": "uuid"})
    written_by_java = spark.read.format("iceberg").load(java["file-path"].partition("/data/")[0])
    assert written_by_java.where(f"key = '{keys[0]}'").count() == 0, "Iceberg has learned to find it: drop this"
    assert (java.pop("lower-bounds"), java.pop("upper-bounds")) == ({1: keys[0].hex}, {1: keys[3].hex.upper()})
    assert_alike(java, ours)
    assert ours["null-value-counts"] == {1: 1}
    written_by_us = spark.read.format("iceberg").load(ours["file-path"].partition("/data/")[0])
    assert [written_by_us.where(f"key = '{key}'").count() for key in keys] == [1, 1, 1, 1]
