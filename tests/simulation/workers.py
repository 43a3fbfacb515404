"""What Spark would do with a span: read it, decode it, write files, and report them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.commit import EpochOutcome
from frazil.engine.epoch import PlannedEpoch, Targets, WrittenEpoch
from frazil.errors import SpanUnavailable, WorkerFailed
from frazil.protocol.positions import Frontier, Partition, Slice
from frazil.protocol.summary import Counts
from frazil.table import WrittenFile
from tests.simulation.broker import BAD, GOOD, Row
from tests.simulation.table import DistantTable

if TYPE_CHECKING:
    from tests.simulation.world import World


class Workers:
    """Reads at the moment it is asked to, which may be long after the span was planned."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._files = 0

    def write_epoch(self, _parts: object, targets: Targets, planned: PlannedEpoch) -> WrittenEpoch:
        shares = planned.span.split(self._world.random.randint(1, 3), planned.base)
        counts = Counts()
        files: dict[str, list[WrittenFile]] = {}
        leader_epochs: dict[Partition, int] = {}
        for share in shares:
            for part in share:
                rows = self._read(part)
                counts += self._write(rows, planned.number, targets.dead_floor, files)
                if rows and rows[-1][0][2] == part.end - 1:
                    leader_epochs[part.topic, part.partition] = 1
            if self._world.happens(0.1, "a worker dies, and its files stay behind"):
                raise WorkerFailed("a task died")
        if files and self._world.happens(0.2, "a file is reported twice"):
            for reported in files.values():
                reported.append(reported[-1])
        self._world.tell("workers", f"have written epoch {planned.number}: {counts}")
        outcome = EpochOutcome(
            epoch=planned.number,
            span=planned.span,
            counts=counts,
            files=files,
            skipped=planned.skipped,
            leader_epochs=leader_epochs,
            topic_ids=planned.base.topic_ids,
            started_ms=self._world.now_ms,
        )
        return WrittenEpoch(outcome, 100.0, 0.0)

    def _read(self, part: Slice) -> list[tuple[Row, str]]:
        log = self._world.broker.logs[part.topic, part.partition]
        if part.start < log.start or part.end > log.end:
            raise SpanUnavailable(f"{part} is not within {log.start} and {log.end}")
        return list(log.visible(part.start, part.end))

    def _write(
        self, rows: list[tuple[Row, str]], epoch: int, floor: Frontier, files: dict[str, list[WrittenFile]]
    ) -> Counts:
        good = tuple(row for row, kind in rows if kind is GOOD)
        dead = tuple(row for row, kind in rows if kind is BAD)
        if good:
            files.setdefault(self._world.anchor.name, []).append(self._file(self._world.anchor, epoch, good))
        if self._world.dead is not None:
            fresh = tuple(row for row in dead if row[2] >= (floor.offset(_partition(row)) or 0))
            if fresh:
                files.setdefault(self._world.dead.name, []).append(self._file(self._world.dead, epoch, fresh))
        return Counts(len(rows), len(good), len(rows) - len(good) - len(dead), len(dead))

    def _file(self, table: DistantTable, epoch: int, rows: tuple[Row, ...]) -> WrittenFile:
        self._files += 1
        path = table.path_of(epoch, self._files)
        table.contents[path] = rows
        table.written_for[path] = now = table.layout
        return WrittenFile(
            table.name,
            path,
            now.spec_id,
            now.schema_id,
            len(rows),
            100,
            sort_order_id=now.sort_order_id,
            content="changes" if table.keyed else "data",
        )


def _partition(row: Row) -> Partition:
    return row[0].partition("#")[0], row[1]
