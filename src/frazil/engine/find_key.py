"""The key of a table whose pipeline file names none: the table says it, or else its source.

    the table is there, with identifier fields       these
    the table is there, without                      refused: a source may say something else at every start
    no table yet, records name their key's columns   these names, if all topics agree
    no table yet, they do not                        refused

A table that frazil creates has its key as identifier fields. So the source is asked once in a pipeline's life, and
what it has dropped or changed since then makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.schema import Schema

from frazil.changes import Envelope
from frazil.decode.names import key_columns
from frazil.errors import ConfigError
from frazil.pipeline import KafkaSource, PipelineSpec
from frazil.protocol.plan import SourceObserved
from frazil.protocol.positions import Partition, Range, Slice, Span
from frazil.source import Source, Wants
from frazil.table import Lakehouse

_LOOKED_AT = 1_000
"""So many offsets of a partition, from its beginning, are looked through for a key."""


@dataclass(frozen=True)
class FoundKey:
    """Columns that name a row, and who says so."""

    columns: tuple[str, ...]
    told_by: str

    def __str__(self) -> str:
        return f"{', '.join(self.columns)}, by {self.told_by}"

    def complete(self, spec: PipelineSpec) -> PipelineSpec:
        """The pipeline as if its file had named them."""
        return spec.model_copy(update={"table": spec.table.model_copy(update={"keys": list(self.columns)})})


def find_key(spec: PipelineSpec, declared: Schema, lakehouse: Lakehouse, source: Source) -> FoundKey | None:
    """The key of a table of changes, looked for where the file does not name it; None where it does."""
    if spec.table.mode != "upsert" or spec.table.keys:
        return None
    found = _of_table(spec.table.name, lakehouse) or _of_source(spec, source)
    strangers = [column for column in found.columns if column not in declared.column_names]
    if strangers:
        raise ConfigError(
            f"the key is {found}, and decode.schema has no column {', '.join(strangers)}",
            "declare it there, or name the columns of the key in table.keys",
        )
    return found


def _of_table(name: str, lakehouse: Lakehouse) -> FoundKey | None:
    """What the table says; None if there is none yet."""
    table = lakehouse.find(name)
    if table is None:
        return None
    schema = table.schema()
    columns = schema.identifier_field_names()
    if not columns:
        raise _not_found(f"{name} is there and has no identifier fields", name)
    in_order = [column for column in schema.column_names if column in columns]
    return FoundKey(tuple(in_order), f"the identifier fields of {name}")


def _of_source(spec: PipelineSpec, source: Source) -> FoundKey:
    """What the first key in each topic says."""
    source.resume(source.starting_frontier())
    seen = source.observe()
    has_message_keys = isinstance(spec.source, KafkaSource)
    found = [
        _of_topic(spec, topic, seen, source, has_message_keys=has_message_keys) for topic in sorted(seen.topic_ids)
    ]
    for other in found[1:]:
        if set(other.columns) != set(found[0].columns):
            raise _not_found(f"topics do not agree on the key: {found[0]}; {other}", spec.table.name)
    return found[0]


def _of_topic(
    spec: PipelineSpec, topic: str, seen: SourceObserved, source: Source, *, has_message_keys: bool
) -> FoundKey:
    beginnings = {
        partition: Range(log.earliest, min(log.end, log.earliest + _LOOKED_AT))
        for partition, log in sorted(seen.logs.items())
        if partition[0] == topic and log.earliest < log.end
    }
    if not beginnings:
        raise _not_found(f"{topic} has no records yet that could tell it", spec.table.name)
    for place, columns in _keys_in(source, beginnings, spec.decode.envelope, has_message_keys=has_message_keys):
        if columns:
            return FoundKey(columns, f"the key at {place}")
        raise _not_found(f"the key at {place} does not name its columns", spec.table.name)
    looked_at = sum(map(len, beginnings.values()))
    raise _not_found(f"none of the first {looked_at:,} offsets of {topic} has a key", spec.table.name)


def _keys_in(
    source: Source, beginnings: dict[Partition, Range], envelope: Envelope, *, has_message_keys: bool
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The columns of each key that is there, and where it stands."""
    for (topic, number), offsets in beginnings.items():
        reader = source.reader(Wants(keys=True, timestamps=False), Span({(topic, number): offsets}))
        for records in reader.read(Slice(topic, number, offsets.start, offsets.end)):
            message_keys = records.keys if has_message_keys else [None] * len(records)
            for position, (value, message_key) in enumerate(zip(records.values, message_keys, strict=True)):
                if (columns := key_columns(envelope, value, message_key)) is not None:
                    yield records.place(position), columns


def _not_found(why: str, table: str) -> ConfigError:
    return ConfigError(
        f"table.keys is not given, and the key of {table} is not known otherwise: {why}",
        "name the columns of the key in table.keys",
    )
