"""The file formats by name."""

from __future__ import annotations

from pyiceberg.schema import Schema

from frazil.table.files import WriteTarget
from frazil.write.encode import FileFormat
from frazil.write.parquet import Parquet


def file_format(target: WriteTarget, schema: Schema) -> FileFormat:
    """The format that the target asks for, set up for its schema."""
    formats = {"parquet": Parquet}
    return formats[target.file_format](target, schema)
