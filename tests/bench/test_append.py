from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIZES = ("1kb", "150b")

pytestmark = pytest.mark.real


def test_the_bench_lands_the_same_rows_by_all_ways_and_reports_the_ratios():
    """It fails by itself when the rows differ; a process of its own, because the peer needs jars of its own."""
    sizes = ["--records-1kb", "3000", "--records-150b", "5000", "--rounds", "1", "--commits", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.append", *sizes, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout.splitlines()[-1])
    assert (measured["records_1kb"], measured["records_150b"]) == (3000, 5000)
    assert all(measured[key] > 0 for key in expected_keys())


def expected_keys() -> list[str]:
    ratios = [f"{lane}{kind}_ratio_{size}" for lane in ("", "sql_") for kind in ("wall", "cpu") for size in SIZES]
    rates = [f"{name}_records_per_s_{size}" for name in ("native", "sql", "peer") for size in SIZES]
    limits = [f"limit_fraction_{size}" for size in SIZES]
    return ["commit_ms_p50", *ratios, *rates, *limits]
