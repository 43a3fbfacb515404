"""Files of a folder or bucket: numbered by their names on the driver, read row by row on the workers."""

from frazil.source.files.plan import FilesFolder
from frazil.source.files.read import FilesReader

__all__ = ["FilesFolder", "FilesReader"]
