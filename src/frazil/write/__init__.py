"""Arrow → files, on the workers: partitioning, rolling, metrics."""

from frazil.write.changes import ChangeWriter
from frazil.write.writer import FileName, TableWriter, new_token

__all__ = ["ChangeWriter", "FileName", "TableWriter", "new_token"]
