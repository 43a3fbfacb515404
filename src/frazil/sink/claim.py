"""A table that a sink has claimed, and what its register says of the sink's stream."""

from __future__ import annotations

from frazil.commit import Coordinator, EpochOutcome, World
from frazil.errors import TableAltered, TerminalError
from frazil.protocol.positions import Frontier
from frazil.protocol.register import Epoch
from frazil.protocol.start import OnRollback
from frazil.protocol.stream import Place, beginning, find_place
from frazil.sink.config import SinkConfig
from frazil.sink.facts import Committed
from frazil.sink.hold import Hold
from frazil.sink.staging import OpenEpoch, Staged
from frazil.table import LakeTable


class Claim(Hold):
    """Made by a commit that fences older sinks of the writer; holds until a newer one makes its own."""

    nothing = 0

    def __init__(self, config: SinkConfig, table: LakeTable, world: World) -> None:
        super().__init__(config, table, world)
        # Who opens a sink means it: no interval, so that nobody is waited for.
        self._coordinator = Coordinator(config.writer_name, table, interval_s=0.0, world=world)
        self._take()

    @property
    def last(self) -> int:
        """0 before the first."""
        return self._place(self._coordinator.frontier).last

    @property
    def version(self) -> int | None:
        return self._coordinator.registers[self.table.name].snapshot_id

    def ordinal(self, epoch: int) -> int:
        """That of the next commit: the caller's epochs may leave numbers out and start over."""
        return self._coordinator.epoch + 1

    def land(self, epoch: OpenEpoch, staged: Staged) -> Committed | None:
        if epoch.sent:
            self._coordinator.resync()
        place = self._place(self._coordinator.frontier)
        if epoch.number <= place.last:
            return None
        epoch.sent = True
        outcome = EpochOutcome(
            epoch=Epoch(self.ordinal(epoch.number)),
            span=place.span(epoch.number),
            counts=staged.counts(),
            files={self.table.name: staged.files} if staged.files else {},
            topic_ids=place.topic_ids,
            started_ms=epoch.began_ms,
            replaces=staged.truncated,
        )
        try:
            landed = self._coordinator.commit(outcome, force=True)
        except TableAltered as altered:
            epoch.failed = altered
            raise
        if landed is None:
            return None
        return Committed(epoch.number, landed.register.snapshot_id, staged.taken, landed.files, landed.commit_ms)

    def forsake(self, epoch: int) -> bool:
        """Claims the table once more, so that nothing sent before can land any more; not if we were replaced."""
        self._coordinator.resync()
        self._take()
        return not self.has(epoch)

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
