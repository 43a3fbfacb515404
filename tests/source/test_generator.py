"""The generator: deterministic records, evenly shared, appearing over time when asked to."""

from __future__ import annotations

import json
import pickle
from datetime import datetime
from decimal import Decimal

import pytest

from frazil.pipeline import GeneratorSource
from frazil.protocol.plan import Ready, cut, reconcile
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Position, Slice
from frazil.source import Wants
from frazil.source.generator import TOPIC, GeneratorPlanner, GeneratorReader, order


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def spec(**keys: object) -> GeneratorSource:
    return GeneratorSource.model_validate({"type": "generator", **keys})


def ends(planner: GeneratorPlanner) -> list[int]:
    return [log.end for _, log in sorted(planner.observe().logs.items())]


def test_an_order_has_the_columns_of_the_documentation() -> None:
    made = json.loads(order(1, 2, 3), parse_float=Decimal)
    assert list(made) == ["order_id", "customer", "amount", "placed_at", "note"]
    assert isinstance(made["order_id"], int)
    assert made["amount"].as_tuple().exponent == -2
    assert datetime.fromisoformat(made["placed_at"]).utcoffset() is not None


def test_every_order_is_valid_json_and_has_an_id_of_its_own() -> None:
    ids = {json.loads(order(7, p, o))["order_id"] for p in range(3) for o in range(1000)}
    assert len(ids) == 3000


def test_the_same_seed_makes_the_same_orders_and_another_seed_others() -> None:
    assert order(1, 0, 42) == order(1, 0, 42)
    assert order(1, 0, 42) != order(2, 0, 42)


def test_records_are_shared_evenly_and_all_there_at_once_without_a_rate() -> None:
    assert ends(GeneratorPlanner(spec(records=11, partitions=3))) == [4, 4, 3]


def test_no_records_is_an_empty_source_and_not_an_error() -> None:
    """FAULT-40: an empty source is healthy."""
    assert ends(GeneratorPlanner(spec(records=0, partitions=2))) == [0, 0]


def test_with_a_rate_records_appear_over_time_up_to_the_last() -> None:
    clock = Clock()
    planner = GeneratorPlanner(spec(records=100, partitions=2, records_per_second=10), clock=clock)
    assert ends(planner) == [0, 0]
    clock.now_s += 1.5
    assert ends(planner) == [8, 7]
    clock.now_s += 3600
    assert ends(planner) == [50, 50]


def test_after_a_restart_pacing_goes_on_from_the_frontier() -> None:
    """A log that ended before its frontier would look truncated."""
    clock = Clock()
    frontier = Frontier({(TOPIC, 0): Position(20), (TOPIC, 1): Position(19)})
    planner = GeneratorPlanner(spec(records=100, partitions=2, records_per_second=10), clock=clock)
    planner.resume(frontier)
    assert isinstance(reconcile(frontier, planner.observe(), fail_on_data_loss=True), Ready)
    clock.now_s += 1
    assert ends(planner) == [25, 24]


def test_the_topic_id_belongs_to_the_seed() -> None:
    """FAULT-34: another seed is another topic."""
    first = GeneratorPlanner(spec(seed=1)).starting_frontier()
    assert first.topic_ids == GeneratorPlanner(spec(seed=1, records=5)).observe().topic_ids
    assert first.topic_ids != GeneratorPlanner(spec(seed=2)).observe().topic_ids


@pytest.mark.parametrize("tasks", [1, 3, 7])
def test_slices_deliver_every_record_once_in_order(tasks: int) -> None:
    """SRC-02: runs are bounded and carry their offsets."""
    planner = GeneratorPlanner(spec(records=25_000, partitions=2))
    frontier = planner.starting_frontier()
    span = cut(frontier, planner.observe(), max_records=10**9)
    reader = planner.reader(Wants(), EMPTY_SPAN)
    read: dict[int, list[int]] = {0: [], 1: []}
    for share in span.split(tasks, frontier):
        for part in share:
            for run in reader.read(part):
                assert 0 < len(run) <= 10_000
                assert len(run.values) == len(run.keys) == len(run.timestamps_ms) == len(run)
                read[run.partition].extend(run.offsets)
    assert read == {0: list(range(12_500)), 1: list(range(12_500))}


def test_a_reader_survives_pickling_and_gives_only_what_is_wanted() -> None:
    reader = pickle.loads(pickle.dumps(GeneratorReader(5, Wants(keys=False, timestamps=False, headers=True))))
    (run,) = reader.read(Slice(TOPIC, 1, 10, 13))
    assert run.values == [order(5, 1, o) for o in (10, 11, 12)]
    assert run.keys == run.timestamps_ms == []
    assert run.headers == [None, None, None]
