"""At least once: epochs are appended, and the table remembers nothing of them.

No register, so no start, no fence and no look whether an epoch has landed. One that is handed over twice is there
twice. What is never sent twice are the same files: a table must not have a file twice, so after an error they are
looked for before they are sent again.
"""

from __future__ import annotations

import structlog

from frazil.commit import World
from frazil.errors import CommitOutcomeUnknown, ConfigError, TableAltered
from frazil.protocol.retry import COMMIT
from frazil.protocol.summary import PREFIX
from frazil.sink.config import SinkConfig
from frazil.sink.facts import Committed
from frazil.sink.hold import Hold
from frazil.sink.staging import OpenEpoch, Staged
from frazil.table import LakeTable

log = structlog.get_logger()

_FACTS = PREFIX + "at-least-once."
"""For people who look; nothing that decides or proves anything reads them."""


class Appends(Hold):
    """For `delivery.guarantee = "at-least-once"`; any number of sinks may append at once."""

    nothing = None
    last = None
    version: int | None = None

    def __init__(self, config: SinkConfig, table: LakeTable, world: World) -> None:
        super().__init__(config, table, world)
        self._require_no_register()
        self._before = 0

    def ordinal(self, epoch: int) -> int:
        return epoch

    def land(self, epoch: OpenEpoch, staged: Staged) -> Committed:
        """An epoch without rows leaves no trace: there is nobody to remember it for."""
        began_ms = self._world.now_ms()
        if staged.files:
            self.version = self._append(epoch, staged)
        took_ms = self._world.now_ms() - began_ms
        version = self.version if staged.files else None
        return Committed(epoch.number, version, staged.taken, len(staged.files), took_ms)

    def forsake(self, epoch: int) -> bool:
        """Nobody can tell whether it landed, or still will: its files stay."""
        return False

    def _append(self, epoch: OpenEpoch, staged: Staged) -> int:
        facts = {_FACTS + "writer": self._config.writer_name, _FACTS + "rows": str(staged.taken)}
        after = self._before if epoch.sent else None
        if not epoch.sent:
            self._before = self.table.newest()
            epoch.sent = True
        for failures in range(1, COMMIT.attempts + 1):
            try:
                return self.table.append(staged.files, facts, after)
            except TableAltered as altered:
                epoch.failed, epoch.sent = altered, after is not None
                raise
            except Exception as error:  # every class of error leaves the outcome open
                cause, after = error, self._before
            log.warning("commit failed", table=self.table.name, attempt=failures, error=str(cause))
            if failures < COMMIT.attempts:
                self._world.sleep(COMMIT.delay_s(failures, self._world.chance()))
        raise CommitOutcomeUnknown(
            f"{self.table.name}: epoch {epoch.number} was sent {COMMIT.attempts} times, and may have landed; "
            f"the last error was: {cause}",
            f"commit_epoch({epoch.number}) once more, which looks for its files first; or roll it back and write "
            "it again: its rows may then be there twice",
        ) from cause

    def _require_no_register(self) -> None:
        """By its register the table vouches for epochs of this writer; appends beside it would make that a lie."""
        name = self._config.writer_name
        if self.table.register_of(name) is not None:
            raise ConfigError(
                f"writer.name: {self.table.name} has a register of {name}: it vouches that every epoch is there "
                "once, and with at-least-once nobody could tell any more",
                'give this sink a writer.name of its own, or stay with delivery.guarantee = "exactly-once"',
            )
