"""Column metrics of a closed Parquet file, as Iceberg's manifests want them.

pyiceberg reads them from the footer. Two things need care, because a wrong bound hides rows from queries:

- Arrow leaves min and max out of the footer when a value is longer than 4 KiB. pyiceberg skips such a row
  group and builds its bounds from the others, which are then too narrow. Such columns get no bounds here.
- Bounds of dates and times are taken as the integers in the footer: Python's own types end at the year 9999
  and know no nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

_TEMPORAL = (DateType, TimeType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)


class MetricsPlan:
    """Which metrics each column gets; made once per writer, used for each of its files."""

    def __init__(self, schema: Schema, file_schema: Schema, properties: Mapping[str, str]) -> None:
        plan = compute_statistics_plan(schema, dict(properties))
        self._temporal = {
            field_id: each
            for field_id, each in plan.items()
            if isinstance(each.iceberg_type, _TEMPORAL) and each.mode.type == MetricModeTypes.FULL
        }
        self._plan = plan | {field_id: _counts_only(each) for field_id, each in self._temporal.items()}
        self._field_ids = parquet_path_to_id_mapping(file_schema)
        self.nan_columns = {
            position: field.field_id
            for position, field in enumerate(schema.fields)
            if isinstance(field.field_type, FloatType | DoubleType)
            and plan[field.field_id].mode.type != MetricModeTypes.NONE
        }

    def measure(self, footer: pq.FileMetaData, nan_counts: Mapping[int, int]) -> dict[str, Any]:
        """The metric fields of a `WrittenFile`."""
        measured = data_file_statistics_from_parquet_metadata(
            footer, self._plan, self._field_ids
        ).to_serialized_dict()
        lower, upper = self._temporal_bounds(footer)
        unbounded = set(self._columns_without_bounds(footer))
        return {
            "column_sizes": measured["column_sizes"],
            "value_counts": measured["value_counts"],
            "null_value_counts": measured["null_value_counts"],
            "nan_value_counts": dict(nan_counts),
            "lower_bounds": _hex(measured["lower_bounds"] | lower, unbounded),
            "upper_bounds": _hex(measured["upper_bounds"] | upper, unbounded),
            "split_offsets": tuple(measured["split_offsets"]),
        }

    def _temporal_bounds(self, footer: pq.FileMetaData) -> tuple[dict[int, bytes], dict[int, bytes]]:
        lowest: dict[int, int] = {}
        highest: dict[int, int] = {}
        for field_id, chunk in self._chunks(footer):
            if field_id in self._temporal and chunk.is_stats_set and chunk.statistics.has_min_max:
                low, high = chunk.statistics.min_raw, chunk.statistics.max_raw
                lowest[field_id] = min(low, lowest.get(field_id, low))
                highest[field_id] = max(high, highest.get(field_id, high))
        return self._serialized(lowest), self._serialized(highest)

    def _serialized(self, bounds: dict[int, int]) -> dict[int, bytes]:
        return {
            field_id: to_bytes(self._temporal[field_id].iceberg_type, bound) for field_id, bound in bounds.items()
        }

    def _columns_without_bounds(self, footer: pq.FileMetaData) -> Iterator[int]:
        for field_id, chunk in self._chunks(footer):
            if not chunk.physical_type.endswith("BYTE_ARRAY"):
                continue
            known = chunk.is_stats_set and chunk.statistics.has_min_max
            all_null = chunk.is_stats_set and chunk.statistics.null_count == chunk.num_values
            if not known and not all_null:
                yield field_id

    def _chunks(self, footer: pq.FileMetaData) -> Iterator[tuple[int, pq.ColumnChunkMetaData]]:
        for group in range(footer.num_row_groups):
            row_group = footer.row_group(group)
            for position in range(footer.num_columns):
                chunk = row_group.column(position)
                yield self._field_ids[chunk.path_in_schema], chunk


def _counts_only(column: StatisticsCollector) -> StatisticsCollector:
    return replace(column, mode=MetricsMode(MetricModeTypes.COUNTS))


def _hex(bounds: Mapping[int, bytes | None], unbounded: set[int]) -> dict[int, str]:
    return {
        field_id: bound.hex()
        for field_id, bound in sorted(bounds.items())
        if bound is not None and field_id not in unbounded
    }
