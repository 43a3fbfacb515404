"""Partition values and folders are those that Iceberg's own Java transforms give.

Java gets one row of a thousand columns under a spec of a thousand fields, so that a thousand random values cost a
handful of calls through the gateway. frazil gets the same values as a thousand rows.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import LongType, NestedField

from frazil.table.files import WrittenFile
from frazil.write.partition import Partition, Partitioner

pytestmark = pytest.mark.real

SEED = 20261115
COUNT = 1000

DAY_US = 86_400_000_000
YEAR_1 = -719_162
YEAR_9999_END = 2_932_896
NOTABLE_DAYS = [0, -1, 1, 364, 365, -365, -366, 789, -790, YEAR_1, YEAR_1 - 1, YEAR_9999_END, YEAR_9999_END + 1]

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
# Java's own calendar arithmetic ends before the longest of longs; this is still the year 292,000.
FAR_US = 9_223_372_036 * 1_000_000_000 // 1_000 * 1_000


def _moments(chance: random.Random, unit: int, far: int) -> list[int]:
    """Instants in units of which a second has this many: around 1970, around whole days, and far away."""
    day = 86_400 * unit
    notable = [n * day + delta for n in NOTABLE_DAYS for delta in (-1, 0, 1, unit, -unit) if abs(n * day) < far]
    near = [chance.randint(-200 * 365 * day, 200 * 365 * day) for _ in range(400)]
    return [*notable, *near, far, -far, *(chance.randint(-far, far) for _ in range(400))]


def _text(chance: random.Random) -> str:
    alphabet = "aZ0 /%+=&?#.:~*()!äßñ漢字é\u0301😀👩🏽\u200d🚀\U0010ffff\ufffd\ud7ff\ue000\n\t\\\"'"
    return "".join(chance.choice(alphabet) for _ in range(chance.randint(0, 12)))


def _decimals(digits: int, scale: int = 2) -> Callable[[random.Random], list[Decimal]]:
    largest = 10**digits - 1

    def values(chance: random.Random) -> list[Decimal]:
        unscaled = [0, 1, -1, 9, -9, 10, -10, 127, 128, -128, -129, 255, 256, largest, -largest]
        unscaled += [chance.randint(-largest, largest) // 10 ** chance.randint(0, digits) for _ in range(COUNT)]
        return [Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)) for n in unscaled]

    return values


def _ints(largest: int) -> Callable[[random.Random], list[int]]:
    def values(chance: random.Random) -> list[int]:
        few = [0, 1, -1, 9, -9, 10, -10, largest, -largest - 1, largest - 5, 5 - largest]
        return few + [chance.randint(-largest, largest) >> chance.randint(0, 60) for _ in range(COUNT)]

    return values


def _floats(code: str) -> Callable[[random.Random], list[float]]:
    def values(chance: random.Random) -> list[float]:
        few = [0.0, -0.0, 1.0, -1.5, 1e-10, 3.0e30]
        many = few + [chance.uniform(-1e6, 1e6) for _ in range(COUNT)]
        return [struct.unpack(code, struct.pack(code, value))[0] for value in many]

    return values


@dataclass(frozen=True)
class Kind:
    """A type, its values as Iceberg keeps them, and the type in which JSON carries those to Java as they are."""

    values: Callable[[random.Random], list[Any]]
    in_json: str = ""
    arrow: pa.DataType | None = None


MICROS = Kind(lambda chance: _moments(chance, 1_000_000, FAR_US), "long", pa.int64())
NANOS = Kind(lambda chance: _moments(chance, 1_000_000_000, LONG_MAX), "long", pa.int64())

KINDS = {
    "boolean": Kind(lambda chance: [True, False]),
    "int": Kind(_ints(INT_MAX)),
    "long": Kind(_ints(LONG_MAX)),
    "float": Kind(_floats("<f")),
    "double": Kind(_floats("<d")),
    "decimal(9,2)": Kind(_decimals(9)),
    "decimal(18,15)": Kind(_decimals(18, 15)),
    "decimal(10,2)": Kind(_decimals(10)),
    "decimal(38,2)": Kind(_decimals(38)),
    "string": Kind(lambda chance: ["", "null", "a" * 100, *(_text(chance) for _ in range(COUNT))]),
    "binary": Kind(lambda chance: [b"", b"\xff" * 9, *(chance.randbytes(n % 10) for n in range(COUNT))]),
    "fixed[5]": Kind(lambda chance: [b"\0" * 5, b"\xff" * 5, *(chance.randbytes(5) for _ in range(COUNT))]),
    "uuid": Kind(lambda chance: [uuid.UUID(int=0), *(uuid.UUID(bytes=chance.randbytes(16)) for _ in range(COUNT))]),
    "date": Kind(
        lambda chance: [*NOTABLE_DAYS, *(chance.randint(-4_000_000, 40_000_000) for _ in range(COUNT))],
        "int",
        pa.int32(),
    ),
    "time": Kind(
        lambda chance: [0, 1, 1_000, 1_000_000, 60_000_000, *(chance.randrange(DAY_US) for _ in range(COUNT))],
        "long",
        pa.int64(),
    ),
    "timestamp": MICROS,
    "timestamptz": MICROS,
    "timestamp_ns": NANOS,
    "timestamptz_ns": NANOS,
}  # fmt: skip

TIMES = ("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
TRUNCATED = ("int", "long", "decimal(9,2)", "decimal(18,15)", "decimal(38,2)", "string", "binary")
BUCKETED = tuple(kind for kind in KINDS if kind not in ("boolean", "float", "double"))

CASES = [
    *((kind, "identity") for kind in KINDS),
    *((kind, how) for kind in BUCKETED for how in ("bucket[16]", "bucket[1000003]")),
    *(
        (kind, how)
        for kind in TRUNCATED
        for how in ("truncate[1]", "truncate[3]", "truncate[10]", "truncate[1000]")
    ),
    *((kind, how) for kind in ("date", *TIMES) for how in ("year", "month", "day")),
    *((kind, "hour") for kind in TIMES),
]


class Java:
    """Iceberg's classes, and what they make of one row under one spec."""

    def __init__(self, spark: Any) -> None:
        self.iceberg = spark._jvm.org.apache.iceberg
        self.mapper = self.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()

    def bind(self, fields: list[tuple[str, str]], spec_fields: list[tuple[int, str, str]]) -> tuple[Any, Any]:
        schema = self.iceberg.SchemaParser.fromJson(_schema_json(fields))
        spec_json = {
            "spec-id": 1,
            "fields": [
                {"source-id": source, "field-id": 1000 + n, "transform": how, "name": name}
                for n, (source, how, name) in enumerate(spec_fields)
            ],
        }
        return schema, self.iceberg.PartitionSpecParser.fromJson(schema, json.dumps(spec_json))

    def partitioned(self, schema: Any, spec: Any, carriers: list[str], values: list[Any]) -> Any:
        """The `DataFile` that Java's own writer would make for this row."""
        carrier = self.iceberg.SchemaParser.fromJson(
            _schema_json([(f"c{n}", each) for n, each in enumerate(carriers)])
        )
        row_json = json.dumps({str(n + 1): _carried(value) for n, value in enumerate(values)})
        row = self.iceberg.SingleValueParser.fromJson(carrier.asStruct(), row_json)
        key = self.iceberg.PartitionKey(spec, schema)
        key.partition(row)
        builder = self.iceberg.DataFiles.builder(spec).withPath("/f").withFormat("parquet")
        return builder.withFileSizeInBytes(1).withRecordCount(1).withPartition(key).build()

    def committed(self, spec: Any, partition: tuple[Any, ...]) -> Any:
        """The `DataFile` that is committed for a description of ours."""
        file = WrittenFile("t", "/f", 1, 0, record_count=1, file_size_bytes=1, partition=partition)
        return self.iceberg.ContentFileParser.fromJson(self.mapper.readTree(file.content_file_json()), spec)

    def values_of(self, file: Any, spec: Any) -> list[Any]:
        return json.loads(self.iceberg.ContentFileParser.toJson(file, spec))["partition"]

    def folder_of(self, file: Any, spec: Any) -> str:
        return spec.partitionToPath(file.partition())


def _schema_json(fields: list[tuple[str, str]]) -> str:
    columns = [
        {"id": n + 1, "name": name, "required": False, "type": kind} for n, (name, kind) in enumerate(fields)
    ]
    return json.dumps({"type": "struct", "schema-id": 0, "fields": columns})


def _carried(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Decimal | uuid.UUID) else value


def _arrow(kind: str, values: list[Any]) -> pa.Array:
    plain = [value.bytes if isinstance(value, uuid.UUID) else value for value in values]
    schema = Schema.model_validate_json(_schema_json([("v", kind)]))
    held = schema_to_pyarrow(schema).field(0).type
    if KINDS[kind].arrow is not None:
        return pa.array(plain, KINDS[kind].arrow).view(held)
    return pa.array(plain, held)


def partitions_of(kind: str, how: str, values: list[Any]) -> list[Partition]:
    """frazil's partition of each value."""
    schema = Schema(
        *Schema.model_validate_json(_schema_json([("v", kind)])).fields, NestedField(2, "row", LongType())
    )
    spec = PartitionSpec(PartitionField(1, 1000, parse_transform(how), "p"), spec_id=1)
    rows = pa.array(range(len(values)), pa.int64())
    batch = pa.RecordBatch.from_arrays([_arrow(kind, values), rows], schema=schema_to_pyarrow(schema))
    found: dict[int, Partition] = {}
    for partition, part in Partitioner(schema, spec).split(batch):
        found |= dict.fromkeys(part.column("row").to_pylist(), partition)
    return [found[row] for row in range(len(values))]


@pytest.fixture(scope="module")
def java(spark):
    return Java(spark)


@pytest.mark.parametrize(("kind", "how"), CASES)
def test_values_and_folders_are_those_of_java(java, kind, how):
    """FILE-08"""
    values = [None, *KINDS[kind].values(random.Random(f"{SEED} {kind} {how}"))]
    ours = partitions_of(kind, how, values)

    columns = [f"c{n}" for n in range(len(values))]
    schema, spec = java.bind(
        [(name, kind) for name in columns], [(n + 1, how, f"p{n}") for n in range(len(values))]
    )
    theirs = java.partitioned(schema, spec, [KINDS[kind].in_json or kind] * len(values), values)
    committed = java.committed(spec, tuple(each.values[0] for each in ours))

    expected, found = java.values_of(theirs, spec), java.values_of(committed, spec)
    assert [(v, e, f) for v, e, f in zip(values, expected, found, strict=True) if repr(e) != repr(f)] == []
    folders = [each.partition("=")[2] for each in java.folder_of(theirs, spec).split("/")]
    our_folders = [each.path.removeprefix("p=") for each in ours]
    if kind not in ("float", "double"):
        assert [(v, e, f) for v, e, f in zip(values, folders, our_folders, strict=True) if e != f] == []


def test_several_named_fields_make_one_partition(java):
    """FILE-08: nested sources, a name of their own, and a field that an older spec left behind as void."""
    row = (-7, "ÄÖ/Ü", -1, Decimal("-12.34"))
    fields = [("id", "long"), ("name", "string"), ("at", "timestamptz"), ("amount", "decimal(10,2)")]
    spec_fields = [
        (1, "truncate[5]", "id_five"),
        (2, "void", "name"),
        (2, "truncate[2]", "two letters=ü"),
        (3, "hour", "at_hour"),
        (4, "bucket[7]", "amount_bucket"),
        (4, "identity", "amount"),
    ]
    schema, spec = java.bind(fields, spec_fields)
    theirs = java.partitioned(schema, spec, ["long", "string", "long", "decimal(10,2)"], list(row))
    ours = _one_row(fields, spec_fields, row)
    assert java.values_of(java.committed(spec, ours.values), spec) == java.values_of(theirs, spec)
    assert ours.path == java.folder_of(theirs, spec)
    assert ours.path.startswith("id_five=-10/name=null/two+letters%3D%C3%BC=%C3%84%C3%96/at_hour=1969-12-31-23/")


def test_a_spec_whose_fields_are_all_void_is_one_partition(java):
    """FILE-08: what remains of a v1 table's spec when its last partition field is dropped."""
    _, spec = java.bind([("id", "long")], [(1, "void", "id")])
    ours = _one_row([("id", "long")], [(1, "void", "id")], (1,))
    assert (ours.values, ours.path) == ((None,), "id=null")
    committed = java.committed(spec, ours.values)
    assert java.folder_of(committed, spec) == ours.path


@pytest.mark.parametrize(
    ("how", "moment", "java_says", "ours"),
    [
        ("hour", "1969-12-31T22:00:00.999999", -3, -2),
        ("day", "1969-12-30T00:00:00.999999", "1969-12-29", "1969-12-30"),
        ("month", "1969-11-01T00:00:00.999999", -3, -2),
        ("year", "1968-01-01T00:00:00.999999", -3, -2),
    ],
)
def test_one_microsecond_before_1970_has_its_own_partition_and_java_finds_it_there(
    java, how, moment, java_says, ours
):
    """FILE-08: the spec counts whole units; Java is one off for this microsecond of each, and knows to look."""
    fields, spec_fields = [("at", "timestamp")], [(1, how, "p")]
    schema, spec = java.bind(fields, spec_fields)
    micros = (dt.datetime.fromisoformat(moment) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    theirs = java.partitioned(schema, spec, ["long"], [micros])
    partition = _one_row(fields, spec_fields, (micros,))
    assert (java.values_of(theirs, spec), partition.values) == ([java_says], (ours,))

    committed = java.committed(spec, partition.values)
    expressions = java.iceberg.expressions
    for predicate in ("equal", "lessThanOrEqual", "greaterThanOrEqual"):
        wanted = getattr(expressions.Expressions, predicate)("at", moment)
        projected = expressions.Projections.inclusive(spec).project(wanted)
        assert expressions.Evaluator(spec.partitionType(), projected).eval(committed.partition())


def _one_row(fields: list[tuple[str, str]], spec_fields: list[tuple[int, str, str]], row: tuple[Any, ...]) -> Any:
    schema = Schema.model_validate_json(_schema_json(fields))
    parts = [PartitionField(source, 1000, parse_transform(how), name) for source, how, name in spec_fields]
    arrays = [_arrow(kind, [value]) for (_, kind), value in zip(fields, row, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema_to_pyarrow(schema))
    ((partition, _),) = Partitioner(schema, PartitionSpec(*parts, spec_id=1)).split(batch)
    return partition
