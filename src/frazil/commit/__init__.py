"""The coordinator: the one process of a pipeline that commits."""

from frazil.commit.coordinator import Coordinator
from frazil.commit.outcome import EpochOutcome, Landed, Started
from frazil.commit.world import StopRequested, World

__all__ = ["Coordinator", "EpochOutcome", "Landed", "Started", "StopRequested", "World"]
