"""The table of a sink: found or created as a pipeline does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from frazil.changes import OP, ORDER
from frazil.engine.assemble import anchor_wish
from frazil.engine.lakehouse import open_lakehouse
from frazil.errors import SchemaMismatch
from frazil.pipeline.fit import require_fit
from frazil.pipeline.schema import parse_schema
from frazil.sink.config import SinkConfig
from frazil.sink.staging import OpenEpoch
from frazil.spark import require_delta, require_iceberg
from frazil.table import LakeTable
from frazil.table.evolve import Evolution, plan_evolution

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NANOSECONDS_SINCE: Literal[3] = 3


def open_table(config: SinkConfig, spark: SparkSession | None, arriving: Schema | None) -> LakeTable | None:
    """The table, created if it is missing and its columns are known; None if they are not.

    One that may evolve is given what is declared, or else what arrives.
    """
    if config.table.format == "iceberg":
        assert spark is not None
        require_iceberg(spark)
    elif config.table.mode == "upsert":
        assert spark is not None
        require_delta(spark)
    lakehouse = open_lakehouse(config, spark)
    declared = config.columns.schema_
    found = lakehouse.find(config.table.name)
    if declared is not None:
        columns = parse_schema(declared)
    elif found is not None:
        columns = found.schema()
        if arriving is not None and (lacking := _lacking(config, columns, arriving)):
            columns = lacking.of(columns)
    elif arriving is not None:
        columns = arriving
    else:
        return None
    require_fit(config.table, columns)
    return lakehouse.open(anchor_wish(config.table, columns, evolves=config.schema_.evolution))


def must_evolve(config: SinkConfig, epoch: OpenEpoch, arriving: Callable[[], pa.Schema]) -> bool:
    """Whether the table lacks something of these rows, and may be given it.

    Files of one commit have one layout, so it is for the first batch of an epoch to bring something new.
    """
    if epoch.target is None or not config.schema_.evolution:
        return False
    actual = Schema.model_validate_json(epoch.target.schema_json)
    new = _lacking(config, actual, schema_of(arriving(), config))
    if new and epoch.has_rows:
        raise SchemaMismatch(
            f"{epoch.target.table}: epoch {epoch.number} has rows without {', '.join(new.names)}",
            "roll it back, and hand over rows with all columns first; or bring them in the next epoch",
            expected=", ".join(actual.column_names),
            actual=", ".join(arriving().names),
        )
    return bool(new)


def _lacking(config: SinkConfig, actual: Schema, arriving: Schema) -> Evolution:
    """What arrives counts only where nothing is declared."""
    if not config.schema_.evolution or config.columns.schema_ is not None:
        return Evolution()
    return plan_evolution(arriving, actual)


def schema_of(arriving: pa.Schema, config: SinkConfig) -> Schema:
    """The columns of a table that takes such batches. One batch declares nothing: all of them may be null."""
    kept = [each for each in arriving if config.table.mode != "upsert" or each.name not in (OP, ORDER)]
    nullable = pa.schema([each.with_nullable(True) for each in kept])
    try:
        return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(nullable, format_version=_NANOSECONDS_SINCE))
    except (UnsupportedPyArrowTypeException, TypeError, ValueError) as error:
        raise SchemaMismatch(
            f"{config.table.name}: no table can have these columns: {error}",
            "cast them, or declare the table's own as columns.schema",
            actual=str(arriving),
        ) from error
