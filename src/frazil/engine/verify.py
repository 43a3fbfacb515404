"""Verifying a pipeline's tables: look at them, and let the protocol judge what was seen.

Nothing is written, and a running pipeline is not disturbed: every table is judged by one load of it. Files that
others remove while they are being looked for, as compaction and expiry do together, are not missing; the table
is then looked at once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from pyspark.sql import SparkSession

from frazil.engine.lakehouse import lakehouse_conf, open_lakehouse
from frazil.engine.offsets import compare_offsets
from frazil.errors import StorageUnavailable, TableChanged
from frazil.pipeline import PipelineSpec
from frazil.pipeline.terms import quoted
from frazil.protocol.verify import (
    Check,
    FilesSeen,
    Finding,
    TableSeen,
    Verdict,
    check_bag,
    check_dead_letters,
    check_files,
    check_history,
    check_keys,
    check_others,
    check_register,
    check_rows,
)
from frazil.protocol.verify.finding import broken
from frazil.protocol.verify.offsets import is_readable, not_compared
from frazil.spark import own_session
from frazil.table import Lakehouse
from frazil.table.contents import Contents, ReferencedFile

Tell = Callable[[str, int, int], None]
"""What is being done, how much of it is done, of how much."""

_LOOKS = 3
_THREADS = 16
"""Looking for a file is waiting for the storage."""
_AT_ONCE = 1_000
_NAMED = 20
"""So many wrong files are named; the others are counted."""


def verify_pipeline(
    spec: PipelineSpec, spark: SparkSession, *, deep: bool = False, tell: Tell = lambda *_: None
) -> Verdict:
    """Checks the anchor and its dead letters, and with `deep` every record of the topic.

    The anchor is loaded first: its dead letters are committed before it, so that those of every epoch it shows
    are there.
    """
    spark = _own_session(spec, spark)
    lakehouse = open_lakehouse(spec, spark)
    anchor = _look(spec, lakehouse, spec.table.name, tell)
    side = _look_aside(spec, lakehouse, anchor, tell)
    checks = [*anchor.checks, *(side.checks if side else [])]
    checks.append(check_dead_letters(anchor.seen, side.seen if side else None))
    if deep and not is_readable(checks):
        checks.append(not_compared(anchor.seen))
    elif deep:
        dead = (side.contents, side.seen) if side else None
        checks.append(compare_offsets(spec, spark, anchor.contents, anchor.seen, dead, tell))
        keys = spec.table.keys or anchor.contents.identifier_fields
        if spec.has_whole_rows:
            checks.append(check_bag(anchor.seen, _count(spark, anchor)))
        elif spec.table.mode == "upsert" and keys:
            checks.append(_keys(keys, spark, anchor))
    return Verdict(spec.pipeline.name, checks, deep)


def _keys(keys: Sequence[str], spark: SparkSession, anchor: _Look) -> Check:
    """Reads the key of every live row and looks for doubles."""
    columns = ", ".join(map(quoted, keys))
    doubled = spark.sql(f"SELECT {columns} FROM {anchor.contents.relation} GROUP BY {columns} HAVING count(*) > 1")
    sample = [", ".join(map(str, row)) for row in doubled.limit(_NAMED).collect()]
    count = doubled.count() if len(sample) == _NAMED else len(sample)
    return check_keys(anchor.seen, keys, count, sample)


def _count(spark: SparkSession, anchor: _Look) -> int:
    """How many rows a reader finds."""
    return spark.sql(f"SELECT * FROM {anchor.contents.relation}").count()


def _own_session(spec: PipelineSpec, spark: SparkSession) -> SparkSession:
    """A session that knows the catalog, and whose settings are nobody else's."""
    session = own_session(spark)
    shuffle = {"spark.sql.shuffle.partitions": str(2 * spark.sparkContext.defaultParallelism)}
    wished = {key: value for key, value in spec.spark.conf.items() if session.conf.isModifiable(key)}
    for key, value in (shuffle | wished | lakehouse_conf(spec)).items():
        session.conf.set(key, value)
    return session


@dataclass(frozen=True)
class _Look:
    contents: Contents
    seen: TableSeen
    checks: Sequence[Check]


def _look_aside(spec: PipelineSpec, lakehouse: Lakehouse, anchor: _Look, tell: Tell) -> _Look | None:
    """The dead letters; a pipeline that has only now been told to keep them has no table for them yet."""
    if spec.dead_letters is None:
        return None
    counted = any(commit.record.counts.dead for commit in anchor.seen.epochs)
    if not counted and lakehouse.find(spec.dead_letters) is None:
        return None
    return _look(spec, lakehouse, spec.dead_letters, tell)


def _look(spec: PipelineSpec, lakehouse: Lakehouse, name: str, tell: Tell) -> _Look:
    def has_moved(contents: Contents) -> bool:
        return _load(lakehouse, name).snapshot_id != contents.snapshot_id

    for is_last in [False] * (_LOOKS - 1) + [True]:
        contents = _load(lakehouse, name)
        seen = _require_known(contents.seen(spec.pipeline.name), spec, name)
        try:
            files = _look_at_files(contents, name, tell)
        except StorageUnavailable:
            if is_last or not has_moved(contents):
                raise
            continue
        if not files.wrong_count or not has_moved(contents):
            break
    checks = [
        check_history(seen),
        check_register(seen),
        check_rows(seen, files),
        check_files(seen, files),
        check_others(seen),
    ]
    return _Look(contents, seen, checks)


def _load(lakehouse: Lakehouse, name: str) -> Contents:
    contents = lakehouse.contents(name)
    if contents is None:
        raise TableChanged(
            f"{name} does not exist ({lakehouse.address})",
            "frazil run creates it; if it was there before, somebody dropped it",
        )
    return contents


def _require_known(seen: TableSeen | None, spec: PipelineSpec, name: str) -> TableSeen:
    if seen is None:
        raise TableChanged(
            f"{name} has no register of pipeline {spec.pipeline.name}: it never wrote to it, or the property was "
            "removed",
            "check pipeline.name and table.name; frazil run takes a table over",
        )
    return seen


def _look_at_files(contents: Contents, name: str, tell: Tell) -> FilesSeen:
    """The manifest list, then the manifests, then the files: each names the next."""
    found = _Found()
    top = contents.manifest_list()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="verify") as threads:
        look = _Looking(contents, threads, found)
        if top is not None and look.at([top]):
            manifests = contents.manifests()
            found.manifests = len(manifests)
            if look.at(manifests):
                total = contents.count_files()
                for some in _in_runs(contents.files()):
                    look.at(some)
                    found.count(some)
                    tell(f"files of {name}", found.files, total)
                return found.result(is_complete=True)
    return found.result(is_complete=top is None)


@dataclass
class _Found:
    """What was counted so far, and what was wrong."""

    manifests: int = 0
    files: int = 0
    data_files: int = 0
    rows: int = 0
    rows_by_snapshot: dict[int, int] = field(default_factory=dict)
    wrong: list[Finding] = field(default_factory=list)
    wrong_count: int = 0

    def count(self, files: Sequence[ReferencedFile]) -> None:
        self.files += len(files)
        for file in files:
            if file.is_live_twice:
                snapshots = ", ".join(map(str, file.added_by))
                self.blame(file, f"is live {len(file.added_by)} times, added by snapshots {snapshots}")
            if file.is_data:
                self.data_files += 1
                self.rows += file.rows * len(file.added_by)
                for snapshot in file.added_by:
                    self.rows_by_snapshot[snapshot] = self.rows_by_snapshot.get(snapshot, 0) + file.rows

    def blame(self, file: ReferencedFile, why: str) -> None:
        self.wrong_count += 1
        if len(self.wrong) < _NAMED:
            snapshot = file.added_by[-1] if file.added_by else None
            self.wrong.append(broken(f"{file.kind} {why}: {file.path}", snapshot_id=snapshot, path=file.path))

    def result(self, *, is_complete: bool) -> FilesSeen:
        return FilesSeen(
            manifests=self.manifests,
            data_files=self.data_files,
            delete_files=self.files - self.data_files,
            rows=self.rows,
            rows_by_snapshot=self.rows_by_snapshot,
            wrong=self.wrong,
            wrong_count=self.wrong_count,
            is_complete=is_complete,
        )


@dataclass
class _Looking:
    """Looks for files, several at a time."""

    contents: Contents
    threads: ThreadPoolExecutor
    found: _Found

    def at(self, files: Sequence[ReferencedFile]) -> bool:
        """Whether all of them are there, with the size they should have."""
        sizes = self.threads.map(self.contents.size_of, [file.path for file in files])
        before = self.found.wrong_count
        for file, size in zip(files, sizes, strict=True):
            if size is None:
                self.found.blame(file, "does not exist")
            elif file.size is not None and size != file.size:
                self.found.blame(file, f"has {size:,} bytes, {file.size:,} are recorded")
        return self.found.wrong_count == before


def _in_runs(files: Iterator[ReferencedFile]) -> Iterator[list[ReferencedFile]]:
    while some := list(islice(files, _AT_ONCE)):
        yield some
