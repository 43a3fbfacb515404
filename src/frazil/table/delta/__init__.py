"""Delta Lake: delta-rs on the driver for commits of files, delta-spark for what needs a query."""

from frazil.table.delta.contents import DeltaContents
from frazil.table.delta.lake import DeltaLake
from frazil.table.delta.live import live_sizes
from frazil.table.delta.reach import require_spark_writes, teach
from frazil.table.delta.schema import write_schema
from frazil.table.delta.table import DeltaLakeTable

__all__ = [
    "DeltaContents",
    "DeltaLake",
    "DeltaLakeTable",
    "live_sizes",
    "require_spark_writes",
    "teach",
    "write_schema",
]
