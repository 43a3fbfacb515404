"""The commented pipeline file that `frazil init` writes, made from the spec itself so that both always agree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo

from frazil.pipeline.section import Section
from frazil.pipeline.sources import KafkaSource
from frazil.pipeline.spec import (
    CatalogSection,
    ChangesSection,
    DecodeSection,
    EpochSection,
    JournalSection,
    PipelineSection,
    SchemaSection,
    SparkSection,
    TableSection,
    TransformSection,
)

_SECTIONS: dict[str, type[Section]] = {
    "pipeline": PipelineSection,
    "source": KafkaSource,
    "decode": DecodeSection,
    "transform": TransformSection,
    "table": TableSection,
    "changes": ChangesSection,
    "schema": SchemaSection,
    "catalog": CatalogSection,
    "epoch": EpochSection,
    "journal": JournalSection,
    "spark": SparkSection,
}
_VALUES = {
    "pipeline.name": "{name}",
    "source.type": "kafka",
    "source.topics": ["{name}"],
    "source.kafka": '"bootstrap.servers" = "127.0.0.1:9092"',
    "decode.format": "json",
    "decode.schema": "order_id BIGINT, customer STRING, amount DECIMAL(10,2), placed_at TIMESTAMP",
    "table.name": "shop.{name}",
    "table.partition": ["day(placed_at)"],
    "catalog.warehouse": "./warehouse",
    "epoch.interval": "30s",
}
_EXAMPLES = {
    "source.partitions": '{ "{name}" = [0, 1] }',
    "source.timeout": '"30s"',
    "decode.catch_all": '"extra"',
    "decode.epoch_unit": '"ms"',
    "transform.sql": '"SELECT * FROM source WHERE amount > 0"',
    "table.keys": '["order_id"]',
    "changes.sequence_by": '"updated_at"',
    "changes.op_column": '"_op"',
    "changes.decimals": '"plain"',
    "changes.resolved": '"off"',
    "table.location": '"s3://lake/shop/orders"',
    "table.target_file_size": '"128MB"',
    "table.compression_level": "3",
    "table.page_size": '"1MB"',
    "table.sort": '["placed_at desc nulls last"]',
    "table.distribution": '"auto"',
    "table.file_format": '"parquet"',
    "table.compression": '"zstd"',
    "table.bloom_filters": '["order_id"]',
    "table.properties": '"write.metadata.metrics.default" = "full"',
    "catalog.uri": '"http://127.0.0.1:8181"',
    "catalog.prop": '"some.catalog.property" = "${SOME_SECRET}"',
    "epoch.max_bytes": '"512MB"',
    "epoch.heartbeat": '"5m"',
    "journal.dir": '".frazil/{name}"',
    "journal.checkpoint_interval": '"5m"',
    "source.group_id": '"frazil-{name}"',
    "spark.master": '"local[*]"',
    "spark.conf": '"spark.driver.memory" = "4g"',
}
_OPTIONAL = {"transform", "changes"}
_OF_OTHER_FORMATS = {"table.path", "table.storage", "table.unsafe_rename"}
_COLUMN = 44


def pipeline_template(name: str) -> str:
    """A file that works as it is against a local broker; what is commented out shows the default."""
    lines = ["# A frazil pipeline: one source, one table. frazil validate FILE checks it, frazil run FILE runs it."]
    for section, model in _SECTIONS.items():
        lines += ["", *_section(section, model)]
    return "\n".join(lines).replace("{name}", name) + "\n"


def _section(section: str, model: type[Section]) -> Iterator[str]:
    optional = section in _OPTIONAL
    yield f"{'# ' if optional else ''}[{section}]".ljust(_COLUMN) + f"# {_sentence(model.__doc__ or '')}"
    for name, field in model.model_fields.items():
        key = field.alias or name
        path = f"{section}.{key}"
        if path in _OF_OTHER_FORMATS:
            continue
        if path in _VALUES:
            yield _line(key, _VALUES[path], field)
        else:
            yield "# " + _line(key, _EXAMPLES.get(path, field.default), field, shift=2)


def _line(key: str, value: Any, field: FieldInfo, shift: int = 0) -> str:
    pass_through = isinstance(value, str) and value.startswith('"') and '" = ' in value
    if pass_through:
        text = f"{key}.{value}"
    elif isinstance(value, str) and (value[:1] in {'"', "{", "["} or value.isdigit()) and value != "{name}":
        text = f"{key} = {value}"
    else:
        text = f"{key} = {json.dumps(value, ensure_ascii=False)}"
    return text.ljust(_COLUMN - shift) + f"  # {field.description}"


def _sentence(text: str) -> str:
    return text.split("\n", 1)[0].rstrip(".").lower()
