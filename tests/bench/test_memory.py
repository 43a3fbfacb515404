from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]


def test_the_bench_reports_how_large_the_writer_of_a_sorted_table_grows():
    """PERF-14"""
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory", "--records", "20000", "--sorted", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout.splitlines()[-1])
    assert (measured["records"], measured["sorted"]) == (20_000, True)
    assert 50 < measured["worker_mb_max"] < 500
