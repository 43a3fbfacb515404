"""The topic as a plain consumer sees it, beside the rows of the tables; nothing of the product reads here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from tests.certify.life import Broken
from tests.certify.stage import TABLE, TOPIC, Stage
from tests.certify.workload import PARTITIONS

_SHOWN = 5


def compare(stage: Stage) -> dict[str, int]:
    """Every committed record is a row or a dead letter, once; nothing else says that it came from the topic."""
    good, bad = _topic(stage.bootstrap)
    rows, dead, foreign = _tables(stage)
    for what, expected, found in (("rows", good, rows), ("dead letters", bad, dead)):
        if expected != found:
            missing, more = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
            raise Broken(
                f"{what}: {len(expected):,} in the topic, {len(found):,} in the table; "
                f"{len(missing):,} missing: {missing[:_SHOWN]}, {len(more):,} too many: {more[:_SHOWN]}, "
                f"{len(found) - len(set(found)):,} doubled"
            )
    return {"records": len(good) + len(bad), "rows": len(rows), "dead_letters": len(dead), "foreign_rows": foreign}


def _topic(bootstrap: str) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """(partition, offset, id) of what can be decoded, (partition, offset) of what cannot; both sorted."""
    good, bad = [], []
    for partition, offset, value in _records(bootstrap):
        if value.startswith(b"poison"):
            bad.append((partition, offset))
        else:
            good.append((partition, offset, json.loads(value)["id"]))
    return sorted(good), sorted(bad)


def _records(bootstrap: str) -> Iterator[tuple[int, int, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    ended = 0
    try:
        while ended < PARTITIONS:
            messages = consumer.consume(10_000, timeout=30)
            if not messages:
                raise Broken("the topic did not come to its end within 30 s")
            for message in messages:
                if message.error() is not None:
                    ended += 1
                else:
                    yield message.partition(), message.offset(), message.value()
    finally:
        consumer.close()


def _tables(stage: Stage) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]], int]:
    """The rows and dead letters in the topic's terms, and how many rows somebody else wrote."""
    rows, dead = _of_iceberg(stage) if stage.delta is None else _of_delta(stage.delta)
    ours = rows.filter(pa.compute.is_valid(rows["_offset"]))
    return (
        _tuples(ours, "_kafka_partition", "_offset", "id"),
        _tuples(dead, "partition", "offset"),
        len(rows) - len(ours),
    )


def _of_delta(folder: Path) -> tuple[pa.Table, pa.Table]:
    rows = DeltaTable(folder).to_pyarrow_table(columns=["_kafka_partition", "_offset", "id"])
    return rows, DeltaTable(f"{folder}__dead_letters").to_pyarrow_table(columns=["partition", "offset"])


def _of_iceberg(stage: Stage) -> tuple[pa.Table, pa.Table]:
    warehouse = stage.file.parent / "warehouse"
    catalog = SqlCatalog(
        stage.spec.catalog.name, uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=str(warehouse)
    )
    rows = catalog.load_table(TABLE).scan(selected_fields=("_kafka_partition", "_offset", "id")).to_arrow()
    dead = catalog.load_table(f"{TABLE}__dead_letters").scan(selected_fields=("partition", "offset")).to_arrow()
    return rows, dead


def _tuples(table: pa.Table, *columns: str) -> list[tuple[int, ...]]:
    return sorted(zip(*(table[column].to_pylist() for column in columns), strict=True))
