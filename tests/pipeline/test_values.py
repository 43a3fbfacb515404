"""Durations and sizes as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.pipeline.values import parse_duration_s, parse_size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("1.5s", 1.5),
        ("5m", 300.0),
        ("5min", 300.0),
        ("1h", 3600.0),
        ("7d", 604_800.0),
        (" 30 S ", 30.0),
        (30, 30),
        (0.25, 0.25),
    ],
)
def test_a_duration_becomes_seconds(text: object, seconds: float) -> None:
    """CFG-10."""
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "30", "30 parsecs", "-5s", "5 5s", "1e3s", "half an hour", "5s5m"])
def test_what_is_no_duration_is_answered_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match='such as "500ms", "30s", "5m" or "1h"'):
        parse_duration_s(text)


@pytest.mark.parametrize("value", [0, 0.0, -1, "0s", "0ms", math.nan, math.inf, -math.inf])
def test_a_duration_is_longer_than_zero_and_ends(value: object) -> None:
    """TOML can say nan and inf; no epoch would ever close on them."""
    with pytest.raises(ValueError, match="longer than zero, and finite"):
        parse_duration_s(value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("512B", 512),
        ("512KB", 512 * 1024),
        ("128MB", 134_217_728),
        ("128 MiB", 134_217_728),
        ("1.5gb", 3 * 2**29),
        ("1GiB", 2**30),
        (4096, 4096),
    ],
)
def test_a_size_becomes_bytes_and_mb_means_mib(text: object, size: int) -> None:
    """CFG-17."""
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "12 parsecs", "-1MB", "1,5GB", "1TBB"])
def test_what_is_no_size_is_answered_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match='such as "512KB", "128MB" or "1GB"'):
        parse_size_bytes(text)


@pytest.mark.parametrize("value", [0, -5, "0", "0MB", "0.5B"])
def test_a_size_is_larger_than_zero(value: object) -> None:
    with pytest.raises(ValueError, match="larger than zero"):
        parse_size_bytes(value)


@pytest.mark.parametrize("value", [True, False, None, [], {}])
def test_what_is_neither_text_nor_number_is_left_for_the_type_check(value: object) -> None:
    assert parse_duration_s(value) is value
    assert parse_size_bytes(value) is value


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=12))
def test_any_text_is_a_value_or_a_refusal(text: str) -> None:
    for parse in (parse_duration_s, parse_size_bytes):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert isinstance(value, int | float)
        assert value > 0
