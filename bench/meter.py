"""What a piece of work costs: time on the wall, and CPU time of this process and all below it.

The JVM and the Python workers are children of this process. A worker that ends while we look away hands its
CPU time to the parent that reaps it, so that nothing is lost between two looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Cost:
    """What one piece of work took."""

    wall_s: float
    cpu_s: float


class Meter:
    """Measures work of the whole process tree, leaving out the processes in `besides`."""

    def __init__(self, besides: Collection[int]) -> None:
        self._besides = frozenset(besides)

    def measure(self, work: Callable[[], object]) -> Cost:
        cpu_s, began = self._cpu_s(), time.perf_counter()
        work()
        return Cost(wall_s=time.perf_counter() - began, cpu_s=self._cpu_s() - cpu_s)

    def _cpu_s(self) -> float:
        root = psutil.Process()
        counted = [each for each in root.children(recursive=True) if each.pid not in self._besides]
        return sum(map(_cpu_s_of, [root, *counted]))


def _cpu_s_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
