"""Epochs by the source's own time."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import UndecodableRecord
from frazil.protocol.positions import Partition
from frazil.protocol.resolved import Mark, next_resolution, parse_time, time_text

P0: Partition = ("rides", 0)
P1: Partition = ("rides", 1)


def marks(*times_at: tuple[int, int]) -> list[Mark]:
    return [Mark(offset, Decimal(time)) for offset, time in times_at]


def test_the_slowest_partition_decides() -> None:
    """SRC-08: the minimum over all of them closes an epoch."""
    found = next_resolution({P0: marks((5, 10), (9, 20)), P1: marks((3, 10))}, None, "each")
    assert found is not None
    assert (found.time, found.ends) == (10, {P0: 6, P1: 4})
    assert next_resolution({P0: marks((5, 10), (9, 20)), P1: marks((3, 10))}, Decimal(10), "each") is None


def test_a_partition_without_a_mark_holds_everything_back() -> None:
    """SRC-07."""
    assert next_resolution({P0: marks((5, 10)), P1: []}, None, "each") is None
    assert next_resolution({}, None, "each") is None


def test_each_time_gets_its_epoch_or_only_the_latest() -> None:
    """EPOCH-02."""
    both = {P0: marks((5, 10), (9, 20), (12, 30)), P1: marks((3, 10), (4, 20), (8, 30))}
    each = next_resolution(both, Decimal(10), "each")
    latest = next_resolution(both, Decimal(10), "latest")
    assert each is not None
    assert latest is not None
    assert (each.time, each.ends) == (20, {P0: 10, P1: 5})
    assert (latest.time, latest.ends) == (30, {P0: 13, P1: 9})


def test_a_partition_may_skip_a_time() -> None:
    """Its first mark beyond it says as much."""
    found = next_resolution(
        {P0: marks((5, 10), (9, 40)), P1: marks((3, 10), (4, 20), (8, 40))}, Decimal(10), "each"
    )
    assert found is not None
    assert (found.time, found.ends) == (20, {P0: 10, P1: 5})


times = st.lists(st.integers(1, 30), min_size=1, max_size=8).map(sorted)


@given(st.lists(times, min_size=1, max_size=4), st.sampled_from(["each", "latest"]))
def test_times_rise_ends_never_go_back_and_every_step_covers_something(feed: list[list[int]], policy: str) -> None:
    """COMMIT-16, EPOCH-02: until the slowest partition's last mark is reached."""
    logs = {("rides", p): [Mark(3 * i, Decimal(t)) for i, t in enumerate(some)] for p, some in enumerate(feed)}
    after, ends = None, dict.fromkeys(logs, 0)
    while (found := next_resolution(logs, after, policy)) is not None:  # type: ignore[arg-type]
        assert after is None or found.time > after
        assert all(found.ends[p] >= ends[p] for p in logs)
        assert found.ends != ends
        after, ends = found.time, dict(found.ends)
    assert after == min(max(some) for some in feed)


def test_a_time_is_exact_to_its_last_digit() -> None:
    assert parse_time("1536242855577149065.0000000001") > parse_time("1536242855577149065.0000000000")
    for text in ("1536242855577149065.0000000001", "9999999999999999999999999999.9999999999", "0.0000000000"):
        assert time_text(parse_time(text)) == text


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "NaN", "Infinity", "1e28", "0.00000000001"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UndecodableRecord):
        parse_time(text)
