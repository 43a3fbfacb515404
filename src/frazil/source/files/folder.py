"""A folder or bucket, through Arrow's file systems: which files it has, and what is in them.

Names are relative to the folder, with `/` between their parts, and sorted as texts; that is the order in which
object stores list. Hidden files (a part begins with `.` or `_`) are no data. Nor are a changefeed's `.RESOLVED`
marks, but they are read where its resolved times count, whatever the pattern: they speak for all files before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import pyarrow as pa
from pyarrow import fs

from frazil.errors import ConfigError, SourceUnavailable

_RESOLVED = ".RESOLVED"


@dataclass(frozen=True, slots=True)
class File:
    """A file as a listing shows it."""

    name: str
    size: int
    modified_ns: int

    @property
    def is_resolved_mark(self) -> bool:
        return is_resolved_mark(self.name)


@dataclass(frozen=True)
class Folder:
    """Where the files are; travels to the workers in a pickle, which open it anew."""

    path: str

    def files(self, pattern: str, *, with_marks: bool = False) -> list[File]:
        """Every data file whose name below the folder matches, in the order of their names; marks if asked for."""
        system, base = self._opened
        with _failing(self.path, "listed"):
            found = system.get_file_info(fs.FileSelector(base, recursive=True))
        files = [_file(info, base) for info in found if info.type == fs.FileType.File]
        return sorted((f for f in files if _is_wanted(f.name, pattern, with_marks)), key=lambda f: f.name)

    def look(self, name: str) -> File | None:
        """The file as it is now; None if there is none."""
        system, base = self._opened
        with _failing(f"{self.path}/{name}", "looked at"):
            info = system.get_file_info(f"{base}/{name}")
        return _file(info, base) if info.type == fs.FileType.File else None

    @contextmanager
    def stream(self, name: str, compression: str | None = None, start: int = 0) -> Iterator[pa.NativeFile]:
        """Its bytes from `start` on; those of a compressed file as they were before."""
        system, base = self._opened
        with _failing(f"{self.path}/{name}", "read"):
            if start:
                with system.open_input_file(f"{base}/{name}") as file:
                    file.seek(start)
                    yield file
            else:
                with system.open_input_stream(f"{base}/{name}", compression=compression) as file:
                    yield file

    @contextmanager
    def random_access(self, name: str) -> Iterator[pa.NativeFile]:
        system, base = self._opened
        with _failing(f"{self.path}/{name}", "read"), system.open_input_file(f"{base}/{name}") as file:
            yield file

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        if "://" not in self.path:
            return fs.LocalFileSystem(), self.path.rstrip("/")
        try:
            system, base = fs.FileSystem.from_uri(self.path)
        except (pa.ArrowException, OSError) as error:
            raise ConfigError(
                f"source.path: {self.path} cannot be opened: {error}",
                "a folder, or a URI that Arrow knows: file, s3, gs, abfss, hdfs",
            ) from error
        return system, base.rstrip("/")

    def __getstate__(self) -> dict[str, str]:
        return {"path": self.path}


@contextmanager
def _failing(what: str, done: str) -> Iterator[None]:
    """A missing file is the caller's to judge; anything else may pass."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise SourceUnavailable(
            f"{what} cannot be {done}: {error}",
            "if its producer is still writing it, set source.settle; else repair it, or leave it out by "
            "source.pattern",
        ) from error


def _file(info: fs.FileInfo, base: str) -> File:
    return File(info.path[len(base) :].lstrip("/"), info.size, info.mtime_ns or 0)


def is_resolved_mark(name: str) -> bool:
    return name.endswith(_RESOLVED)


def _is_wanted(name: str, pattern: str, with_marks: bool) -> bool:
    if any(part.startswith((".", "_")) for part in name.split("/")):
        return False
    return with_marks if is_resolved_mark(name) else fnmatchcase(name, pattern)
