"""The running pipeline on tables in memory: planning, retrying, stopping, without Spark and without Kafka."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from frazil.commit import EpochOutcome
from frazil.engine import run as running
from frazil.engine.epoch import PlannedEpoch, WrittenEpoch
from frazil.engine.events import BacklogSeen, EpochLanded, Event, Retrying
from frazil.engine.run import Engine, RunOptions
from frazil.errors import CatalogUnavailable, DataLoss, MaxRetriesExceeded, SourceUnavailable, SpanUnavailable
from frazil.journal import NO_JOURNAL
from frazil.pipeline import parse_pipeline
from frazil.protocol.plan import Log, SourceObserved
from frazil.protocol.positions import Frontier, Partition, Position, Span
from frazil.protocol.retry import Backoff
from frazil.protocol.summary import Counts
from frazil.table import WrittenFile
from frazil.table.memory import Fault, MemoryTable

P0: Partition = ("orders", 0)


class Source:
    """A topic of one partition whose answers a test decides."""

    def __init__(self) -> None:
        self.log = Log(0, 0)
        self.faults: deque[Exception] = deque()
        self.on_observe: Callable[[int], None] = lambda looks: None
        self.looks = 0
        self.acknowledged: list[Frontier] = []
        self.resumed: list[Frontier] = []
        self.more = False

    def observe(self) -> SourceObserved:
        self.looks += 1
        self.on_observe(self.looks)
        if self.faults:
            raise self.faults.popleft()
        return SourceObserved({P0: self.log}, {"orders": "id"}, self.more)

    def starting_frontier(self) -> Frontier:
        return Frontier({P0: Position(0)}, {"orders": "id"})

    def resume(self, frontier: Frontier) -> None:
        self.resumed.append(frontier)

    def marks(self, span: Span) -> dict[Partition, str]:
        return {P0: f"up to {span.ranges[P0].end}"}

    def reader(self, wants: object, span: Span) -> None:
        pass

    def acknowledge(self, frontier: Frontier) -> None:
        self.acknowledged.append(frontier)

    def close(self) -> None:
        pass


class Pipeline:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source = Source()
        self.table = MemoryTable("shop.orders")
        self.events: list[Event] = []
        self.stop = threading.Event()
        self.write_faults: deque[Exception | None] = deque()
        self._names = itertools.count(1)
        self.written: dict[str, range] = {}
        monkeypatch.setattr(running, "write_epoch", self.write)
        monkeypatch.setattr(running, "SOURCE", Backoff(base_s=0.001, max_s=0.002, attempts=10))
        monkeypatch.setattr(running, "START", Backoff(base_s=0.001, max_s=0.002, attempts=4))
        monkeypatch.setattr(running, "_POLL_S_MIN", 0.001)
        monkeypatch.setattr(running, "_POLL_S_MAX", 0.002)

    def write(self, parts: object, targets: object, planned: PlannedEpoch) -> WrittenEpoch:
        if self.write_faults and (fault := self.write_faults.popleft()) is not None:
            raise fault
        r = planned.span.ranges[P0]
        path = f"{next(self._names)}.parquet"
        self.written[path] = range(r.start, r.end)
        outcome = EpochOutcome(
            planned.number,
            planned.span,
            Counts(len(r), len(r)),
            {self.table.name: [WrittenFile(self.table.name, path, 0, 0, len(r), 10)]},
            skipped=planned.skipped,
            topic_ids=planned.base.topic_ids,
            marks=planned.marks,
        )
        return WrittenEpoch(outcome, 100.0, 0.0)

    def engine(self, *, available_now: bool = True, max_records: int = 10, loss: bool = False) -> Engine:
        spec = parse_pipeline(
            {
                "pipeline": {"name": "orders"},
                "source": {
                    "type": "kafka",
                    "topics": ["orders"],
                    "kafka": {"bootstrap.servers": "x"},
                    "fail_on_data_loss": not loss,
                },
                "decode": {"format": "raw"},
                "table": {"name": "shop.orders"},
                "epoch": {"interval": "1ms", "max_records": max_records},
            }
        )
        parts = SimpleNamespace(
            spec=spec,
            source=self.source,
            anchor=self.table,
            sides=[],
            dead_letters=None,
            journal=NO_JOURNAL,
            spark=SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl=None, cancelJobGroup=lambda group: None)),
        )
        engine = Engine(cast(Any, parts), self.events.append, RunOptions(available_now, take_over=True), self.stop)
        engine._coordinator._backoff = Backoff(base_s=0.001, max_s=0.002, attempts=3)
        return engine

    def rows(self) -> list[int]:
        return sorted(offset for path in self.table.live_paths for offset in self.written[path])

    def told(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    return Pipeline(monkeypatch)


def ends_when(pipeline: Pipeline, condition: Callable[[], bool]) -> None:
    """Asks to stop as soon as the condition holds at a look at the source."""

    def look(looks: int) -> None:
        if condition() or looks > 5000:
            pipeline.stop.set()

    pipeline.source.on_observe = look


@pytest.mark.timeout(20)
class TestAvailableNow:
    def test_everything_there_lands_in_order_and_it_ends(self, pipeline: Pipeline) -> None:
        """EPOCH-06, COMMIT-16, COMMIT-20."""
        pipeline.source.log = Log(0, 95)
        pipeline.engine().run()
        assert pipeline.rows() == list(range(95))
        assert [event.landed.epoch for event in pipeline.told(EpochLanded)] == list(range(1, 11))
        assert [f.offset(P0) for f in pipeline.source.acknowledged] == [*range(10, 100, 10), 95]

    def test_an_empty_source_ends_at_once(self, pipeline: Pipeline) -> None:
        """FAULT-40."""
        pipeline.engine().run()
        assert pipeline.rows() == []
        assert len(pipeline.table.history("orders")) == 1

    def test_a_second_run_finds_nothing_to_do(self, pipeline: Pipeline) -> None:
        """FAULT-03, FAULT-40."""
        pipeline.source.log = Log(0, 25)
        pipeline.engine().run()
        pipeline.engine().run()
        assert pipeline.rows() == list(range(25))

    def test_what_comes_later_is_left_for_the_next_run(self, pipeline: Pipeline) -> None:
        pipeline.source.log = Log(0, 20)

        def grow(looks: int) -> None:
            if looks > 1:
                pipeline.source.log = Log(0, 10**6)

        pipeline.source.on_observe = grow
        pipeline.engine().run()
        assert pipeline.rows() == list(range(20))

    def test_what_a_look_had_no_time_for_lands_too(self, pipeline: Pipeline) -> None:
        """A source that counts its files bit by bit has not shown yet what is there now."""
        pipeline.source.more = True

        def count(looks: int) -> None:
            pipeline.source.log = Log(0, min(35, 7 * looks))
            pipeline.source.more = looks < 5

        pipeline.source.on_observe = count
        pipeline.engine().run()
        assert pipeline.rows() == list(range(35))

    def test_the_frontier_says_what_the_source_wants_it_to(self, pipeline: Pipeline) -> None:
        """And a fault sends the source back to just there."""
        pipeline.source.log = Log(0, 25)
        pipeline.write_faults.extend([None, None, SpanUnavailable("a file was removed")])
        pipeline.engine().run()
        marks = [frontier.positions[P0].mark for frontier in pipeline.source.resumed]
        assert marks[0] == ""
        assert set(marks[1:]) <= {"", "up to 10", "up to 20"}
        assert len(marks) == 2
        assert pipeline.source.acknowledged[-1].positions[P0].mark == "up to 25"

    def test_it_ends_even_if_retention_took_all_that_was_left(self, pipeline: Pipeline) -> None:
        """FAULT-33: there is nothing to read, and no reason to wait for it."""
        pipeline.source.log = Log(50, 50)
        pipeline.engine(loss=True).run()
        assert pipeline.rows() == []

    def test_loss_before_the_first_look_stops_with_the_range(self, pipeline: Pipeline) -> None:
        """FAULT-33."""
        pipeline.source.log = Log(50, 60)
        with pytest.raises(DataLoss, match=r"orders\[0\] offsets 0 to 49"):
            pipeline.engine().run()

    def test_loss_while_it_reads_stops_with_the_range_too(self, pipeline: Pipeline) -> None:
        """FAULT-33: retention passes between planning and reading."""
        pipeline.source.log = Log(0, 60)

        def lose(looks: int) -> None:
            if looks > 2:
                pipeline.source.log = Log(30, 60)

        pipeline.source.on_observe = lose
        pipeline.write_faults.extend([SpanUnavailable("gone")] * 99)
        with pytest.raises(DataLoss, match=r"orders\[0\] offsets \d+ to 29"):
            pipeline.engine().run()


@pytest.mark.timeout(20)
class TestFaults:
    def test_transient_faults_of_source_workers_and_table_change_nothing(self, pipeline: Pipeline) -> None:
        """SRC-04, FAULT-04, FAULT-07."""
        pipeline.source.log = Log(0, 100)
        pipeline.write_faults.extend([None, SourceUnavailable("a read stalled"), None, None])
        pipeline.table.faults.extend([Fault.NONE, Fault.REPLY_LOST, Fault.REFUSED])
        pipeline.engine().run()
        assert pipeline.rows() == list(range(100))

    def test_a_fault_that_never_goes_away_ends_visibly(self, pipeline: Pipeline) -> None:
        """SRC-04: ten attempts, then fail."""
        pipeline.source.log = Log(0, 10)
        pipeline.write_faults.extend([SourceUnavailable("no broker")] * 99)
        with pytest.raises(MaxRetriesExceeded, match="gave up after 10 attempts: no broker"):
            pipeline.engine().run()
        assert [event.attempt for event in pipeline.told(Retrying)] == list(range(1, 11))

    def test_faults_with_quiet_times_in_between_do_not_add_up(self, pipeline: Pipeline) -> None:
        """FAULT-40: an idle pipeline outlives any number of short faults."""

        def hiccup(looks: int) -> None:
            if looks % 5 == 0:
                pipeline.source.faults.append(SourceUnavailable("hiccup"))
            if looks > 100:
                pipeline.stop.set()

        pipeline.source.on_observe = hiccup
        pipeline.engine(available_now=False).run()
        assert len(pipeline.told(Retrying)) > 10

    def test_a_catalog_that_is_silent_for_long_is_waited_for_like_any_other_fault(self, pipeline: Pipeline) -> None:
        """COMMIT-11: probing and finding one's bearings again both need it."""
        pipeline.source.log = Log(0, 30)
        engine = pipeline.engine()
        observe = pipeline.table.observe
        pipeline.table.faults.extend([Fault.NONE, Fault.REPLY_LOST])

        def silent_for_a_while(writer: str, *about: Any) -> Any:
            if len(pipeline.told(Retrying)) < 3 and pipeline.rows():
                raise CatalogUnavailable("no answer")
            return observe(writer, *about)

        cast(Any, pipeline.table).observe = silent_for_a_while
        engine.run()
        assert pipeline.rows() == list(range(30))

    def test_files_written_before_the_source_fell_silent_are_not_left_behind(self, pipeline: Pipeline) -> None:
        pipeline.source.log = Log(0, 10)

        def fail_once(looks: int) -> None:
            if pipeline.written and not pipeline.told(Retrying):
                pipeline.source.faults.append(SourceUnavailable("silent"))

        pipeline.source.on_observe = fail_once
        pipeline.engine().run()
        assert pipeline.rows() == list(range(10))
        assert set(pipeline.written) - set(pipeline.table.live_paths) == pipeline.table.deleted


@pytest.mark.timeout(20)
class TestStopping:
    def test_a_wish_to_stop_lands_what_is_in_flight(self, pipeline: Pipeline) -> None:
        """CLI-01."""
        pipeline.source.log = Log(0, 10**6)
        ends_when(pipeline, lambda: len(pipeline.written) > 5)
        pipeline.engine(available_now=False).run()
        assert pipeline.rows() == list(range(len(pipeline.rows())))
        assert len(pipeline.table.live_paths) == len(pipeline.written)

    def test_a_wish_to_stop_while_the_catalog_is_silent_is_heard(self, pipeline: Pipeline) -> None:
        pipeline.source.log = Log(0, 10**6)
        observe = pipeline.table.observe

        def silent(writer: str, *about: Any) -> Any:
            if pipeline.rows():
                pipeline.stop.set()
                raise CatalogUnavailable("no answer")
            return observe(writer, *about)

        cast(Any, pipeline.table).observe = silent
        pipeline.table.faults.extend([Fault.NONE, Fault.REPLY_LOST])
        pipeline.engine(available_now=False).run()

    def test_an_idle_pipeline_commits_nothing(self, pipeline: Pipeline) -> None:
        """FAULT-40."""
        ends_when(pipeline, lambda: pipeline.source.looks > 20)
        pipeline.engine(available_now=False).run()
        assert [record.action for record in pipeline.table.history("orders")] == ["start"]
        assert {event.records for event in pipeline.told(BacklogSeen)} == {0}


def test_a_carried_epoch_is_no_progress_that_resets_the_count_of_faults(pipeline: Pipeline) -> None:
    """SRC-04: the first epoch has no rows, the second one always fails; ten attempts are ten attempts."""
    write = pipeline.write

    def first_empty_then_failing(parts: object, targets: object, planned: PlannedEpoch) -> WrittenEpoch:
        if planned.span.ranges[P0].start > 0:
            raise SpanUnavailable("always")
        written = write(parts, targets, planned)
        return replace(written, outcome=replace(written.outcome, files={}))

    running.write_epoch = first_empty_then_failing  # the fixture puts it back
    pipeline.source.log = Log(0, 20)
    with pytest.raises(MaxRetriesExceeded):
        pipeline.engine().run()


@pytest.mark.timeout(20)
class TestStarting:
    """A start waits faults out as the engine does later on."""

    def test_a_catalog_and_brokers_that_come_up_late_are_waited_for(self, pipeline: Pipeline) -> None:
        """SRC-04, COMMIT-11."""
        pipeline.source.log = Log(0, 10)
        pipeline.table.silences = 7
        starting, faults = pipeline.source.starting_frontier, deque([SourceUnavailable("no broker")] * 2)

        def resolve() -> Frontier:
            if faults:
                raise faults.popleft()
            return starting()

        pipeline.source.starting_frontier = resolve  # type: ignore[method-assign]
        pipeline.engine().run()
        assert pipeline.rows() == list(range(10))
        assert [event.attempt for event in pipeline.told(Retrying)] == [1, 2, 3, 4]

    def test_what_stays_away_is_named(self, pipeline: Pipeline) -> None:
        """CLI-03, SRC-04."""
        pipeline.table.silences = 99
        with pytest.raises(MaxRetriesExceeded, match=r"gave up after 4 attempts: shop\.orders gave no answer"):
            pipeline.engine().run()

    def test_a_start_whose_outcome_is_unknown_is_made_again(self, pipeline: Pipeline) -> None:
        """FAULT-07, FAULT-10."""
        pipeline.source.log = Log(0, 10)
        pipeline.table.faults.append(Fault.REPLY_LOST)
        commit = pipeline.table.commit

        def fall_silent(*arguments: Any) -> Any:
            pipeline.table.silences = 3
            pipeline.table.commit = commit  # type: ignore[method-assign]
            return commit(*arguments)

        pipeline.table.commit = fall_silent  # type: ignore[method-assign]
        pipeline.engine().run()
        assert pipeline.rows() == list(range(10))
        assert [r.generation for r in pipeline.table.history("orders") if r.action == "start"] == [1, 2]

    def test_a_wish_to_stop_ends_the_waiting(self, pipeline: Pipeline) -> None:
        pipeline.table.silences = 99
        pipeline.stop.set()
        pipeline.engine().run()
        assert pipeline.table.live_paths == []


@pytest.mark.timeout(20)
def test_records_that_retention_took_after_a_late_landing_are_not_lost(pipeline: Pipeline) -> None:
    """FAULT-10, FAULT-33: found by the simulation; the table has them, though its coordinator did not know yet."""
    pipeline.source.log = Log(0, 20)
    pipeline.table.faults.extend([Fault.NONE, Fault.DELAYED])
    commit = pipeline.table.commit

    def fall_silent(proposal: Any, files: Any) -> Any:
        if files and Fault.DELAYED in pipeline.table.faults:
            pipeline.table.silences = 3
        return commit(proposal, files)

    def take(looks: int) -> None:
        if pipeline.table.delayed and pipeline.told(Retrying):
            pipeline.table.release()
            pipeline.source.log = Log(10, 20)

    pipeline.table.commit = fall_silent  # type: ignore[method-assign]
    pipeline.source.on_observe = take
    pipeline.engine().run()
    assert pipeline.source.log.earliest == 10
    assert pipeline.rows() == list(range(20))
