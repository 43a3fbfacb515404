"""Which codec, at which level, a file format can have: asked when a pipeline file is read, and by writers."""

from __future__ import annotations

from frazil.errors import ConfigError

NONE = "none"

# Iceberg's properties and Parquet's footers say "uncompressed", pipeline files say "none".
_SAME = {"uncompressed": NONE}

# Those that Spark, Trino and DuckDB read. Brotli is left out: Spark brings no decoder for it.
_CODECS = {
    "parquet": ("zstd", "snappy", "lz4", "gzip", NONE),
    "orc": ("zstd", "snappy", "lz4", "gzip", NONE),
    "avro": ("zstd", "snappy", "gzip", NONE),
}

# Only these levels: beyond them some libraries fail in the middle of a file, others quietly take the nearest.
_LEVELS = {
    "parquet": {"zstd": range(1, 23), "gzip": range(1, 10), "lz4": range(1, 13)},
    "orc": {},
    "avro": {"zstd": range(1, 23), "gzip": range(1, 10)},
}


def codec_name(compression: str) -> str:
    """The one name of a codec that goes by several."""
    return _SAME.get(compression.lower(), compression.lower())


def codecs_of(file_format: str) -> tuple[str, ...]:
    """All that files of this format can be written with."""
    return _CODECS[file_format]


def has_level(file_format: str, codec: str, level: int | None) -> bool:
    """Whether the codec has this level there."""
    return level is not None and level in _LEVELS[file_format].get(codec, range(0))


def check_codec(file_format: str, compression: str, level: int | None) -> None:
    """Raises ConfigError unless files of this format can be written with this codec at this level."""
    codec = codec_name(compression)
    if codec not in _CODECS[file_format]:
        raise ConfigError(
            f"table.compression = {compression!r}: {file_format} files have no such codec",
            f"choose one of {', '.join(_CODECS[file_format])}",
        )
    levels = _LEVELS[file_format].get(codec)
    if level is None or has_level(file_format, codec, level):
        return
    raise ConfigError(
        f"table.compression_level = {level}: {_what_is_allowed(file_format, codec, levels)}",
        "choose such a level, or leave table.compression_level out for the codec's own"
        if levels
        else "leave table.compression_level out",
    )


def _what_is_allowed(file_format: str, codec: str, levels: range | None) -> str:
    if levels is None:
        return f"{codec} in {file_format} files has no levels"
    return f"{codec} in {file_format} files has levels {levels.start} to {levels.stop - 1}"
