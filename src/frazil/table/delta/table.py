"""One Delta table: observe it, commit to it.

A commit is one version, sent by delta-rs as a bare compare-and-set on the version it was judged against: it is told
not to try again by itself. So the judgement holds for whatever lands, also where delta-rs would let it pass: an
epoch that goes back, a RESTORE in between. Trying again is the coordinator's business.

An error may come after the version landed, from a checkpoint that failed for example; nothing is cleaned up for it.

Changes land by MERGE, which `merge.py` tells.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import structlog
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from pyiceberg.schema import Schema

from frazil.changes import ChangeTarget
from frazil.errors import CatalogUnavailable, InvalidState, StorageUnavailable
from frazil.pipeline.sort import parse_sort
from frazil.pipeline.spec import TableSection
from frazil.protocol.commit import (
    Held,
    Proposal,
    Standing,
    TableObserved,
)
from frazil.protocol.layout import Layout
from frazil.protocol.register import Register
from frazil.protocol.summary import PREFIX, CommitRecord, read_held, read_sign
from frazil.table.delta.actions import add_action
from frazil.table.delta.evolve import evolve_actions, new_columns
from frazil.table.delta.features import is_by_delta_rs, is_mapped, require_writable, rules
from frazil.table.delta.log import PLAN, PLANNED_IN, REGISTER, Log
from frazil.table.delta.merge import Merge, Merger
from frazil.table.delta.overwrite import removals
from frazil.table.delta.place import Place, in_one_line
from frazil.table.delta.register import app_id, from_numbers, state_number, to_numbers, written_ahead
from frazil.table.delta.schema import Columns, read_columns
from frazil.table.delta.settings import write_settings
from frazil.table.delta.version_file import Removal, commit_info, put_version, tend, write_actions
from frazil.table.files import STAGED_FOLDER, WriteTarget, WrittenFile, writer_in_names
from frazil.table.refusal import require_proceed, require_written_for
from frazil.table.storage import files_below, name_of
from frazil.table.wish import TableWish

log = structlog.get_logger()


class DeltaLakeTable:
    """Implements `LakeTable` with delta-rs; only changes need a session of Spark."""

    def __init__(self, name: str, place: Place, merger: Merger | None = None) -> None:
        self._name = name
        self._uri = place.uri
        self._load_table = place.load
        self._merger = merger
        self.place = place
        self.layout_seen: Layout | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def uri(self) -> str:
        return self._uri

    def observe(self, writer: str, proposal: Proposal | None = None) -> TableObserved:
        """Of layouts that it had before Delta knows nothing: what was written for them is written again."""
        with self._answering():
            return self._observed(self._load_table(), writer)

    def commit(self, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        table = self._load_table()
        require_proceed(self._observed(table, proposal.writer), proposal)
        if any(file.is_staged for file in files) or (proposal.replaces and not files):
            return self._merge(table, proposal, files)
        version = table.version() + 1
        register = proposal.register.at(version, version)
        columns, now_ms = self._columns(table), time.time_ns() // 1_000_000
        adds = [add_action(file, columns, self._uri, now_ms) for file in files]
        overwritten = [columns.partition_of(file.partition) for file in files if file.overwrites]
        gone = removals(table, self._log(table), None if proposal.replaces else overwritten)
        facts = {**proposal.summary, REGISTER: register.encode()}
        self._send(table, adds, gone, facts, to_numbers(proposal.writer, register, table.transaction_version))
        if proposal.summary.get(PREFIX + "action") == "start":
            self._sweep(proposal.writer, register.epoch)
        return register

    def append(self, files: Sequence[WrittenFile], facts: Mapping[str, str], after: int | None = None) -> int:
        table = self._load_table()
        if after is not None and self._referenced(table, [file.path for file in files], after):
            return table.version()
        require_written_for(self._name, _layout(table), files)
        columns, now_ms, version = self._columns(table), time.time_ns() // 1_000_000, table.version() + 1
        self._send(table, [add_action(file, columns, self._uri, now_ms) for file in files], [], facts, {})
        return version

    def _merge(self, table: DeltaTable, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        """Writes the register ahead, lets Delta merge, and looks whether it did; `merge.py` says why."""
        if self._merger is None or proposal.predecessor is None:
            raise InvalidState(f"{self._name}: changes land by MERGE, which needs Spark, and behind a start")
        columns, planned = self._columns(table).schema, table.version() + 1
        register = proposal.register.at(planned + 1, planned + 1)
        numbers = written_ahead(proposal.writer, proposal.predecessor, register, table.transaction_version)
        self._send(table, [], [], {PLAN: register.batch_id}, numbers)
        self._merger.merge(
            Merge(
                place=self.place,
                schema_json=table.schema().to_json(),
                columns=[field.name for field in columns.fields],
                keys=[columns.find_field(key).name for key in files[0].equality_ids] if files else [],
                paths=[file.path for file in files],
                replaces=proposal.replaces,
                application=app_id(proposal.writer),
                number=state_number(register),
                facts={**proposal.summary, REGISTER: register.encode(), PLANNED_IN: str(planned)},
            )
        )
        landed = self._require_merged(proposal, planned)
        self._forget([file.path for file in files])
        return landed

    def _require_merged(self, proposal: Proposal, planned: int) -> Register:
        """Delta passes over a MERGE in silence if the writer's number is not newer than the table's."""
        for version in self._log(self._load_table()).versions():
            if version.number <= planned:
                break
            if version.is_by(proposal.writer) and version.register == proposal.register:
                did = asdict(version.merged) if version.merged else {}
                log.info("changes merged", table=self._name, epoch=proposal.register.epoch, **did)
                return version.register
        raise CatalogUnavailable(f"{self._name}: a MERGE of epoch {proposal.register.epoch} ended and did not land")

    def _sweep(self, writer: str, epoch: int) -> None:
        """Changes of epochs that are in the table are left behind when a process dies right after their MERGE."""
        theirs = re.compile(rf"{re.escape(writer_in_names(writer))}-e(\d+)-t\d+-.*")

        def is_over(path: str) -> bool:
            found = theirs.fullmatch(name_of(path))
            return found is not None and int(found[1]) <= epoch

        try:
            self._forget(self.find_files(f"{self._uri}/{STAGED_FOLDER}", is_over))
        except StorageUnavailable as error:  # left-over files cost space, never correctness
            log.warning("staged changes could not be looked for", table=self._name, error=error.message)

    def _forget(self, staged: Sequence[str]) -> None:
        try:
            self.delete_files(staged)
        except OSError as error:  # the next start tries again
            log.warning("staged changes could not be deleted", table=self._name, error=str(error))

    def _send(
        self,
        table: DeltaTable,
        adds: Sequence[AddAction],
        gone: Sequence[Removal],
        facts: Mapping[str, str],
        numbers: Mapping[str, int],
    ) -> None:
        """By delta-rs, unless the table or what is removed from it has something that delta-rs cannot write."""
        if not is_by_delta_rs(table.protocol()) or not all(each.is_for_delta_rs for each in gone):
            self._put(table, write_actions(table, adds, gone, facts, numbers))
            return
        now_ms = time.time_ns() // 1_000_000
        table.create_write_transaction(
            [*adds, *(each.for_delta_rs(now_ms) for each in gone)],
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=CommitProperties(
                custom_metadata=dict(facts),
                max_commit_retries=0,
                app_transactions=[Transaction(app, number, now_ms) for app, number in numbers.items()],
            ),
        )

    def _put(self, table: DeltaTable, actions: Sequence[Mapping[str, Any]]) -> None:
        """One version right behind the one that was loaded."""
        put_version(self.place, table.version() + 1, actions)
        tend(table)

    def evolve(self, wish: TableWish) -> None:
        """One version of metadata alone, if the table lacks anything; plain columns are delta-rs' own business."""
        table = self._load_table()
        evolution = wish.evolution(self._columns(table).schema)
        if not evolution:
            return
        by_delta_rs = is_by_delta_rs(table.protocol()) and not is_mapped(table.metadata().configuration)
        if not (evolution.is_plain and by_delta_rs):
            said = commit_info("CHANGE COLUMNS", {"columns": json.dumps(evolution.names)}, {})
            self._put(table, [said, *evolve_actions(self._name, table, evolution)])
        else:
            table.alter.add_columns(new_columns(self._name, evolution))
        log.info("schema evolved", table=self._name, columns=evolution.names)

    def register_of(self, writer: str) -> Register | None:
        with self._answering():
            table = self._load_table()
            return read_register(table, self._log(table), writer)

    def newest(self) -> int:
        return self.loaded().version()

    def check_head(self) -> None:
        """A table that loads has a log that can be read from its last checkpoint on."""
        with self._answering():
            self._load_table()

    def delete_files(self, paths: Sequence[str]) -> None:
        io = self.place.io()
        for path in paths:
            io.delete(path)

    def find_files(self, location: str, wanted: Callable[[str], bool]) -> list[str]:
        return [path for path in files_below(location, self.place.io_properties) if wanted(path)]

    def referenced(self, paths: Sequence[str], after: int) -> set[str]:
        with self._answering():
            return self._referenced(self._load_table(), paths, after)

    def _referenced(self, table: DeltaTable, paths: Sequence[str], after: int) -> set[str]:
        names = set(map(name_of, table.file_uris()))
        for version in self._log(table).versions():
            if version.number <= after:
                break
            names |= {name_of(action["path"]) for action in version.adds}
        return {path for path in paths if name_of(path) in names}

    def unreferenced_metadata(self) -> list[str]:
        """Commits that fail leave nothing in the log's folder that has a name of its own."""
        return []

    def history(self, writer: str) -> list[CommitRecord]:
        with self._answering():
            versions = [each for each in self._log(self._load_table()).line() if each.is_by(writer)]
        return [CommitRecord.parse(each.number, each.timestamp_ms, each.facts) for each in reversed(versions)]

    def schema(self) -> Schema:
        return self.columns().schema

    def former_schema(self, schema_id: int) -> Schema | None:
        """Delta numbers no schemas: only the present one can be told."""
        with self._answering():
            table = self._load_table()
        return self._columns(table).schema if _layout(table).schema_id == schema_id else None

    def columns(self) -> Columns:
        with self._answering():
            table = self._load_table()
        return self._columns(table)

    def write_target(self, wish: TableSection, *, tells_before: bool = False) -> WriteTarget:
        with self._answering():
            table = self._load_table()
        self.require_writable(table, only_appends=wish.mode == "append")
        columns = self._columns(table)
        target = WriteTarget(
            table=self._name,
            location=self._uri,
            table_location=self._uri,
            schema_json=columns.schema.model_dump_json(),
            spec_json=columns.stored_spec.model_dump_json(),
            io_properties=self.place.io_properties,
            schema_id=_layout(table).schema_id,
            table_format="delta",
            in_folders=columns.in_folders,
            overwrites=wish.mode == "overwrite",
            sort_order_json=_order(wish, columns.schema),
            changes=ChangeTarget(tuple(wish.keys), "merge") if wish.mode == "upsert" else None,
            stored=columns.stored,
        )
        return write_settings(target, wish, columns, table.metadata().configuration)

    def require_writable(self, table: DeltaTable, *, only_appends: bool) -> None:
        protocol = table.protocol()
        require_writable(
            self._name,
            protocol.min_writer_version,
            protocol.writer_features,
            table.metadata().configuration,
            json.loads(table.schema().to_json())["fields"],
            only_appends=only_appends,
        )

    def loaded(self, version: int | None = None) -> DeltaTable:
        """Loaded afresh, or as it was; for those who only look."""
        with self._answering():
            table = self._load_table()
            if version is not None:
                table.load_as_version(version)
            return table

    def _columns(self, table: DeltaTable) -> Columns:
        metadata = table.metadata()
        return read_columns(
            self._name,
            table.schema().to_json(),
            metadata.partition_columns,
            is_mapped=is_mapped(metadata.configuration),
        )

    def _observed(self, table: DeltaTable, writer: str) -> TableObserved:
        log, self.layout_seen = self._log(table), _layout(table)
        register = read_register(table, log, writer)
        standing = Standing.ANCESTOR if register is None else log.standing(register)
        is_known = register is not None and standing is not Standing.ROLLED_BACK
        landing = None if register is None or register.snapshot_id is None else log.find(register.snapshot_id)
        return TableObserved(
            table=self._name,
            uuid=str(table.metadata().id),
            snapshot_id=table.version(),
            register=register,
            standing=standing,
            sign=None if landing is None else read_sign(landing.timestamp_ms, landing.facts.get),
            has_rows=True if is_known else bool(table.file_uris()),
            layout=self.layout_seen,
            other_writers=() if register is not None else _writers(log),
            held=_held(log, writer, register) if register and standing is Standing.ROLLED_BACK else None,
            misplaced=register is not None and log.is_misplaced(register),
        )

    def _log(self, table: DeltaTable) -> Log:
        return Log(self.place, table.version())

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as error:
            raise CatalogUnavailable(
                f"{self._name} could not be read at {self.place.described}: {in_one_line(error)}",
                "check that the folder and its _delta_log are there, and that you may read them",
            ) from error


def read_register(table: DeltaTable, log: Log, writer: str) -> Register | None:
    """What the table says of a writer.

    The newest commit of the writer tells it in one piece. Where the log was cleaned up since, the table's state
    still has it, number by number; either counts only as far as the state says so.
    """
    state = table.transaction_version(app_id(writer))
    if state is None:
        return None
    newest = next((version for version in log.versions() if version.is_by(writer)), None)
    register = None if newest is None else newest.register
    if register is not None and state_number(register) == state:
        return register
    return from_numbers(writer, table.transaction_version)


def _order(wish: TableSection, schema: Schema) -> str:
    """How rows lie inside of files; to Delta it is no part of the table, and therefore has no number of its own."""
    return parse_sort(wish.sort, schema).model_copy(update={"order_id": 0}).model_dump_json(by_alias=True)


def _layout(table: DeltaTable) -> Layout:
    """Delta numbers neither schemas nor partitionings: their text stands for them.

    So does what writers have to heed: files of before a change of it are written again, or refused.
    """
    metadata, protocol = table.metadata(), table.protocol()
    heeded = [metadata.partition_columns, rules(metadata.configuration), sorted(protocol.writer_features or [])]
    # delta-rs tells a field's metadata in no order.
    text = json.dumps([json.loads(table.schema().to_json()), *heeded, protocol.min_writer_version], sort_keys=True)
    return Layout(schema_id=zlib.crc32(text.encode()))


def _writers(log: Log) -> tuple[str, ...]:
    names = {version.facts.get("frazil.writer") for version in log.versions()}
    return tuple(sorted(name for name in names if name))


def _held(log: Log, writer: str, register: Register) -> Held:
    return read_held(writer, log.kin(), log.kin_from(register.snapshot_id))
