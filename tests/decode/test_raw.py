"""Raw decoding: the bytes as they came."""

from __future__ import annotations

from datetime import UTC, datetime

from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.decode import decoder, plan_decode
from frazil.records import Records


def test_a_raw_record_keeps_its_bytes_headers_and_origin() -> None:
    """DEC-01"""
    plan = plan_decode("raw", "", metadata=True, on_error="dead-letter")
    records = Records(
        topic="orders",
        partition=3,
        offsets=[7, 8, 9],
        values=[b"\x00\xff", None, b""],
        keys=[b"k", None, b""],
        timestamps_ms=[1000, -1, 0],
        headers=[[("trace", b"1"), ("trace", None)], None, [("x", b"")]],
    )
    decoded = decoder(plan)(records)
    assert decoded.dead is None
    assert decoded.rows.schema.equals(schema_to_pyarrow(plan.schema, include_field_ids=False))
    decoded.rows.validate(full=True)
    columns = decoded.rows.to_pydict()
    assert columns == {
        "key": [b"k", None, b""],
        "value": [b"\x00\xff", None, b""],
        "headers": [
            [{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}],
            None,
            [{"key": "x", "value": b""}],
        ],
        "_topic": ["orders"] * 3,
        "_kafka_partition": [3] * 3,
        "_offset": [7, 8, 9],
        "_timestamp": [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), None, datetime(1970, 1, 1, tzinfo=UTC)],
    }


def test_without_metadata_only_key_value_and_headers_remain() -> None:
    plan = plan_decode("raw", "", metadata=False, on_error="fail")
    rows = decoder(plan)(Records("orders", 0, [1], [b"v"])).rows
    assert rows.to_pylist() == [{"key": None, "value": b"v", "headers": None}]


def test_raw_always_needs_keys_and_headers() -> None:
    plan = plan_decode("raw", "", metadata=False, on_error="fail")
    assert (plan.needs_keys, plan.needs_timestamps, plan.needs_headers) == (True, False, True)


def test_an_empty_run_gives_an_empty_batch() -> None:
    plan = plan_decode("raw", "", metadata=True, on_error="fail")
    assert decoder(plan)(Records("orders", 0, [], [])).rows.num_rows == 0
