"""Which task writes which rows.

Without a shuffle every task writes a file for every partition value that it meets: fast, and the right thing
while there are few of them. With many values and many tasks that is a spray of small files. Then Spark can bring
the rows of each value together first, at the price of taking every row through the JVM (measured: twice the CPU).

`auto` measures. An epoch's files are looked at, and the next epoch is shuffled while that spares it many small
files. Where a row is written never matters for what the table holds, so the choice may differ from epoch to epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyspark.sql import DataFrame, SparkSession

from frazil.spark import jvm
from frazil.table.files import WriteTarget, WrittenFile

FILES_SPARED_MIN = 64
"""Fewer files than this are not worth a shuffle."""
SMALL_SHARE = 1 / 8
"""Files beyond this share of their target size are no small ones."""

_ADVISORY_SIZE = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_SPLIT_SHARE = 1 / 4
"""A partition value is split over tasks when each gets at least this share of a full file."""
_KEY = "__frazil_partition_{}"


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

    Spark's rebalancing also puts small partitions together, and takes keys that are plain columns only.
    """
    schema = Schema.model_validate_json(target.schema_json)
    keys = {
        _KEY.format(n): _key(session, rows, schema.find_column_name(field.source_id) or "", field, n)
        for n, field in enumerate(_fields(target))
    }
    if not session.sparkContext.getConf().contains(_ADVISORY_SIZE):
        session.conf.set(_ADVISORY_SIZE, str(int(_SPLIT_SHARE * target.target_file_size_bytes)))
    keyed = rows.selectExpr("*", *(f"{expression} AS {name}" for name, expression in keys.items()))
    return keyed.hint("rebalance", *keys).drop(*keys)


def _fields(target: WriteTarget) -> list[PartitionField]:
    spec = PartitionSpec.model_validate_json(target.spec_json)
    return [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]


def _key(session: SparkSession, rows: DataFrame, column: str, field: PartitionField, number: int) -> str:
    """An expression that is the same for all rows of a partition value, as far as Spark's types allow."""
    path = ".".join(f"`{part}`" for part in column.split("."))
    match field.transform:
        case IdentityTransform():
            return path
        case BucketTransform(num_buckets=size):
            register = jvm(session).org.apache.iceberg.spark.IcebergSpark.registerBucketUDF
        case TruncateTransform(width=size):
            register = jvm(session).org.apache.iceberg.spark.IcebergSpark.registerTruncateUDF
        case timed:
            return f"date_trunc('{timed}', {path})"
    kind = jvm(session).org.apache.spark.sql.types.DataType.fromJson(
        rows.selectExpr(path).schema[0].dataType.json()
    )
    register(session._jsparkSession, f"frazil_transform_{number}", kind, size)
    return f"frazil_transform_{number}({path})"
