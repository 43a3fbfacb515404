"""Tallying offsets: what a task makes of its part, against counting by hand."""

from __future__ import annotations

import json
import random
from collections import Counter

import pyarrow as pa
import pytest

from frazil.engine.offsets import read_offsets, tally_offsets
from frazil.protocol.positions import Range, Slice
from frazil.protocol.verify.offsets import SAMPLE, Tally, Window
from frazil.source import Wants
from frazil.source.generator import GeneratorReader

WINDOWS = [Window(("t", 0), 10, 20, 40, 45), Window(("t", 1), 0, 0, 40, 40)]


def batch(rows: list[tuple[int, int, int, int, int]]) -> pa.RecordBatch:
    columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=["slot", "offset", "records", "rows", "dead"])


def tallies(*batches: pa.RecordBatch) -> dict[int, Tally]:
    (result,) = tally_offsets(WINDOWS)(list(batches))
    return {int(slot): Tally(**values) for slot, values in json.loads(result["tallies"][0].as_py()).items()}


@pytest.mark.parametrize("seed", range(20))
def test_a_task_tallies_what_counting_by_hand_finds(seed: int) -> None:
    chance = random.Random(seed)
    topic, table, dead = (
        Counter((slot, o) for slot in (0, 1) for o in range(50) if chance.random() < share)
        for share in (0.9, 0.8, 0.1)
    )
    table.update(dict.fromkeys(chance.sample(sorted(table), 5), 1))
    keys = sorted({*topic, *table, *dead}, key=lambda _: chance.random())
    rows = [(*key, topic[key], table[key], dead[key]) for key in keys]
    half = len(rows) // 2

    found = tallies(batch(rows[:half]), batch(rows[half:]))

    for slot, window in enumerate(WINDOWS):
        mine = [(o, t, r, d) for s, o, t, r, d in rows if s == slot]
        within = [each for each in mine if window.low <= each[0] < window.high]
        missing = sorted(o for o, t, r, d in within if t and not r + d)
        doubled = sorted(o for o, t, r, d in mine if r + d > 1)
        tally = found[slot]
        assert (tally.missing, tally.samples.get("missing", [])) == (len(missing), missing[:SAMPLE])
        assert (tally.doubled, tally.samples.get("doubled", [])) == (len(doubled), doubled[:SAMPLE])
        assert tally.surplus == sum(max(0, r + d - 1) for _, _, r, d in mine)
        assert tally.strangers == sum(not t for _, t, r, d in within if r + d)
        assert tally.below == sum(r + d for o, _, r, d in mine if o < window.low)
        assert tally.beyond == sum(
            bool((r and o >= window.high) or (d and o >= window.dead_high)) for o, _, r, d in mine
        )
        assert tally.records_counted == sum(t for o, t, _, _ in within if o >= window.counted)
        assert tally.missing_counted == sum(o >= window.counted for o in missing)
        assert (tally.records, tally.rows, tally.dead) == tuple(sum(each[i] for each in mine) for i in (1, 2, 3))


def test_rows_of_no_topic_of_the_pipeline_are_only_counted() -> None:
    assert tallies(batch([(-1, 0, 0, 7, 0)])) == {-1: Tally(rows=7)}


def test_a_task_without_offsets_has_nothing_to_say() -> None:
    assert tallies() == {}


def test_a_task_reads_the_offsets_of_its_share_only() -> None:
    reader = GeneratorReader(1, Wants(keys=False, timestamps=False))
    shares = [[Slice("generator", 0, 0, 3)], [Slice("generator", 0, 3, 4), Slice("generator", 1, 8, 10)]]
    numbers = {("generator", 0): 0, ("generator", 1): 1}
    task = pa.RecordBatch.from_pydict({"id": [1]})
    read = [row for part in read_offsets(reader, shares, numbers)([task]) for row in part.to_pylist()]
    assert [(row["slot"], row["offset"]) for row in read] == [(0, 3), (1, 8), (1, 9)]


def test_missing_offsets_that_were_given_up_are_told_apart() -> None:
    """FAULT-20."""
    window = Window(("t", 0), 0, 0, 40, 40, (Range(10, 12), Range(20, 30)))
    some = batch([(0, offset, 1, 0, 0) for offset in (9, 10, 11, 12, 29, 30)])
    (result,) = tally_offsets([window])([some])
    (tally,) = (Tally(**values) for values in json.loads(result["tallies"][0].as_py()).values())
    assert (tally.missing, tally.samples["missing"]) == (3, [9, 12, 30])
    assert (tally.given_up, tally.samples["given_up"]) == (3, [10, 11, 29])
