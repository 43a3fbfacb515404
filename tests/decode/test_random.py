"""Random schemas and rows land as they are; random damage stays where it is."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_tables import PLAIN, Drawn, plainly, tables

from frazil.decode import Decoded, decoder, plan_decode
from frazil.records import Records

GENTLY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def decode(ddl: str, values: list[bytes], **options: Any) -> Decoded:
    plan = plan_decode("json", ddl, metadata=True, on_error="dead-letter", **options)
    return decoder(plan)(Records("t", 0, list(range(len(values))), list(values)))


@GENTLY
@given(tables(list(PLAIN), depth=3))
def test_rows_of_any_schema_land_as_they_are(table: tuple[str, list[Drawn]]) -> None:
    """DEC-04"""
    ddl, drawn = table
    decoded = decode(ddl, [text.encode() for text, _ in drawn])
    assert decoded.dead is None, decoded.dead.to_pylist()
    decoded.rows.validate(full=True)
    names = decoded.rows.schema.names[:-5]
    assert plainly(decoded.rows.select(names).to_pylist()) == plainly([row for _, row in drawn])


def damaged(value: bytes, place: int, what: bytes, cut: int) -> bytes:
    place %= len(value) + 1
    return value[:place] + what + value[place + cut :]


HARM = [b"", b'"', b"{", b"}", b"]", b",", b"\\", b"e", b"-", b"9" * 30, b"0" * 20, b"\xff", b"\0"]
DAMAGE = st.tuples(st.integers(0, 10_000), st.sampled_from(HARM), st.integers(0, 3))


@GENTLY
@given(tables(list(PLAIN), rows=5), st.lists(DAMAGE, min_size=5, max_size=5))
def test_damaged_values_never_touch_their_neighbours(
    table: tuple[str, list[Drawn]], damage: list[tuple[int, bytes, int]]
) -> None:
    """FAULTS 45"""
    ddl, drawn = table
    sound = [text.encode() for text, _ in drawn]
    mixed = [each for value, harm in zip(sound, damage, strict=False) for each in (value, damaged(value, *harm))]
    decoded = decode(ddl, mixed)
    landed = decoded.rows.column("_offset").to_pylist()
    dead = [] if decoded.dead is None else decoded.dead.column("offset").to_pylist()
    assert sorted(landed + dead) == list(range(len(mixed)))
    rows = dict(zip(landed, decoded.rows.to_pylist(), strict=True))
    names = decoded.rows.schema.names[:-5]
    for index, (_, row) in enumerate(drawn):
        assert plainly({name: rows[2 * index][name] for name in names}) == plainly(row)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@GENTLY
@given(st.lists(st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=5), max_size=6))
def test_a_catch_all_keeps_all_that_is_not_declared(objects: list[dict[str, Any]]) -> None:
    for each in objects:
        each.pop("a", None)
    decoded = decode("a INT, rest STRING", [json.dumps(each).encode() for each in objects], catch_all="rest")
    assert decoded.dead is None
    kept = decoded.rows.column("rest").to_pylist()
    assert [json.loads(text) if text else {} for text in kept] == objects


NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,45})(\.[0-9]{1,45})?([eE][-+]?[0-9]{1,4})?", fullmatch=True)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(NUMBERS | NUMBERS.map(lambda n: f'"{n}"'), min_size=1, max_size=5),
    st.sampled_from(["BIGINT", "DECIMAL(20,3)", "DECIMAL(38,20)"]),
)
def test_a_number_lands_if_the_type_has_it_exactly(numbers: list[str], kind: str) -> None:
    decoded = decode(f"a {kind}", [f'{{"a":{number}}}'.encode() for number in numbers])
    landed = {row["_offset"]: Fraction(row["a"]) for row in decoded.rows.to_pylist()}
    exact = {index: Fraction(number.strip('"')) for index, number in enumerate(numbers)}
    assert landed == {index: number for index, number in exact.items() if has(kind, number)}


def has(kind: str, number: Fraction) -> bool:
    """Whether the type has exactly this number; fractions know no rounding."""
    if kind == "BIGINT":
        return number.denominator == 1 and -(2**63) <= number < 2**63
    precision, scale = map(int, kind[len("DECIMAL(") : -1].split(","))
    digits = number * 10**scale
    return digits.denominator == 1 and abs(digits) < 10**precision
