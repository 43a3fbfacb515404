"""From what the user declared to the parts that do it; the only place that picks adapters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

import structlog
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType
from pyspark.sql import SparkSession

from frazil.changes import UPDATED, ChangePlan
from frazil.decode import DEAD_LETTER_SCHEMA, DecodePlan, plan_decode
from frazil.engine.find_key import find_key
from frazil.engine.lakehouse import jar_sets, open_lakehouse, start_conf
from frazil.engine.lanes import Lane, NativeLane, SqlLane
from frazil.errors import ConfigError, TableChanged
from frazil.journal import NO_JOURNAL, Journal, JournalSettings
from frazil.pipeline import FilesSource, GeneratorSource, KafkaSource, PipelineSpec
from frazil.pipeline.fit import require_fit
from frazil.pipeline.keys import keyed
from frazil.pipeline.spec import TableSection
from frazil.source import Source, Wants
from frazil.source.files import FilesFolder
from frazil.source.generator import GeneratorPlanner
from frazil.source.kafka import KafkaTopics
from frazil.spark import open_session
from frazil.table import LakeTable
from frazil.table.delta import write_schema
from frazil.table.files import WriteTarget
from frazil.table.iceberg import new_table_properties, spark_to_iceberg, with_settings
from frazil.table.wish import TableWish
from frazil.write.deletes import guides

log = structlog.get_logger()

_WITH_BEFORE_IMAGES = {"debezium", "cockroachdb"}
"""Envelopes that may tell what a row was before its change."""


@dataclass(frozen=True)
class Assembly:
    """The parts of one pipeline."""

    spec: PipelineSpec
    spark: SparkSession
    source: Source
    decode: DecodePlan
    lane: Lane
    anchor: LakeTable
    dead_letters: LakeTable | None
    journal: Journal = NO_JOURNAL

    @property
    def wants(self) -> Wants:
        return Wants(self.decode.needs_keys, self.decode.needs_timestamps, self.decode.needs_headers)

    def anchor_target(self) -> WriteTarget:
        """The main table as the workers see it, as it is now."""
        target = anchor_target(self.spec, self.anchor)
        if target.changes is not None and target.changes.scope == "before" and not _tells_before(self.decode):
            raise TableChanged(
                f"{target.table} was partitioned otherwise while the pipeline ran",
                "start it again: it then reads what rows were before their changes",
            )
        return target

    @property
    def sides(self) -> list[LakeTable]:
        return [self.dead_letters] if self.dead_letters else []


def decode_plan(spec: PipelineSpec, *, ordered: bool = True) -> DecodePlan:
    """Checked without Spark: what the decoder makes of the declared schema.

    `ordered` says whether the keys are in the order of the source's own key.
    """
    told = spec.decode
    plan = plan_decode(
        told.format,
        told.schema_ or "",
        told.metadata,
        told.on_error,
        catch_all=told.catch_all,
        epoch_unit=told.epoch_unit,
        binary=told.binary,
        changes=_change_plan(spec, ordered=ordered),
    )
    if spec.transform is None:
        _require_possible(spec.table, plan.schema)
    return plan


def _change_plan(spec: PipelineSpec, *, ordered: bool) -> ChangePlan | None:
    if spec.table.mode != "upsert":
        return None
    told, envelope = spec.changes, spec.decode.envelope
    return ChangePlan(
        keys=() if spec.has_whole_rows else tuple(spec.table.keys),
        envelope=envelope,
        op_column=told.op_column,
        unknown_op=told.unknown_op,
        truncate=told.truncate,
        key_format=told.key_format,
        decimals=told.decimals or ("bytes" if envelope == "debezium" else "plain"),
        timed=spec.resolved is not None,
        ordered=ordered,
        whole=spec.has_whole_rows,
    )


def _require_possible(table: TableSection, schema: Schema) -> None:
    """Refuses what a new table could not be, before there is one."""
    require_fit(table, schema)
    if table.format == "delta":
        write_schema(table.name, schema, table.partition)
        return
    with_settings(WriteTarget(table.name, "", schema.model_dump_json(), "", table.properties), table)


def open_spark(spec: PipelineSpec, master: str | None = None) -> SparkSession:
    """The session of a pipeline, its catalog visible to Spark SQL."""
    conf = start_conf(spec) | spec.spark.conf
    name, chosen = f"frazil {spec.pipeline.name}", master or spec.spark.master
    return open_session(name, master=chosen, conf=conf, jar_sets=jar_sets(spec))


def open_source(spec: PipelineSpec, *, to_read_again: bool = False) -> Source:
    """The driver's side; `to_read_again` is for somebody who compares what has landed with what is there."""
    match spec.source:
        case KafkaSource() as kafka:
            return KafkaTopics(kafka, spec.pipeline.name)
        case FilesSource() as files:
            with_marks = spec.resolved is not None
            return FilesFolder(files, _booleans(spec), to_read_again=to_read_again, with_marks=with_marks)
        case GeneratorSource() as generator:
            return GeneratorPlanner(generator)
        case other:
            assert_never(other)


def _booleans(spec: PipelineSpec) -> frozenset[str]:
    """CSV has only texts, and JSON spells a truth value as none: the reader must know which columns are such."""
    fields = decode_plan(spec).schema.fields
    return frozenset(field.name for field in fields if isinstance(field.field_type, BooleanType))


def assemble(spec: PipelineSpec, spark: SparkSession) -> Assembly:
    """Opens everything, creates missing tables, and refuses what does not fit before anything is written."""
    decode = decode_plan(spec)
    lane, schema = plan_lane(spec, spark, decode)
    source = open_source(spec)
    try:
        source.observe()
        lakehouse = open_lakehouse(spec, spark)
        key = find_key(spec, decode.schema, lakehouse, source)
        if key is not None:
            log.info("key found", columns=list(key.columns), told_by=key.told_by)
            spec = key.complete(spec)
            decode = decode_plan(spec, ordered=False)
            lane, schema = plan_lane(spec, spark, decode)
        anchor = lakehouse.open(anchor_wish(spec.table, schema, evolves=spec.schema_.evolution))
        target = anchor_target(spec, anchor)
        if decode.changes is not None and target.changes is not None and target.changes.scope == "before":
            decode = replace(decode, changes=replace(decode.changes, before=_old_columns(target)))
            lane, _ = plan_lane(spec, spark, decode)
        dead_letters = None
        if spec.dead_letters is not None:
            dead_letters = lakehouse.open(TableWish(spec.dead_letters, DEAD_LETTER_SCHEMA))
    except BaseException:
        source.close()
        raise
    return Assembly(spec, spark, source, decode, lane, anchor, dead_letters, plan_journal(spec))


def anchor_target(spec: PipelineSpec, anchor: LakeTable) -> WriteTarget:
    """What workers must know of the main table, as the pipeline wants it written; refuses what cannot be."""
    tells_before = spec.decode.envelope in _WITH_BEFORE_IMAGES and spec.transform is None
    target = anchor.write_target(spec.table, tells_before=tells_before)
    if target.changes is None:
        return target
    told = spec.changes
    sequence_by = UPDATED if spec.resolved is not None else told.sequence_by
    changes = replace(target.changes, sequence_by=sequence_by, trust_inserts=told.trust_inserts)
    return replace(target, changes=changes)


def _old_columns(target: WriteTarget) -> tuple[str, ...]:
    """Whose old values say which partition a row was in; what is part of the key is known anyway."""
    assert target.changes is not None
    return tuple(each.name for each in guides(target, target.changes))


def _tells_before(decode: DecodePlan) -> bool:
    return decode.changes is not None and bool(decode.changes.before)


def plan_journal(spec: PipelineSpec) -> Journal:
    """The journal, not open yet; none for a pipeline that is not told where, having no file to lie beside."""
    told = spec.journal
    if not told.enabled or told.dir is None:
        return NO_JOURNAL
    return Journal(
        JournalSettings(Path(told.dir), told.checkpoint_entries, told.checkpoint_interval, told.max_files)
    )


def anchor_wish(table: TableSection, schema: Schema, *, evolves: bool = False) -> TableWish:
    keys = table.keys if table.mode == "upsert" else []
    columns = keyed(schema, keys) if keys else schema
    properties = new_table_properties(table) if table.format == "iceberg" else table.properties
    return TableWish(table.name, columns, table.partition, table.sort, table.location, properties, keys, evolves)


def plan_lane(spec: PipelineSpec, spark: SparkSession, decode: DecodePlan) -> tuple[Lane, Schema]:
    """The way through Spark, and the columns that come out of it."""
    if spec.transform is None:
        native = NativeLane(spark, decode)
        if spec.table.distribution == "hash" and not native.can_shuffle:
            raise ConfigError(
                'table.distribution = "hash": rows cannot go from task to task: Spark takes no columns of TIME or '
                "nanoseconds, and PySpark none with a dot or a backquote in its name",
                'use "none" or "auto", or change these columns',
            )
        return native, decode.schema
    lane = SqlLane(spark, spec.transform.sql, decode)
    schema = spark_to_iceberg(spark, lane.result_schema())
    _require_possible(spec.table, schema)
    return lane, schema
