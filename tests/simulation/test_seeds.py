"""Histories by seed, and that the simulation itself can be trusted: it is repeatable, and everything happens."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.simulation.run import simulate, simulate_all, story

FAST = 200
ALL = 1000
CHUNK = 200


@cache
def fast_histories() -> Counter[str]:
    return simulate_all(range(FAST))


def test_whatever_happens_every_row_is_there_once() -> None:
    """Promises A to D in every one of them.

    TEST-03, TEST-04, TEST-05, TEST-06, TEST-08, TEST-09, TEST-11, TEST-19.
    COMMIT-01, COMMIT-04, COMMIT-06, COMMIT-07, COMMIT-09, COMMIT-11, COMMIT-12, COMMIT-13, COMMIT-16, COMMIT-19,
    COMMIT-20.
    EPOCH-01, EPOCH-06, EPOCH-07, EPOCH-10, EPOCH-14.
    REC-16, REC-17, REC-18, REC-19, REC-20.
    FAULT-01, FAULT-02, FAULT-03, FAULT-04, FAULT-05, FAULT-06, FAULT-07, FAULT-08, FAULT-09, FAULT-10, FAULT-11,
    FAULT-12, FAULT-13, FAULT-14, FAULT-18, FAULT-19, FAULT-20, FAULT-22, FAULT-31, FAULT-32, FAULT-33, FAULT-34,
    FAULT-36, FAULT-37, FAULT-38, FAULT-40, FAULT-41, FAULT-45. SCHEMA-08, TEST-07.
    """
    assert fast_histories()["histories"] == FAST


def test_everything_that_can_happen_does() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    assert [what for what in EXPECTED if fast_histories()[what] == 0] == []


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(FAST, ALL, CHUNK))
def test_whatever_happens_in_many_more_histories_every_row_is_there_once(first: int) -> None:
    """The same as above; here only because it takes longer than one likes to wait before a commit."""
    simulate_all(range(first, first + CHUNK))


def test_the_same_seed_is_the_same_history() -> None:
    for seed in (7, 11, 42):
        first, second = simulate(seed), simulate(seed)
        assert list(map(str, first.trace)) == list(map(str, second.trace))


@pytest.mark.thorough
def test_the_same_seed_is_the_same_history_in_another_process() -> None:
    """Nothing depends on the order of a set, which Python shuffles from one process to the next."""
    root = Path(__file__).parent.parent.parent
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "9"],
        cwd=root,
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told == f"{story(simulate(9))}\nseed 9: every promise kept\n"


EXPECTED = [
    "a file cannot be deleted",
    "a file is reported twice",
    "a worker dies, and its files stay behind",
    "alterations",
    "commits acknowledged only",
    "commits delayed",
    "commits refused",
    "commits refused inside",
    "commits reply lost",
    "compactions",
    "crashes",
    "delayed commits that landed",
    "expiries",
    "files deleted",
    "foreign commits",
    "frontiers kept",
    "gives no answer",
    "landed as written before an alteration",
    "loss of records",
    "outcomes unknown",
    "partitions added",
    "pauses",
    "recreation of a topic",
    "recreation of the anchor",
    "recreation of the dead letters",
    "retentions",
    "rewinds",
    "rollback of both tables",
    "rollback of the anchor",
    "rollback of the dead letters",
    "rollbacks taken back",
    "silences",
    "stopped with CommitConflict",
    "stopped with CommitOutcomeUnknown",
    "stopped with DataLoss",
    "stopped with Fenced",
    "stopped with MaxRetriesExceeded",
    "stopped with SourceChanged",
    "stopped with TableChanged",
    "the brokers are silent",
    "the brokers' answer is incomplete",
    "transactions aborted",
    "transactions committed",
    "truncation of a log",
    "written again",
]
