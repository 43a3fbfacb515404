"""The history written beside the data."""

from __future__ import annotations

from dataclasses import astuple

from hypothesis import given
from hypothesis import strategies as st

from frazil.protocol.commit import Held
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Position, Range, Span
from frazil.protocol.register import BatchId, Epoch, Generation, Register
from frazil.protocol.summary import NO_COUNTS, CommitRecord, Counts, EpochSummary, Kin, read_held

REGISTER = Register(Generation(3), "c0ffee", Epoch(41), BatchId("batch"), Frontier({("orders", 0): Position(20)}))
COUNTS = st.builds(Counts, *[st.integers(0, 10**12)] * 7)
SPANS = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b.c", "d-e_f"]), st.integers(0, 9)),
    st.tuples(st.integers(0, 10**12), st.integers(1, 10**6)).map(lambda r: Range(r[0], r[0] + r[1])),
    max_size=5,
).map(Span)


def test_a_summary_tells_who_committed_what() -> None:
    """COMMIT-14."""
    summary = EpochSummary(
        writer="orders",
        action="append",
        register=REGISTER,
        span=Span({("orders", 0): Range(10, 20)}),
        counts=Counts(delivered=10, landed=7, filtered=2, dead=1),
        data_files=2,
        duration_ms=1500,
        interval_ms=30_000,
        process="host/1/2.00",
    )
    assert summary.properties() == {
        "frazil.writer": "orders",
        "frazil.action": "append",
        "frazil.generation": "3",
        "frazil.coordinator": "c0ffee",
        "frazil.epoch": "41",
        "frazil.batch-id": "batch",
        "frazil.span": '{"orders":"0:10-20"}',
        "frazil.frontier": '{"orders":["","20"]}',
        "frazil.rows.delivered": "10",
        "frazil.rows.landed": "7",
        "frazil.rows.filtered": "2",
        "frazil.rows.dead-lettered": "1",
        "frazil.files.data": "2",
        "frazil.files.delete": "0",
        "frazil.duration-ms": "1500",
        "frazil.interval-ms": "30000",
        "frazil.process": "host/1/2.00",
    }


def test_loss_that_the_user_allowed_is_written_down() -> None:
    """FAULT-33: never in silence."""
    skipped = Span({("orders", 0): Range(5, 10)})
    summary = EpochSummary("orders", "append", REGISTER, skipped=skipped)
    assert summary.properties()["frazil.skipped"] == '{"orders":"0:5-10"}'
    assert CommitRecord.parse(1, 2, summary.properties()).skipped == skipped


@given(SPANS, SPANS, COUNTS, st.integers(0, 10**6), st.integers(0, 10**9), st.integers(0, 9))
def test_what_a_summary_says_can_be_read_back(
    span: Span, skipped: Span, counts: Counts, files: int, duration_ms: int, deletes: int
) -> None:
    """COMMIT-14."""
    written = EpochSummary("w", "row-delta", REGISTER, span, skipped, counts, files, deletes, duration_ms)
    record = CommitRecord.parse(7, 8, written.properties())
    facts = (span, skipped, counts, files, duration_ms, deletes)
    assert record == CommitRecord(7, 8, "row-delta", 3, 41, "batch", *facts)


def test_a_snapshot_of_somebody_else_reads_as_nothing() -> None:
    """REC-20: compaction leaves no summary of ours."""
    record = CommitRecord.parse(7, 8, {"operation": "replace", "added-data-files": "1"})
    assert record == CommitRecord(7, 8, "", 0, 0, "", EMPTY_SPAN, EMPTY_SPAN, NO_COUNTS, 0, 0)


@given(COUNTS, COUNTS)
def test_counts_add_up_field_by_field(one: Counts, other: Counts) -> None:
    assert astuple(one + other) == tuple(map(sum, zip(astuple(one), astuple(other), strict=True)))
    assert one + NO_COUNTS == one


def test_a_start_after_a_rollback_tells_what_was_chosen() -> None:
    """FAULT-20: a proof later on must know what the user gave up, and what was read again."""
    lacking = Span({("orders", 0): Range(10, 20)})
    kept = EpochSummary("orders", "start", REGISTER, given_up=lacking).properties()
    assert CommitRecord.parse(1, 2, kept).given_up == lacking
    rewound = EpochSummary("orders", "start", REGISTER, rewound_from=REGISTER.frontier).properties()
    assert CommitRecord.parse(1, 2, rewound).rewound_from == REGISTER.frontier


class TestHeld:
    """What the head of a rolled-back table holds: 1 ← 2 ← 3 ← 4, of which 1 is a start and 3 somebody else's."""

    def line(self, *ids: int) -> list[Kin]:
        return [Kin(each, each - 1 or None, self.summary(each).get) for each in ids]

    def summary(self, snapshot: int) -> dict[str, str]:
        if snapshot == 3:
            return {}
        end = (snapshot - 1) * 10
        frontier = Frontier({("t", 0): Position(end, 7)}, {"t": "id"})
        covers = Span({("t", 0): Range(end - 10, end)}) if end else EMPTY_SPAN
        register = Register(Generation(1), "c", Epoch(snapshot), BatchId("b"), frontier)
        return EpochSummary("orders", "append" if end else "start", register, covers).properties()

    def at(self, offset: int) -> Frontier:
        return Frontier({("t", 0): Position(offset, 7)}, {"t": "id"})

    def test_the_newest_commit_of_the_writer_says_how_far_it_has_come(self) -> None:
        """FAULT-20: with leader epochs and topic ids, so that nothing else need be asked."""
        lost = Span({("t", 0): Range(20, 30)})
        assert read_held("orders", self.line(3, 2, 1), self.line(4, 3, 2, 1)) == Held(self.at(10), lost)
        lost = Span({("t", 0): Range(0, 30)})
        assert read_held("orders", self.line(1), self.line(4, 3, 2, 1)) == Held(self.at(0), lost)

    def test_a_rollback_goes_back_in_the_time_of_a_change_feed_too(self) -> None:
        """EPOCH-02, COMMIT-16: offsets, what waits before them and the resolved time belong together."""
        frontier = Frontier({("t", 0): Position(9, low=7)}, {"t": "id"}, "15.0")
        register = Register(Generation(1), "c", Epoch(1), BatchId("b"), frontier)
        facts = EpochSummary("orders", "append", register).properties()
        assert read_held("orders", [Kin(1, None, facts.get)], []).frontier == frontier
        assert CommitRecord.parse(1, 2, facts).resolved == "15.0"

    def test_a_whole_history_without_the_writer_holds_nothing(self) -> None:
        assert read_held("another", self.line(2, 1), self.line(4, 3, 2, 1)).frontier == Frontier()
        assert read_held("orders", [], self.line(2, 1)) == Held(Frontier(), Span({("t", 0): Range(0, 10)}))

    def test_what_has_expired_is_not_known(self) -> None:
        assert read_held("orders", self.line(3), self.line(4)).frontier is None
        assert read_held("orders", self.line(1), self.line(4, 3)).lost is None
        assert read_held("orders", self.line(1), []).lost is None

    def test_what_was_read_for_a_side_table_counts_and_not_its_longer_span(self) -> None:
        longer, read = Span({("t", 0): Range(0, 30)}), Span({("t", 0): Range(20, 30)})
        summary = EpochSummary("orders", "append", REGISTER, longer, read=read).properties()
        assert read_held("orders", self.line(1), [Kin(2, 1, summary.get)]).lost == read
