"""What a sink has of its table: who it is there, and how an epoch lands. Which kind is the guarantee's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import structlog

from frazil.commit import World
from frazil.sink.config import SinkConfig
from frazil.sink.facts import Committed
from frazil.sink.staging import OpenEpoch, Staged
from frazil.table import LakeTable
from frazil.table.files import WriteTarget, WrittenFile

log = structlog.get_logger()


class Hold(ABC):
    """A table, by the sink that writes to it."""

    nothing: int | None
    """the last epoch where there is no table yet"""

    def __init__(self, config: SinkConfig, table: LakeTable, world: World) -> None:
        self.table = table
        self._config = config
        self._world = world

    @property
    @abstractmethod
    def last(self) -> int | None:
        """The last epoch of the stream that is in the table; None if the table does not tell."""

    @property
    @abstractmethod
    def version(self) -> int | None:
        """The snapshot, or the version, that our last commit made."""

    @abstractmethod
    def ordinal(self, epoch: int) -> int:
        """The number that the files of the next epoch are named by."""

    @abstractmethod
    def land(self, epoch: OpenEpoch, staged: Staged) -> Committed | None:
        """Commits the epoch, or raises; None if the table shows that it has landed before."""

    @abstractmethod
    def forsake(self, epoch: int) -> bool:
        """Gives an epoch up that was sent; whether it is certain now that its files are in no table."""

    def has(self, epoch: int) -> bool:
        """Whether the table tells that the epoch has landed."""
        return self.last is not None and epoch <= self.last

    def write_target(self) -> WriteTarget:
        """The table as it is now: it may have been altered since the last epoch."""
        return self.table.write_target(self._config.table)

    def delete(self, files: Sequence[WrittenFile]) -> None:
        """Removes files that can never land."""
        if not files:
            return
        try:
            self.table.delete_files([file.path for file in files])
        except Exception as error:  # left-over files cost space, never correctness
            log.warning("left-over files could not be deleted", table=self.table.name, error=str(error))
