"""What the engine notes in the journal, and the one thing it does because of it: cleaning up after a crash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import structlog

from frazil.commit import Coordinator, EpochOutcome, Landed, Started
from frazil.commit.world import this_process
from frazil.engine.epoch import PlannedEpoch
from frazil.journal import Journal
from frazil.protocol import entries
from frazil.protocol.positions import EMPTY_SPAN
from frazil.protocol.recovery import RecoveryState, Search, orphans, plan_search
from frazil.table import Table
from frazil.table.files import writer_in_names

log = structlog.get_logger()

Item = TypeVar("Item")

_AT_ONCE = 1_000
"""So many paths stand in one entry."""


class Logbook:
    """The journal of one run."""

    def __init__(self, journal: Journal, coordinator: Coordinator, tables: Sequence[Table]) -> None:
        self._journal = journal
        self._coordinator = coordinator
        self._tables = tables

    @contextmanager
    def opened(self, started: Started) -> Iterator[None]:
        """Only after the start commit: from then on no epoch of an earlier life can land."""
        self._journal.open()
        try:
            self._journal.append(
                entries.Started(
                    generation=started.generation,
                    coordinator=self._coordinator.id,
                    epoch=started.epoch,
                    frontier=started.frontier,
                    process=this_process(),
                )
            )
            self._clean_up()
            yield
        finally:
            self._journal.close()

    def written(self, planned: PlannedEpoch, outcome: EpochOutcome) -> None:
        files = [
            entries.FileNoted(file.table, file.path, file.file_size_bytes, file.record_count, file.checksum)
            for some in outcome.files.values()
            for file in some
        ]
        for part in _in_runs(files):
            self._journal.append(entries.FilesWritten(planned.number, planned.token, part))

    def landed(self, planned: PlannedEpoch, landed: Landed, winners: Sequence[str] = ()) -> None:
        self._landed(landed, planned, winners)

    def settled(self, landed: Landed | None) -> None:
        """Empty epochs have been committed, if there were any."""
        if landed is not None:
            self._landed(landed, None)

    def carried(self, planned: PlannedEpoch) -> None:
        self._journal.append(entries.EpochCarried(planned.number, planned.token))

    def abandoned(self, planned: PlannedEpoch, reason: str) -> None:
        self._journal.append(entries.EpochAbandoned(planned.number, planned.token, reason[:500]))

    def _landed(self, landed: Landed, planned: PlannedEpoch | None, winners: Sequence[str] = ()) -> None:
        registers = self._coordinator.registers
        self._journal.append(
            entries.EpochLanded(
                epoch=landed.epoch,
                token=planned.token if planned else "",
                batch_id=landed.register.batch_id,
                frontier=landed.register.frontier,
                snapshots={
                    table: register.snapshot_id
                    for table, register in registers.items()
                    if register.epoch == landed.epoch and register.snapshot_id is not None
                },
                files=landed.files,
                span=planned.span if planned else EMPTY_SPAN,
                winners=tuple(winners),
            )
        )

    def _clean_up(self) -> None:
        """Deletes what epochs of earlier lives left behind; whatever fails is tried again by the next start."""
        tokens = tuple(self._journal.state.incomplete)
        if not tokens:
            return
        uuids = {table: register.table_uuid for table, register in self._coordinator.registers.items()}
        try:
            deleted = 0
            for leftovers in find_leftovers(self._journal.state, self._coordinator.pipeline, self._tables, uuids):
                leftovers.table.delete_files(leftovers.orphans)
                deleted += len(leftovers.orphans)
                for part in _in_runs(leftovers.orphans):
                    self._journal.append(entries.OrphansDeleted((), part))
            self._journal.append(entries.OrphansDeleted(tokens, ()))
        except Exception as error:  # left-over files cost space, never correctness
            log.warning("left-over files could not be deleted", epochs=len(tokens), error=str(error))
        else:
            log.info("cleaned up after an earlier run", epochs=len(tokens), files=deleted)


@dataclass(frozen=True)
class Leftovers:
    """What one folder holds of incomplete epochs."""

    search: Search
    table: Table
    orphans: Sequence[str]
    kept: Sequence[str]
    """theirs too, but a snapshot references them: the epoch had landed"""


def find_leftovers(
    state: RecoveryState, pipeline: str, tables: Sequence[Table], uuids: Mapping[str, str]
) -> Iterator[Leftovers]:
    """Looks for files of the journal's incomplete epochs; nothing is listed when there are none."""
    by_name = {table.name: table for table in tables}
    writer = writer_in_names(pipeline)
    for search in plan_search(state, uuids):
        table = by_name[search.table]

        def wanted(path: str, search: Search = search) -> bool:
            return search.finds(path, writer)

        found = table.find_files(search.location, wanted)
        referenced = table.referenced(found, search.sequence_number) if found else set()
        yield Leftovers(search, table, orphans(found, referenced), sorted(referenced))


def _in_runs(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    for start in range(0, len(items), _AT_ONCE):
        yield tuple(items[start : start + _AT_ONCE])
