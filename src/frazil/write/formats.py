"""The file formats by name."""

from __future__ import annotations

from pyiceberg.schema import Schema

from frazil.table.files import WriteTarget
from frazil.write.avro import Avro
from frazil.write.encode import FileFormat
from frazil.write.orc import Orc
from frazil.write.parquet import Parquet


def file_format(target: WriteTarget, schema: Schema) -> FileFormat:
    """The format that the target asks for, set up for its schema."""
    formats: dict[str, type[Avro] | type[Orc] | type[Parquet]] = {"avro": Avro, "orc": Orc, "parquet": Parquet}
    return formats[target.file_format](target, schema)
