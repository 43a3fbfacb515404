"""frazil lands streams in lakehouse tables, every record exactly once."""

__version__ = "0.1.0"
