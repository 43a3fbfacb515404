"""Partition fields as people write them: `placed_at`, `day(placed_at)`, `bucket(16, customer) AS shard`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, TruncateTransform
from pyiceberg.types import DoubleType, FloatType

from frazil.errors import ConfigError
from frazil.pipeline.terms import COLUMN, TERM, AnyTransform, Term, parse_term, terms_in, unquoted

_KEY = "table.partition"
_FIELD = re.compile(rf"\s*(?P<term>{TERM})(?:\s+as\s+(?P<name>{COLUMN}))?\s*", re.IGNORECASE)
_REMEDY = 'write a column, "day(column)" or "bucket(16, column)", and "… AS name" to name the field'


def parse_partition(fields: Sequence[str], schema: Schema) -> PartitionSpec:
    """Builds the partition spec, or refuses the field that does not fit the schema."""
    parsed: list[PartitionField] = []
    for field in terms_in(fields, _FIELD, _KEY, _REMEDY):
        term = parse_term(_KEY, field["term"], schema)
        name = unquoted(field["name"]) if field["name"] else _name(term)
        _require_new(field[0], name, term, parsed, schema)
        field_id = PARTITION_FIELD_ID_START + len(parsed)
        parsed.append(PartitionField(term.source_id, field_id, term.transform, name))
    return PartitionSpec(*parsed)


def _require_new(text: str, name: str, term: Term, parsed: list[PartitionField], schema: Schema) -> None:
    """Iceberg's own rules: no field twice, no name twice, and no column's name but for the column itself."""
    kind = schema.find_type(term.source_id)
    if isinstance(kind, FloatType | DoubleType):
        raise ConfigError(
            f"{_KEY}: {text!r}: {term.column} is {kind}, and NaN cannot be a partition value",
            "partition by another column, or declare it as DECIMAL",
        )
    for each in parsed:
        both_times = isinstance(term.transform, TimeTransform) and isinstance(each.transform, TimeTransform)
        if each.source_id == term.source_id and (both_times or each.transform == term.transform):
            raise ConfigError(
                f"{_KEY}: {text!r} partitions by the same of {term.column} a second time",
                f"it is partitioned by {each.transform} already: keep the finer one",
            )
    if name in {each.name for each in parsed}:
        raise ConfigError(f"{_KEY}: {text!r}: there is a field called {name} already", "name it: … AS name")
    itself = isinstance(term.transform, IdentityTransform) and name == term.column
    if name in schema.column_names and not itself:
        raise ConfigError(
            f"{_KEY}: {text!r} would be called {name}, as a column of the table is already",
            "name the field: … AS name",
        )


def _name(term: Term) -> str:
    suffix = _suffix(term.transform)
    return f"{term.column}_{suffix}" if suffix else term.column


def _suffix(transform: AnyTransform) -> str:
    match transform:
        case IdentityTransform():
            return ""
        case BucketTransform():
            return "bucket"
        case TruncateTransform():
            return "trunc"
        case _:
            return str(transform)
