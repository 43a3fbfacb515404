"""frazil lands streams in lakehouse tables, every record exactly once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.sink import Sink, SinkConfig, foreach_batch

__version__ = "0.1.0"

__all__ = ["Sink", "SinkConfig", "__version__", "foreach_batch"]

_OF_THE_SINK = {"Sink", "SinkConfig", "foreach_batch"}


def __getattr__(name: str) -> Any:
    """Loaded on first use: a command, or a worker, should not pay for what it does not touch."""
    if name not in _OF_THE_SINK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("frazil.sink"), name)
