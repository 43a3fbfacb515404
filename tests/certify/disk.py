"""A small file system of our own that can be filled up; an ordinary folder where nobody may mount one."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self


class Disk:
    """A folder, mounted as a tmpfs if the machine lets us."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._megabytes = megabytes
        self.is_small = False
        """whether it can be filled without harm to others"""

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        if os.geteuid() == 0:
            command = ["mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "tmpfs", str(self.folder)]
            self.is_small = subprocess.run(command, capture_output=True, check=False).returncode == 0
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After a failure everything stays as it is, to be looked at."""
        if self.is_small and kind is None:
            subprocess.run(["umount", "-l", str(self.folder)], check=False)

    def fill(self) -> None:
        """Takes the last byte, though others write at the same time."""
        with self._ballast.open("wb") as file:
            taken = 0
            while (room := self._free_bytes()) > 0:
                with suppress(OSError):
                    os.posix_fallocate(file.fileno(), taken, room)
                    taken += room

    def _free_bytes(self) -> int:
        stat = os.statvfs(self.folder)
        return stat.f_bavail * stat.f_frsize

    def make_room(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


def may_mount(folder: Path) -> bool:
    with Disk(folder / "trial", megabytes=1) as trial:
        return trial.is_small
