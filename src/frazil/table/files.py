"""What a worker must know about a table, and what it says about each file it closed.

Both travel between machines, so both are plain data. A `WriteTarget` rides to the workers inside a Spark
task, a `WrittenFile` comes back as JSON and crosses into Iceberg's Java API as JSON once more.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from frazil.changes import ChangeTarget
from frazil.errors import InvalidState
from frazil.protocol.layout import Deletes, Layout, MixedEpoch, Shape

MIB = 1024 * 1024

POSITION_BYTES = 8

UNSORTED = '{"order-id": 0, "fields": []}'

STAGED_FOLDER = "_frazil"
"""Below the table's own: where changes wait for their MERGE. Readers and clean-ups pass over such names."""

Content = Literal["data", "equality-deletes", "position-deletes", "changes"]
"""Rows of the table · keys whose older rows go · places of rows that go · the last change of each key"""
TableFormat = Literal["iceberg", "delta"]

_NAME_PART_LENGTH_MAX = 80

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


def writer_in_names(writer: str) -> str:
    """The writer as file names spell it."""
    return safe_in_names(writer) or "writer"


def safe_in_names(text: str) -> str:
    """Only characters every storage takes; no leading dot or underscore, which would hide the file."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).lstrip("._-")[:_NAME_PART_LENGTH_MAX]


@dataclass(frozen=True, slots=True)
class DeleteSettings:
    """How delete files look where they may look otherwise than data files."""

    file_format: str
    target_file_size_bytes: int
    row_group_bytes: int
    page_size_bytes: int
    compression: str
    compression_level: int | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoredAs:
    """How files have a field, where they have it otherwise than the schema."""

    name: str
    field_id: int | None = None
    """the number that files give it"""
    bits: int | None = None
    """of an integer with fewer than 32"""


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """A table as a worker sees it: where its files go, and what they look like."""

    table: str
    location: str
    """the folder that data files go to"""
    schema_json: str
    spec_json: str
    properties: Mapping[str, str] = field(default_factory=dict)
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """how to reach the store, secrets included"""
    target_file_size_bytes: int = 128 * MIB
    row_group_rows: int = 131_072
    row_group_bytes: int = 64 * MIB
    """of Arrow data, however wide rows are"""
    page_size_bytes: int = MIB
    compression: str = "zstd"
    compression_level: int | None = None
    dictionary: bool = True
    bloom_filters: Mapping[str, float] = field(default_factory=dict)
    """columns that get one, each with the share of false positives it may have"""
    file_format: str = "parquet"
    schema_id: int = 0
    sort_order_json: str = UNSORTED
    """Iceberg's JSON of the order that rows have inside each file"""
    distribution: str = "auto"
    table_location: str = ""
    """where the table itself lies, if its data may lie elsewhere"""
    checksum: bool = False
    """Whether each file's bytes get a CRC: up to a fifth more writing time where data compresses badly."""
    changes: ChangeTarget | None = None
    """how changes of keyed rows are written; None for a table that rows are appended to"""
    deletes: DeleteSettings | None = None
    """how delete files look; None for as data files do"""
    table_format: TableFormat = "iceberg"
    in_folders: tuple[str, ...] = ()
    """columns whose values stand in the folder's name, and not in the file"""
    overwrites: bool = False
    """whether a file's rows take the place of all that were in its partition"""
    stored: Mapping[int, StoredAs] = field(default_factory=dict)
    """by field id, those fields that files have otherwise"""

    @property
    def layout(self) -> Layout:
        """What the table was like when it was looked up."""
        spec_id, order_id = json.loads(self.spec_json)["spec-id"], json.loads(self.sort_order_json)["order-id"]
        return Layout(self.schema_id, spec_id, order_id)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One closed file. Bounds are hex strings, partition values Iceberg's JSON single values, or texts of Delta."""

    table: str
    path: str
    spec_id: int
    schema_id: int
    record_count: int
    file_size_bytes: int
    partition: tuple[Any, ...] = ()
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, str] = field(default_factory=dict)
    upper_bounds: Mapping[int, str] = field(default_factory=dict)
    split_offsets: Sequence[int] = ()
    sort_order_id: int | None = None
    content: Content = "data"
    format: str = "parquet"
    checksum: str | None = None
    equality_ids: tuple[int, ...] = ()
    """of equality deletes and of changes: the ids of the columns that rows are found by"""
    referenced_data_file: str | None = None
    """of position deletes: the one file whose rows they delete"""
    content_offset: int | None = None
    """of a deletion vector: where in its file it begins"""
    content_size: int | None = None
    overwrites: bool = False
    """whether its rows take the place of all that earlier commits have in its partition"""

    @property
    def is_data(self) -> bool:
        return self.content == "data"

    @property
    def is_delete(self) -> bool:
        return self.content in {"equality-deletes", "position-deletes"}

    @property
    def is_staged(self) -> bool:
        return self.content == "changes"

    @property
    def layout(self) -> Layout:
        """What the table was like for the worker that wrote it."""
        return Layout(self.schema_id, self.spec_id, self.sort_order_id or 0)

    @property
    def file_hash(self) -> str:
        """sha256 over path, size, record count, metrics, partition and what the file says of rows."""
        facts = [self.path, self.file_size_bytes, self.record_count, list(self.partition)]
        facts += [self.content, list(self.equality_ids)]
        facts += [self.referenced_data_file, self.content_offset, self.content_size]
        metrics = [sorted(getattr(self, name).items()) for name in _COUNTS + _BOUNDS]
        return hashlib.sha256(json.dumps([facts, metrics]).encode()).hexdigest()

    def to_json(self) -> str:
        """Everything, with its hash, for the trip to the driver."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps(values | {"file_hash": self.file_hash}, default=dict)

    @classmethod
    def from_json(cls, text: str) -> WrittenFile:
        """Read what `to_json` wrote; refuses a descriptor whose hash does not fit it."""
        values = json.loads(text)
        expected = values.pop("file_hash")
        for name in _COUNTS + _BOUNDS:
            values[name] = {int(field_id): value for field_id, value in values[name].items()}
        values["partition"] = tuple(values["partition"])
        values["split_offsets"] = tuple(values["split_offsets"])
        values["equality_ids"] = tuple(values["equality_ids"])
        file = cls(**values)
        _require_hash(file, expected)
        return file

    def content_file_json(self) -> str:
        """The JSON that Iceberg's `ContentFileParser.fromJson` turns into a `DataFile` or a `DeleteFile`."""
        content_file: dict[str, Any] = {
            "spec-id": self.spec_id,
            "content": self.content,
            "file-path": self.path,
            "file-format": self.format,
            "partition": list(self.partition),
            "file-size-in-bytes": self.file_size_bytes,
            "record-count": self.record_count,
        }
        for name in _COUNTS + _BOUNDS:
            if metric := getattr(self, name):
                content_file[name.replace("_", "-")] = _java_map(metric)
        if self.split_offsets:
            content_file["split-offsets"] = list(self.split_offsets)
        if self.sort_order_id is not None:
            content_file["sort-order-id"] = self.sort_order_id
        if self.equality_ids:
            content_file["equality-ids"] = list(self.equality_ids)
        if self.referenced_data_file is not None:
            content_file["referenced-data-file"] = self.referenced_data_file
        if self.content_offset is not None:
            content_file |= {"content-offset": self.content_offset, "content-size-in-bytes": self.content_size}
        return json.dumps(content_file)


def shape_of(files: Sequence[WrittenFile], mixed: MixedEpoch, *, replaces: bool = False) -> Shape:
    """What the files of a commit were written for; one that replaces all rows leaves its deletes out."""
    deletes = [file for file in files if file.content == "equality-deletes" and not replaces]
    return Shape(
        frozenset(file.layout for file in files if not file.is_delete),
        frozenset(Deletes(file.layout, frozenset(file.equality_ids), not file.partition) for file in deletes),
        mixed,
    )


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Rows of one data file, by their places in it; its partition is in Iceberg's JSON single values."""

    path: str
    spec_id: int
    partition: tuple[Any, ...]
    positions: bytes
    """64-bit numbers of the little end first, rising"""

    @property
    def count(self) -> int:
        return len(self.positions) // POSITION_BYTES


@dataclass(frozen=True, slots=True)
class PartitionShapes:
    """How to read the partition that Iceberg's Spark tells of a row: the fields of all specs together."""

    fields_json: str
    """a schema of these fields, in their order"""
    specs: Mapping[int, tuple[int, ...]]
    """by spec, the ids of its own fields"""


def _java_map(metric: Mapping[int, Any]) -> dict[str, list[Any]]:
    """Iceberg writes a map as two parallel lists, because JSON keys cannot be integers."""
    return {"keys": list(metric.keys()), "values": list(metric.values())}


def _require_hash(file: WrittenFile, expected: str) -> None:
    if file.file_hash != expected:
        raise InvalidState(
            f"the description of {file.path} changed on its way from the worker",
            "run worker and driver with the same frazil version; the epoch was not committed",
            actual=file.file_hash,
            expected=expected,
        )
