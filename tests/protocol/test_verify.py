"""What a verification makes of a table's history: stories of epochs, some of them damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from frazil.errors import TableChanged
from frazil.protocol.plan import Log, SourceObserved
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Position, Range, Span
from frazil.protocol.register import BatchId, Epoch, Generation, Register, batch_id, start_id
from frazil.protocol.summary import NO_COUNTS, Action, Counts, EpochSummary
from frazil.protocol.verify import (
    Check,
    FilesSeen,
    Level,
    SnapshotSeen,
    TableSeen,
    Verdict,
    check_bag,
    check_dead_letters,
    check_files,
    check_history,
    check_others,
    check_register,
    check_rows,
)
from frazil.protocol.verify.finding import broken, many
from frazil.protocol.verify.offsets import (
    Comparison,
    Tally,
    check_offsets,
    is_readable,
    not_compared,
    plan_comparison,
)

UUID = "7c6f"
NO_TOPIC_IDS: dict[str, str] = {}


def span(**ranges: str) -> Span:
    """`span(p0="0-10")`: partition 0 of topic t."""
    return Span({("t", int(name[1:])): Range.parse(text) for name, text in ranges.items()})


class Story:
    """A table that a pipeline, and perhaps others, have been writing to."""

    def __init__(self, table: str = "shop.orders", first_parent: int | None = None) -> None:
        self.table = table
        self.register = Register(Generation(0), "", Epoch(0), BatchId(""), Frontier(), table_uuid=UUID)
        self.history: list[SnapshotSeen] = []
        self._parent = first_parent
        self._rows = 0

    def start(
        self,
        generation: int = 1,
        epoch: int | None = None,
        given_up: Span = EMPTY_SPAN,
        rewound_from: Frontier | None = None,
    ) -> Story:
        coordinator = f"c{generation}"
        name = start_id("orders", self.table, Generation(generation), coordinator)
        self._commit(
            "start", Generation(generation), coordinator, epoch or self.register.epoch, name, EMPTY_SPAN, NO_COUNTS
        )
        ends = {p: Position(r.end) for p, r in given_up.ranges.items()}
        frontier = Frontier({**self.register.frontier.positions, **ends}, NO_TOPIC_IDS)
        self.register = replace(self.register, frontier=frontier)
        summary = EpochSummary("orders", "start", self.register, given_up=given_up, rewound_from=rewound_from)
        last = self.history[-1]
        self.history[-1] = replace(last, summary={**last.summary, **summary.properties()})
        return self

    def epoch(
        self, number: int, covers: Span, counts: Counts | None = None, skipped: Span = EMPTY_SPAN, files: int = 1
    ) -> Story:
        counts = counts or Counts(delivered=covers.records, landed=covers.records)
        action: Action = "append" if counts.landed else "heartbeat"
        name = batch_id("orders", self.table, covers)
        before = self.register
        files = files if counts.landed else 0
        return self._commit(
            action, before.generation, before.coordinator, number, name, covers, counts, skipped, files
        )

    def other(self, operation: str, **numbers: int) -> Story:
        summary = {key.replace("_", "-"): str(value) for key, value in numbers.items()}
        return self._snapshot(operation, summary | {"engine-name": "spark"})

    def expire(self, snapshots: int) -> Story:
        self.history = self.history[snapshots:]
        return self

    def forge(self, index: int, change: Callable[[SnapshotSeen], SnapshotSeen]) -> Story:
        self.history[index] = change(self.history[index])
        return self

    def seen(self) -> TableSeen:
        listed = frozenset(s.snapshot_id for s in self.history)
        return TableSeen(self.table, UUID, "orders", self.register, self.history, listed)

    def files(self) -> FilesSeen:
        """As the head has them, if whoever removed a file rewrote them all."""
        by_snapshot: dict[int, int] = {}
        for snapshot in self.history:
            by_snapshot = {} if snapshot.number("deleted-data-files") else by_snapshot
            by_snapshot |= {snapshot.snapshot_id: snapshot.added} if snapshot.added else {}
        return FilesSeen(data_files=len(by_snapshot), rows=self._rows, rows_by_snapshot=by_snapshot)

    def _commit(
        self,
        action: Action,
        generation: Generation,
        coordinator: str,
        epoch: int,
        name: BatchId,
        covers: Span,
        counts: Counts,
        skipped: Span = EMPTY_SPAN,
        files: int = 0,
    ) -> Story:
        positions = dict(self.register.frontier.positions)
        positions |= {p: Position(r.end) for p, r in covers.with_skipped(skipped).ranges.items()}
        register = Register(
            generation, coordinator, Epoch(epoch), name, Frontier(positions, NO_TOPIC_IDS), table_uuid=UUID
        )
        summary = EpochSummary("orders", action, register, covers, skipped, counts, files).properties()
        iceberg = {"added-records": str(counts.landed), "added-data-files": str(files)} if files else {}
        self._snapshot("append", summary | iceberg)
        self.register = register.at(self.history[-1].snapshot_id, self.history[-1].sequence_number)
        return self

    def _snapshot(self, operation: str, summary: dict[str, str]) -> Story:
        number = len(self.history) + 1 if not self.history else self.history[-1].sequence_number + 1
        self._rows += int(summary.get("added-records", 0)) - int(summary.get("deleted-records", 0))
        summary |= {"total-records": str(self._rows)}
        snapshot = SnapshotSeen(100 + number, self._parent, number, 1_000 * number, operation, summary)
        self._parent = snapshot.snapshot_id
        self.history.append(snapshot)
        return self


def loss_before_the_frontier(**facts: str) -> Check:
    """The history of an epoch that skips offsets which an epoch before it had read."""

    def tell(snapshot: SnapshotSeen) -> SnapshotSeen:
        return replace(snapshot, summary={**snapshot.summary, **facts})

    story = healthy().epoch(3, span(p0="25-40"), skipped=span(p0="15-25")).forge(-1, tell)
    return check_history(story.seen())


def test_only_changes_that_waited_may_be_lost_before_the_frontier() -> None:
    """EPOCH-07, SRC-10: of a changefeed they were read already, and have no other epoch."""
    assert "t[0] offsets 15 to 19: in an earlier epoch and again" in messages(loss_before_the_frontier())
    resolved = "10.0000000000"
    name = batch_id("orders", "shop.orders", span(p0="25-40"), resolved)
    of_a_feed = loss_before_the_frontier(**{"frazil.resolved": resolved, "frazil.batch-id": name})
    assert not of_a_feed.findings
    assert "10 offsets lost with consent" in of_a_feed.says


def messages(check: Check) -> str:
    return "\n".join(finding.message for finding in check.findings)


def checks(story: Story) -> list[Check]:
    seen, files = story.seen(), story.files()
    return [
        check_history(seen),
        check_register(seen),
        check_rows(seen, files),
        check_files(seen, files),
        check_others(seen),
    ]


def healthy() -> Story:
    return Story().start().epoch(1, span(p0="0-10", p1="5-9")).epoch(2, span(p0="10-20", p1="9-12"))


STORIES = {
    "only a start": Story().start(),
    "two epochs": healthy(),
    "a restart": healthy().start(2).epoch(3, span(p0="20-21")),
    "epochs without rows leave numbers out": healthy().epoch(7, span(p0="20-30")),
    "a heartbeat": healthy().epoch(3, span(p0="20-25"), NO_COUNTS).epoch(4, span(p0="25-26")),
    "a partition added": healthy().epoch(3, span(p0="20-25", p2="0-3")),
    "loss with consent": healthy().epoch(3, span(p0="35-40"), skipped=span(p0="20-35")),
    "loss with consent of a partition without records": healthy().epoch(
        3, span(p1="12-13"), skipped=span(p0="20-35")
    ),
    "filtered and dead": healthy().epoch(3, span(p0="20-30"), Counts(10, 6, 3, 1)),
    "a query that multiplies rows": healthy().epoch(3, span(p0="20-30"), Counts(10, 20, -10, 0)),
    "compaction": healthy().other(
        "replace", added_records=27, deleted_records=27, added_data_files=1, deleted_data_files=2
    ),
    "history in part": healthy().start(2).epoch(3, span(p0="20-21")).expire(2),
    "history all gone": healthy()
    .other("replace", added_records=27, deleted_records=27, deleted_data_files=2)
    .expire(3),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_what_a_pipeline_does_of_its_own_accord_holds(story: Story) -> None:
    """Promises A to C, on every kind of commit there is."""
    for check in checks(story):
        assert check.level is Level.HOLDS, (check.name, messages(check))


def only_broken(story: Story) -> Check:
    (check,) = [check for check in checks(story) if check.level is Level.BROKEN]
    return check


def merging(copied: int = 20, removed: int = 5, total: int = 28) -> tuple[TableSeen, FilesSeen]:
    """27 rows, of which a MERGE of six changed rows replaces four and deletes one; it writes all files again."""
    story = healthy().epoch(3, span(p0="20-28"), Counts(8, 6, deleted=2))
    summary = {
        "copied-records": copied,
        "deleted-records": removed,
        "deleted-data-files": 2,
        "total-records": total,
    }
    story.forge(-1, lambda last: replace(last, summary={**last.summary, **{k: str(v) for k, v in summary.items()}}))
    head = story.history[-1].snapshot_id
    return story.seen(), FilesSeen(data_files=3, rows=28, rows_by_snapshot={head: 26, 102: 2})


def test_a_merge_changes_rows_in_place_and_holds() -> None:
    """CHG-12: it removes rows, and its files hold others beside those that landed."""
    check = check_rows(*merging())
    assert check.level is Level.HOLDS, messages(check)


@pytest.mark.parametrize(
    ("forged", "found"),
    [
        ({"copied": 19}, "6 rows landed in it, 26 of them are live"),
        ({"removed": 4}, "with its parent's it should be 29"),
        ({"total": 27}, "the head says 27 rows, its data files have 28"),
    ],
)
def test_a_merge_that_does_not_add_up_is_found(forged: dict[str, int], found: str) -> None:
    assert found in messages(check_rows(*merging(**forged)))


def test_offsets_in_two_epochs_are_named() -> None:
    story = healthy().epoch(3, span(p0="15-30"))
    check = only_broken(story)
    assert check.name == "history"
    (finding,) = check.findings
    assert finding.message == "t[0] offsets 15 to 19: in an earlier epoch and again in this one"
    assert (finding.epoch, finding.snapshot_id, finding.partition) == (3, 104, ("t", 0))


def test_offsets_in_no_epoch_are_named() -> None:
    assert messages(only_broken(healthy().epoch(3, span(p1="15-30")))) == "t[1] offsets 12 to 14: in no epoch"


def test_a_whole_epoch_that_landed_again_is_found() -> None:
    found = messages(only_broken(healthy().epoch(2, span(p0="10-20", p1="9-12"))))
    assert "epoch 2 was committed after epoch 2" in found
    assert "t[0] offsets 10 to 19: in an earlier epoch and again in this one" in found
    assert "t[1] offsets 9 to 11: in an earlier epoch and again in this one" in found


def test_an_epoch_by_a_coordinator_that_never_started_is_found() -> None:
    story = healthy()
    story.register = replace(story.register, coordinator="zombie")
    found = messages(only_broken(story.epoch(3, span(p0="20-21"))))
    assert found.startswith("epoch 3 is by coordinator zombie of generation 1, which never started; c1 of")


def test_a_summary_with_another_span_than_its_batch_id_is_forged() -> None:
    wider = span(p0="10-20", p1="9-12").encode().replace("9-12", "9-11")
    forged = healthy().forge(2, lambda s: replace(s, summary={**s.summary, "frazil.span": wider}))
    assert "is not the name of its span" in messages(check_history(forged.seen()))


def test_a_summary_that_no_frazil_wrote_is_an_error() -> None:
    forged = healthy().forge(2, lambda s: replace(s, summary={**s.summary, "frazil.span": "what?"}))
    with pytest.raises(TableChanged, match="the summary of snapshot 103 cannot be read"):
        check_history(forged.seen())


def test_batch_ids_from_before_a_table_was_renamed_prove_nothing() -> None:
    story = Story("shop.old").start().epoch(1, span(p0="0-10"))
    story.table = "shop.orders"
    story.epoch(2, span(p0="10-20"))
    assert check_history(story.seen()).level is Level.HOLDS


def test_a_pipeline_that_began_anew_is_noted() -> None:
    story = healthy().start(1, epoch=1)
    check = check_history(story.seen())
    assert check.level is Level.NOTED
    assert messages(check) == "the pipeline began anew: generation 1, epoch 1 after generation 1, epoch 2"


def test_an_expired_history_says_from_where_on_it_proves_anything() -> None:
    seen = healthy().epoch(3, span(p0="20-30")).expire(2).seen()
    assert check_history(seen).says == (
        "epochs 2 to 3 in 2 snapshots, 2 partitions: no gap, no overlap; earlier snapshots have expired"
    )
    says = check_rows(seen, FilesSeen(rows=37, rows_by_snapshot={103: 13, 104: 10})).says
    assert says.endswith("before epoch 2, known by count only: 14 rows for 19 offsets")


def test_an_expired_history_has_no_gap_that_expiry_could_explain() -> None:
    story = healthy().epoch(4, span(p0="25-30")).expire(2)
    assert messages(only_broken(story)) == "t[0] offsets 20 to 24: in no epoch"


REGISTERS: dict[str, tuple[Callable[[Register], Register], str]] = {
    "frontier back": (
        lambda r: replace(r, frontier=Frontier({("t", 0): Position(15), ("t", 1): Position(12)})),
        "the frontier of t[0] stands at 15, the history ends at 20",
    ),
    "frontier without a partition": (
        lambda r: replace(r, frontier=Frontier({("t", 0): Position(20)})),
        "the frontier of t[1] does not know the partition, the history ends at 12",
    ),
    "epoch": (lambda r: replace(r, epoch=Epoch(1)), "it says epoch 1, the pipeline's last snapshot has 2"),
    "generation": (lambda r: replace(r, generation=Generation(9)), "it says generation 9, the"),
    "coordinator": (
        lambda r: replace(r, coordinator="x"),
        "it says coordinator x, the",
    ),
    "batch": (lambda r: replace(r, batch_id=BatchId("x")), "it says batch id x, the"),
    "an older snapshot": (lambda r: r.at(102, 2), "it says snapshot 102, the pipeline's last snapshot has 103"),
    "table": (lambda r: replace(r, table_uuid="other"), "it is of another table: uuid other, this one has 7c6f"),
    "a snapshot nobody knows": (lambda r: r.at(7, 9), "its snapshot 7 is not in the history of the head"),
}


@pytest.mark.parametrize(("forge", "message"), REGISTERS.values(), ids=REGISTERS)
def test_a_forged_register_is_found(forge: Callable[[Register], Register], message: str) -> None:
    story = healthy()
    story.register = forge(story.register)
    assert message in messages(only_broken(story))


def test_a_register_beyond_a_head_that_was_rolled_back_is_found() -> None:
    story = healthy()
    listed = frozenset(s.snapshot_id for s in story.history)
    story.history.pop()
    found = messages(check_register(replace(story.seen(), listed=listed)))
    assert "its snapshot 103 is not in the history of the head: the table was rolled back or replaced" in found


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("added-records", "14", "it says 13 rows landed, its files have 14"),
        ("added-data-files", "2", "it says 1 files, the snapshot added 2"),
        ("frazil.rows.delivered", "12", "12 delivered are not 13 landed + 0 filtered + 0 dead letters"),
        ("deleted-records", "3", "an epoch removed 3 rows"),
        ("total-records", "30", "the snapshot has 30 rows, with its parent's it should be 27"),
    ],
)
def test_an_epoch_whose_numbers_do_not_add_up_is_found(key: str, value: str, message: str) -> None:
    story = healthy().forge(2, lambda s: replace(s, summary={**s.summary, key: value}))
    assert message in messages(check_rows(story.seen(), story.files()))


def test_live_files_with_other_rows_than_landed_are_found() -> None:
    seen = healthy().seen()
    less = check_rows(seen, FilesSeen(rows=26, rows_by_snapshot={102: 14, 103: 12}))
    assert "the head says 27 rows, its data files have 26" in messages(less)
    assert "13 rows landed in it, 12 of them are live, and nobody says that they were removed" in messages(less)
    more = check_rows(seen, FilesSeen(rows=27, rows_by_snapshot={102: 13, 103: 14}))
    assert "13 rows landed in it, 14 of them are live" in messages(more)
    unlisted = check_rows(seen, FilesSeen(is_complete=False))
    assert unlisted.level is Level.HOLDS, "which rows are live is not known without the manifests"


@pytest.mark.parametrize(
    ("operation", "numbers", "message"),
    [
        ("append", {"added_records": 5, "added_data_files": 1}, "spark added 5 rows (append)"),
        ("delete", {"deleted_records": 14, "deleted_data_files": 1}, "spark removed 14 rows (delete)"),
        (
            "overwrite",
            {"added_records": 1, "deleted_records": 14, "deleted_data_files": 1},
            "spark added 1 row, removed 14 rows (overwrite)",
        ),
        (
            "delete",
            {"added_delete_files": 1, "added_position_deletes": 2},
            "spark hid rows with 2 position and 0 equality deletes (delete)",
        ),
    ],
)
def test_what_others_did_is_named_but_no_fault_of_the_pipeline(
    operation: str, numbers: dict[str, int], message: str
) -> None:
    seen = healthy().other(operation, **numbers).seen()
    check = check_others(seen)
    assert check.level is Level.NOTED
    assert messages(check) == message
    assert check.findings[0].snapshot_id == 104
    assert check_rows(seen, FilesSeen(is_complete=False)).level is Level.HOLDS


def test_a_compaction_that_loses_rows_is_found() -> None:
    story = healthy().other("replace", added_records=20, deleted_records=27, deleted_data_files=2)
    assert messages(only_broken(story)) == "a compaction turned 27 rows into 20"


def test_a_compaction_that_applies_deletes_is_only_noted() -> None:
    story = healthy().other("delete", added_delete_files=1, added_position_deletes=7)
    story.other("replace", added_records=20, deleted_records=27, deleted_data_files=2)
    check = check_rows(story.seen(), story.files())
    assert check.level is Level.NOTED
    assert messages(check) == "a compaction turned 27 rows into 20: delete files hid the others"


def test_wrong_files_beyond_the_first_are_counted() -> None:
    files = FilesSeen(wrong=[broken("a: data file does not exist", path="a")], wrong_count=3)
    check = check_files(healthy().seen(), files)
    assert messages(check) == "a: data file does not exist\nand 2 more files"


class TestRollback:
    """FAULT-20: the user's choice is no fault, and covers nothing but what was chosen."""

    lacking = span(p0="20-50")

    @pytest.mark.parametrize("goes_on", [False, True])
    def test_what_was_given_up_is_noted_and_no_gap(self, goes_on: bool) -> None:
        story = healthy().start(5, epoch=9, given_up=self.lacking)
        seen = story.epoch(10, span(p0="50-60")).seen() if goes_on else story.seen()
        history, register = check_history(seen), check_register(seen)
        assert (history.level, register.level) == (Level.NOTED, Level.HOLDS), messages(register)
        assert messages(history) == "t[0] offsets 20 to 49: given up by the user after a rollback"
        assert history.numbers["given_up_offsets"] == 30

    def test_offsets_beside_what_was_given_up_are_still_missed(self) -> None:
        story = healthy().start(5, epoch=9, given_up=self.lacking).epoch(10, span(p0="51-60"))
        assert "t[0] offsets 50 to 50: in no epoch" in messages(check_history(story.seen()))

    def test_a_rewind_holds_and_is_told(self) -> None:
        story = healthy().start(5, epoch=9, rewound_from=Frontier({("t", 0): Position(50)}))
        check = check_history(story.epoch(10, span(p0="20-50")).seen())
        assert check.level is Level.HOLDS
        assert "rewound after 1 rollback" in check.says

    def test_given_up_offsets_may_be_missing_and_are_not_counted(self) -> None:
        story = healthy().start(5, epoch=9, given_up=self.lacking).epoch(10, span(p0="50-60"))
        plan = plan_comparison(story.seen(), None, source(p0="0-99", p1="0-99"), from_earliest=True)
        assert windows(plan) == [(0, 50, 60), (5, 12, 12)]
        assert plan.windows[0].given_up == (Range(20, 50),)
        assert [commit.record.epoch for commit in plan.epochs] == [10]

    def test_dead_letters_of_what_either_table_gave_up_decide_nothing(self) -> None:
        """The anchor's were counted in epochs that are gone, or their rows are."""
        anchor = Story().start().epoch(1, span(p0="0-10"), Counts(10, 8, 0, 2))
        side = Story("shop.dead").start().epoch(1, span(p0="0-10"), Counts(2, 2))
        side.epoch(2, span(p0="10-20"), Counts(3, 3))
        anchor.start(2, epoch=2, given_up=span(p0="10-20"))
        assert check_dead_letters(anchor.seen(), side.seen()).level is Level.HOLDS
        fewer = Story("shop.dead").start().epoch(1, span(p0="0-10"), Counts(1, 1)).seen()
        assert check_dead_letters(anchor.seen(), fewer).level is Level.BROKEN
        gave_up = Story("shop.dead").start().start(2, epoch=1, given_up=span(p0="0-10"))
        assert check_dead_letters(anchor.seen(), gave_up.seen()).level is Level.HOLDS


class TestDeadLetters:
    """The anchor's counts against the side table's rows."""

    def anchor(self, dead: int = 2) -> Story:
        story = Story().start().epoch(1, span(p0="0-10"), Counts(10, 10 - dead, 0, dead))
        return story.epoch(2, span(p0="10-20"))

    def side(self, covers: Span, rows: int = 2) -> Story:
        return Story("shop.dead").start().epoch(1, covers, Counts(rows, rows))

    def test_as_many_as_were_counted(self) -> None:
        check = check_dead_letters(self.anchor().seen(), self.side(span(p0="0-10")).seen())
        assert (check.level, check.numbers) == (Level.HOLDS, {"counted": 2, "landed": 2})

    @pytest.mark.parametrize("rows", [1, 3])
    def test_more_or_fewer_are_found(self, rows: int) -> None:
        check = check_dead_letters(self.anchor().seen(), self.side(span(p0="0-10"), rows).seen())
        assert messages(check) == (
            f"shop.orders counted 2 dead letters, shop.dead took {rows} for the same offsets"
        )

    def test_one_commit_ahead_of_the_anchor_is_no_surplus(self) -> None:
        """The crash between the two commits, or a look between them."""
        side = self.side(span(p0="0-10")).epoch(3, span(p0="10-30"), Counts(4, 4))
        assert check_dead_letters(self.anchor().seen(), side.seen()).level is Level.HOLDS

    def test_too_few_are_found_even_when_one_commit_ahead(self) -> None:
        side = self.side(span(p0="0-10"), rows=1).epoch(3, span(p0="20-30"), Counts(4, 4))
        assert "took 1 for the same" in messages(check_dead_letters(self.anchor().seen(), side.seen()))

    def test_epochs_of_the_anchor_that_expired_take_their_dead_letters_along(self) -> None:
        anchor = self.anchor().expire(2).seen()
        assert check_dead_letters(anchor, self.side(span(p0="0-10")).seen()).level is Level.HOLDS

    def test_dead_letters_whose_snapshots_expired_are_counted(self) -> None:
        side = self.side(span(p0="0-10"), rows=2).other("replace", added_records=2, deleted_records=2).expire(2)
        assert check_dead_letters(self.anchor().seen(), side.seen()).level is Level.HOLDS
        assert check_dead_letters(self.anchor(dead=3).seen(), side.seen()).level is Level.BROKEN

    def test_a_pipeline_that_has_no_table_for_them_any_more(self) -> None:
        assert check_dead_letters(self.anchor(dead=0).seen(), None).level is Level.HOLDS
        check = check_dead_letters(self.anchor().seen(), None)
        assert check.level is Level.NOTED
        assert "2 dead letters were counted" in messages(check)


def source(**logs: str) -> SourceObserved:
    ranges = {("t", int(name[1:])): Range.parse(text) for name, text in logs.items()}
    return SourceObserved({p: Log(r.start, r.end) for p, r in ranges.items()}, {"t": "id"})


def windows(comparison: Comparison) -> list[tuple[int, int, int]]:
    return [(w.low, w.counted, w.high) for w in comparison.windows]


class TestComparison:
    """What can be compared with the topic."""

    def test_everything_from_the_start_to_the_frontier(self) -> None:
        plan = plan_comparison(healthy().seen(), None, source(p0="0-99", p1="0-99"), from_earliest=False)
        assert windows(plan) == [(0, 0, 20), (5, 5, 12)]
        assert (len(plan.epochs), plan.delivered, plan.obstacles) == (2, 27, [])

    def test_what_the_topic_lost_is_left_out_and_epochs_in_part_are_not_counted(self) -> None:
        plan = plan_comparison(healthy().seen(), None, source(p0="4-99", p1="0-99"), from_earliest=True)
        assert windows(plan) == [(4, 10, 20), (5, 9, 12)]
        assert [commit.record.epoch for commit in plan.epochs] == [2]

    def test_a_topic_that_lost_everything_leaves_nothing_to_compare(self) -> None:
        plan = plan_comparison(healthy().seen(), None, source(p0="50-99", p1="50-99"), from_earliest=True)
        assert windows(plan) == [(20, 20, 20), (12, 12, 12)]
        assert not plan.span

    @pytest.mark.parametrize(("from_earliest", "lows"), [(True, [0, 0]), (False, [10, 9])])
    def test_after_expiry_only_the_earliest_offset_is_a_known_start(
        self, from_earliest: bool, lows: list[int]
    ) -> None:
        seen = healthy().expire(2).seen()
        plan = plan_comparison(seen, None, source(p0="0-99", p1="0-99"), from_earliest=from_earliest)
        assert [w.low for w in plan.windows] == lows

    def test_dead_letters_may_be_ahead(self) -> None:
        side = Story("shop.dead").start().epoch(3, span(p0="0-25"), Counts(1, 1)).seen()
        plan = plan_comparison(healthy().seen(), side, source(p0="0-99", p1="0-99"), from_earliest=True)
        assert [(w.high, w.dead_high) for w in plan.windows] == [(20, 25), (12, 12)]

    def test_a_truncated_a_recreated_and_a_missing_log_are_named(self) -> None:
        seen = healthy().seen()
        plan = plan_comparison(seen, None, source(p0="0-15"), from_earliest=True)
        assert [finding.message for finding in plan.obstacles] == [
            "t[0] ends at 15, before the frontier 20: its log was truncated",
            "t[1] is in the frontier, but not in the topic: nothing of it can be compared",
        ]
        assert windows(plan) == [(0, 15, 15)]
        frontier = Frontier(seen.register.frontier.positions, {"t": "before"})
        seen = replace(seen, register=replace(seen.register, frontier=frontier))
        plan = plan_comparison(seen, None, source(p0="0-99", p1="0-99"), from_earliest=True)
        assert [finding.partition for finding in plan.obstacles] == [("t", 0), ("t", 1)]
        assert plan.windows == []


class TestOffsets:
    """What a comparison means."""

    def weigh(
        self, tally: Tally, counts: Counts | None = None, compacted: frozenset[str] = frozenset(), **more: bool
    ) -> Check:
        seen = Story().start().epoch(1, span(p0="0-10"), counts).seen()
        plan = plan_comparison(seen, None, source(p0="0-99"), from_earliest=True)
        flags = {"has_query": False, "has_origin": True, **more}
        return check_offsets(seen, plan, {("t", 0): tally}, strangers=0, compacted=compacted, **flags)

    @pytest.mark.parametrize(
        ("delivered", "low", "is_broken"),
        [(8, 7, False), (10, None, False), (6, 7, True), (8, None, True), (11, 7, True)],
    )
    def test_changes_that_wait_for_their_time_are_not_missed(
        self, delivered: int, low: int | None, is_broken: bool
    ) -> None:
        """SRC-10, EPOCH-08: of ten records, those from offset 7 on may wait, and no others."""
        story = Story().start().epoch(1, span(p0="0-10"), Counts(delivered=delivered, landed=delivered))
        story.forge(-1, lambda seen: replace(seen, summary={**seen.summary, "frazil.resolved": "15.0"}))
        frontier = Frontier({("t", 0): Position(10, low=low)}, NO_TOPIC_IDS, "15.0")
        story.register = replace(story.register, frontier=frontier)
        seen = story.seen()
        plan = plan_comparison(seen, None, source(p0="0-99"), from_earliest=True)
        check = check_offsets(
            seen,
            plan,
            {("t", 0): Tally(records=10, rows=8, records_counted=10)},
            has_query=False,
            has_origin=True,
            strangers=0,
            is_keyed=True,
        )
        assert (check.level is Level.BROKEN) is is_broken
        assert check_register(seen).level is Level.HOLDS
        story.register = replace(story.register, frontier=replace(frontier, resolved="16.0"))
        assert "resolved time" in str(check_register(story.seen()).findings)

    def test_each_record_once_holds(self) -> None:
        check = self.weigh(Tally(records=10, rows=9, dead=1, records_counted=10), Counts(10, 9, 0, 1))
        assert check.level is Level.HOLDS
        assert check.says == "10 records in the topic, 9 rows and 1 dead letter here"

    @pytest.mark.parametrize(
        ("tally", "message"),
        [
            (Tally(missing=7, samples={"missing": [1, 2, 3]}), "t[0]: 7 offsets missing: 1, 2, 3, …"),
            (Tally(doubled=1, surplus=2, samples={"doubled": [4]}), "t[0]: 1 offset more than once: 4"),
            (
                Tally(strangers=1, samples={"strangers": [6]}),
                "t[0]: 1 offset in the table, but not in the topic",
            ),
            (Tally(beyond=1, samples={"beyond": [11]}), "t[0]: 1 offset in the table beyond the frontier: 11"),
        ],
    )
    def test_each_kind_of_damage_is_broken_and_named(self, tally: Tally, message: str) -> None:
        check = self.weigh(tally + Tally(records_counted=10))
        assert check.level is Level.BROKEN
        assert messages(check).startswith(message)

    def test_what_was_given_up_is_noted_and_named(self) -> None:
        """FAULT-20."""
        check = self.weigh(Tally(records_counted=10, given_up=7, samples={"given_up": [1, 2]}))
        assert check.level is Level.NOTED
        assert "t[0]: 7 offsets missing, given up by the user after a rollback: 1, 2, …" in messages(check)

    def test_a_query_leaves_out_as_many_as_were_filtered(self) -> None:
        tally = Tally(records=10, rows=6, records_counted=10, missing=4, missing_counted=4)
        assert self.weigh(tally, Counts(10, 6, 4, 0), has_query=True).level is Level.HOLDS
        check = self.weigh(tally, Counts(10, 7, 3, 0), has_query=True)
        assert messages(check) == "4 records are not in the table, but 3 were filtered"

    def test_a_query_that_has_been_taken_out_again_explains_what_it_filtered(self) -> None:
        tally = Tally(records_counted=10, missing=4, missing_counted=4)
        assert self.weigh(tally, Counts(10, 6, 4, 0)).level is Level.HOLDS

    def test_a_query_that_returns_records_twice_is_noted_if_the_counts_add_up(self) -> None:
        tally = Tally(rows=20, records_counted=10, doubled=10, surplus=10, surplus_counted=10)
        assert self.weigh(tally, Counts(10, 20, -10, 0), has_query=True).level is Level.NOTED
        more = tally + Tally(surplus_counted=1)
        assert self.weigh(more, Counts(10, 20, -10, 0), has_query=True).level is Level.BROKEN

    def test_a_topic_with_other_counts_than_were_delivered_is_found(self) -> None:
        check = self.weigh(Tally(records_counted=9))
        assert "has 9 records in the spans of these epochs, which say that 10 were delivered" in messages(check)

    def test_a_compacted_topic_forgets_records_that_landed(self) -> None:
        tally = Tally(records_counted=9, strangers=1, samples={"strangers": [3]})
        assert self.weigh(tally).level is Level.BROKEN
        assert self.weigh(tally, compacted=frozenset({"t"})).level is Level.NOTED

    def test_without_columns_of_origin_only_counts_are_compared(self) -> None:
        check = self.weigh(Tally(records_counted=10, missing=10), has_origin=False)
        assert check.level is Level.HOLDS
        assert "only counts can be compared" in check.says
        assert self.weigh(Tally(records_counted=9), has_origin=False).level is Level.BROKEN


def test_a_table_whose_files_are_missing_is_not_compared() -> None:
    files = check_files(healthy().seen(), FilesSeen(wrong=[broken("gone")], wrong_count=1))
    assert is_readable(checks(healthy()))
    assert not is_readable([files])
    assert not_compared(healthy().seen()).level is Level.NOTED


def test_tallies_add_up_and_keep_the_first_offsets() -> None:
    one = Tally(missing=4, samples={"missing": [1, 5, 7, 9]})
    other = Tally(missing=3, doubled=1, samples={"missing": [2, 3, 4], "doubled": [8]})
    total = one + other
    assert (total.missing, total.doubled) == (7, 1)
    assert total.samples == {"missing": [1, 2, 3, 4, 5], "doubled": [8]}


def test_the_worst_finding_is_the_verdict() -> None:
    holds, noted_ = Check("t", "a", ""), check_others(healthy().other("append", added_records=1).seen())
    damaged = Check("t", "files", "", [broken("x")])
    assert Verdict("p", [holds]).level is Level.HOLDS
    assert Verdict("p", [holds, noted_]).level is Level.NOTED
    assert Verdict("p", [holds, damaged, noted_]).level is Level.BROKEN


def test_numbers_agree_with_their_nouns() -> None:
    assert (many(0, "file"), many(1, "file"), many(2_000, "file")) == ("0 files", "1 file", "2,000 files")


def test_of_a_bag_as_many_rows_are_found_as_came_and_did_not_go() -> None:
    """LIM-04: unless others, or epochs that have expired, had a part in it."""
    story = Story().start().epoch(1, span(p0="0-5"), Counts(5, 5))
    story.epoch(2, span(p0="5-9"), Counts(delivered=4, landed=2, deleted=3, collapsed=-1))
    assert check_bag(story.seen(), 4).level is Level.HOLDS
    check = check_bag(story.seen(), 5)
    assert check.level is Level.BROKEN
    assert "4 rows came and did not go, a reader finds 5" in messages(check)
    story.other("append", added_records=1, added_data_files=1)
    assert check_bag(story.seen(), 5).level is Level.HOLDS
    assert "others" in check_bag(story.seen(), 5).says
