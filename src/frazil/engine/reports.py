"""From tasks back to the driver: each of them leaves one report."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from frazil.engine.worker import ArrowFunction, TaskReport

_REPORTS = StructType([StructField("report", StringType())])


def reported(rows: DataFrame, work: ArrowFunction) -> list[TaskReport]:
    """Has Spark's tasks do the work with the rows, and returns what they report."""
    return [TaskReport.from_json(row.report) for row in rows.mapInArrow(work, _REPORTS).collect()]
