"""Running histories: one with all that it tells, or many with a summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.simulation.oracle import Broken
from tests.simulation.stage import quiet
from tests.simulation.world import World

TOLD_MAX = 400
"""Lines of a failed history that are worth printing; the whole of it is a replay away."""


def simulate(seed: int, **changes: object) -> World:
    """One history from beginning to end, in the settings that the seed draws, but for `changes`."""
    world = World(seed, **changes)
    with telling(world):
        world.run()
    return world


@contextmanager
def telling(world: World) -> Iterator[None]:
    """What breaks in a history is raised with its seed and its trace."""
    with quiet():
        try:
            yield
        except Exception as error:
            what = f"seed {world.seed}: {error}"
            raise Broken(f"{what}\n{story(world, TOLD_MAX)}\n{what}") from error


def story(world: World, lines: int | None = None) -> str:
    """What happened, line by line; with `lines` the last ones."""
    told = world.trace if lines is None else world.trace[-lines:]
    left_out = len(world.trace) - len(told)
    head = [str(world.settings)] if not left_out else [str(world.settings), f"… {left_out} lines before this …"]
    return "\n".join([*head, *map(str, told)])


def tally(world: World) -> Counter[str]:
    """What a history had to offer."""
    commits = sum(snapshot.register is not None for table in world.tables for snapshot in table.ledger)
    return world.counts + Counter({"histories": 1, "commits landed": commits, "moments": len(world.trace)})


def simulate_all(seeds: Iterable[int], *, progress: int = 0, **changes: object) -> Counter[str]:
    """Many histories; prints a line now and then if asked to."""
    total: Counter[str] = Counter()
    began = time.monotonic()
    for seed in seeds:
        total += tally(simulate(seed, **changes))
        if progress and total["histories"] % progress == 0:
            commits, crashes = total["commits landed"], total["crashes"]
            elapsed_s = time.monotonic() - began
            print(f"{elapsed_s:6.0f} s  seed {seed}: {commits:,} commits, {crashes:,} crashes", flush=True)
    return total


def first_failure(seeds: Iterable[int], **changes: object) -> Broken | None:
    """What breaks first, if anything does."""
    for seed in seeds:
        try:
            simulate(seed, **changes)
        except Broken as broken:
            return broken
    return None


def table(total: Counter[str]) -> str:
    width = max(map(len, total))
    return "\n".join(f"  {what:<{width}}  {times:>12,}" for what, times in sorted(total.items()))
