"""Checking what a pipeline points at, without writing anything."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from frazil.decode import DEAD_LETTER_SCHEMA
from frazil.engine.assemble import anchor_target, anchor_wish, decode_plan, open_source, plan_lane
from frazil.engine.find_key import find_key
from frazil.engine.lakehouse import open_lakehouse
from frazil.pipeline import PipelineSpec
from frazil.protocol.plan import SourceObserved
from frazil.table.wish import TableWish


def check_connections(spec: PipelineSpec, spark: SparkSession) -> Iterator[str]:
    """Yields what was found to be right; raises at the first thing that is not."""
    source = open_source(spec)
    try:
        yield f"source: {_describe(source.observe())}"
        decode = decode_plan(spec)
        _, schema = plan_lane(spec, spark, decode)
        lakehouse = open_lakehouse(spec, spark)
        yield f"catalog: {lakehouse.address}"
        key = find_key(spec, decode.schema, lakehouse, source)
    finally:
        source.close()
    if key is not None:
        yield f"key: {key}"
        spec = key.complete(spec)
        _, schema = plan_lane(spec, spark, decode_plan(spec))
    wishes = [anchor_wish(spec.table, schema, evolves=spec.schema_.evolution)]
    if spec.dead_letters is not None:
        wishes.append(TableWish(spec.dead_letters, DEAD_LETTER_SCHEMA))
    for wish in wishes:
        fits = lakehouse.fits(wish)
        found = lakehouse.find(wish.name) if fits and wish.name == spec.table.name else None
        if found is not None and not wish.evolution(found.schema()):
            anchor_target(spec, found)
        yield f"table: {wish.name} " + ("is there and fits" if fits else "is missing; run creates it")


def _describe(seen: SourceObserved) -> str:
    topics = sorted({topic for topic, _ in seen.logs})
    records = sum(log.end - log.earliest for log in seen.logs.values())
    uncounted = " and more that are not counted yet" if seen.more else ""
    return f"{', '.join(topics)}, {len(seen.logs)} partitions, {records:,} offsets to read{uncounted}"
