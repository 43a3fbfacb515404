"""An epoch of changes as one MERGE.

A MERGE has to find the rows of its keys, so it is a query, and delta-spark's. It takes one `txn`, tries again by
itself on whatever version is then the newest, and says nothing when its number is not newer than the table's. So:

1. the register is written ahead, by delta-rs and as any commit is judged, into the slot that does not count yet;
2. the MERGE carries the state's number, which makes that slot count from the very version that it lands in;
3. the log is looked at for the version that did: there is none if a newer coordinator has started meanwhile.

    a crash or an error        leaves                          and then
    before 1                   staged changes                  the journal knows them
    between 1 and 2            a version without files         the same epoch writes ahead again, into the same slot
    while it merges            files that nobody references    as with any MERGE: VACUUM
    after it landed            staged changes                  the next start deletes them

A start, or a second try, that comes between 1 and 2 carries the writer's application too: Delta refuses a MERGE
that is under way then, and passes over one that begins later. A RESTORE between the two is found in the log, and
the table counts as rolled back (`log.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from frazil.changes import DELETE, OP
from frazil.pipeline.terms import quoted
from frazil.spark import own_session
from frazil.table.delta.place import Place
from frazil.table.delta.reach import teach

_STAGED = "frazil_changes"
_APPLICATION = "spark.databricks.delta.write.txnAppId"
_NUMBER = "spark.databricks.delta.write.txnVersion"
_FACTS = "spark.databricks.delta.commitInfo.userMetadata"
_PARTITIONS = ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions")
"""Hundreds by default, which a small machine spends most of a MERGE on."""


@dataclass(frozen=True)
class Merge:
    """One MERGE into one table."""

    place: Place
    schema_json: str
    """the table's, in Delta's terms"""
    columns: Sequence[str]
    """those that changes have; what Delta computes is not among them"""
    keys: Sequence[str]
    """the columns that name a row"""
    paths: Sequence[str]
    """files of changes, one row for each key"""
    replaces: bool
    """whether rows that no change is about go as well"""
    application: str
    number: int
    facts: Mapping[str, str]
    """what the version says of itself"""

    def statement(self) -> str:
        names = list(map(quoted, self.columns))
        same = " AND ".join(f"old.{key} = new.{key}" for key in map(quoted, self.keys)) or "false"
        deletes = f"new.{quoted(OP)} = '{DELETE}'"
        return (
            f"MERGE INTO delta.{quoted(self.place.spark_uri)} AS old USING {_STAGED} AS new ON {same} "
            f"WHEN MATCHED AND {deletes} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f'old.{name} = new.{name}' for name in names)} "
            f"WHEN NOT MATCHED AND NOT {deletes} THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(f'new.{name}' for name in names)})"
            + (" WHEN NOT MATCHED BY SOURCE THEN DELETE" if self.replaces else "")
        )

    def schema(self) -> StructType:
        """Of the changes; a delete need not have what the table requires of rows."""
        table = StructType.fromJson(json.loads(self.schema_json))
        columns = [StructField(name, table[name].dataType) for name in self.columns]
        return StructType([*columns, StructField(OP, StringType())])


class Merger:
    """Merges in a session of its own: what a MERGE says of itself is a setting of the whole session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def merge(self, merge: Merge) -> None:
        session = teach(self._session, merge.place)
        for key, value in {
            _APPLICATION: merge.application,
            _NUMBER: str(merge.number),
            _FACTS: json.dumps(dict(merge.facts)),
        }.items():
            session.conf.set(key, value)
        self._changes(merge).createOrReplaceTempView(_STAGED)
        session.sql(merge.statement()).collect()

    def _changes(self, merge: Merge) -> DataFrame:
        if not merge.paths:
            return self._session.createDataFrame([], merge.schema())
        paths = map(merge.place.for_spark, merge.paths)
        return self._session.read.schema(merge.schema()).options(ignoreMissingFiles=False).parquet(*paths)

    @cached_property
    def _session(self) -> SparkSession:
        session, told = own_session(self._spark), self._spark.sparkContext.getConf()
        for key in _PARTITIONS:
            if not told.contains(key):
                session.conf.set(key, 2 * self._spark.sparkContext.defaultParallelism)
        return session
