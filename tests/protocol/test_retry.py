"""Backoff: doubling, capped, with a little jitter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.protocol.retry import COMMIT, SOURCE, Backoff


def test_the_source_waits_from_a_tenth_of_a_second_to_half_a_minute_ten_times() -> None:
    """SRC-04, CFG-09."""
    assert (SOURCE.base_s, SOURCE.max_s, SOURCE.attempts, SOURCE.jitter_share) == (0.1, 30.0, 10, 0.1)
    delays = [SOURCE.delay_s(n, jitter=0) for n in range(1, 11)]
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]


def test_a_commit_waits_from_a_tenth_of_a_second_to_five_seconds_ten_times() -> None:
    """COMMIT-08, COMMIT-09, CFG-32."""
    assert COMMIT.attempts == 10
    delays = [COMMIT.delay_s(n, jitter=0) for n in range(1, 11)]
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_jitter_adds_at_most_a_tenth_and_no_count_overflows(failures: int, jitter: float) -> None:
    """SRC-04."""
    plain = SOURCE.delay_s(failures, 0)
    assert plain <= SOURCE.delay_s(failures, jitter) <= plain * 1.1
    assert plain <= SOURCE.max_s


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_delays_double_until_the_cap(failures: int) -> None:
    backoff = Backoff(base_s=1, max_s=3, attempts=3)
    assert backoff.delay_s(failures, 0) == {1: 1, 2: 2, 3: 3}[failures]
