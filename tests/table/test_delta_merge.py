"""Changes of a Delta table: what is written ahead counts when its MERGE lands, and not before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from frazil.commit import Coordinator, EpochOutcome, World
from frazil.errors import Fenced, TableChanged
from frazil.pipeline.schema import parse_schema
from frazil.pipeline.spec import TableSection
from frazil.protocol.positions import Frontier, Position, Range, Span
from frazil.protocol.recovery import Search
from frazil.protocol.register import Epoch
from frazil.protocol.retry import Backoff
from frazil.protocol.start import OnRollback
from frazil.protocol.summary import Counts, Merged
from frazil.table.delta import DeltaLake
from frazil.table.wish import TableWish
from frazil.write import ChangeWriter, FileName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

PARTITION = ("orders", 0)
TOKEN = "0123456789ab"
LEFT_OVER = Search("orders", "", {TOKEN: 3}, {}, 0)
PATIENCE = Backoff(base_s=0.0, max_s=0.0, attempts=3)


class Crash(BaseException):
    """The process ends here."""


class Stage:
    """A table of names by id, and what happens around its MERGEs."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.path = folder / "orders"
        self._section = TableSection(
            format="delta", name="orders", path=str(self.path), mode="upsert", keys=["id"], partition=["id"]
        )
        lake = DeltaLake({"orders": str(self.path)}, spark)
        self.table = lake.open(TableWish("orders", parse_schema("id BIGINT NOT NULL, name STRING"), keys=["id"]))
        self.merges: list[Any] = []
        self._bytes: dict[Path, bytes] = {}
        merger: Any = self.table._merger
        self._merge = merger.merge
        merger.merge = self._watched

    before: Callable[[], object] = staticmethod(lambda: None)
    after: Callable[[], object] = staticmethod(lambda: None)

    def _watched(self, merge: Any) -> None:
        self.merges.append(merge)
        self._bytes |= {path: path.read_bytes() for path in self.staged()}
        before, self.before = self.before, lambda: None
        after, self.after = self.after, lambda: None
        before()
        self._merge(merge)
        after()

    def repeat_all(self) -> None:
        """As a server would that was stuck with them."""
        for path, content in self._bytes.items():
            path.write_bytes(content)
        for merge in self.merges:
            self._merge(merge)

    def hold(self, begun: Path, go: Path) -> None:
        """MERGEs wait amid their transaction, where they read the changes, until they may go on."""
        merger: Any = self.table._merger
        changes = merger._changes

        def waiting(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            begun.touch()
            while not go.exists():
                time.sleep(0.05)
            yield from batches

        def held(merge: Any) -> Any:
            frame = changes(merge)
            return frame.mapInArrow(waiting, frame.schema)

        merger._changes = held

    def start(self, **options: Any) -> Coordinator:
        one = Coordinator("pipe", self.table, interval_s=0.0, world=World(), backoff=PATIENCE)
        one.start(lambda: Frontier({PARTITION: Position(0)}, {"orders": "topic-id"}), take_over=True, **options)
        return one

    def epoch(self, number: int, first: int, names: Mapping[int, str | None]) -> EpochOutcome:
        """One change for each id; without a name, its row goes."""
        target = self.table.write_target(self._section)
        writer = ChangeWriter(target, FileName("pipe", number, 0, epoch_token=TOKEN))
        ops = ["D" if name is None else "U" for name in names.values()]
        columns = {"id": list(names), "name": list(names.values()), "_op": ops, "_order": list(range(len(names)))}
        writer.write(pa.RecordBatch.from_pydict(columns))
        files = writer.close()
        counts = Counts(delivered=len(names), landed=writer.landed, deleted=writer.deleted)
        span = Span({PARTITION: Range(first, first + len(names))})
        return EpochOutcome(Epoch(number), span, counts, {"orders": files})

    def rows(self) -> dict[int, str]:
        table = self.load().to_pyarrow_table()
        assert len(set(table["id"].to_pylist())) == len(table), "a key has several rows"
        return dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))

    def load(self) -> DeltaTable:
        return DeltaTable(self.path)

    def staged(self) -> list[Path]:
        return list((self.path / "_frazil").glob("*.parquet"))

    def offset(self) -> int | None:
        register = self.table.observe("pipe").register
        return None if register is None else register.frontier.offset(PARTITION)

    def actions(self) -> list[tuple[int, str]]:
        return [(record.epoch, record.action) for record in self.table.history("pipe")]

    def append_foreign(self) -> None:
        rows = pa.table({"id": pa.array([-1], pa.int64()), "name": ["theirs"]}, schema=FOREIGN)
        write_deltalake(self.path, rows, mode="append")

    def clean_up_log(self) -> None:
        """As far as it goes: of what is before the checkpoint only the table's state is left."""
        table = self.load()
        table.create_checkpoint()
        for version in range(table.version()):
            (self.path / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)


FOREIGN = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Stage:
    return Stage(spark, tmp_path)


def test_changes_land_by_one_merge_an_epoch_and_never_twice(stage: Stage) -> None:
    """CHG-12, CHG-14, COMMIT-22: also deletes of what is not there; an old MERGE that comes again does nothing."""
    one = stage.start()
    one.commit(stage.epoch(1, 0, {1: "a", 2: "b", 3: "c"}))
    stage.before = stage.append_foreign
    landed = one.commit(stage.epoch(2, 3, {1: "aa", 2: None, 4: "d"}))
    assert stage.rows() == {1: "aa", 3: "c", 4: "d", -1: "theirs"}
    one.commit(stage.epoch(3, 6, {7: None}))
    assert stage.actions() == [(0, "start"), (1, "merge"), (2, "merge"), (3, "merge")]
    assert stage.staged() == []
    merged = [record.merged for record in stage.table.history("pipe")]
    assert merged == [None, Merged(3, 0, 0), Merged(1, 1, 1), Merged(0, 0, 0)]
    versions = [record.snapshot_id for record in stage.table.history("pipe")]
    assert versions == [1, 3, 6, 8], "each behind a version of its own that writes its register ahead"
    assert landed is not None
    assert landed.register.snapshot_id == 6, "where it landed, not where it was expected"
    before = stage.load().version()
    stage.repeat_all()
    assert (stage.load().version(), stage.rows()) == (before, {1: "aa", 3: "c", 4: "d", -1: "theirs"})


def test_a_merge_that_a_newer_start_overtook_is_found_out(stage: Stage) -> None:
    """FAULT-05, COMMIT-17: delta-spark passes over it and reports no error."""
    old = stage.start()
    stage.before = stage.start
    with pytest.raises(Fenced):
        old.commit(stage.epoch(1, 0, {1: "a"}))
    assert len(stage.merges) == 1, "it got as far as the MERGE"
    assert (stage.rows(), stage.offset()) == ({}, 0)


def test_a_merge_under_way_while_a_newer_coordinator_starts_is_refused(stage: Stage, tmp_path: Path) -> None:
    """FAULT-05, FAULT-06: it has read the table before the start, and would land behind it."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    stage.hold(begun, go)
    old = stage.start()
    with ThreadPoolExecutor(1) as threads:
        committed = threads.submit(old.commit, stage.epoch(1, 0, {1: "a"}))
        while not begun.exists() and not committed.done():
            time.sleep(0.05)
        stage.start()
        go.touch()
        with pytest.raises(Fenced):
            committed.result()
    assert (stage.rows(), stage.offset(), len(stage.merges)) == ({}, 0, 1)


def test_a_lost_reply_is_found_to_have_landed_and_a_start_sweeps_up(stage: Stage) -> None:
    """COMMIT-11, FAULT-08: the same changes are merged once; what is staged goes, but not what is to come."""

    def lost() -> None:
        raise ConnectionError("the reply was lost on its way")

    one = stage.start()
    stage.after = lost
    one.commit(stage.epoch(1, 0, {1: "a"}))
    assert (stage.rows(), stage.offset(), len(stage.merges)) == ({1: "a"}, 1, 1)
    (left,) = stage.staged()
    stage.epoch(2, 1, {1: "b"})
    stage.start()
    assert len(stage.staged()) == 1
    assert left not in stage.staged()


@pytest.mark.parametrize("cleaned", [False, True], ids=["whole log", "after clean-up"])
def test_a_crash_between_the_register_and_its_merge_takes_nothing_away(stage: Stage, cleaned: bool) -> None:
    """COMMIT-22, FAULT-01, FAULT-18: the written-ahead register never counts, whatever the epoch's number."""

    def crash() -> None:
        raise Crash

    one = stage.start()
    one.commit(stage.epoch(1, 0, {1: "a"}))
    # The epoch between them was empty, so that both numbers are odd.
    stage.before = crash
    with pytest.raises(Crash):
        one.commit(stage.epoch(3, 1, {1: "b", 2: "c"}))
    (left,) = stage.staged()
    found = stage.table.find_files(stage.table.uri, lambda path: LEFT_OVER.finds(path, "pipe"))
    assert [Path(path).name for path in found] == [left.name], "the journal finds what never landed"
    assert stage.table.referenced(found, 0) == set()
    if cleaned:
        stage.clean_up_log()
    assert stage.offset() == 1
    two = stage.start()
    assert (two.epoch, two.frontier.offset(PARTITION)) == (1, 1)
    two.commit(stage.epoch(2, 1, {1: "b", 2: "c"}))
    if cleaned:
        stage.append_foreign()
        stage.clean_up_log()
    assert (stage.rows(), stage.offset()) == ({1: "b", 2: "c"} | ({-1: "theirs"} if cleaned else {}), 3)
    assert stage.start().frontier.offset(PARTITION) == 3


def test_a_merge_onto_a_table_that_was_restored_meanwhile_counts_as_rolled_back(stage: Stage) -> None:
    """FAULT-20: it lands, because nothing in it can refuse; but nothing goes on from there unasked."""
    one = stage.start()
    one.commit(stage.epoch(1, 0, {1: "a", 2: "b"}))
    stage.before = lambda: stage.load().restore(1)
    one.commit(stage.epoch(2, 2, {1: "aa"}))
    assert stage.rows() == {1: "aa"}
    with pytest.raises(TableChanged, match="restored while epoch 2 was merged"):
        one.commit(stage.epoch(3, 3, {3: "c"}))
    with pytest.raises(TableChanged, match="restored while epoch 2 was merged"):
        stage.start()
    two = stage.start(on_rollback=OnRollback.REWIND)
    assert two.frontier.offset(PARTITION) == 0
    two.commit(stage.epoch(3, 0, {1: "aa", 2: "b"}))
    assert stage.rows() == {1: "aa", 2: "b"}


def test_an_emptied_source_empties_the_table_but_for_what_came_after(stage: Stage) -> None:
    """CHG-10: in one MERGE; also if nothing came after, and on a table that is empty already."""
    one = stage.start()
    one.commit(stage.epoch(1, 0, {1: "a", 2: "b"}))
    one.commit(replace(stage.epoch(2, 2, {2: "bb", 3: "c"}), replaces=True))
    assert stage.rows() == {2: "bb", 3: "c"}
    for number in (3, 4):
        one.commit(replace(stage.epoch(number, number + 1, {9: "x"}), replaces=True, files={}))
        assert (stage.rows(), stage.offset()) == ({}, number + 2)
    assert [action for _, action in stage.actions()] == ["start", "merge", "overwrite", "overwrite", "overwrite"]
