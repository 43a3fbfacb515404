"""Where a file lies below the table's data folder, by the same rules as Iceberg's Java writers.

But for files of deletes, which lie in no partition's folder: DuckDB takes the key from a folder like `id=7` rather
than from the file, as a text or a number as it sees fit, and then deletes other rows, or none.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table.locations import ObjectStoreLocationProvider

from frazil.write.partition import Partition

HASHED = "write.object-storage.enabled"
PARTITIONED_PATHS = "write.object-storage.partitioned-paths"


class Locations:
    """Lays files out by partition, or spread over folders named by a hash, as the table's properties say."""

    def __init__(
        self,
        data_folder: str,
        properties: Mapping[str, str],
        table_location: str = "",
        *,
        of_deletes: bool = False,
    ) -> None:
        self._folder = data_folder.rstrip("/")
        # Outside of the table's own folder several tables may share one.
        self._owner = "" if self._folder.startswith(table_location) else _last_two(table_location)
        partitioned = not _says(properties, HASHED, False) or _says(properties, PARTITIONED_PATHS, True)
        self._partitioned = partitioned and not of_deletes
        self._hashed: ObjectStoreLocationProvider | None = None
        if _says(properties, HASHED, False):
            layout = {"write.data.path": self._folder, PARTITIONED_PATHS: str(partitioned)}
            self._hashed = ObjectStoreLocationProvider(self._folder, layout)

    def path(self, partition: Partition, name: str) -> str:
        """The full path of a new file."""
        if partition.path and self._partitioned:
            name = f"{partition.path}/{name}"
        if self._hashed is None:
            return f"{self._folder}/{name}"
        path = self._hashed.new_data_location(name)
        return f"{path.removesuffix(name)[:-1]}/{self._owner}/{name}" if self._owner else path


def _last_two(location: str) -> str:
    """Namespace and table, as they are found in the table's own path."""
    return "/".join(location.rstrip("/").split("/")[-2:])


def _says(properties: Mapping[str, str], key: str, default: bool) -> bool:
    """As Java reads it: whatever is not `true` is false."""
    return properties.get(key, str(default)).lower() == "true"
