"""Two coordinators, random faults, pauses, compaction and expiry: whatever happens, every row once.

Each seed is one walk, and the same seed is always the same walk. A seed that fails is printed with its steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pytest

from frazil.commit import Coordinator, EpochOutcome
from frazil.errors import CatalogUnavailable, CommitConflict, CommitOutcomeUnknown, Fenced
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Span
from frazil.protocol.register import Epoch
from frazil.protocol.summary import CommitRecord
from frazil.table.memory import Fault, MemoryTable

WALKS = 300
STEPS = 40
IN_FLIGHT = 3
FAULTS = [Fault.REFUSED, Fault.REPLY_LOST, Fault.DELAYED]


@dataclass
class Life:
    """One coordinator from its start to its end, with epochs in flight, as the engine has them."""

    coordinator: Coordinator
    next_epoch: int
    flight: list[EpochOutcome] = field(default_factory=list)
    carried: Span = EMPTY_SPAN
    is_committing: bool = False


class Walk:
    def __init__(self, shop: Any, seed: int) -> None:
        self.shop = shop
        shop.filters = lambda offset: offset // 20 % 3 == 1
        self.random = random.Random(seed)
        self.lives: dict[int, Life] = {}
        self.records: dict[int, CommitRecord] = {}
        self.frontier = Frontier()
        self.steps: list[str] = []

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
        self.finish()

    def step(self, *, nested: bool = False) -> None:
        """Something happens; `nested` is in the middle of somebody's commit."""
        often = [self.write, self.write, self.commit, self.commit, self.commit, self.break_something]
        rarely = [self.start, self.release, self.compact, self.expire]
        alone = [] if nested else [self.interrupt]
        action = self.random.choice([*often, *rarely, *alone])
        self.steps.append(f"{'  ' if nested else ''}{action.__name__}")
        action()
        self.look()

    def start(self) -> None:
        number = self.random.randrange(2)
        self.lives.pop(number, None)
        born = self.shop.coordinator()
        try:
            born.start(self.shop.beginning, take_over=True)
        except (CommitConflict, CommitOutcomeUnknown, CatalogUnavailable):
            return
        self.lives[number] = Life(born, born.epoch + 1)

    def write(self) -> None:
        for life in self.pick():
            if len(life.flight) < IN_FLIGHT:
                ahead = reduce(Span.then, [outcome.span for outcome in life.flight], life.carried)
                outcome = self.shop.write(life.coordinator, self.random.randint(1, 25), after=ahead)
                life.flight.append(replace(outcome, epoch=Epoch(life.next_epoch)))
                life.next_epoch += 1

    def commit(self) -> None:
        for life in self.pick():
            if not life.flight or life.is_committing:
                continue
            life.is_committing = True
            try:
                landed = life.coordinator.commit(life.flight[0])
                sent = life.flight.pop(0)
                life.carried = EMPTY_SPAN if landed else life.carried.then(sent.span)
            except CommitOutcomeUnknown:
                self.plan_again(life)
            except (Fenced, CommitConflict):
                self.bury(life)
            life.is_committing = False

    def plan_again(self, life: Life) -> None:
        """What was sent may still land; what was not is given up."""
        for outcome in life.flight[1:]:
            life.coordinator.abandon(outcome)
        life.flight.clear()
        life.carried = EMPTY_SPAN
        try:
            life.coordinator.resync()
            life.next_epoch = life.coordinator.epoch + 1
        except (Fenced, CatalogUnavailable):
            self.bury(life)

    def bury(self, life: Life) -> None:
        self.lives = {number: each for number, each in self.lives.items() if each is not life}

    def break_something(self) -> None:
        table = self.table()
        if self.random.random() < 0.7:
            table.faults.append(self.random.choice(FAULTS))
        else:
            table.silences = self.random.randint(1, 5)

    def interrupt(self) -> None:
        """The next commit finds that something else happened since its author last looked."""
        meanwhile: Callable[[], None] = lambda: self.step(nested=True)  # noqa: E731  # a deque of callables
        self.table().meanwhile.append(meanwhile)

    def release(self) -> None:
        self.table().release()

    def compact(self) -> None:
        self.shop.compact(self.table())

    def expire(self) -> None:
        self.table().expire()

    def pick(self) -> list[Life]:
        return self.random.sample(list(self.lives.values()), k=min(1, len(self.lives)))

    def table(self) -> Any:
        return self.random.choice([self.shop.anchor, self.shop.dead])

    def look(self) -> None:
        """After every step, before anything is forgotten: no path twice, the frontier never goes back."""
        anchor: MemoryTable = self.shop.anchor
        self.records.update({record.snapshot_id: record for record in anchor.history("orders")})
        silences, anchor.silences = anchor.silences, 0
        found = anchor.observe("orders").register
        anchor.silences = silences
        if found is not None:
            assert found.frontier.covers(self.frontier)
            self.frontier = found.frontier
        for table in (anchor, self.shop.dead):
            self.shop.rows(table)
            assert not table.deleted & set(table.live_paths), "a live file was deleted"

    def finish(self) -> None:
        """The weather clears up; one last coordinator finds everything as it should be."""
        for table in (self.shop.anchor, self.shop.dead):
            table.faults.clear()
            table.meanwhile.clear()
            table.silences = 0
        last = self.shop.started()
        for _ in range(2):
            last.commit(self.shop.write(last, records=30))
        for table in (self.shop.anchor, self.shop.dead):
            assert table.release() == 0, "whatever is still under way comes too late"
        self.look()
        self.shop.require_exactly_once()
        self.shop.require_gapless([self.records[snapshot] for snapshot in sorted(self.records)])


@pytest.mark.parametrize("tens", range(WALKS // 10))
def test_whatever_happens_every_row_is_there_once(shop: Any, tens: int) -> None:
    """COMMIT-04, COMMIT-12, COMMIT-16, EPOCH-01, FAULT-05, FAULT-06, FAULT-07, FAULT-10, FAULT-18, FAULT-19."""
    for seed in range(tens * 10, tens * 10 + 10):
        walk = Walk(type(shop)(), seed)
        try:
            walk.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: " + " → ".join(walk.steps)) from error


def test_the_same_seed_is_the_same_walk(shop: Any) -> None:
    walks = [Walk(type(shop)(), seed=7) for _ in range(2)]
    for walk in walks:
        walk.run()
    assert walks[0].steps == walks[1].steps
    assert walks[0].frontier == walks[1].frontier
