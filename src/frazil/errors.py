"""The whole error tree.

Every error says what happened, and where one exists, what to do about it. The two families decide
what the engine does: a transient error is retried with backoff, a terminal one stops the pipeline.

    FrazilError
    ├── TransientError            worth another try
    │   ├── SourceUnavailable     kind Connection: no broker answered, a read stalled
    │   ├── CatalogUnavailable    kind Connection: the catalog gave no usable answer
    │   ├── StorageUnavailable    kind Io: a file could not be written or read
    │   ├── WorkerFailed          kind Io: a Spark task died of something else
    │   ├── SpanUnavailable       kind Io: planned offsets were gone when a worker came to read them
    │   ├── TableAltered          kind Transaction: schema, partitioning or order changed while files were written
    │   ├── RowsMoved             kind Transaction: rows to be deleted by their places are there no longer
    │   └── CommitOutcomeUnknown  kind Transaction: nobody knows yet whether the commit landed
    └── TerminalError             stops the pipeline
        ├── ConfigError           kind Config
        │   └── UnsupportedCatalog  kind UnsupportedCatalog
        ├── SetupError            kind Config: Java, jars or another prerequisite is missing
        ├── InvalidState          kind InvalidState: actual and expected
        ├── SchemaMismatch        kind SchemaMismatch: expected and actual
        ├── UndecodableRecord     kind Io: a record cannot be decoded, or not be allowed, and the file says "fail"
        ├── OldRowUnknown         kind Io: a change does not say which partition its old row is in
        ├── DataLoss              kind Io: the source no longer holds what the frontier needs
        ├── SourceChanged         kind Io: topic recreated or log truncated under the frontier
        ├── ChangesUnordered      kind Io: nobody can tell which change of a key is the last
        ├── Fenced                kind Transaction: another coordinator has taken over
        ├── TableChanged          kind Transaction: rolled back, replaced, recreated, not ours
        ├── TableDamaged          kind Io: the table's head points at files that do not exist
        ├── SparkGone             kind Io: Spark's JVM ended under the pipeline
        ├── CommitConflict        kind CommitConflict: retries ran out against other writers
        └── MaxRetriesExceeded    kind MaxRetriesExceeded: a transient fault that never went away

All of them survive pickling, because workers raise them on another machine than the one that reads them.
"""

from __future__ import annotations

from typing import ClassVar


class FrazilError(Exception):
    """What happened, and the remedy if there is one."""

    kind: ClassVar[str] = "Error"

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    @property
    def label(self) -> str:
        """The kind, and the class where it says more."""
        name = type(self).__name__
        return self.kind if name in (self.kind, f"{self.kind}Error") else f"{self.kind} ({name})"

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.remedy}" if self.remedy else self.message


class TransientError(FrazilError):
    """Worth another try, after a pause."""


class SourceUnavailable(TransientError):
    """No broker answered in time, or a read made no progress."""

    kind = "Connection"


class CatalogUnavailable(TransientError):
    """The catalog gave no usable answer; a missing table is not this."""

    kind = "Connection"


class StorageUnavailable(TransientError):
    """A data file could not be written or read."""

    kind = "Io"


class WorkerFailed(TransientError):
    """A Spark task ended with something that is not one of these errors: killed, out of memory, a defect."""

    kind = "Io"


class SpanUnavailable(TransientError):
    """The offsets of a span were gone when a worker came to read them; planning again decides."""

    kind = "Io"


class TableAltered(TransientError):
    """The table's schema, partition spec or sort order changed while files were written for it."""

    kind = "Transaction"


class RowsMoved(TransientError):
    """Somebody rewrote or deleted rows between the look for their places and the commit that deletes them there."""

    kind = "Transaction"


class CommitOutcomeUnknown(TransientError):
    """A commit was sent and nobody knows whether it landed; its files stay where they are."""

    kind = "Transaction"


class TerminalError(FrazilError):
    """Another try would end the same way; somebody has to decide something."""


class ConfigError(TerminalError):
    """The pipeline file asks for something that does not exist or cannot work."""

    kind = "Config"


class UnsupportedCatalog(ConfigError):
    """The catalog is not one that frazil knows, or not one that is known to commit atomically."""

    kind = "UnsupportedCatalog"


class SetupError(TerminalError):
    """Something frazil needs on this machine is missing or of the wrong version."""

    kind = "Config"


class InvalidState(TerminalError):
    """An operation was called out of order."""

    kind = "InvalidState"

    def __init__(self, message: str, remedy: str = "", actual: str = "", expected: str = "") -> None:
        FrazilError.__init__(self, message, remedy)
        self.args = (message, remedy, actual, expected)
        self.actual = actual
        self.expected = expected


class SchemaMismatch(TerminalError):
    """The declared schema and the table's do not fit together; nothing was written."""

    kind = "SchemaMismatch"

    def __init__(self, message: str, remedy: str = "", expected: str = "", actual: str = "") -> None:
        FrazilError.__init__(self, message, remedy)
        self.args = (message, remedy, expected, actual)
        self.expected = expected
        self.actual = actual


class UndecodableRecord(TerminalError):
    """A record could not be decoded, or does what the pipeline does not allow, and the pipeline says "fail"."""

    kind = "Io"


class OldRowUnknown(TerminalError):
    """A change does not say what its row was before, so nobody knows which partition to delete it from."""

    kind = "Io"


class DataLoss(TerminalError):
    """The source no longer holds records that the frontier still needs."""

    kind = "Io"


class SourceChanged(TerminalError):
    """The topic was recreated or its log was truncated below the frontier."""

    kind = "Io"


class ChangesUnordered(TerminalError):
    """Changes of one key came in an order that nobody can tell."""

    kind = "Io"


class Fenced(TerminalError):
    """Another coordinator has taken this pipeline over; this one must stop."""

    kind = "Transaction"


class TableChanged(TerminalError):
    """The table was rolled back, replaced or recreated, or holds data that is not ours."""

    kind = "Transaction"


class TableDamaged(TerminalError):
    """The head of the table points at files that do not exist."""

    kind = "Io"


class SparkGone(TerminalError):
    """The JVM that frazil started for Spark has ended, and nothing can be asked or committed without it."""

    kind = "Io"


class CommitConflict(TerminalError):
    """Other writers won every attempt."""

    kind = "CommitConflict"


class MaxRetriesExceeded(TerminalError):
    """A transient fault outlasted every retry."""

    kind = "MaxRetriesExceeded"
