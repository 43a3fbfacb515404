"""Parquet files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping, schema_to_pyarrow
from pyiceberg.schema import Schema, sanitize_column_names

from frazil.pipeline.codecs import check_codec, codec_name
from frazil.table.files import MIB, WriteTarget
from frazil.write.bloom import BLOOM_BYTES_MAX, bloom_columns, distinct_values, distinct_values_max
from frazil.write.encode import Sink
from frazil.write.metrics import MetricsPlan
from frazil.write.stored import files_in_arrow, rows_in_arrow, spelled, stored_schema

# How far to look for values that repeat, and how often at least a value must come again.
SAMPLE_ROWS = 5_000
DISTINCT_SHARE_MAX = 0.5

# These are the defaults of Iceberg's and Parquet's Java writers. Page index and checksums together cost 2 % of
# the time and 0.02 % of the size (measured).
PAGE_ROWS_MAX = 20_000
DICTIONARY_BYTES_MAX = 2 * MIB


class Parquet:
    """How the Parquet files of one table look."""

    name = "parquet"
    # An open file keeps about 3 MB: Arrow's last pages and zstd's working memory (measured).
    max_open_files = 32

    def __init__(self, target: WriteTarget, schema: Schema) -> None:
        check_codec("parquet", target.compression, target.compression_level)
        self._target = target
        self._schema = schema
        self.footer_bytes_once = len(target.schema_json)
        # Readers of Iceberg find columns by id, those of Delta by name.
        if target.table_format == "iceberg":
            file_schema = _plainly_named(schema)
            self.arrow_schema: pa.Schema = schema_to_pyarrow(file_schema)
            self._file_arrow_schema = self.arrow_schema
        else:
            file_schema = stored_schema(schema, target.stored)
            self.arrow_schema = rows_in_arrow(schema, target.stored)
            self._file_arrow_schema = files_in_arrow(schema, target.stored)
        self.metrics = MetricsPlan(
            schema,
            file_schema,
            target.properties,
            target.sort_order_json,
            counts_collections=target.table_format == "delta",
        )
        field_ids = parquet_path_to_id_mapping(file_schema)
        self._leaves = list(field_ids)
        blooms = bloom_columns(schema, target.bloom_filters)
        self._blooms = {path: (id_, blooms[id_]) for path, id_ in field_ids.items() if id_ in blooms}

    def encoder(self, sink: Sink, rows: pa.Table) -> ParquetEncoder:
        target, rows = self._target, spelled(rows, self._file_arrow_schema)
        writer = pq.ParquetWriter(
            sink,
            self._file_arrow_schema,
            compression=codec_name(target.compression),
            compression_level=target.compression_level,
            use_dictionary=self._leaves_that_repeat(rows) if target.dictionary else False,
            dictionary_pagesize_limit=self._number("write.parquet.dict-size-bytes", DICTIONARY_BYTES_MAX),
            data_page_size=target.page_size_bytes,
            max_rows_per_page=self._number("write.parquet.page-row-limit", PAGE_ROWS_MAX),
            write_statistics=self.metrics.leaves_with_statistics,
            write_page_index=True,
            write_page_checksum=True,
            bloom_filter_options=self._bloom_options(rows),
            store_decimal_as_integer=True,
            store_schema=False,
        )
        if target.table_format == "iceberg":
            writer.add_key_value_metadata({"iceberg.schema": target.schema_json})
        return ParquetEncoder(writer, self._file_arrow_schema, self.metrics)

    def _number(self, key: str, default: int) -> int:
        return int(self._target.properties.get(key, default))

    def _bloom_options(self, rows: pa.Table) -> dict[str, dict[str, Any]]:
        """Filters as large as the first row group needs them: a small file gets small ones."""
        size_max = self._number("write.parquet.bloom-filter-max-bytes", BLOOM_BYTES_MAX)
        return {
            path: {
                "fpp": share,
                "ndv": min(max(1, distinct_values(self._schema, rows, id_)), distinct_values_max(share, size_max)),
            }
            for path, (id_, share) in self._blooms.items()
        }

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

    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema, metrics: MetricsPlan) -> None:
        self._writer = writer
        self._schema = schema
        self._metrics = metrics
        self._tally = metrics.tally()

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(spelled(rows, self._schema), row_group_size=rows.num_rows)
        self._tally.add(rows)

    def close(self) -> dict[str, Any]:
        self._writer.close()
        return self._metrics.measure(self._writer.writer.metadata, self._tally)

    def abandon(self) -> None:
        self._writer.is_open = False  # otherwise pyarrow writes a footer when the writer is collected


def _plainly_named(schema: Schema) -> Schema:
    """The schema with columns named as Java's writer does it, without characters that Avro does not know.

    Fields inside of columns keep their names: readers find them by id, and rows need not be made anew for it.
    """
    named = sanitize_column_names(schema)
    fields = [
        own.model_copy(update={"name": plain.name}) for own, plain in zip(schema.fields, named.fields, strict=True)
    ]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _repeats(values: pa.ChunkedArray) -> bool:
    if pt.is_nested(values.type):
        return True
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    return bool(pc.count_distinct(values).as_py() <= DISTINCT_SHARE_MAX * len(values))
