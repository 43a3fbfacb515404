from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from bench.meter import Cost
from bench.upsert import Reads, format_count, parse_count, summary

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "count"), [("20m", 20_000_000), ("50k", 50_000), ("1500", 1_500), ("1500k", 1_500_000)]
)
def test_counts_are_read_and_written_the_short_way(text: str, count: int) -> None:
    assert parse_count(text) == count
    assert format_count(count) == text


@pytest.mark.parametrize("text", ["", "m", "1g", "-5", "0", "1.5m"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a number such as 50000, 50k or 20m"):
        parse_count(text)


def test_ratios_are_medians_beside_the_faster_merge_and_growth_is_our_own() -> None:
    def costs(*wall_s: float) -> list[Cost]:
        return [Cost(each, 2 * each) for each in wall_s]

    small = {"frazil": costs(1, 1, 9), "merge-v2": costs(4, 4, 4), "merge-v3": costs(5, 5, 5)}
    large = {"frazil": costs(1.5, 1.5, 1.5), "merge-v2": costs(40, 40, 40), "merge-v3": costs(30, 30, 30)}
    reads = {"frazil": Reads({1: 0.5, 10: 2.0}, compaction_s=3.0, compacted_s=0.4)}

    found = summary({1_000_000: small, 20_000_000: large}, reads, 50_000)

    assert (found["wall_ratio_1m"], found["wall_ratio_20m"]) == (0.25, 0.05)
    assert found["cpu_ratio_1m"] == 0.25
    assert found["growth_20m_over_1m"] == 1.5
    assert (found["read_s_frazil_1"], found["read_s_frazil_10"], found["read_s_frazil_compacted"]) == (
        0.5,
        2.0,
        0.4,
    )


@pytest.mark.real
@pytest.mark.timeout(600)
def test_the_bench_lands_the_same_changes_by_all_ways_and_reports_what_they_cost() -> None:
    """TEST-20: it fails by itself when the tables differ, before a compaction or after."""
    by = ["merge-v2", "merge-v3", "frazil"]
    sizes = ["--rows", "20k", "--changes", "2k", "--epochs", "1", "--read-epochs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.upsert", "--by", ",".join(by), *sizes, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout.splitlines()[-1])
    names = [name.replace("-", "_") for name in by]
    assert all(measured[f"wall_s_{name}_20k"] > 0 for name in names)
    assert all(measured[f"read_s_{name}_{when}"] > 0 for name in names for when in ("1", "compacted"))
    assert ("wall_ratio_20k" in measured) == ("frazil" in by)
