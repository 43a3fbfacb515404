"""Looking at a pipeline without running it: where its tables stand, and how far behind the source they are."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from frazil.engine.assemble import open_source
from frazil.engine.lakehouse import open_lakehouse
from frazil.errors import FrazilError
from frazil.pipeline import PipelineSpec
from frazil.protocol.commit import Standing, rolled_back
from frazil.protocol.plan import lag
from frazil.protocol.positions import Frontier, Partition
from frazil.protocol.summary import CommitRecord
from frazil.table import Lakehouse


@dataclass(frozen=True)
class TableStatus:
    """One table of a pipeline, as it is now."""

    table: str
    exists: bool
    epoch: int | None = None
    generation: int | None = None
    snapshot_id: int | None = None
    committed_ms: int | None = None
    frontier: Frontier | None = None
    trouble: FrazilError | None = None
    """why a start would stop at it, and the choices there are"""


@dataclass(frozen=True)
class PipelineStatus:
    """All tables, and the lag of the anchor per partition; `lag` is None when the source did not answer."""

    tables: list[TableStatus]
    lag: dict[Partition, int] | None
    source_error: str = ""


def inspect_pipeline(spec: PipelineSpec, spark: SparkSession) -> PipelineStatus:
    lakehouse = open_lakehouse(spec, spark)
    tables = [_table_status(lakehouse, spec.pipeline.name, name) for name in spec.table_names]
    frontier = tables[0].frontier
    try:
        source = open_source(spec)
        try:
            if frontier is not None:
                source.resume(frontier)
            seen = source.observe()
        finally:
            source.close()
    except FrazilError as error:
        return PipelineStatus(tables, None, error.message)
    return PipelineStatus(tables, lag(frontier or Frontier(), seen))


def pipeline_history(spec: PipelineSpec, spark: SparkSession) -> list[CommitRecord]:
    table = open_lakehouse(spec, spark).find(spec.table.name)
    return [] if table is None else table.history(spec.pipeline.name)


def _table_status(lakehouse: Lakehouse, writer: str, name: str) -> TableStatus:
    table = lakehouse.find(name)
    if table is None:
        return TableStatus(name, exists=False)
    seen = table.observe(writer)
    if seen.register is None:
        return TableStatus(name, exists=True)
    return TableStatus(
        table=name,
        exists=True,
        epoch=seen.register.epoch,
        generation=seen.register.generation,
        snapshot_id=seen.register.snapshot_id,
        committed_ms=seen.sign.timestamp_ms if seen.sign else None,
        frontier=seen.register.frontier,
        trouble=rolled_back(seen) if seen.standing is Standing.ROLLED_BACK else None,
    )
