"""How long to wait before another try. The caller brings the randomness: `jitter` is in [0, 1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from `base_s` up to `max_s`, plus up to `jitter_share` of it, for `attempts` tries."""

    base_s: float
    max_s: float
    attempts: int
    jitter_share: float = 0.1

    def delay_s(self, failures: int, jitter: float) -> float:
        """The pause after the given number of failures in a row, counted from 1."""
        delay = min(self.max_s, self.base_s * 2.0 ** min(failures - 1, 62))
        return delay * (1 + self.jitter_share * jitter)


START = Backoff(base_s=0.1, max_s=5.0, attempts=7)
"""Shorter than later on: whoever starts a pipeline with a wrong address is waiting for the answer."""
SOURCE = Backoff(base_s=0.1, max_s=30.0, attempts=10)
COMMIT = Backoff(base_s=0.1, max_s=5.0, attempts=10)
