"""Changes: what is refused beforehand, how they are ordered, and what is said of records that are none."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from frazil.changes import BEFORE, OP, ORDER, UPDATED, ChangePlan
from frazil.decode import Decoded, DecodePlan, change_schema, decoder, plan_decode
from frazil.errors import ConfigError, UndecodableRecord
from frazil.records import Records

DDL = "id BIGINT NOT NULL, name STRING, total DECIMAL(9,2)"


def plan(changes: ChangePlan, ddl: str = DDL, on_error: str = "dead-letter", **options: Any) -> DecodePlan:
    options.setdefault("metadata", False)
    return plan_decode("json", ddl, on_error=on_error, changes=changes, **options)


def debezium(*keys: str, **options: Any) -> ChangePlan:
    return ChangePlan(keys=keys or ("id",), envelope="debezium", **options)


def event(op: str, before: object = None, after: object = None) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op}).encode()


def connect(payload: bytes, schema: object = "any") -> bytes:
    return b'{"schema":' + json.dumps(schema).encode() + b',"payload":' + payload + b"}"


def decode(plan: DecodePlan, values: Sequence[bytes | None], keys: Sequence[bytes | None] = ()) -> Decoded:
    count = len(values)
    records = Records(
        "orders",
        3,
        list(range(100, 100 + count)),
        list(values),
        list(keys) or [None] * count,
        [1_700_000_000_000] * count,
    )
    decoded = decoder(pickle.loads(pickle.dumps(plan)))(records)
    assert decoded.rows.schema.equals(change_schema(plan))
    decoded.rows.validate(full=True)
    return decoded


def error(decoded: Decoded) -> str:
    assert decoded.dead is not None
    assert decoded.dead.num_rows == 1
    words = decoded.dead.column("error")[0].as_py()
    assert isinstance(words, str)
    return words


def changes_of(decoded: Decoded) -> list[tuple[str, int]]:
    return [(row[OP], row["id"]) for row in decoded.rows.to_pylist()]


@pytest.mark.parametrize("envelope", ["none", "debezium", "cockroachdb", "op-column"])
@pytest.mark.parametrize("values", [[], [None]])
def test_rows_have_the_columns_of_changes_even_if_there_are_none(envelope: Any, values: list[None]) -> None:
    changes = ChangePlan(keys=("id",), envelope=envelope, before=("name", "id"))
    with_origin = plan(changes, metadata=True)
    schema = change_schema(with_origin)
    assert schema.names[:3] == ["id", "name", "total"]
    assert schema.names[-3:] == [OP, ORDER, BEFORE]
    assert schema.field("id").nullable
    assert schema.field(OP).type == pa.string()
    assert schema.field(ORDER).type == pa.int64()
    assert [each.name for each in schema.field(BEFORE).type] == ["name", "id"]
    assert with_origin.schema.column_names == schema.names[:-3]
    assert decode(with_origin, values).rows.num_rows == 0


def test_changes_carry_their_origin_and_stand_in_the_order_of_their_records() -> None:
    """CHG-07, CHG-10"""
    values = [
        event("c", None, {"id": 1, "name": "a"}),
        connect(event("u", {"id": 1, "name": "a"}, {"id": 2, "name": "a"})),
        event("d", {"id": 2}),
        None,
        event("c", None, {"id": 2, "name": "b"}),
    ]
    keys = [b'{"id":1}', connect(b'{"id":2}'), b'{"id":2}', b'{"id":2}', b'{"id":2}']
    decoded = decode(plan(debezium(), metadata=True), values, keys)
    assert decoded.dead is None
    assert decoded.ignored == 1
    assert [
        (row[OP], row[ORDER], row["id"], row["name"], row["_offset"], row["_key"])
        for row in decoded.rows.to_pylist()
    ] == [
        ("I", 200, 1, "a", 100, keys[0]),
        ("D", 202, 1, None, 101, keys[1]),
        ("U", 203, 2, "a", 101, keys[1]),
        ("D", 204, 2, None, 102, keys[2]),
        ("I", 208, 2, "b", 104, keys[4]),
    ]


def test_the_row_before_is_told_only_where_the_source_tells_it() -> None:
    """SRC-11"""
    values = [
        event("u", {"id": 1, "name": "a"}, {"id": 1, "name": "b"}),
        event("u", {"id": 1, "name": "b"}, {"id": 2, "name": "c"}),
        event("u", None, {"id": 1, "name": "b"}),
        event("d", {"id": 1, "name": "b"}),
        # As PostgreSQL has it without REPLICA IDENTITY FULL: a key, and nothing of the rest.
        event("d", {"id": 1, "name": None}),
        event("c", None, {"id": 3, "name": "a"}),
    ]
    rows = decode(plan(debezium(before=("id", "name"))), values).rows.to_pylist()
    moved = {"id": 1, "name": "b"}
    assert [(row[OP], row[BEFORE]) for row in rows] == [
        ("U", {"id": 1, "name": "a"}),
        ("D", moved),
        ("U", moved),
        ("U", None),
        ("D", moved),
        ("D", None),
        ("I", None),
    ]


def test_a_row_before_without_its_own_key_is_not_told() -> None:
    """A key that stands in the message key alone: half of a row before would be looked for in a wrong place."""
    decoded = decode(plan(debezium(before=("id", "name"))), [event("d", {"name": "a"})], [b'{"id":1}'])
    assert [(row["id"], row[BEFORE]) for row in decoded.rows.to_pylist()] == [(1, None)]


def test_a_row_that_is_taken_back_is_the_row_before() -> None:
    """SRC-12"""
    changes = ChangePlan(keys=("id",), envelope="op-column", before=("name",))
    values = [b'{"__op":-1,"id":1,"name":"a"}', b'{"__op":1,"id":1,"name":"b"}', b'{"_op":"D","id":1}']
    rows = decode(plan(changes), values).rows.to_pylist()
    assert [(row[OP], row["name"], row[BEFORE]) for row in rows] == [
        ("D", None, {"name": "a"}),
        ("I", "b", None),
        ("D", None, None),
    ]


def test_keys_of_several_columns_and_of_every_type_come_from_any_message_key() -> None:
    """SRC-10"""
    ddl = "a UUID, b DECIMAL(9,2), c DATE, d TIMESTAMP_NTZ, e BINARY, f STRING, h TIME, i BOOLEAN, v ARRAY<INT>"
    names = tuple("abcdefhi")
    uuid = "123e4567-e89b-12d3-a456-426614174000"
    key = dict(zip(names, [uuid, "AfQ=", 1, 2, "QUI=", "x", 3, True], strict=True))
    upsert = event("u", key, {**key, "v": [1]})
    decoded = decode(
        plan(debezium(*names, decimals="bytes"), ddl),
        [upsert, event("d", key), event("d"), event("d"), event("d"), upsert],
        [
            json.dumps(key).encode(),
            connect(json.dumps(key).encode()),
            json.dumps(key).encode(),
            connect(json.dumps(key).encode()),
            json.dumps(list(key.values())).encode(),
            json.dumps({**key, "a": uuid.replace("1", "2")}).encode(),
        ],
    )
    rows = decoded.rows.to_pylist()
    assert [row[OP] for row in rows] == ["U", "D", "D", "D", "D"]
    assert [row["v"] for row in rows] == [[1], None, None, None, None]
    assert len({tuple(row[name] for name in names) for row in rows}) == 1
    assert "in the message key" in error(decoded)


@pytest.mark.parametrize(
    ("changes", "value", "key", "reason"),
    [
        (debezium(), event("u", None, {"id": 1, "total": "x"}), None, "after.total: x is no decimal128(9, 2)"),
        (debezium(), connect(event("u", None, {"id": 1, "total": "x"})), None, "after.total: x is no decimal"),
        (debezium(), event("u", None, {"id": 1, "total": {"scale": 1}}), None, "decimal.handling.mode = string"),
        (
            debezium(decimals="bytes"),
            connect(event("u", None, {"id": 1, "total": {"scale": 1}}), {"odd": [1]})[:-1] + b',"more":1}',
            None,
            "after.total: a number with a scale of its own fits no DECIMAL",
        ),
        (
            debezium(decimals="bytes"),
            event("u", None, {"id": 1, "total": 5}),
            None,
            '5 is a number, not base64: set changes.decimals = "plain"',
        ),
        (debezium(), event("u", {"id": "x"}, {"id": 1}), None, "before.id: x is no int64"),
        (debezium(), event("u", None, {"name": "a"}), None, "after.id is a key column, but null or missing"),
        (
            debezium("id", "name"),
            event("u", None, {"id": 1}),
            None,
            "after.name is a key column, but null or missing",
        ),
        (debezium(), event("d"), b"{}", "message key: key column id is null or missing"),
        (debezium(), event("d"), b'{"id":"x"}', "message key: value does not fit id: x is no int64"),
        (debezium(), event("d"), b"\xff", "message key: "),
        (debezium(), event("d"), b'{"id":1', "message key: "),
        (debezium(), event("d"), b'1,"id":2', "message key: "),
        (debezium(), event("d"), b"[" * 100_000, "message key: nested deeper than"),
        (debezium("id", "name"), event("d"), b"[1]", "message key: 1 values for the key columns id, name"),
        (debezium(), event("d"), None, "message key: it is null, but has to say which row is deleted"),
        (
            debezium(),
            event("u", None, {"id": 1}),
            b'{"id":2}',
            "id is 2 in the message key, 1 in the row: changes of one row may lie in several partitions",
        ),
        (
            debezium(),
            event("u", {"id": 1, "name": "a"}, {"id": 1, "name": "__debezium_unavailable_value"}),
            None,
            "after.name: the source left the value out because it is large and unchanged "
            "(__debezium_unavailable_value): set REPLICA IDENTITY FULL on its table",
        ),
        (debezium(), b"{}", None, "no op: not a Debezium envelope"),
        (debezium(), b'{"payload":5}', None, "payload: expected { got 5"),
        (
            ChangePlan(keys=("id",), envelope="op-column", unknown_op="dead-letter"),
            b'{"id":1}',
            None,
            "no operation: known are I, +I, c, r, 1, +1, U, +U, u, D, -D, d, -U, -1",
        ),
    ],
)
def test_the_reason_names_the_field(changes: ChangePlan, value: bytes, key: bytes | None, reason: str) -> None:
    assert reason in error(decode(plan(changes), [value], [key]))


def test_an_operation_that_is_not_known_stops_with_all_that_is_known_of_it() -> None:
    """CHG-05, CFG-29"""
    values = [event("c", None, {"id": 1}), event("x", None, {"id": 1}), event("t")]
    with pytest.raises(UndecodableRecord) as stopped:
        decode(plan(debezium()), values)
    words = 'orders[3] offset 101 has the operation "x": known are c, r, u, d, t, m'
    assert str(stopped.value).startswith(words)
    assert "changes.unknown_op" in stopped.value.remedy


@pytest.mark.parametrize(("unknown_op", "rows", "dead"), [("dead-letter", 1, 2), ("warn-insert", 3, 0)])
def test_operations_that_are_not_known_are_counted_whatever_becomes_of_them(
    unknown_op: Any, rows: int, dead: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """CHG-05"""
    values = [event("c", None, {"id": 1}), event("x", None, {"id": 2}), event("y", None, {"id": 3})]
    decoded = decode(plan(debezium(unknown_op=unknown_op)), values)
    assert decoded.unknown_ops == 2
    assert decoded.rows.num_rows == rows
    assert (decoded.dead.num_rows if decoded.dead else 0) == dead
    # One warning for a task is enough.
    assert capsys.readouterr().out.count("unknown operation") == (unknown_op == "warn-insert")


@pytest.mark.parametrize(
    ("values", "offset"),
    [
        ([event("c"), event("t")], 100),
        ([event("t"), event("c")], 100),
        ([event("c", None, {"id": 1}), b"oops", event("x")], 101),
        ([event("c", None, {"id": 1}), event("d"), b"oops"], 101),
    ],
)
def test_what_stops_the_pipeline_does_so_at_the_first_record(values: list[bytes], offset: int) -> None:
    with pytest.raises(UndecodableRecord, match=rf"orders\[3\] offset {offset} "):
        decode(plan(debezium(), on_error="fail"), values)


@pytest.mark.parametrize("wrap", [bytes, connect])
def test_a_catch_all_keeps_what_the_row_has_more(wrap: Any) -> None:
    rest = "id BIGINT, rest STRING, name STRING"
    values = [
        wrap(b'{"op":"u","after":{"id":1,"name":"a","more":{"x": 1}},"source":{}}'),
        wrap(b'{"op":"u","after":{"id":1,"name":"a"},"source":{}}'),
        wrap(b'{"op":"d","before":{"id":1,"more":1},"after":null}'),
    ]
    rows = decode(plan(debezium(), rest, catch_all="rest"), values).rows.to_pylist()
    assert [row["rest"] for row in rows] == ['{"more":{"x": 1}}', None, None]
    lost = b'{"op":"u","after":{"id":1,"more":"__debezium_unavailable_value"}}'
    assert "after.rest" in error(decode(plan(debezium(), rest, catch_all="rest"), [wrap(lost)]))


def test_a_catch_all_does_not_keep_the_operation() -> None:
    """CHG-06"""
    for op_column, value in ((None, b'{"id":1,"_op":"I","__op":1}'), ("kind", b'{"id":1,"kind":"I"}')):
        changes = ChangePlan(keys=("id",), envelope="op-column", op_column=op_column)
        rows = decode(plan(changes, "id INT, rest STRING", catch_all="rest"), [value]).rows.to_pylist()
        assert [row["rest"] for row in rows] == [None]


def test_columns_are_counted_and_spelt_within_the_envelope() -> None:
    ddl = "id INT, at TIMESTAMP_NTZ, zoned TIMESTAMP, s STRUCT<b: BINARY, t: TIME>"
    options = {"epoch_unit": {"at": "ms", "zoned": "s", "s.t": "ms"}, "binary": "hex"}
    value = event("c", None, {"id": 1, "at": 1500, "zoned": 2, "s": {"b": "ff", "t": 1000}})
    (row,) = decode(plan(debezium(), ddl, **options), [value]).rows.to_pylist()
    assert row["at"].isoformat() == "1970-01-01T00:00:01.500000"
    assert row["zoned"].isoformat() == "1970-01-01T00:00:02+00:00"
    assert row["s"]["b"] == b"\xff"
    assert row["s"]["t"].isoformat() == "00:00:01"


def test_numbers_and_texts_of_dates_and_times_may_come_mixed() -> None:
    ddl = "id INT, d DATE, t TIME, n TIMESTAMP_NTZ"
    numbers = {"d": 1, "t": 1_000_000, "n": 1_000_000}
    texts = {"d": "1970-01-02", "t": "00:00:01", "n": "1970-01-01T00:00:01"}
    mixed = [{"id": 1, **numbers, name: texts[name]} for name in texts]
    values = [event("c", None, row) for row in ({"id": 1, **numbers}, {"id": 1, **texts}, *mixed)]
    rows = decode(plan(debezium(), ddl), values).rows.select(["d", "t", "n"]).to_pylist()
    assert rows == [rows[0]] * len(values)
    assert [each.isoformat() for each in rows[0].values()] == ["1970-01-02", "00:00:01", "1970-01-01T00:00:01"]


SCHEMAS = [{"v": 1}, {"v": 2, "name": '"payload":'}]


def test_schema_blocks_may_change_and_come_mixed_with_bare_envelopes() -> None:
    """Most payloads are cut out by the text before them; every other way to write the same must agree."""
    events = [event("c", None, {"id": i, "name": '}"payload":{'}) for i in range(8)]
    values = [
        connect(events[0], SCHEMAS[0]),
        events[1],
        connect(events[2], SCHEMAS[1]),
        connect(events[3], SCHEMAS[0]),
        b'{"payload":' + events[4] + b',"schema":{}}',
        connect(events[5], SCHEMAS[0])[:-1] + b" } ",
        connect(events[6], SCHEMAS[0])[:-1] + b',"more":{}}',
        connect(b'null,"payload":' + events[7], SCHEMAS[0]),
    ]
    expected = [("I", i) for i in range(8)]
    decode_by_one = decoder(plan(debezium()))
    for run in (values, values[::-1], values):
        decoded = decode_by_one(Records("t", 0, list(range(8)), list(run), [None] * 8))
        assert decoded.dead is None
        assert sorted(changes_of(decoded)) == expected


@pytest.mark.parametrize(
    "broken",
    [
        connect(event("c", None, {"id": 1}), SCHEMAS[0])[:-1],
        connect(event("c", None, {"id": 1}), SCHEMAS[0]) + b"}",
        connect(event("c", None, {"id": 1}), SCHEMAS[0])[:-1] + b"]",
        connect(event("c", None, {"id": 1}) + event("c", None, {"id": 2}), SCHEMAS[0]),
        connect(b"", SCHEMAS[0]),
        connect(b"null", SCHEMAS[0]),
        connect(b'{"op":"c"', SCHEMAS[0]),
    ],
)
def test_what_is_cut_out_wrongly_does_not_land(broken: bytes) -> None:
    sound = connect(event("c", None, {"id": 1}), SCHEMAS[0])
    decode_by_one = decoder(plan(debezium()))
    for _ in range(2):
        decoded = decode_by_one(Records("t", 0, [0, 1, 2], [sound, broken, sound], [None] * 3))
        assert decoded.dead is not None
        assert decoded.dead.column("offset").to_pylist() == [1]


NESTED = "id BIGINT, x DOUBLE, y FLOAT, s STRUCT<a: INT>, l ARRAY<INT>, m MAP<STRING, INT>, rest STRING"


@pytest.mark.parametrize(
    ("changes", "message", "remedy"),
    [
        (ChangePlan(keys=("idd",)), "there is no column 'idd'", "did you mean id?"),
        (ChangePlan(keys=("qqq",)), "the columns are id, x", ""),
        (ChangePlan(keys=("id", "id")), "id is named twice", "once"),
        (ChangePlan(keys=("x",)), "x is double", "whole numbers"),
        (ChangePlan(keys=("y",)), "y is float", "whole numbers"),
        (ChangePlan(keys=("s",)), "s is struct", "whole numbers"),
        (ChangePlan(keys=("l",)), "l is list", "whole numbers"),
        (ChangePlan(keys=("m",)), "m is map", "whole numbers"),
        (ChangePlan(keys=("s.a",)), "s.a is inside of a column", "the table itself"),
        (ChangePlan(keys=("rest",)), "cannot be a key", "another column"),
        (ChangePlan(keys=("id",), before=("nope",)), "nope is not a column", ""),
        (ChangePlan(keys=("id",), before=("rest",)), "cannot be found by it", "another column"),
        (ChangePlan(keys=("id",), op_column="x"), "no meaning", "op-column"),
        (ChangePlan(keys=("id",), envelope="op-column", op_column="x"), "x says what happens", "never kept"),
    ],
)
def test_a_key_that_cannot_be_is_refused(changes: ChangePlan, message: str, remedy: str) -> None:
    """CHG-03, TEST-14"""
    with pytest.raises(ConfigError) as refused:
        plan(changes, NESTED, catch_all="rest")
    assert message in refused.value.message
    assert remedy in refused.value.remedy


@pytest.mark.parametrize("name", ["_op", "_order", "_before", "_OP"])
def test_the_columns_of_changes_cannot_be_declared(name: str) -> None:
    """CHG-06"""
    with pytest.raises(ConfigError, match="rename"):
        plan(ChangePlan(keys=("id",)), f"id INT, {name} STRING")
    # Without changes they are columns as any other.
    plan_decode("json", f"id INT, {name} STRING", metadata=False, on_error="fail")


def test_further_plans_that_cannot_be_are_refused() -> None:
    keys = ("id",)
    with pytest.raises(ConfigError, match="no columns that could be a key"):
        plan_decode("raw", "", metadata=False, on_error="fail", changes=ChangePlan(keys=keys))
    with pytest.raises(ConfigError, match="__op says what happens"):
        plan(ChangePlan(keys=keys, envelope="op-column"), "id INT, __op INT")
    with pytest.raises(ConfigError, match="one key column"):
        plan(ChangePlan(keys=("id", "name"), key_format="text"))
    with pytest.raises(ConfigError, match="needs a table for them"):
        plan(ChangePlan(keys=keys, unknown_op="dead-letter"), on_error="fail")
    with pytest.raises(ConfigError, match="is not a timestamp column"):
        plan(debezium(), epoch_unit={"name": "ms"})


def timed(values: list[bytes], **options: Any) -> Decoded:
    changes = ChangePlan(keys=("id",), envelope="cockroachdb", timed=True, **options)
    return decode(plan(changes), values, [b"[7]"] * len(values))


def feed(row: dict[str, Any] | None, updated: str | None, **more: Any) -> bytes:
    return json.dumps({"after": row, **({"updated": updated} if updated else {}), **more}).encode()


def test_changes_of_a_changefeed_carry_their_time_to_the_last_digit() -> None:
    """SRC-07: rows, deletes, both halves of a move, and either form; a resolved message is no change."""
    row, moved = {"id": 1, "name": "a"}, {"before": {"id": 2, "name": "a"}}
    decoded = timed(
        [
            feed(row, "1536242855577149065.0000000001"),
            b'{"resolved":"1536242855577149070.0000000000"}',
            feed(None, "1536242855577149066.0000000002"),
            connect(feed(row, "1536242855577149064.0000000003")),
            feed(row, "5", **moved),
        ]
    )
    assert decoded.rows.schema.field(UPDATED).type == pa.decimal128(38, 10)
    assert decoded.rows.column(UPDATED).to_pylist() == [
        Decimal("1536242855577149065.0000000001"),
        Decimal("1536242855577149066.0000000002"),
        Decimal("1536242855577149064.0000000003"),
        Decimal(5),
        Decimal(5),
    ]
    assert decoded.rows.column(OP).to_pylist() == ["U", "D", "U", "D", "U"]
    assert (decoded.ignored, decoded.dead) == (1, None)


def test_a_change_without_a_time_is_a_dead_letter_that_names_the_option() -> None:
    """SRC-07: nobody could say which epoch it belongs to; its neighbours land."""
    row = {"id": 1, "name": "a"}
    decoded = timed([feed(row, "1.0"), feed(row, None), feed(row, "noon"), feed(None, None), feed(row, "2.0")])
    assert decoded.rows.column(UPDATED).to_pylist() == [1, 2]
    assert decoded.dead is not None
    errors = decoded.dead.column("error").to_pylist()
    assert [error.split(":")[0] for error in errors] == [
        "no updated",
        'updated is "noon", which is no time',
        "no updated",
    ]
    assert all("WITH updated" in error for error in errors)


def test_the_time_of_a_change_may_be_a_column_of_the_row_only_if_it_is_not_needed() -> None:
    ddl = "id BIGINT NOT NULL, _updated STRING"
    plan_decode("json", ddl, False, "fail", changes=ChangePlan(keys=("id",), envelope="cockroachdb"))
    with pytest.raises(ConfigError, match="_updated"):
        plan_decode("json", ddl, False, "fail", changes=ChangePlan(("id",), "cockroachdb", timed=True))
