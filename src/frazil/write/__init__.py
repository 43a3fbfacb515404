"""Arrow → files, on the workers: partitioning, rolling, metrics."""

from frazil.write.writer import FileName, TableWriter, new_token, writer_in_names

__all__ = ["FileName", "TableWriter", "new_token", "writer_in_names"]
