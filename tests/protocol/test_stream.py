"""Streams of epochs: where one goes on, and which one must not."""

from __future__ import annotations

import pytest

from frazil.errors import ConfigError, SourceChanged
from frazil.protocol.positions import Frontier, Position
from frazil.protocol.stream import TOPIC, Place, beginning, find_place


def after(frontier: Frontier, place: Place, *epochs: int) -> Frontier:
    """The frontier once these epochs have landed."""
    for epoch in epochs:
        found = find_place("orders", frontier, place.stream, place.stream)
        if not isinstance(found, Place):
            found = place
        frontier = frontier.advance(found.span(epoch), topic_ids=found.topic_ids)
    return frontier


def test_a_new_stream_begins_before_its_first_epoch() -> None:
    assert find_place("orders", beginning("a"), "a") == Place("a", 0, 0)


def test_a_stream_goes_on_behind_its_last_epoch_whatever_gaps_there_were() -> None:
    """EPOCH-01: epochs rise, and need not follow one another."""
    frontier = after(beginning("a"), Place("a", 0, 0), 1, 2, 7)
    place = find_place("orders", frontier, "a")
    assert place == Place("a", 0, 7)
    assert place.span(9).encode() == f'{{"{TOPIC}":"0:7-9"}}'


def test_another_stream_stops_and_is_told_how_to_take_its_place() -> None:
    """FAULT-23: batch ids that restart at 0 are never skipped in silence."""
    frontier = after(beginning("a"), Place("a", 0, 0), 5)
    error = find_place("orders", frontier, "b")
    assert isinstance(error, SourceChanged)
    assert 'writer.replaces = "a"' in error.remedy
    assert isinstance(find_place("orders", frontier, "b", "c"), SourceChanged), "another name replaces nothing"


def test_a_stream_that_replaces_another_begins_at_its_own_first_epoch_and_nothing_goes_back() -> None:
    """FAULT-23"""
    frontier = after(beginning("a"), Place("a", 0, 0), 5)
    place = find_place("orders", frontier, "b", "a")
    assert place == Place("b", 1, 0)
    landed = frontier.advance(place.span(1), topic_ids=place.topic_ids)
    assert landed.covers(frontier)
    assert find_place("orders", landed, "b") == Place("b", 1, 1)
    assert isinstance(find_place("orders", landed, "a"), SourceChanged), "the former one stays out"
    assert find_place("orders", Frontier.decode(landed.encode()), "b") == Place("b", 1, 1)  # type: ignore[arg-type]


def test_a_stream_that_never_landed_anything_is_in_nobodys_way() -> None:
    assert find_place("orders", beginning("a"), "b") == Place("b", 0, 0)


def test_the_name_of_a_pipeline_is_refused() -> None:
    frontier = Frontier({("orders", 0): Position(12)}, {"orders": "id"})
    error = find_place("orders", frontier, "a")
    assert isinstance(error, ConfigError)
    assert "writer.name" in error.message


@pytest.mark.parametrize("epoch", [1, 2**63 - 1])
def test_epochs_may_be_as_large_as_a_table_can_tell(epoch: int) -> None:
    frontier = after(beginning("a"), Place("a", 0, 0), epoch)
    assert find_place("orders", frontier, "a") == Place("a", 0, epoch)
