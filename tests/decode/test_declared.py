"""What may be declared beside the schema: a catch-all, units of numbers, the spelling of bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from frazil.decode import decoder, plan_decode
from frazil.decode.columns import arrow_schema
from frazil.decode.spark import as_spark, spark_schema
from frazil.errors import ConfigError
from frazil.records import Records


@pytest.mark.parametrize(
    ("ddl", "options", "problem"),
    [
        ("a INT", {"catch_all": "b"}, "is not a column"),
        ("a INT", {"catch_all": "_topic"}, "is not a column"),
        ("a INT", {"catch_all": "a"}, "cannot keep"),
        ("a STRING NOT NULL", {"catch_all": "a"}, "cannot keep"),
        ("a STRUCT<b: STRING>", {"catch_all": "a.b"}, "is not a column"),
        ("a INT", {"epoch_unit": {"a": "s"}}, "not a timestamp column"),
        ("a TIMESTAMP", {"epoch_unit": {"b": "s"}}, "name one of a"),
        ("a TIMESTAMP", {"epoch_unit": "min"}, "not a unit"),
        ("a BINARY", {"binary": "octal"}, "decode.binary"),
        ("a MAP<BOOLEAN, INT>", {}, "column a: a JSON object has no keys of type boolean"),
        ("a STRUCT<b: ARRAY<MAP<STRUCT<x: INT>, INT>>>", {}, "column a.b: a JSON object has no keys"),
    ],
)
def test_what_cannot_work_is_refused(ddl: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        plan_decode("json", ddl, metadata=True, on_error="fail", **options)


def test_units_may_differ_by_column_and_reach_into_structs() -> None:
    ddl = "a TIMESTAMP, s STRUCT<t: TIMESTAMP, u: TIMESTAMP>, l ARRAY<TIMESTAMP_NTZ>"
    units = {"a": "ms", "s.t": "s", "l": "us"}
    plan = plan_decode("json", ddl, metadata=False, on_error="fail", epoch_unit=units)
    values = [
        b'{"a":1500,"s":{"t":2,"u":"1970-01-01T00:00:03Z"},"l":[4000000,null]}',
        b'{"a":"1970-01-01T00:00:05Z","s":{"t":2.5},"l":["1970-01-01T00:00:06"]}',
    ]
    first, second = decoder(plan)(Records("t", 0, [0, 1], [*values])).rows.to_pylist()
    at = datetime(1970, 1, 1, tzinfo=UTC)
    assert first["a"] == at.replace(second=1, microsecond=500_000)
    assert first["s"] == {"t": at.replace(second=2), "u": at.replace(second=3)}
    assert first["l"] == [datetime(1970, 1, 1, 0, 0, 4), None]
    assert (second["a"], second["s"]["t"]) == (at.replace(second=5), at.replace(second=2, microsecond=500_000))
    assert second["l"] == [datetime(1970, 1, 1, 0, 0, 6)]


def test_a_stream_that_changes_from_texts_to_numbers_and_back_lands() -> None:
    plan = plan_decode("json", "a TIMESTAMP", metadata=False, on_error="fail", epoch_unit="s")
    decode = decoder(plan)
    for value in (b'{"a":5}', b'{"a":"1970-01-01T00:00:05Z"}', b'{"a":5}', b'{"a":"5"}'):
        rows = decode(Records("t", 0, [0], [value])).rows
        assert rows.to_pylist() == [{"a": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)}]


def test_spark_gets_uuids_as_texts_and_fixed_bytes_as_binary() -> None:
    ddl = "u UUID, f FIXED(2), n STRUCT<l: ARRAY<UUID>, m: MAP<UUID, FIXED(1)>>, k INT"
    plan = plan_decode("json", ddl, metadata=False, on_error="fail")
    text = "123e4567-e89b-12d3-a456-426614174000"
    value = f'{{"u":"{text}","f":"QUI=","n":{{"l":["{text}",null],"m":{{"{text}":"QQ=="}}}},"k":1}}'
    rows = decoder(plan)(Records("t", 0, [0, 1], [value.encode(), b"{}"])).rows
    schema = spark_schema(arrow_schema(plan.schema))
    first, second = as_spark(rows, schema).to_pylist()
    assert first == {"u": text, "f": b"AB", "n": {"l": [text, None], "m": [(text, b"A")]}, "k": 1}
    assert second == dict.fromkeys(first)
    assert schema.field("f").type == pa.binary()


@pytest.mark.parametrize("kind", ["TIME", "TIMESTAMP_NS", "ARRAY<TIMESTAMPTZ_NS>", "STRUCT<x: TIME>"])
def test_what_spark_cannot_take_is_refused_by_column(kind: str) -> None:
    plan = plan_decode("json", f"a INT, b {kind}", metadata=True, on_error="fail")
    with pytest.raises(ConfigError, match="column b: Spark takes no"):
        spark_schema(arrow_schema(plan.schema))
