"""The history written beside the data."""

from __future__ import annotations

from dataclasses import astuple

from hypothesis import given
from hypothesis import strategies as st

from frazil.protocol.positions import EMPTY_SPAN, Frontier, Position, Range, Span
from frazil.protocol.register import BatchId, Epoch, Generation, Register
from frazil.protocol.summary import NO_COUNTS, CommitRecord, Counts, EpochSummary

REGISTER = Register(Generation(3), "c0ffee", Epoch(41), BatchId("batch"), Frontier({("orders", 0): Position(20)}))
COUNTS = st.builds(Counts, *[st.integers(0, 10**12)] * 6)
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
