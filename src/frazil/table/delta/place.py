"""Where a Delta table is, and how each of those who read and write it gets there.

Workers and those who look write and read files with pyarrow, the log is written by delta-rs, and MERGE is Spark's:
three libraries, with three ways to be told of a store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from deltalake import DeltaTable
from pyiceberg.io import FileIO, load_file_io

from frazil.errors import ConfigError
from frazil.pipeline.stores import Address, is_host, is_on_store, parse_address

RETRIES = 3
RETRY_TIMEOUT_S = 30
"""A store that does not answer is told of before long; whoever asked decides whether to ask again."""

_PATIENCE = {"max_retries": str(RETRIES), "retry_timeout": f"{RETRY_TIMEOUT_S}s"}
_ARROW = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
_AMBIGUOUS = frozenset("#?%\\")
_DETAILS = "\n\nDebug source"
_SAID_MAX = 600
_COLOUR = re.compile(r"\x1b\[\d+m|↳")


@dataclass(frozen=True)
class Place:
    """One table's folder, on this machine or in a store."""

    uri: str
    """as files' paths begin; not encoded, as those who read and write files take it"""
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """for pyarrow, also on workers"""
    address: Address | None = None
    """None for a folder of this machine"""

    @classmethod
    def at(cls, path: str, storage: Mapping[str, str] | None = None) -> Place:
        for character in sorted(_AMBIGUOUS & set(path)):
            raise ConfigError(
                f"{path}: the folder of a Delta table cannot have a {character} in its path: "
                "readers look elsewhere",
                "put the table into another folder",
            )
        if not is_on_store(path):
            return cls(_local(path))
        try:
            address = parse_address(path, storage or {})
        except ValueError as error:
            raise ConfigError(f"table.path: {error}") from None
        return cls(address.uri, {**address.storage, **_ARROW}, address)

    @property
    def described(self) -> str:
        """For people: the folder, and the server that is asked for it."""
        hosts = [value for key, value in self.io_properties.items() if is_host(key)]
        return f"{self.uri} at {hosts[0]}" if hosts else self.uri

    @cached_property
    def options(self) -> dict[str, str] | None:
        """For delta-rs."""
        return None if self.address is None else {**self.address.rust_options(), **_PATIENCE}

    @property
    def spark_uri(self) -> str:
        return self.for_spark(self.uri)

    def for_spark(self, uri: str) -> str:
        """A file or folder of the table as Spark takes it."""
        return uri if self.address is None else self.address.for_hadoop(uri)

    def load(self) -> DeltaTable:
        return DeltaTable(self.uri, storage_options=self.options)

    def io(self) -> FileIO:
        return load_file_io(dict(self.io_properties), self.uri)


def in_one_line(error: Exception) -> str:
    """What went wrong: delta-rs draws its causes as a tree, in colours, and servers answer with whole pages."""
    lines = [_COLOUR.sub("", line).strip() for line in str(error).partition(_DETAILS)[0].splitlines()]
    text = ": ".join(line for line in lines if line)
    return text if len(text) <= _SAID_MAX else f"{text[:_SAID_MAX]}…"


def _local(path: str) -> str:
    """Java writes file:/folder, Python file:///folder."""
    folder = Path(re.sub("^file:(//)?", "", path))
    if path.startswith("file:") and not folder.is_absolute():
        raise ConfigError(f"{path} names a machine, or no folder", "write file:///folder, or the folder alone")
    return f"file://{folder.resolve()}"
