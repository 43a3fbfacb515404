"""Parquet files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping, schema_to_pyarrow
from pyiceberg.schema import Schema, sanitize_column_names

from frazil.table.files import WriteTarget
from frazil.write.encode import Sink
from frazil.write.metrics import MetricsPlan

# How far to look for values that repeat, and how often at least a value must come again.
SAMPLE_ROWS = 5_000
DISTINCT_SHARE_MAX = 0.5


class Parquet:
    """How the Parquet files of one table look."""

    name = "parquet"

    def __init__(self, target: WriteTarget, schema: Schema) -> None:
        file_schema = sanitize_column_names(schema)
        self._target = target
        self.arrow_schema: pa.Schema = schema_to_pyarrow(file_schema)
        self.metrics = MetricsPlan(schema, file_schema, target.properties)
        self._leaves = list(parquet_path_to_id_mapping(file_schema))

    def encoder(self, sink: Sink, rows: pa.Table) -> ParquetEncoder:
        target = self._target
        writer = pq.ParquetWriter(
            sink,
            self.arrow_schema,
            compression="none" if target.compression == "uncompressed" else target.compression,
            compression_level=target.compression_level,
            use_dictionary=self._leaves_that_repeat(rows) if target.dictionary else False,
            data_page_size=target.page_size_bytes,
            write_statistics=True,
            store_decimal_as_integer=True,
            store_schema=False,
        )
        return ParquetEncoder(writer, self.metrics)

    def _leaves_that_repeat(self, rows: pa.Table) -> list[str]:
        """The columns worth a dictionary; of nested ones, all.

        Arrow builds a dictionary of whatever comes until a megabyte of it is full. Where values hardly repeat,
        that makes a file of small orders 30 % larger, and encoding it takes half as long again (measured).
        """
        sample = rows.slice(0, SAMPLE_ROWS)
        unique = {name for name in sample.column_names if not _repeats(sample.column(name))}
        return [path for path in self._leaves if path.partition(".")[0] not in unique]


class ParquetEncoder:
    """One Parquet file; every table becomes a row group."""

    def __init__(self, writer: pq.ParquetWriter, metrics: MetricsPlan) -> None:
        self._writer = writer
        self._metrics = metrics
        self._nan_counts: dict[int, int] = dict.fromkeys(metrics.nan_columns.values(), 0)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        for position, field_id in self._metrics.nan_columns.items():
            self._nan_counts[field_id] += pc.sum(pc.is_nan(rows.column(position))).as_py() or 0

    def close(self) -> dict[str, Any]:
        self._writer.close()
        return self._metrics.measure(self._writer.writer.metadata, self._nan_counts)

    def abandon(self) -> None:
        self._writer.is_open = False  # otherwise pyarrow writes a footer when the writer is collected


def _repeats(values: pa.ChunkedArray) -> bool:
    if pt.is_nested(values.type) or isinstance(values.type, pa.BaseExtensionType):
        return True
    return bool(pc.count_distinct(values).as_py() <= DISTINCT_SHARE_MAX * len(values))
