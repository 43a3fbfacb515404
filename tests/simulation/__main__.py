"""`python -m tests.simulation --seeds 10000 [--format delta]`, or `--seed 1234` to be told one history."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.oracle import Broken
from tests.simulation.run import simulate_all, story, table
from tests.simulation.stage import quiet
from tests.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description="histories of a pipeline, by seed")
    parser.add_argument("--seed", type=int, help="tell this one from beginning to end")
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--format", choices=["iceberg", "delta"], default="iceberg", help="kind of table")
    wish = parser.parse_args()
    is_delta = wish.format == "delta"
    seeds = range(wish.first, wish.first + wish.seeds)
    return run_many(seeds, is_delta) if wish.seed is None else tell(wish.seed, is_delta)


def run_many(seeds: range, is_delta: bool) -> int:
    began = time.monotonic()
    try:
        total = simulate_all(seeds, progress=max(1, len(seeds) // 20), is_delta=is_delta)
    except Broken as broken:
        print(broken)
        return 1
    print(f"{table(total)}\nevery promise kept, in {time.monotonic() - began:.0f} s")
    return 0


def tell(seed: int, is_delta: bool) -> int:
    world = World(seed, is_delta=is_delta)
    end = "every promise kept"
    with quiet():
        try:
            world.run()
        except Broken as broken:
            end = str(broken)
    print(f"{story(world)}\nseed {seed}: {end}")
    return int(end != "every promise kept")


if __name__ == "__main__":
    sys.exit(main())
