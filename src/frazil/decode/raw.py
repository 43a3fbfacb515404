"""Records as they are: key, value and headers become columns, and nothing can be wrong with them."""

from __future__ import annotations

from itertools import accumulate

import pyarrow as pa

from frazil.decode.columns import (
    Decoded,
    DecodePlan,
    arrow_schema,
    key_column,
    metadata_columns,
    value_column,
)
from frazil.records import Headers, Records

_METADATA_WITHOUT_KEY = slice(0, 4)


class RawDecoder:
    """Lays the bytes of records out in columns."""

    def __init__(self, plan: DecodePlan) -> None:
        self._metadata = plan.metadata
        self._schema = arrow_schema(plan.schema)
        self._header = self._schema.field("headers").type.value_type

    def decode(self, records: Records) -> Decoded:
        columns = [key_column(records), value_column(records), self._headers(records)]
        if self._metadata:
            columns += metadata_columns(records)[_METADATA_WITHOUT_KEY]
        return Decoded(rows=pa.RecordBatch.from_arrays(columns, schema=self._schema), dead=None)

    def _headers(self, records: Records) -> pa.Array:
        kind = self._schema.field("headers").type
        if not any(records.headers):
            return pa.nulls(len(records), kind)
        pairs = [pair for headers in records.headers for pair in headers or ()]
        keys = pa.array([key for key, _ in pairs], pa.large_string())
        values = pa.array([value for _, value in pairs], pa.large_binary())
        entries = pa.StructArray.from_arrays([keys, values], fields=list(self._header))
        return pa.LargeListArray.from_arrays(_list_offsets(records.headers), entries, type=kind)


def _list_offsets(headers: list[Headers]) -> pa.Array:
    """Where each record's headers begin; Arrow takes a null offset as a null list."""
    ends = list(accumulate((len(each or ()) for each in headers), initial=0))
    starts = [start if each else None for start, each in zip(ends, headers, strict=False)]
    return pa.array([*starts, ends[-1]], pa.int64())
