"""What a sink may be told: the sections of a pipeline file that speak of tables, and a few of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field, field_validator, model_validator

from frazil.errors import ConfigError
from frazil.pipeline.aliases import without_aliases
from frazil.pipeline.atomic import require_atomic_swap
from frazil.pipeline.keys import is_whole
from frazil.pipeline.load import parse_name, parse_tree
from frazil.pipeline.section import Section
from frazil.pipeline.spec import CatalogSection, SparkSection, TableSection
from frazil.pipeline.values import Duration, split_fields

_WRITER_ALIASES = {"id": "name"}
_BUFFER_ALIASES = {"flush_batch_size": "max_records", "flush_interval_seconds": "max_age"}
_OPTION_ALIASES = {
    "max.buffer.records": "buffer.max_records",
    "max.buffer.duration": "buffer.max_age",
    "target.file.size": "table.target_file_size",
    "write.mode": "table.mode",
}
"""Whole options under the names that other tools have for them."""
_STORAGE = "storage."
"""What options of the store begin with, whichever section they belong to."""


class WriterSection(Section):
    """Who writes."""

    name: str | None = None
    """the writer's stable name in the table; sink-<table> if absent"""
    stream: str | None = Field(default=None, min_length=1, max_length=200)
    """which numbering of epochs this is; the writer's name if absent, in foreach_batch the query's own id"""
    replaces: str | None = None
    """the id of a former stream that this one takes the place of, from its own first epoch on"""
    adopt: bool = False
    """begin to write to a table that already has rows of others"""
    on_rollback: Literal["rewind", "keep"] | None = None
    """after the table was rolled back: rewind to the last epoch that it holds, or keep the place; stop if absent"""

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, section: object) -> object:
        return without_aliases(section, _WRITER_ALIASES) if isinstance(section, dict) else section

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str | None) -> str | None:
        return name if name is None else _named(name)


class BufferSection(Section):
    """When rows that wait in memory go into files; table.target_file_size is the limit of their bytes."""

    max_records: int = Field(default=100_000, ge=1)
    """so many rows"""
    max_age: Duration | Literal["off"] = 30.0
    """rows that wait for so long, also when no further ones come"""

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, section: object) -> object:
        return without_aliases(section, _BUFFER_ALIASES) if isinstance(section, dict) else section


class ColumnsSection(Section):
    """The rows, where they are declared."""

    schema_: str | None = Field(default=None, alias="schema")
    """the columns as Spark writes them, order_id BIGINT, …; the table's own, or the first batch's, if absent"""
    sequence_by: str | None = None
    """upsert: a column that orders the changes of a key; the order of rows if absent"""


class EvolutionSection(Section):
    """How the table's columns may change."""

    evolution: bool = False
    """columns that rows have and the table lacks are added, and types widened, by the first batch of an epoch"""


class DeliverySection(Section):
    """What is promised."""

    guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once"
    """exactly-once: every epoch is there once; at-least-once (append): as often as it is handed over"""


class SinkConfig(Section):
    """One sink: one table, one writer."""

    table: TableSection
    writer: WriterSection = WriterSection()
    catalog: CatalogSection = CatalogSection()
    columns: ColumnsSection = ColumnsSection()
    schema_: EvolutionSection = Field(default=EvolutionSection(), alias="schema")
    buffer: BufferSection = BufferSection()
    delivery: DeliverySection = DeliverySection()
    spark: SparkSection = SparkSection()

    @model_validator(mode="after")
    def _possible(self) -> SinkConfig:
        mode = self.table.mode
        if mode == "upsert" and not self.table.keys:
            raise ValueError('table.keys is required with mode = "upsert": name the columns that name a row')
        if is_whole(self.table.keys):
            raise ValueError('table.keys = ["*"] is for pipelines: a sink does not look rows up in its table')
        if self.columns.sequence_by is not None and mode != "upsert":
            raise ValueError('columns.sequence_by needs table.mode = "upsert"')
        if not self.is_exactly_once and (told := self._needs_register()):
            raise ValueError(
                f'{told} needs delivery.guarantee = "exactly-once": otherwise no table keeps a register'
            )
        require_atomic_swap(self.catalog, self.table, self.spark)
        return self

    def _needs_register(self) -> str | None:
        """Without one, nobody can tell which of two epochs came last, nor whose they are."""
        if self.table.mode != "append":
            return f'table.mode = "{self.table.mode}", where the order of epochs counts,'
        told = [key for key in ("stream", "replaces", "adopt", "on_rollback") if getattr(self.writer, key)]
        return f"writer.{told[0]}" if told else None

    @classmethod
    def parse(cls, tree: Mapping[str, Any]) -> SinkConfig:
        """From nested mappings, as a TOML file gives them."""
        return parse_tree(cls, tree)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> SinkConfig:
        """From flat texts: `{"table.format": "delta", "table.path": "/lake/orders", "catalog.prop.token": …}`."""
        tree: dict[str, Any] = {}
        stores = "table.storage." if options.get("table.format") == "delta" else "catalog.prop."
        for option, text in options.items():
            key = _OPTION_ALIASES.get(option, option)
            if key.startswith(_STORAGE):
                key = stores + key.removeprefix(_STORAGE)
            section, _, name = key.partition(".")
            if not name:
                raise ConfigError(f"{option}: unknown option", f"spell it section.key, as in table.{option}")
            if name in tree.setdefault(section, {}):
                raise ConfigError(f"{option} is given twice, under two names", "keep one of them")
            tree[section][name] = text
        nested = {section: _typed(section, values) for section, values in tree.items()}
        return cls.parse(nested)

    @property
    def writer_name(self) -> str:
        return self.writer.name or re.sub(r"[^A-Za-z0-9_.-]", "_", f"sink-{self.table.name}")[:100]

    @property
    def stream(self) -> str:
        return self.writer.stream or self.writer_name

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery.guarantee == "exactly-once"

    @property
    def connector(self) -> str:
        return "delta-lake" if self.table.format == "delta" else "iceberg"

    @property
    def dead_letters(self) -> str | None:
        """None: rows of a sink are decoded already."""
        return None

    def of_stream(self, stream: str) -> SinkConfig:
        """The same, for a stream that has an id of its own."""
        return self.model_copy(update={"writer": self.writer.model_copy(update={"stream": stream})})


def sections() -> Iterator[tuple[str, type[Section]]]:
    """Every section, by its name in options."""
    for name, field in SinkConfig.model_fields.items():
        assert isinstance(field.annotation, type)
        yield field.alias or name, field.annotation


def _named(name: str) -> str:
    try:
        return parse_name(name)
    except ConfigError as error:
        raise ValueError(error.message.partition("expected ")[2]) from None


def _typed(section: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Texts as the values that a TOML file would have; keys below a key that passes them through are nested."""
    model = dict(sections()).get(section)
    values: dict[str, Any] = {}
    for name, text in texts.items():
        first, _, rest = name.partition(".")
        if rest and _kinds(model, first) & {dict}:
            values.setdefault(first, {})[rest] = text
        else:
            values[name] = _value(text, _kinds(model, name))
    return values


def _kinds(model: type[BaseModel] | None, name: str) -> set[Any]:
    """The plain types that a key may have; none of a key that is not known."""
    fields = {} if model is None else {field.alias or key: field for key, field in model.model_fields.items()}
    return set(_plain_types(fields[name].annotation)) if name in fields else set()


def _plain_types(annotation: Any) -> Iterator[Any]:
    origin = getattr(annotation, "__origin__", annotation)
    if isinstance(origin, type):
        yield origin
    for inner in get_args(annotation) if origin not in (dict, list) else ():
        yield from _plain_types(inner)


def _value(text: str, kinds: set[Any]) -> Any:
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if int in kinds and text.strip().lstrip("-").isdecimal():
        return int(text)
    if float in kinds and re.fullmatch(r"\s*\d+(\.\d+)?\s*", text):
        return float(text)
    return split_fields(text) if list in kinds else text
