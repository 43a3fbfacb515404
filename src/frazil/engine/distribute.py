"""Which task writes which rows.

Without a shuffle every task writes a file for every partition value that it meets: fast, and the right thing
while there are few of them. With many values and many tasks that is a spray of small files. Then Spark can bring
the rows of each value together first, at the price of taking every row through the JVM (measured: twice the CPU).

`auto` measures. An epoch's files are looked at, and the next epoch is shuffled while that spares it many small
files. Where a row is written never matters for what the table holds, so the choice may differ from epoch to epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import structlog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import BinaryType, IcebergType, StringType, StructType, UUIDType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from frazil.pipeline.terms import quoted
from frazil.spark import jvm
from frazil.table.files import WriteTarget, WrittenFile
from frazil.write.partition import path_to

FILES_SPARED_MIN = 64
"""Fewer files than this are not worth a shuffle."""
SMALL_SHARE = 1 / 8
"""Files beyond this share of their target size are no small ones."""

_ADVISORY_SIZE = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_SPLIT_SHARE = 1 / 4
"""A partition value is split over tasks when each gets at least this share of a full file."""
_KEY = "__frazil_partition_{}"
_NO_MARKS = str.maketrans("(),", "___")

log = structlog.get_logger()


@dataclass
class Distribution:
    """Whether the next epoch's rows are shuffled."""

    _files_spared: int = field(default=0)
    _bytes_mean: float = field(default=0.0)

    def shuffles(self, target: WriteTarget) -> bool:
        """By the target's own choice, else by what the latest epoch showed."""
        if not _fields(target):
            return False
        if target.distribution != "auto":
            return target.distribution == "hash"
        small = self._bytes_mean < SMALL_SHARE * target.target_file_size_bytes
        return small and self._files_spared >= FILES_SPARED_MIN

    def learn(self, files: Iterable[WrittenFile], tasks: int, shuffled: bool) -> None:
        """Takes in the files of an epoch, and how many tasks read it.

        A shuffled epoch does not show what an unshuffled one would have been; the worst is assumed, that every
        task meets every value.
        """
        sizes = [(file.partition, file.file_size_bytes) for file in files]
        if not sizes:
            return
        values = len({partition for partition, _ in sizes})
        unshuffled = values * tasks if shuffled else len(sizes)
        self._files_spared = unshuffled - values
        self._bytes_mean = sum(size for _, size in sizes) / unshuffled


def gathered(session: SparkSession, rows: DataFrame, target: WriteTarget) -> DataFrame:
    """The same rows, those of one partition value in one task; a value of very many rows in a few.

    Spark's rebalancing also puts small partitions together, and takes keys that are plain columns only. Rows that
    Spark cannot bring together, because of how a column is called for example, stay where they are: that costs
    files, and no more.
    """
    if not session.sparkContext.getConf().contains(_ADVISORY_SIZE):
        session.conf.set(_ADVISORY_SIZE, str(int(_SPLIT_SHARE * target.target_file_size_bytes)))
    try:
        keys = _keys(session, rows, target)
        keyed = rows.selectExpr("*", *(f"{expression} AS {name}" for name, expression in keys.items()))
        return keyed.hint("rebalance", *keys).drop(*keys) if keys else rows
    except PySparkException as refused:
        log.warning("rows cannot be brought together by partition", table=target.table, error=str(refused))
        return rows


def gathered_by_key(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The same changes, those of one key in one task."""
    return changes.repartition(changes.sparkSession.sparkContext.defaultParallelism, *map(quoted, keys))


def _keys(session: SparkSession, rows: DataFrame, target: WriteTarget) -> dict[str, str]:
    """A column for each partition field whose source the rows bring; one that they lack is null in all of them."""
    schema = Schema.model_validate_json(target.schema_json)
    keys = {}
    for number, each in enumerate(_fields(target)):
        names = _names(schema.as_struct(), path_to(schema.as_struct(), each.source_id))
        if names[0] in rows.columns:
            keys[_KEY.format(number)] = _key(session, rows, names, each, schema.find_type(each.source_id))
    return keys


def _names(struct: StructType, path: list[int]) -> list[str]:
    """The names that lead to a field through the structs around it."""
    field = struct.fields[path[0]]
    return [field.name, *(_names(field.field_type, path[1:]) if isinstance(field.field_type, StructType) else [])]


def _fields(target: WriteTarget) -> list[PartitionField]:
    spec = PartitionSpec.model_validate_json(target.spec_json)
    return [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]


def _key(session: SparkSession, rows: DataFrame, names: list[str], field: PartitionField, kind: IcebergType) -> str:
    """An expression that is the same for all rows of a partition value."""
    path = ".".join(map(quoted, names))
    match field.transform:
        case IdentityTransform():
            return path
        case BucketTransform(num_buckets=buckets):
            # Spark has UUIDs as texts, and they are put into buckets by their bytes.
            value = f"unhex(replace({path}, '-', ''))" if isinstance(kind, UUIDType) else path
            return _transformed(session, rows, "Bucket", value, buckets)
        case TruncateTransform(width=width) if isinstance(kind, StringType | BinaryType):
            return f"substring({path}, 1, {width})"
        case TruncateTransform(width=width):
            return _transformed(session, rows, "Truncate", path, width)
        case timed:
            return f"date_trunc('{timed}', {path})"


def _transformed(session: SparkSession, rows: DataFrame, transform: str, value: str, size: int) -> str:
    """Iceberg's own transform of a value, as a function that is registered for its type."""
    java = jvm(session)
    kind = rows.selectExpr(value).schema[0].dataType
    name = f"frazil_{transform}_{size}_{kind.simpleString()}".translate(_NO_MARKS).lower()
    register = getattr(java.org.apache.iceberg.spark.IcebergSpark, f"register{transform}UDF")
    register(session._jsparkSession, name, java.org.apache.spark.sql.types.DataType.fromJson(kind.json()), size)
    return f"{name}({value})"
