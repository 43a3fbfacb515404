"""What the files of a Delta table look like: the pipeline file first, then the table's own properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pyiceberg.types import NestedField, StructType

from frazil.errors import ConfigError
from frazil.pipeline.spec import TableSection
from frazil.pipeline.values import parse_size_bytes
from frazil.table.delta.schema import Columns
from frazil.table.files import WriteTarget
from frazil.table.iceberg import with_settings

CHECKPOINT_INTERVAL = "delta.checkpointInterval"
_CODEC = "delta.parquet.compression.codec"
_FILE_SIZE = "delta.targetFileSize"
_STATS_NAMES = "delta.dataSkippingStatsColumns"
_STATS_COUNT = "delta.dataSkippingNumIndexedCols"
_STATS_COUNT_DEFAULT = 32
_ALL = -1

_DEFAULTS = {CHECKPOINT_INTERVAL: "10"}
_BOUNDS = "truncate(32)"
"""Delta cuts texts after so many characters."""


def new_table_configuration(wish: Mapping[str, str]) -> dict[str, str]:
    """Properties of a new table, under Delta's names."""
    return {**_DEFAULTS, **wish}


def checkpoint_interval(configuration: Mapping[str, str | None]) -> int:
    """After how many versions the next checkpoint is due."""
    return int(configuration.get(CHECKPOINT_INTERVAL) or _DEFAULTS[CHECKPOINT_INTERVAL])


def write_settings(
    target: WriteTarget, wish: TableSection, columns: Columns, configuration: Mapping[str, str | None]
) -> WriteTarget:
    """The target with everything filled in that both the pipeline file and the table's properties may say."""
    properties = {"write.metadata.metrics.default": "none"}
    for column in _columns_with_statistics(columns, configuration):
        properties[f"write.metadata.metrics.column.{column}"] = _BOUNDS
    if codec := configuration.get(_CODEC):
        properties["write.parquet.compression-codec"] = codec.lower()
    if size := configuration.get(_FILE_SIZE):
        properties["write.target-file-size-bytes"] = str(_bytes(target.table, size))
    return with_settings(replace(target, properties=properties), wish)


def _columns_with_statistics(columns: Columns, configuration: Mapping[str, str | None]) -> list[str]:
    """Those that the table names, or else the first so many; structs count by what is in them."""
    in_files = [each for each in columns.schema.fields if each.name not in columns.in_folders]
    leaves = [path for each in in_files for path in _leaves(each)]
    names = configuration.get(_STATS_NAMES)
    if names is not None:
        wanted = [each.strip().replace("`", "") for each in names.split(",")]
        return [path for path in leaves if any(f"{path}.".startswith(f"{each}.") for each in wanted)]
    count = int(configuration.get(_STATS_COUNT) or _STATS_COUNT_DEFAULT)
    return leaves if count == _ALL else leaves[:count]


def _leaves(field: NestedField, path: str = "") -> Iterator[str]:
    here = f"{path}{field.name}"
    if not isinstance(field.field_type, StructType):
        yield here
        return
    for member in field.field_type.fields:
        yield from _leaves(member, f"{here}.")


def _bytes(table: str, size: str) -> int:
    """As Spark writes it: 64mb, or a plain number of bytes."""
    try:
        return int(size) if size.isdecimal() else int(str(parse_size_bytes(size.upper())))
    except ValueError:
        raise ConfigError(
            f"{table} has the property {_FILE_SIZE} = {size!r}, which is no size",
            "correct it with ALTER TABLE … SET TBLPROPERTIES, or give table.target_file_size, which goes first",
        ) from None
