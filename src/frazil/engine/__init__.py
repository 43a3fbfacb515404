"""The engine: one epoch after another, from a source to its tables."""

from frazil.engine.assemble import Assembly, assemble, decode_plan, open_source, open_spark
from frazil.engine.run import Engine, RunOptions, run_pipeline

__all__ = [
    "Assembly",
    "Engine",
    "RunOptions",
    "assemble",
    "decode_plan",
    "open_source",
    "open_spark",
    "run_pipeline",
]
