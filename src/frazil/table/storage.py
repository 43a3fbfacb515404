"""What lies in a table's folders.

Files are listed through the same library that workers write them with: what it wrote it can find again, and it
lists a hundred thousand in the time that calls into the JVM take for a few hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from frazil.errors import StorageUnavailable


def name_of(path: str) -> str:
    """The last part of a path; data files have names that nobody else has, however their folder is spelled."""
    return path.rpartition("/")[2]


def files_below(location: str, io_properties: Mapping[str, str]) -> Iterator[str]:
    """Every file below a folder, spelled as a writer that was given `location` spells it."""
    io = load_file_io(dict(io_properties), location)
    if not isinstance(io, PyArrowFileIO):
        raise StorageUnavailable(f"{type(io).__name__} cannot list {location}", "unset py-io-impl")
    scheme, host, path = PyArrowFileIO.parse_location(location, io.properties)
    folder = path.rstrip("/")
    selector = FileSelector(folder, allow_not_found=True, recursive=True)
    try:
        found = io.fs_by_scheme(scheme, host).get_file_info(selector)
    except OSError as error:
        raise StorageUnavailable(
            f"{location} could not be listed: {error}", "see whether you may list it"
        ) from error
    for file in found:
        if file.type is FileType.File:
            yield location.rstrip("/") + file.path[len(folder) :]
