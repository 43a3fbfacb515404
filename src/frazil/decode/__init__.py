"""Bytes in, Arrow out: raw records become rows of the declared schema, or dead letters."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from frazil.decode.changes import ChangeDecoder, change_schema
from frazil.decode.columns import (
    DEAD_LETTER_SCHEMA,
    METADATA_FIELDS,
    Decoded,
    DecodePlan,
    arrow_schema,
    plan_decode,
)
from frazil.decode.json import JsonDecoder
from frazil.decode.raw import RawDecoder
from frazil.records import Records

__all__ = [
    "DEAD_LETTER_SCHEMA",
    "METADATA_FIELDS",
    "ChangeDecoder",
    "DecodePlan",
    "Decoded",
    "JsonDecoder",
    "RawDecoder",
    "change_schema",
    "decoded_schema",
    "decoder",
    "plan_decode",
]


def decoder(plan: DecodePlan) -> Callable[[Records], Decoded]:
    """The function that decodes by this plan; make it once per task, it keeps what all batches share."""
    if plan.changes is not None:
        return ChangeDecoder(plan).decode
    return RawDecoder(plan).decode if plan.format == "raw" else JsonDecoder(plan).decode


def decoded_schema(plan: DecodePlan) -> pa.Schema:
    """The columns of decoded rows; those of changes have a few more than the table keeps."""
    return arrow_schema(plan.schema) if plan.changes is None else change_schema(plan)
