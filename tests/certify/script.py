"""Which faults, in which order and after which pauses: all of it drawn from a seed before anything happens."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.certify.faults import FAULTS, Fault, When

_WITHIN = (4, 9)
"""How many faults a life survives; a new one costs the start of a JVM."""
_OFTEN = {"kill a Python worker": 3, "crash before a file closes": 2, "crash after a file closed": 2}
"""How often in a deck, if not once."""
_UNSTARTED = ("kill the driver", "kill the JVM", "kill all processes")
"""What may hit a life that has not even started."""


@dataclass(frozen=True)
class Step:
    """A fault, after a pause."""

    fault: Fault
    pause_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.fault.name} after {self.pause_s:.1f} s"


@dataclass(frozen=True)
class Round:
    """One life: what it survives, what ends it, and what happens before the next one."""

    number: int
    within: tuple[Step, ...]
    end: Step
    between: tuple[Step, ...] = ()
    starts: bool = True
    """whether the life gets as far as its start commit before anything happens"""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.within, self.end, *self.between)

    @property
    def kills(self) -> int:
        return sum(step.fault.kills for step in self.steps)

    def __str__(self) -> str:
        begin = "" if self.starts else "before its start: "
        return f"round {self.number}: {begin}{', '.join(map(str, self.steps))}"


class Deck:
    """Deals every card once before it shuffles again, so that a few rounds already show everything."""

    def __init__(self, cards: Iterable[Fault], dice: random.Random) -> None:
        self._cards = list(cards)
        self._dice = dice
        self._left: list[Fault] = []

    def deal(self) -> Fault:
        if not self._left:
            self._left = self._dice.sample(self._cards, len(self._cards))
        return self._left.pop()


def draw_script(seed: int, kills: int, *, has_small_disk: bool = True, merges: bool = False) -> list[Round]:
    """As many rounds as it takes to kill so often."""
    rounds: list[Round] = []
    able = [fault for fault in FAULTS.values() if can_happen(fault, has_small_disk=has_small_disk, merges=merges)]
    for drawn in _rounds(random.Random(f"certify {seed}"), able):
        if sum(each.kills for each in rounds) >= kills:
            return rounds
        rounds.append(drawn)
    raise AssertionError("the deck never ends")


def can_happen(fault: Fault, *, has_small_disk: bool, merges: bool) -> bool:
    return (has_small_disk or not fault.needs_small_disk) and (merges or not fault.needs_merge)


def _rounds(dice: random.Random, able: Sequence[Fault]) -> Iterator[Round]:
    def deck(when: When) -> Deck:
        cards = [fault for fault in able if fault.when == when for _ in range(_OFTEN.get(fault.name, 1))]
        return Deck(cards, dice)

    within, end, between = deck("within"), deck("end"), deck("between")
    number = 0
    while True:
        number += 1
        last = Step(end.deal(), dice.random() * 2)
        if last.fault.name in _UNSTARTED and dice.random() < 0.25:
            yield Round(number, (), Step(last.fault, dice.random() * 12), starts=False)
            continue
        steps = tuple(Step(within.deal(), dice.random() * 1.5) for _ in range(dice.randint(*_WITHIN)))
        replaced = last.fault.name == "pause past a take-over"
        after = (Step(between.deal()),) if dice.random() < 0.4 and not replaced else ()
        yield Round(number, steps, last, after)
