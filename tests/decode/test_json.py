"""JSON decoding: every value lands once in its own row, or becomes a dead letter with a reason."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.decode import DEAD_LETTER_SCHEMA, Decoded, decoder, plan_decode
from frazil.errors import ConfigError, UndecodableRecord
from frazil.records import Records

DDL = "a BIGINT, s STRING"


def records(values: list[bytes | None], first: int = 100) -> Records:
    count = len(values)
    return Records(
        topic="orders",
        partition=3,
        offsets=list(range(first, first + count)),
        values=values,
        keys=[b"k%d" % i for i in range(count)],
        timestamps_ms=[1_700_000_000_000 + i for i in range(count)],
    )


def decode(values: list[bytes | None], ddl: str = DDL) -> Decoded:
    return decoder(plan_decode("json", ddl, metadata=True, on_error="dead-letter"))(records(values))


def errors(decoded: Decoded) -> dict[bytes | None, str]:
    assert decoded.dead is not None
    return {row["value"]: row["error"] for row in decoded.dead.to_pylist()}


def test_values_become_typed_rows_with_their_origin() -> None:
    """DEC-01"""
    ddl = (
        "id BIGINT NOT NULL, amount DECIMAL(10,2), at TIMESTAMP, tags ARRAY<STRING>, "
        "address STRUCT<city: STRING, zip: INT>, attrs MAP<STRING, DOUBLE>"
    )
    value = (
        b'{"id": 7, "amount": 12.5, "at": "2026-01-02T03:04:05Z", "tags": ["x"], "unknown": [{}], '
        b'"address": {"city": "Bern", "zip": 3000}, "attrs": {"w": 1.5}}'
    )
    decoded = decode([value], ddl)
    assert decoded.dead is None
    assert decoded.rows.to_pylist() == [
        {
            "id": 7,
            "amount": Decimal("12.50"),
            "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "tags": ["x"],
            "address": {"city": "Bern", "zip": 3000},
            "attrs": [("w", 1.5)],
            "_topic": "orders",
            "_kafka_partition": 3,
            "_offset": 100,
            "_timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
            "_key": b"k0",
        }
    ]


def test_rows_have_exactly_the_arrow_types_of_the_iceberg_schema() -> None:
    """DEC-02"""
    ddl = "a TINYINT, b DECIMAL(38,10), c ARRAY<INT>, d MAP<STRING, LONG>, e STRUCT<f: DATE NOT NULL>"
    plan = plan_decode("json", ddl, metadata=True, on_error="fail")
    for values in ([], [b"{}"], [b"{}", b'{"a": 1}']):
        rows = decoder(plan)(records(list(values))).rows
        assert rows.schema.equals(schema_to_pyarrow(plan.schema, include_field_ids=False))
        assert rows.num_rows == len(values)
        rows.validate(full=True)


def test_dead_letters_carry_the_whole_record_and_the_schema_it_failed() -> None:
    """DEC-01"""
    failing = records([b"{}", b"oops"])
    failing.timestamps_ms[1] = -1
    dead = decoder(plan_decode("json", DDL, metadata=False, on_error="dead-letter"))(failing).dead
    assert dead is not None
    assert dead.schema.equals(schema_to_pyarrow(DEAD_LETTER_SCHEMA, include_field_ids=False))
    assert dead.to_pylist() == [
        {
            "topic": "orders",
            "partition": 3,
            "offset": 101,
            "timestamp": None,
            "key": b"k1",
            "value": b"oops",
            "error": "Encountered unexpected 'o' whilst parsing value",
            "schema": DDL,
        }
    ]


BAD_VALUES: list[bytes | None] = [
    None,
    b"",
    b" \n",
    b"null",
    b"[]",
    b"1",
    b'"x"',
    b"true",
    b"{",
    b"}",
    b"}{",
    b'{"a":1}{"a":2}',
    b'{"a":1}\n{"a":2}',
    b'{"a":1},{"a":2}',
    b'{"a":1},"b":{"a":2}',
    b'{"a":1},"b":null',
    b'{"a":1}},"b":{"x":{}',
    b'{"a":1}},"values":{"x":{}',
    b'{"a":1}}}{"values":{"x":{}',
    b'{"a":1,"s":"',
    b'{"a":1,"s":"\\',
    b'{"a":1,"s":"\\u',
    b'{"a":1,"z":{',
    b'{"a":1,"z":[{',
    b'{"a":1,"z":["',
    b'"}',
    b'"]}',
    b"}}",
    b"]}",
    b'{}}},"q":{}',
    b'{"a":1}x',
    b',{"a":1}',
    b'"q":{"a":1}',
    b'{"a":1,"s":"\xff"}',
    b'\xef\xbb\xbf{"a":1}',
    b"\x00",
    b'{"a":1}\x00',
    b'{"a":"\\u0000"}',
    b'{"a":"x"}',
    b'{"a":1.5}',
    b'{"a":true}',
    b'{"a":9223372036854775808}',
    b'{"s":1}',
]


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_a_bad_value_dies_alone(bad: bytes | None) -> None:
    decoded = decode([b'{"a":1}', bad, b'{"a":2,\n "s":"\\u0000"}\r\n'])
    assert decoded.rows.column("a").to_pylist() == [1, 2]
    assert decoded.rows.column("_offset").to_pylist() == [100, 102]
    assert list(errors(decoded)) == [bad]


def test_broken_halves_in_neighbouring_records_do_not_make_a_whole() -> None:
    values = [b'{"z":{', b'{}}},"q":{}', b'{"a":1,"s":"', b'"}', b'{"z":[', b"1]}", b'{"a":5', b',"s":"t"}']
    decoded = decode([*values])
    assert decoded.rows.num_rows == 0
    assert list(errors(decoded)) == values


good_values = st.fixed_dictionaries(
    {},
    optional={"a": st.integers(-(2**63), 2**63 - 1), "s": st.text(), "extra": st.lists(st.text())},
)
structural = st.lists(st.sampled_from([*b'{}[],:"\\ \n0ax']), max_size=12).map(bytes)


def is_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(good_values, st.sampled_from(BAD_VALUES)), max_size=40))
def test_good_values_land_in_order_with_their_offsets_and_bad_ones_are_dead(
    mixed: list[dict[str, object] | bytes | None],
) -> None:
    """DEC-01"""
    values = [json.dumps(each).encode() if isinstance(each, dict) else each for each in mixed]
    decoded = decode(values)
    expected = [(100 + i, each) for i, each in enumerate(mixed) if isinstance(each, dict)]
    landed = [(row["_offset"], row["a"], row["s"]) for row in decoded.rows.to_pylist()]
    assert landed == [(offset, each.get("a"), each.get("s")) for offset, each in expected]
    dead = [] if decoded.dead is None else decoded.dead.column("offset").to_pylist()
    assert dead == [100 + i for i, each in enumerate(mixed) if not isinstance(each, dict)]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(structural, st.binary(max_size=8)), min_size=1, max_size=6))
def test_no_soup_of_brackets_moves_a_sound_neighbour(soup: list[bytes]) -> None:
    values = [value for i, each in enumerate(soup) for value in (b'{"a":%d}' % i, each)]
    decoded = decode([*values])
    rows = {row["_offset"]: row["a"] for row in decoded.rows.to_pylist()}
    dead = set() if decoded.dead is None else set(decoded.dead.column("offset").to_pylist())
    assert rows.keys() | dead == set(range(100, 100 + len(values)))
    assert not rows.keys() & dead
    assert [rows[100 + 2 * i] for i in range(len(soup))] == list(range(len(soup)))
    # arrow-rs forgives a missing or spare comma, so not all that lands is strict JSON; all strict JSON lands.
    assert all(100 + 2 * i + 1 in rows for i, each in enumerate(soup) if is_object(each))


@pytest.mark.parametrize(
    "text", ["\U00020000", "\U00020bb7野家", "😀", "\\\U0010ffff\\", "\\ud840\\udc00", "\0\U00020000"]
)
def test_escaped_characters_beyond_the_basic_plane_land_unchanged(text: str) -> None:
    """arrow-rs alone reads U+20000 as U+10000."""
    values = [json.dumps({"s": text}).encode(), json.dumps({"s": text}, ensure_ascii=False).encode()]
    assert decode([*values]).rows.column("s").to_pylist() == [text, text]


@pytest.mark.parametrize(
    ("ddl", "value", "column"),
    [
        ("d DECIMAL(10,2)", b'{"d": 12.345}', "d"),
        ("d DECIMAL(10,2)", b'{"d": "12.345"}', "d"),
        ("d DECIMAL(38,10)", b'{"d": 1.12345678901}', "d"),
        ("i INT", b'{"i": 1.5}', "i"),
        ("i INT", b'{"i": 3000000000}', "i"),
        ("l ARRAY<INT>", b'{"l": [1, 0.5]}', "l"),
        ("m MAP<STRING, BIGINT>", b'{"m": {"x": 1e-3}}', "m"),
        ("s STRUCT<t: SMALLINT>", b'{"s": {"t": 2.25}}', "s"),
    ],
)
def test_a_number_that_would_lose_digits_is_a_dead_letter(ddl: str, value: bytes, column: str) -> None:
    decoded = decode([value], ddl)
    assert f"value does not fit {column}" in errors(decoded)[value]


def test_numbers_written_otherwise_but_equal_land() -> None:
    rows = decode([b'{"i": 5.0, "d": 1.2e1}', b'{"i": "6", "d": "12.340"}'], "i BIGINT, d DECIMAL(10,2)").rows
    assert rows.column("i").to_pylist() == [5, 6]
    assert rows.column("d").to_pylist() == [Decimal("12.00"), Decimal("12.34")]


def test_the_limits_of_the_number_types_land_unchanged() -> None:
    high, low = 2**63 - 1, -(2**63)
    digits = "9" * 28 + "." + "9" * 10
    values = [b'{"i": %d, "d": %s}' % (i, digits.encode()) for i in (high, low)]
    rows = decode([*values], "i BIGINT, d DECIMAL(38,10)").rows
    assert rows.column("i").to_pylist() == [high, low]
    assert rows.column("d").to_pylist() == [Decimal(digits)] * 2


@pytest.mark.parametrize("value", [b"{}", b'{"a": null}'])
def test_a_missing_not_null_column_is_a_dead_letter(value: bytes) -> None:
    assert errors(decode([value, b'{"a": 1}'], "a INT NOT NULL")) == {value: "a is NOT NULL, but null or missing"}


def test_on_error_fail_names_the_first_bad_record() -> None:
    plan = plan_decode("json", DDL, metadata=False, on_error="fail")
    with pytest.raises(UndecodableRecord, match=r"orders\[3\] offset 101 cannot be decoded: null value"):
        decoder(plan)(records([b"{}", None, b"oops"]))


def test_a_huge_number_does_not_make_a_huge_error() -> None:
    value = b'{"a": ' + b"1" * 100_000 + b"}"
    assert len(errors(decode([value]))[value]) <= 500


def test_a_plan_survives_pickling_and_tells_the_source_what_to_fetch() -> None:
    plan = plan_decode("json", DDL, metadata=False, on_error="dead-letter")
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert (plan.needs_keys, plan.needs_timestamps, plan.needs_headers) == (True, True, False)
    bare = plan_decode("json", DDL, metadata=False, on_error="fail")
    assert (bare.needs_keys, bare.needs_timestamps, bare.needs_headers) == (False, False, False)


def test_what_the_source_did_not_fetch_is_null() -> None:
    plan = plan_decode("json", DDL, metadata=True, on_error="fail")
    rows = decoder(plan)(Records("orders", 3, [5], [b"{}"])).rows
    assert rows.select(["_timestamp", "_key"]).to_pylist() == [{"_timestamp": None, "_key": None}]


def test_field_ids_run_on_through_the_metadata_columns() -> None:
    """DEC-05"""
    schema = plan_decode("json", "a STRUCT<x: INT>, b INT", metadata=True, on_error="fail").schema
    assert [field.field_id for field in schema.fields] == [1, 2, 3, 4, 5, 6, 7]
    assert schema.find_field("a.x").field_id == 8


@pytest.mark.parametrize(
    ("format", "ddl", "on_error", "problem"),
    [
        ("xml", DDL, "fail", "decode.format"),
        ("json", DDL, "ignore", "decode.on_error"),
        ("json", " ", "fail", "decode.schema is empty"),
        ("json", "_Offset INT", "fail", "declares _offset"),
        ("raw", DDL, "fail", "no meaning"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(format: str, ddl: str, on_error: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        plan_decode(format, ddl, metadata=True, on_error=on_error)


def test_text_is_never_a_view() -> None:
    """DEC-02"""
    assert decode([b'{"s": "x"}']).rows.schema.field("s").type == pa.large_string()
