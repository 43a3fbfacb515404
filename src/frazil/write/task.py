"""What every writer of a task has in common: it is open, then closed or aborted, and never both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import pyarrow as pa

from frazil.errors import InvalidState
from frazil.table.files import WrittenFile


class TaskWriter(ABC):
    """Takes batches, hands back a `WrittenFile` for each file it closes.

    After any error the writer has removed every file it made and takes no more batches.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._state = "open"

    def write(self, batch: pa.RecordBatch) -> list[WrittenFile]:
        """Add a batch; returns the files that were closed meanwhile."""
        return self._guarded(lambda: self._take(batch))

    def close(self) -> list[WrittenFile]:
        """Finish all files and return them; the writer takes no more batches."""
        closed = self._guarded(self._complete)
        self._state = "closed"
        return closed

    def abort(self) -> None:
        """Remove every file this writer made, also those it handed back; for a task that will not report."""
        self._discard()
        self._state = "aborted"

    @abstractmethod
    def _take(self, batch: pa.RecordBatch) -> list[WrittenFile]: ...

    @abstractmethod
    def _complete(self) -> list[WrittenFile]: ...

    @abstractmethod
    def _discard(self) -> None: ...

    def _guarded(self, work: Callable[[], list[WrittenFile]]) -> list[WrittenFile]:
        if self._state != "open":
            raise InvalidState(
                f"the writer of {self._table} is {self._state}",
                f"make a new {type(self).__name__} for the next task attempt",
                actual=self._state,
                expected="open",
            )
        try:
            return work()
        except BaseException:
            self.abort()
            raise
