"""The reader of each envelope."""

from __future__ import annotations

from frazil.decode.envelopes import EnvelopeReader, Layout
from frazil.decode.flat import Plain, WithOp
from frazil.decode.wrapped import CockroachDb, Debezium


def envelope_reader(layout: Layout) -> EnvelopeReader:
    match layout.changes.envelope:
        case "none":
            return Plain(layout)
        case "op-column":
            return WithOp(layout)
        case "debezium":
            return Debezium(layout)
        case "cockroachdb":
            return CockroachDb(layout)
