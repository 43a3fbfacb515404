"""Values that hurt parsers: deep, large, broken in their bytes. The process survives, and so do the neighbours."""

from __future__ import annotations

import subprocess
import sys

import pytest

from frazil.decode import Decoded, decoder, plan_decode
from frazil.records import Records

SOUND = b'{"a":1}'


def decode(value: bytes | None, ddl: str = "a INT", catch_all: str | None = None) -> Decoded:
    plan = plan_decode("json", ddl, metadata=False, on_error="dead-letter", catch_all=catch_all)
    decoded = decoder(plan)(Records("t", 0, [0, 1, 2], [SOUND, value, SOUND]))
    assert decoded.rows.num_rows + (decoded.dead.num_rows if decoded.dead else 0) == 3
    return decoded


def is_dead(value: bytes | None, ddl: str = "a INT", catch_all: str | None = None) -> bool:
    decoded = decode(value, ddl, catch_all)
    return decoded.dead is not None and decoded.dead.column("offset").to_pylist() == [1]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":1,"ignored":"\xff"}',
        b'{"a":1,"\xff":1}',
        b'{"a":1,"ignored":"\xed\xa0\x80"}',
        b'{"a":1,"ignored":"\\ud800"}',
        b'{"a":1,"ignored":"\\ud800\\u0041"}',
        b'{"a":1,"ignored":"\\x"}',
        b'{"a":1,"ignored":"\x00"}',
    ],
)
def test_broken_bytes_anywhere_make_a_dead_letter(value: bytes | None) -> None:
    """FAULTS 45"""
    assert is_dead(value)


def test_a_document_of_many_megabytes_lands() -> None:
    text = "ä" * 2_000_000
    decoded = decode(b'{"a":2,"s":"' + text.encode() + b'"}', "a INT, s STRING")
    assert decoded.dead is None
    assert decoded.rows.column("s").to_pylist() == [None, text, None]


DEEP = """
import sys
from frazil.decode import decoder, plan_decode
from frazil.records import Records
ddl, catch_all, depth = sys.argv[1], sys.argv[2] or None, int(sys.argv[3])
sound = b'{"a":null}'
decode = decoder(plan_decode("json", ddl, metadata=False, on_error="dead-letter", catch_all=catch_all))
for open_, close in ((b"[", b"]"), (b'{"x":', b"}")):
    for name in (b"a", b"ignored"):
        value = b'{"' + name + b'":' + open_ * depth + b"1" + close * depth + b"}"
        for each in (value, value[: len(value) // 2]):
            decoded = decode(Records("t", 0, [0, 1, 2], [sound, each, sound]))
            dead = [] if decoded.dead is None else decoded.dead.column("offset").to_pylist()
            print(name.decode(), each is value, dead)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize("kind", ["INT", "ARRAY<INT>", "STRUCT<x: INT>"])
@pytest.mark.parametrize("catch_all", ["", "rest"])
def test_deep_nesting_costs_at_most_its_own_record(depth: int, kind: str, catch_all: str) -> None:
    """In a process of its own: a parser that calls itself would take the tests along."""
    command = [sys.executable, "-c", DEEP, f"a {kind}, rest STRING", catch_all, str(depth)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    # Ignored fields may be as deep as they like; a catch-all has to keep them, and has a limit.
    whole = "[1]" if catch_all else "[]"
    expected = ["a True [1]", "a False [1]", f"ignored True {whole}", "ignored False [1]"]
    assert done.stdout.splitlines() == expected * 2


def test_a_chunk_of_nothing_but_bad_values_is_all_dead_letters() -> None:
    plan = plan_decode("json", "a INT", metadata=False, on_error="dead-letter")
    values: list[bytes | None] = [b'{"a":%d.5}' % i for i in range(500)]
    decoded = decoder(plan)(Records("t", 0, list(range(500)), values))
    assert decoded.rows.num_rows == 0
    assert decoded.dead is not None
    assert decoded.dead.column("value").to_pylist() == values


@pytest.mark.parametrize(
    ("ddl", "value", "reason"),
    [
        ("a INT NOT NULL", b"{}", "a is NOT NULL, but null or missing"),
        ("a STRUCT<x: STRUCT<y: INT NOT NULL>>", b'{"a":{"x":{}}}', "a.x.y is NOT NULL, but null or missing"),
        ("a STRUCT<x: INT>", b'{"a":{"x":"q"}}', "value does not fit a.x: q is no int32"),
        (
            "a STRUCT<x: INT>",
            b'{"a":{"x":1.5}}',
            "value does not fit a.x: Rescaling Decimal value would cause data loss",
        ),
        ("a STRUCT<x: UUID>", b'{"a":{"x":"q"}}', "value does not fit a.x: not a UUID"),
        ("a ARRAY<INT>", b'{"a":{}}', "a: expected [ got {}"),
        ("a TIMESTAMP", b'{"a":5}', "a: 5 is a number: say what it counts with decode.epoch_unit"),
        (
            "a STRUCT<x: ARRAY<TIMESTAMP>>",
            b'{"a":{"x":[5]}}',
            "a.x: 5 is a number: say what it counts with decode.",
        ),
        ("a TIMESTAMP_NTZ", b'{"a":"2026-01-01T00:00:00Z"}', "expected no zone offset"),
        ("a DOUBLE", b'{"a":1e999}', "value does not fit a: the number is too large"),
        ("a BIGINT", b'{"a":1e-30}', "value does not fit a: 1e-30 has digits that int64 does not keep"),
    ],
)
def test_the_reason_names_the_column(ddl: str, value: bytes, reason: str) -> None:
    plan = plan_decode("json", ddl, metadata=False, on_error="dead-letter")
    dead = decoder(plan)(Records("t", 0, [0], [value])).dead
    assert dead is not None
    assert reason in dead.column("error")[0].as_py()


ODD_NUMBERS = [
    b"1.0000000000000000000000001",
    b"1e-30",
    b"1e-99999999999999999999",
    b"1e-999999999999999",
    b"1e999999999999999",
    b"1e+99999999999999999999",
    b'"1E-99999999999999999999"',
    b"1" + b"0" * 256,
    b"7" * 300,
]


@pytest.mark.parametrize("number", ODD_NUMBERS)
@pytest.mark.parametrize("shift", range(8))
def test_an_odd_number_is_found_wherever_it_stands_in_a_large_chunk(number: bytes, shift: int) -> None:
    """Large chunks are searched word by word, so that every alignment counts."""
    plan = plan_decode("json", "a BIGINT", metadata=False, on_error="dead-letter")
    sound: list[bytes | None] = [b'{"a":5,"pad":"%s"}' % (b"x" * 90)] * 100
    odd = b" " * shift + b'{"a":' + number + b"}"
    decoded = decoder(plan)(Records("t", 0, list(range(201)), [*sound, odd, *sound]))
    assert decoded.rows.column("a").to_pylist() == [5] * 200
    assert decoded.dead is not None
    assert decoded.dead.column("offset").to_pylist() == [100]


@pytest.mark.parametrize(
    ("ddl", "item"),
    [
        (
            "a INT, x ARRAY<STRING>",
            b'"%s"' % (b"115792089237316195423570985008687907853269984665640564039457584007"),
        ),
        ("a INT, x ARRAY<DECIMAL(38,2)>", b"123456789012345678901234567890"),
        ("a INT", b"123456789012345678901234567890"),
    ],
)
def test_a_record_of_many_long_numbers_is_looked_at_once(ddl: str, item: bytes) -> None:
    """It takes hours otherwise, and the test is stopped."""
    decoded = decode(b'{"a":2,"x":[' + b",".join([item] * 20_000) + b"]}", ddl)
    assert decoded.dead is None
    assert decoded.rows.column("a").to_pylist() == [1, 2, 1]
