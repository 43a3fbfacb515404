"""A small shop whose orders the writer's tests write and read back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from frazil.table.files import WriteTarget, WrittenFile
from frazil.write import FileName, TableWriter


class Shop:
    """The orders table in a folder of its own."""

    schema = Schema(
        NestedField(1, "order_id", LongType(), required=True),
        NestedField(2, "customer", StringType()),
        NestedField(3, "amount", DecimalType(10, 2)),
        NestedField(4, "weight", DoubleType()),
        NestedField(5, "placed_at", TimestamptzType()),
        NestedField(6, "tags", ListType(7, StringType(), element_required=False)),
        NestedField(8, "address", StructType(NestedField(9, "city", StringType()))),
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def target(self, *partition: tuple[int, Transform[Any, Any], str], **settings: Any) -> WriteTarget:
        """The table as a worker sees it, partitioned by (source id, transform, name)."""
        fields = [PartitionField(source, 1000 + n, how, name) for n, (source, how, name) in enumerate(partition)]
        spec = PartitionSpec(*fields, spec_id=1 if partition else 0)
        plain = WriteTarget(
            "shop.orders", f"file:{self.folder}", self.schema.model_dump_json(), spec.model_dump_json()
        )
        return replace(plain, **settings)

    def orders(self, count: int, **columns: Any) -> pa.RecordBatch:
        """Orders 0, 1, 2 …; other columns as given, the rest left out."""
        return pa.record_batch({"order_id": pa.array(range(count), pa.int64()), **columns})

    def moments(self, *values: dt.datetime | None, zone: str = "UTC") -> pa.Array:
        return pa.array(values, pa.timestamp("us", zone))

    def write(self, target: WriteTarget, *batches: pa.RecordBatch, **limits: int) -> list[WrittenFile]:
        writer = self.writer(target, **limits)
        closed = [file for batch in batches for file in writer.write(batch)]
        return closed + writer.close()

    def writer(self, target: WriteTarget, **limits: int) -> TableWriter:
        return TableWriter(target, FileName("orders", epoch=7, task=0, label="0-100"), **limits)

    def parquet(self, file: WrittenFile) -> pq.ParquetFile:
        return pq.ParquetFile("/" + file.path.removeprefix("file:").lstrip("/"))

    def ids(self, files: Iterable[WrittenFile]) -> list[int]:
        return [order for file in files for order in self.parquet(file).read()["order_id"].to_pylist()]

    def files_on_disk(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "data")
