"""What the next start would do about an earlier run that ended badly; nothing is written, nothing deleted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from frazil.engine.lakehouse import open_lakehouse
from frazil.engine.logbook import Leftovers, find_leftovers
from frazil.engine.read_back import journal_of
from frazil.errors import TerminalError
from frazil.pipeline import PipelineSpec
from frazil.protocol.commit import Standing, TableObserved
from frazil.protocol.positions import Frontier
from frazil.protocol.recovery import RecoveryState
from frazil.protocol.register import Register
from frazil.protocol.start import Circumstances, Decision, OnRollback, Stop, decide_start


@dataclass(frozen=True)
class Recovery:
    """Where the table lets a start go on, and what the journal lets it clean up."""

    register: Register | None
    """the anchor's: the authority; None if the pipeline never started"""
    journal: RecoveryState
    notes: Sequence[str]
    leftovers: Sequence[Leftovers]
    metadata: Sequence[str] = ()
    """metadata files that no snapshot references; whose they are their names do not tell, so nobody deletes them"""
    stop: TerminalError | None = None
    """why a start would stop"""
    choices: Mapping[OnRollback, Decision] = field(default_factory=dict)
    """what it would do under each, if a table was rolled back"""

    @property
    def frontier(self) -> Frontier:
        return self.register.frontier if self.register else Frontier()

    @property
    def orphans(self) -> list[str]:
        return sorted(path for each in self.leftovers for path in each.orphans)


def look_at_recovery(spec: PipelineSpec, spark: SparkSession) -> Recovery:
    found = journal_of(spec)
    lakehouse = open_lakehouse(spec, spark)
    tables = [table for table in map(lakehouse.find, spec.table_names) if table is not None]
    seen = {table.name: table.observe(spec.pipeline.name) for table in tables}
    uuids = {name: each.uuid for name, each in seen.items()}
    anchor = seen.get(spec.table.name)
    stop, choices = _foresee(anchor, [each for each in seen.values() if each is not anchor])
    return Recovery(
        register=anchor.register if anchor else None,
        journal=found.state,
        notes=found.notes,
        leftovers=list(find_leftovers(found.state, spec.pipeline.name, tables, uuids)),
        metadata=[path for table in tables for path in table.unreferenced_metadata()],
        stop=stop,
        choices=choices,
    )


def _foresee(
    anchor: TableObserved | None, sides: Sequence[TableObserved]
) -> tuple[TerminalError | None, dict[OnRollback, Decision]]:
    """Whether a start would stop, and what the choices after a rollback would come to."""
    if anchor is None:
        return None, {}

    def decide(choice: OnRollback | None) -> Decision:
        around = Circumstances(time.time_ns() // 1_000_000, take_over=True, on_rollback=choice)
        return decide_start(anchor, sides, around)

    decision = decide(None)
    rolled_back = any(each.standing is Standing.ROLLED_BACK for each in [anchor, *sides])
    stop = decision.error if isinstance(decision, Stop) else None
    return stop, {choice: decide(choice) for choice in OnRollback} if rolled_back else {}
