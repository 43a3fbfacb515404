"""frazil's own parts, put together as the engine does, so that each step can be timed by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from frazil.commit import Coordinator, Started, World
from frazil.commit.world import this_process
from frazil.engine import Assembly
from frazil.engine.epoch import PlannedEpoch, Targets, WrittenEpoch, write_epoch
from frazil.pipeline import PipelineSpec, parse_pipeline
from frazil.protocol.plan import Ready, cut, reconcile
from frazil.protocol.positions import Frontier
from frazil.protocol.register import Epoch
from frazil.table.files import TableFormat

CATALOG = "bench"

# Left alone, Arrow compresses at level 1 and Parquet's Java writer at level 3.
ZSTD_LEVEL = 1
_LAYOUT = {
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": str(ZSTD_LEVEL),
}


def table_layout() -> dict[str, str]:
    """Properties that tell every writer of a table to compress alike."""
    return dict(_LAYOUT)


def folder_of(table: str, warehouse: Path) -> Path:
    """Where the files of a table lie."""
    return warehouse / Path(*table.split("."))


def relation(table: str, warehouse: Path, table_format: TableFormat) -> str:
    """The table, as Spark SQL names it."""
    return f"{CATALOG}.{table}" if table_format == "iceberg" else f"delta.`{folder_of(table, warehouse)}`"


def pipeline_spec(
    source: Mapping[str, Any],
    ddl: str,
    table: str,
    warehouse: Path,
    sql: str | None = None,
    partition: Sequence[str] = (),
    table_format: TableFormat = "iceberg",
) -> PipelineSpec:
    """A pipeline like any user's; the table properties tell other writers of the table to do as frazil does."""
    place: dict[str, Any] = {"properties": _LAYOUT}
    if table_format == "delta":
        place = {"path": str(folder_of(table, warehouse)), "compression": "zstd"}
    return parse_pipeline(
        {
            "pipeline": {"name": table},
            "source": source,
            "decode": {"format": "json", "schema": ddl},
            "table": {
                "name": table,
                "compression_level": ZSTD_LEVEL,
                "partition": list(partition),
                "format": table_format,
                **place,
            },
            "catalog": {"type": "sqlite", "name": CATALOG, "warehouse": str(warehouse)},
            **({"transform": {"sql": sql}} if sql else {}),
        }
    )


class RunningPipeline:
    """A pipeline that has claimed its tables and lands epochs when told to."""

    def __init__(self, parts: Assembly) -> None:
        self._parts = parts
        self._coordinator = Coordinator(
            parts.spec.pipeline.name,
            parts.anchor,
            parts.sides,
            interval_s=parts.spec.epoch.interval,
            world=World(process=this_process()),
        )
        started = self._coordinator.start(parts.source.starting_frontier)
        self._targets = Targets(parts, _dead_floor(parts, started))

    def plan(self, max_records: int) -> PlannedEpoch:
        seen = self._parts.source.observe()
        match reconcile(self._coordinator.frontier, seen, fail_on_data_loss=True):
            case Ready(base):
                span = cut(base, seen, max_records)
                number = Epoch(self._coordinator.epoch + 1)
                return PlannedEpoch(number, span, base, registers=self._coordinator.registers)
            case other:
                raise RuntimeError(f"the source does not fit the table: {other}")

    def write(self, planned: PlannedEpoch) -> WrittenEpoch:
        return write_epoch(self._parts, self._targets, planned)

    def commit(self, written: WrittenEpoch) -> None:
        self._coordinator.commit(written.outcome)

    def close(self) -> None:
        self._parts.source.close()


def _dead_floor(parts: Assembly, started: Started) -> Frontier:
    return started.floors[parts.dead_letters.name] if parts.dead_letters is not None else Frontier()
