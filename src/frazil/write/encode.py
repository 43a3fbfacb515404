"""What a file format has to offer: rows in, bytes out, and at the end the metrics it can have."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa


class Sink(Protocol):
    """Where an encoder puts its bytes: a file that is only ever appended to."""

    @property
    def closed(self) -> bool: ...

    def write(self, data: Any) -> int: ...

    def tell(self) -> int: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Encoder(Protocol):
    """One file in the making. It never closes the sink, which belongs to the file."""

    def write(self, rows: pa.Table) -> None:
        """Adds rows: a row group, a stripe, or blocks, whatever the format calls them."""
        ...

    def close(self) -> dict[str, Any]:
        """Puts the last bytes into the sink and returns the metric fields of a `WrittenFile`."""
        ...

    def abandon(self) -> None:
        """Lets go without another byte."""
        ...


class FileFormat(Protocol):
    """Everything the files of one table share, worked out once per writer."""

    @property
    def name(self) -> str:
        """As Iceberg's manifests spell it: parquet, orc, avro."""
        ...

    @property
    def arrow_schema(self) -> pa.Schema:
        """How files spell the table's columns, which is what encoders take."""
        ...

    @property
    def max_open_files(self) -> int:
        """How many files a task may have open, by what each keeps in memory beside its waiting rows."""
        ...

    @property
    def footer_bytes_once(self) -> int:
        """What stands at the end of a file however many row groups it has."""
        ...

    def encoder(self, sink: Sink, rows: pa.Table) -> Encoder:
        """Begins a file whose first rows are these; they are not written yet."""
        ...
