"""JSON objects to rows: what parser.py makes of the values, beside where each record came from."""

from __future__ import annotations

from typing import cast

import pyarrow as pa

from frazil.decode.columns import (
    METADATA_FIELDS,
    Decoded,
    DecodePlan,
    arrow_schema,
    dead_letters,
    metadata_columns,
    select,
)
from frazil.decode.extra import CatchAll
from frazil.decode.parser import JsonParser, Outcome
from frazil.decode.wire import Spelling
from frazil.errors import UndecodableRecord
from frazil.records import Records


class JsonDecoder:
    """Decodes runs of JSON objects by one plan."""

    def __init__(self, plan: DecodePlan) -> None:
        self._plan = plan
        self._row_schema = arrow_schema(plan.schema)
        names = self._row_schema.names[: -len(METADATA_FIELDS) if plan.metadata else None]
        self._columns = pa.schema([self._row_schema.field(name) for name in names])
        # A field of the catch-all's own name is not declared either.
        declared = pa.schema([each for each in self._columns if each.name != plan.catch_all])
        rest = CatchAll(declared.names) if plan.catch_all else None
        self._parser = JsonParser(declared, Spelling(plan.binary, plan.epoch_units), rest)

    def decode(self, records: Records) -> Decoded:
        """The rows of these records in their order, and those that could not be decoded."""
        outcome = self._outcome(records.values)
        if not outcome.errors:
            return Decoded(self._rows(records, outcome.landed), None)
        dead = sorted(outcome.errors)
        errors = [outcome.errors[position] for position in dead]
        if self._plan.on_error == "fail":
            raise undecodable(records, dead[0], errors[0])
        landed = select(records, [i for i in range(len(records)) if i not in outcome.errors])
        letters = dead_letters(select(records, dead), errors, self._plan.ddl)
        return Decoded(self._rows(landed, outcome.landed), letters)

    def _outcome(self, values: list[bytes | None]) -> Outcome:
        if None not in values:
            return self._parser.outcome(cast(list[bytes], values))
        errors = {i: "null value" for i, value in enumerate(values) if value is None}
        present = [i for i in range(len(values)) if i not in errors]
        outcome = self._parser.outcome([value for value in values if value is not None])
        return Outcome(outcome.landed, errors | {present[i]: words for i, words in outcome.errors.items()})

    def _rows(self, records: Records, landed: pa.RecordBatch) -> pa.RecordBatch:
        columns = landed.columns
        if self._plan.catch_all is not None:
            columns.insert(self._columns.get_field_index(self._plan.catch_all), columns.pop())
        if self._plan.metadata:
            columns += metadata_columns(records)
        return pa.RecordBatch.from_arrays(columns, schema=self._row_schema)


def undecodable(records: Records, position: int, error: str) -> UndecodableRecord:
    return UndecodableRecord(
        f"{records.place(position)} cannot be decoded: {error}",
        'correct decode.schema, or set decode.on_error = "dead-letter" to set such records aside',
    )
