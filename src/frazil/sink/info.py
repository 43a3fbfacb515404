"""What a sink tells of itself before it is opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo

from frazil.sink.config import SinkConfig, sections
from frazil.sink.facts import Capabilities, ConfigKey, ConnectorInfo

FORMATS = ("arrow", "parquet")

_EXAMPLES = {
    "table.format": "delta",
    "table.name": "shop.orders",
    "table.path": "/lake/orders",
    "table.storage": "storage.s3.region = eu-central-1",
    "table.mode": "upsert",
    "table.keys": "order_id",
    "table.partition": "day(placed_at), bucket(16, customer)",
    "table.sort": "placed_at desc nulls last",
    "table.distribution": "none",
    "table.location": "s3://lake/shop/orders",
    "table.file_format": "orc",
    "table.target_file_size": "256MB",
    "table.compression": "zstd",
    "table.compression_level": "3",
    "table.page_size": "1MB",
    "table.bloom_filters": "order_id",
    "table.properties": "table.properties.write.metadata.metrics.default = full",
    "writer.name": "orders",
    "writer.stream": "orders-loader",
    "writer.replaces": "5c1d0a3e-8f43-4a57-a2f0-1f6f4e9b7c11",
    "writer.on_rollback": "rewind",
    "catalog.type": "rest",
    "catalog.uri": "http://127.0.0.1:8181",
    "catalog.warehouse": "/lake/warehouse",
    "catalog.prop": "catalog.prop.token = ${TOKEN}",
    "columns.schema": "order_id BIGINT, placed_at TIMESTAMP",
    "columns.sequence_by": "updated_at",
    "buffer.max_age": "30s",
    "spark.master": "local[*]",
    "spark.conf": "spark.conf.spark.driver.memory = 4g",
}


def describe(config: SinkConfig) -> ConnectorInfo:
    """The connector and its options."""
    kind = "Delta Lake" if config.table.format == "delta" else "Iceberg"
    promise = config.delivery.guarantee.replace("-", " ")
    return ConnectorInfo(
        connector_type=config.connector,
        description=f"lands epochs of Arrow batches or DataFrames in a table of {kind}, every epoch {promise}",
        config_keys=tuple(config_keys()),
        supported_formats=FORMATS,
    )


def capabilities(config: SinkConfig) -> Capabilities:
    """By what is configured; commits are optimistic, so there are never two phases."""
    return Capabilities(
        exactly_once=config.is_exactly_once,
        partitioned=bool(config.table.partition),
        changelog=config.table.mode == "upsert",
        schema_evolution=config.schema_.evolution,
        transactional=True,
        idempotent=config.is_exactly_once,
        two_phase_commit=False,
    )


def config_keys() -> Iterator[ConfigKey]:
    """Every option, with the line of explanation under its field."""
    for section, model in sections():
        for key, field in model.model_fields.items():
            name = f"{section}.{field.alias or key}"
            default = None if field.is_required() else _text(field)
            example = _EXAMPLES.get(name) or default or ""
            yield ConfigKey(name, field.description or "", field.is_required(), default, example)


def _text(field: FieldInfo) -> str | None:
    value: Any = field.get_default(call_default_factory=True)
    if value is None or value in ([], {}):
        return None
    return value if isinstance(value, str) else json.dumps(value)
