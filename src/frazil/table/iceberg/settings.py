"""How files look: what the pipeline file says, else what the table's own properties say, else our default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyiceberg.schema import Schema

from frazil.errors import ConfigError
from frazil.pipeline.codecs import check_codec, codecs_of, has_level
from frazil.pipeline.fit import can_have_bloom_filter
from frazil.pipeline.spec import TableSection
from frazil.table.files import MIB, DeleteSettings, WriteTarget

_DATA_PATH = "write.data.path"
_FORMER_DATA_PATHS = ("write.object-storage.path", "write.folder-storage.path")
_CUSTOM_LOCATIONS = "write.location-provider.impl"
_BLOOM_ENABLED = "write.parquet.bloom-filter-enabled.column."
_BLOOM_FPP = "write.parquet.bloom-filter-fpp.column."
_ORC_BLOOM = "write.orc.bloom.filter.columns"
_ORC_BLOOM_FPP = "write.orc.bloom.filter.fpp"
_FPP = 0.01
_DEFAULT_CODEC = "zstd"
_DELETE_FILE_BYTES = 64 * MIB
"""As Iceberg's own writers have it: they are read together with many data files."""

_WORKERS_NUMBERS = (
    "write.metadata.metrics.max-inferred-column-defaults",
    "write.parquet.page-row-limit",
    "write.parquet.dict-size-bytes",
    "write.parquet.bloom-filter-max-bytes",
)

_FORMATS = ("parquet", "orc", "avro")
_CODECS = {"uncompressed": "none", "zlib": "gzip", "lz4_raw": "lz4", "deflate": "gzip"}
"""Iceberg's names for codecs that the pipeline file calls otherwise."""
# `range` would have Spark read the source twice, once to find the ranges.
_DISTRIBUTIONS = {"none": "none", "hash": "hash", "range": "hash"}


def data_location(table_location: str, properties: Mapping[str, str]) -> str:
    """The folder that data files go to."""
    return (properties.get(_DATA_PATH) or f"{table_location}/data").rstrip("/")


def with_settings(target: WriteTarget, wish: TableSection) -> WriteTarget:
    """The target with everything filled in that both the pipeline file and the table's properties may say."""
    properties = _Properties(target.table, target.properties)
    _require_followable(properties)
    file_format = wish.file_format or properties.choice("write.format.default", _FORMATS) or target.file_format
    if file_format == "avro" and wish.bloom_filters:
        raise ConfigError(f"table.bloom_filters: {target.table} has avro files, which have none", "leave it out")
    codec, level = _codec(wish, properties, file_format)
    return replace(
        target,
        file_format=file_format,
        target_file_size_bytes=wish.target_file_size
        or properties.size("write.target-file-size-bytes")
        or target.target_file_size_bytes,
        row_group_rows=wish.row_group_rows,
        row_group_bytes=_row_group_bytes(properties, file_format, target.row_group_bytes),
        page_size_bytes=wish.page_size
        or properties.size("write.parquet.page-size-bytes")
        or target.page_size_bytes,
        compression=codec,
        compression_level=level,
        dictionary=wish.dictionary,
        bloom_filters=_bloom_filters(wish, properties, file_format, Schema.model_validate_json(target.schema_json)),
        distribution=wish.distribution or _distribution(properties) or target.distribution,
    )


def _require_followable(properties: _Properties) -> None:
    """Refuses what workers cannot do, and numbers that only they would stumble over."""
    properties.refuse(_CUSTOM_LOCATIONS, "workers have no JVM to run it in: unset it, or use write.data.path")
    if not properties.text(_DATA_PATH):
        for former in _FORMER_DATA_PATHS:
            properties.refuse(former, f"Iceberg no longer follows it: set {_DATA_PATH} instead")
    for key in _WORKERS_NUMBERS:
        properties.number(key)
    properties.choice("write.orc.compression-strategy", ("speed", "compression"))


def _distribution(properties: _Properties) -> str | None:
    mode = properties.choice("write.distribution-mode", tuple(_DISTRIBUTIONS))
    return mode and _DISTRIBUTIONS[mode]


def with_delete_settings(target: WriteTarget) -> WriteTarget:
    """The target with what the table's `write.delete.*` say of delete files; the rest is as in data files."""
    properties = _DeleteProperties(target.table, target.properties)
    file_format = properties.own_choice("write.format.default", _FORMATS) or target.file_format
    codec, level = target.compression, target.compression_level
    if file_format != target.file_format or properties.has_own(f"write.{file_format}.compression-codec"):
        codec, level = _codec_of(properties, file_format)
    own_size = properties.own_size("write.target-file-size-bytes")
    deletes = DeleteSettings(
        file_format=file_format,
        target_file_size_bytes=own_size or min(_DELETE_FILE_BYTES, target.target_file_size_bytes),
        row_group_bytes=_row_group_bytes(properties, file_format, target.row_group_bytes),
        page_size_bytes=properties.own_size("write.parquet.page-size-bytes") or target.page_size_bytes,
        compression=codec,
        compression_level=level,
        properties=properties.overlaid,
    )
    for key in _WORKERS_NUMBERS:
        properties.number(key)
    return replace(target, deletes=deletes)


def new_table_properties(wish: TableSection) -> dict[str, str]:
    """What the pipeline file says about files, as properties: other writers of the table then do the same."""
    properties: dict[str, str] = {}
    file_format = wish.file_format or "parquet"
    if wish.file_format:
        properties["write.format.default"] = wish.file_format
    if wish.compression:
        properties[f"write.{file_format}.compression-codec"] = _icebergs_codec(file_format, wish.compression)
        if wish.compression_level is not None and file_format != "orc":
            properties[f"write.{file_format}.compression-level"] = str(wish.compression_level)
    if wish.bloom_filters and file_format == "orc":
        properties[_ORC_BLOOM] = ",".join(wish.bloom_filters)
    elif wish.bloom_filters and file_format == "parquet":
        properties |= {_BLOOM_ENABLED + column: "true" for column in wish.bloom_filters}
    return dict(wish.properties) | properties


def _icebergs_codec(file_format: str, codec: str) -> str:
    if file_format == "orc":
        return {"gzip": "zlib"}.get(codec, codec)
    return {"none": "uncompressed"}.get(codec, codec)


def _codec(wish: TableSection, properties: _Properties, file_format: str) -> tuple[str, int | None]:
    """A level belongs to the codec it was given with."""
    if wish.compression or wish.compression_level is not None:
        codec = wish.compression or _DEFAULT_CODEC
        check_codec(file_format, codec, wish.compression_level)
        return codec, wish.compression_level
    return _codec_of(properties, file_format)


def _codec_of(properties: _Properties, file_format: str) -> tuple[str, int | None]:
    """Iceberg ignores a level that the codec does not have."""
    key = f"write.{file_format}.compression-codec"
    named = properties.text(key)
    codec = _CODECS.get(named.lower(), named.lower()) if named else _DEFAULT_CODEC
    if codec not in codecs_of(file_format):
        raise properties.refusal(key, str(named), f"frazil can write {', '.join(codecs_of(file_format))}")
    level = properties.number(f"write.{file_format}.compression-level")
    return codec, level if has_level(file_format, codec, level) else None


def _row_group_bytes(properties: _Properties, file_format: str, bound: int) -> int:
    """A larger wish than the worker's memory allows is not granted."""
    key = "write.orc.stripe-size-bytes" if file_format == "orc" else "write.parquet.row-group-size-bytes"
    return min(bound, properties.size(key) or bound)


def _bloom_filters(
    wish: TableSection, properties: _Properties, file_format: str, schema: Schema
) -> dict[str, float]:
    """A column that the table's properties name may have been dropped or renamed since; then it has none."""
    if file_format == "avro":
        return {}
    if file_format == "orc":
        named = [name.strip() for name in (properties.text(_ORC_BLOOM) or "").split(",")]
        share = properties.share(_ORC_BLOOM_FPP) or _FPP
        shares = dict.fromkeys([*named, *(wish.bloom_filters or [])], share)
    else:
        named = [name for name, value in properties.below(_BLOOM_ENABLED).items() if value.lower() == "true"]
        shares = {
            name: properties.share(_BLOOM_FPP + name) or _FPP for name in [*named, *(wish.bloom_filters or [])]
        }
    if wish.bloom_filters is not None:
        return {name: shares[name] for name in wish.bloom_filters}
    return {name: shares[name] for name in named if can_have_bloom_filter(name, schema)}


class _Properties:
    """A table's properties, read with care: one that makes no sense is refused by its name."""

    def __init__(self, table: str, values: Mapping[str, str]) -> None:
        self._table = table
        self._values = values

    def text(self, key: str) -> str | None:
        return self._values.get(key) or None

    def below(self, prefix: str) -> dict[str, str]:
        return {key.removeprefix(prefix): value for key, value in self._values.items() if key.startswith(prefix)}

    def choice(self, key: str, allowed: tuple[str, ...]) -> str | None:
        value = self.text(key)
        if value is not None and value.lower() not in allowed:
            raise self.refusal(key, value, f"allowed are {', '.join(allowed)}")
        return value and value.lower()

    def number(self, key: str) -> int | None:
        value = self.text(key)
        try:
            return None if value is None else int(value)
        except ValueError:
            raise self.refusal(key, str(value), "expected a whole number") from None

    def size(self, key: str) -> int | None:
        size = self.number(key)
        if size is not None and size <= 0:
            raise self.refusal(key, str(size), "expected a number of bytes larger than zero")
        return size

    def share(self, key: str) -> float | None:
        value = self.text(key)
        try:
            share = None if value is None else float(value)
        except ValueError:
            share = 0.0
        if share is not None and not 0 < share < 1:
            raise self.refusal(key, str(value), "expected a number between 0 and 1")
        return share

    def refuse(self, key: str, remedy: str) -> None:
        if key in self._values:
            raise ConfigError(f"{self._table} has the property {key} = {self._values[key]!r}", remedy)

    def refusal(self, key: str, value: str, expected: str) -> ConfigError:
        return ConfigError(
            f"{self._table} has the property {key} = {value!r}; {expected}",
            "correct it with ALTER TABLE … SET TBLPROPERTIES, or give the key in [table], which goes first",
        )


class _DeleteProperties(_Properties):
    """The same, with `write.delete.x` going before `write.x`."""

    @staticmethod
    def _own(key: str) -> str:
        return key.replace("write.", "write.delete.", 1)

    @property
    def overlaid(self) -> dict[str, str]:
        """All of them by their plain names, for workers."""
        return {**self._values, **{f"write.{key}": value for key, value in self.below("write.delete.").items()}}

    def has_own(self, key: str) -> bool:
        return bool(self._values.get(self._own(key)))

    def own_choice(self, key: str, allowed: tuple[str, ...]) -> str | None:
        return self.choice(key, allowed) if self.has_own(key) else None

    def own_size(self, key: str) -> int | None:
        return self.size(key) if self.has_own(key) else None

    def text(self, key: str) -> str | None:
        return super().text(self._own(key)) or super().text(key)

    def refusal(self, key: str, value: str, expected: str) -> ConfigError:
        return super().refusal(self._own(key) if self.has_own(key) else key, value, expected)
