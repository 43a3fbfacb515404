"""A table that a sink has claimed, and what its register says of the sink's stream."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from frazil.commit import Coordinator, EpochOutcome, Landed, World
from frazil.errors import TableAltered, TerminalError
from frazil.protocol.positions import Frontier
from frazil.protocol.register import Epoch
from frazil.protocol.start import OnRollback
from frazil.protocol.stream import Place, beginning, find_place
from frazil.sink.config import SinkConfig
from frazil.sink.staging import OpenEpoch, Staged
from frazil.table import LakeTable
from frazil.table.files import WriteTarget, WrittenFile

log = structlog.get_logger()


class Claim:
    """Made by a commit that fences older sinks of the writer; holds until a newer one makes its own."""

    def __init__(self, config: SinkConfig, table: LakeTable, world: World) -> None:
        self.table = table
        self._config = config
        # Who opens a sink means it: no interval, so that nobody is waited for.
        self._coordinator = Coordinator(config.writer_name, table, interval_s=0.0, world=world)
        self._take()

    @property
    def last(self) -> int:
        """The last epoch of the stream that is in the table; 0 before the first."""
        return self._place(self._coordinator.frontier).last

    @property
    def version(self) -> int | None:
        """The snapshot, or the version, that our last commit made."""
        return self._coordinator.registers[self.table.name].snapshot_id

    @property
    def ordinal(self) -> int:
        """The number of the next commit. Epochs are the caller's, may leave numbers out and start over."""
        return self._coordinator.epoch + 1

    def write_target(self) -> WriteTarget:
        """The table as it is now: it may have been altered since the last epoch."""
        return self.table.write_target(self._config.table)

    def land(self, epoch: OpenEpoch, staged: Staged) -> Landed | None:
        """Commits the epoch, or raises; None if the table shows that it has landed before."""
        if epoch.sent:
            self._coordinator.resync()
        place = self._place(self._coordinator.frontier)
        if epoch.number <= place.last:
            return None
        epoch.sent = True
        outcome = EpochOutcome(
            epoch=Epoch(self.ordinal),
            span=place.span(epoch.number),
            counts=staged.counts(),
            files={self.table.name: staged.files} if staged.files else {},
            topic_ids=place.topic_ids,
            started_ms=epoch.began_ms,
            replaces=staged.truncated,
        )
        try:
            return self._coordinator.commit(outcome, force=True)
        except TableAltered as altered:
            epoch.failed = altered
            raise

    def renew(self) -> None:
        """Claims the table once more, so that nothing sent before can land any more; not if we were replaced."""
        self._coordinator.resync()
        self._take()

    def delete(self, files: Sequence[WrittenFile]) -> None:
        """Removes files that can never land."""
        if not files:
            return
        try:
            self.table.delete_files([file.path for file in files])
        except Exception as error:  # left-over files cost space, never correctness
            log.warning("left-over files could not be deleted", table=self.table.name, error=str(error))

    def _take(self) -> None:
        """Makes sure that the stream is the right one before anybody is fenced."""
        told = self._config.writer
        register = self.table.observe(self._config.writer_name).register
        if register is not None:
            self._place(register.frontier)
        self._coordinator.start(
            lambda: beginning(self._config.stream),
            take_over=True,
            adopt=told.adopt,
            on_rollback=None if told.on_rollback is None else OnRollback(told.on_rollback),
        )
        self._place(self._coordinator.frontier)

    def _place(self, frontier: Frontier) -> Place:
        place = find_place(self._config.writer_name, frontier, self._config.stream, self._config.writer.replaces)
        if isinstance(place, TerminalError):
            raise place
        return place
