"""Running histories: one with all that it tells, or many with a summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from tests.simulation.oracle import Broken
from tests.simulation.stage import quiet
from tests.simulation.world import World

TOLD_MAX = 400
"""Lines of a failed history that are worth printing; the whole of it is a replay away."""


def simulate(seed: int) -> World:
    """One history from beginning to end; what breaks in it is raised with its seed and its trace."""
    world = World(seed)
    with quiet():
        try:
            world.run()
        except Exception as error:
            raise Broken(f"seed {seed}: {error}\n{story(world, TOLD_MAX)}\nseed {seed}: {error}") from error
    return world


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


def simulate_all(seeds: Iterable[int], *, progress: int = 0) -> Counter[str]:
    """Many histories; prints a line now and then if asked to."""
    total: Counter[str] = Counter()
    began = time.monotonic()
    for seed in seeds:
        total += tally(simulate(seed))
        if progress and total["histories"] % progress == 0:
            commits, crashes = total["commits landed"], total["crashes"]
            elapsed_s = time.monotonic() - began
            print(f"{elapsed_s:6.0f} s  seed {seed}: {commits:,} commits, {crashes:,} crashes", flush=True)
    return total


def first_failure(seeds: Iterable[int]) -> Broken | None:
    """What breaks first, if anything does."""
    for seed in seeds:
        try:
            simulate(seed)
        except Broken as broken:
            return broken
    return None


def table(total: Counter[str]) -> str:
    width = max(map(len, total))
    return "\n".join(f"  {what:<{width}}  {times:>12,}" for what, times in sorted(total.items()))
