"""Sort fields as people write them: `placed_at`, `placed_at desc nulls last`, `bucket(16, customer) asc`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder

from frazil.errors import ConfigError
from frazil.pipeline.terms import TERM, parse_term, terms_in

_KEY = "table.sort"
_FIELD = re.compile(
    rf"\s*(?P<term>{TERM})(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*", re.IGNORECASE
)
_REMEDY = 'write a column or a transform of one, then "asc" or "desc", then "nulls first" or "nulls last"'


def parse_sort(fields: Sequence[str], schema: Schema) -> SortOrder:
    """Builds the sort order, or refuses the field that does not fit the schema.

    Where nulls go unless told otherwise is Iceberg's and Spark's own rule: first when ascending, last when
    descending.
    """
    parsed: list[SortField] = []
    for field in terms_in(fields, _FIELD, _KEY, _REMEDY):
        term = parse_term(_KEY, field["term"], schema)
        if any(each.source_id == term.source_id and each.transform == term.transform for each in parsed):
            raise ConfigError(f"{_KEY}: {field[0]!r} sorts by {term.column} a second time")
        direction = SortDirection((field["direction"] or "asc").lower())
        default = "first" if direction is SortDirection.ASC else "last"
        nulls = NullOrder(f"nulls-{(field['nulls'] or default).lower()}")
        parsed.append(SortField(term.source_id, term.transform, direction, nulls))
    return SortOrder(*parsed, order_id=1 if parsed else 0)
