"""Arrow → files, on the workers: partitioning, rolling, metrics."""

from frazil.write.writer import FileName, TableWriter

__all__ = ["FileName", "TableWriter"]
