"""The register as numbers, which is all that outlives the clean-up of a Delta table's log."""

from __future__ import annotations

import pytest

from frazil.protocol.positions import Frontier, Position
from frazil.protocol.register import BatchId, Epoch, Generation, Register
from frazil.table.delta.register import app_id, from_numbers, state_number, to_numbers, written_ahead


def register(epoch: int, generation: int = 1, topic: str = "orders") -> Register:
    return Register(
        Generation(generation),
        "c0ffee",
        Epoch(epoch),
        BatchId(f"batch {epoch} of {generation}"),
        Frontier({(topic, 0): Position(10 * epoch)}, {topic: "topic-id"}),
    )


class Numbers(dict[str, int]):
    """A table's state: the last number of each application."""

    def commit(self, one: Register) -> None:
        self.update(to_numbers("pipe", one, self.get))

    def plan(self, before: Register, one: Register) -> None:
        self.update(written_ahead("pipe", before, one, self.get))

    def merge(self, one: Register) -> None:
        """Delta takes one number from a MERGE."""
        self[app_id("pipe")] = state_number(one)

    @property
    def register(self) -> Register | None:
        return from_numbers("pipe", self.get)


def test_a_writer_that_never_was_has_no_register() -> None:
    assert Numbers().register is None


def test_the_last_commit_counts_however_long_the_ones_before_were() -> None:
    numbers = Numbers()
    for one in [register(0), register(1, topic="a-topic-with-a-much-longer-name"), register(2), register(2, 2)]:
        numbers.commit(one)
        assert numbers.register == one
    assert numbers["frazil:pipe:orders:0"] == 20


@pytest.mark.parametrize("step", [1, 2], ids=["next epoch", "one was empty"])
def test_what_is_written_ahead_counts_when_its_merge_lands(step: int) -> None:
    """COMMIT-22: and takes nothing away before, however often it is tried."""
    numbers = Numbers()
    numbers.commit(register(0))
    for epoch in range(0, 6 * step, step):
        before, after = register(epoch), register(epoch + step)
        for attempt in (register(epoch + step, topic="given-up"), after):
            numbers.plan(before, attempt)
            assert numbers.register == before
            assert numbers["frazil:pipe:orders:0"] == 10 * epoch, "never ahead of the rows"
        numbers.merge(after)
        assert numbers.register == after


def test_a_start_forgets_what_an_older_coordinator_wrote_ahead() -> None:
    """FAULT-05: its number no longer rises above the state's, so its MERGE is passed over."""
    numbers = Numbers()
    numbers.commit(register(1))
    numbers.plan(register(1), register(2))
    numbers.commit(register(1, generation=2))
    assert numbers.register == register(1, generation=2)
    assert state_number(register(2)) < numbers[app_id("pipe")]
