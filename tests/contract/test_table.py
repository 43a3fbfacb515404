"""What every table must do for the protocol to hold, adapter by adapter."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.commit import Coordinator, EpochOutcome, World
from frazil.errors import CommitConflict, Fenced, TableAltered, TableChanged
from frazil.protocol.positions import Frontier, Position, Range, Span
from frazil.protocol.register import Epoch
from frazil.protocol.retry import Backoff
from frazil.protocol.summary import Counts

PARTITION = ("orders", 0)
PATIENCE = Backoff(base_s=0.0, max_s=0.0, attempts=10)


def start() -> Frontier:
    return Frontier({PARTITION: Position(0)}, {"orders": "topic-id"})


def coordinator(stage: Any, **settings: Any) -> Coordinator:
    return Coordinator("pipe", stage.table, interval_s=0.0, world=World(), backoff=PATIENCE, **settings)


def started(stage: Any, **settings: Any) -> Coordinator:
    one = coordinator(stage, **settings)
    one.start(start)
    return one


def epoch(stage: Any, number: int, first: int, last: int) -> EpochOutcome:
    file = stage.write(last - first)
    return EpochOutcome(
        Epoch(number),
        Span({PARTITION: Range(first, last)}),
        Counts(delivered=last - first, landed=last - first),
        {stage.table.name: [file]},
    )


def change_epoch(stage: Any, number: int, first: int, last: int) -> EpochOutcome:
    """One change of each id from 0 on."""
    written = {stage.table.name: stage.write_changes(*range(last - first))}
    return replace(epoch(stage, number, first, last), files=written)


def paths(outcome: EpochOutcome) -> list[str]:
    return sorted(file.path for files in outcome.files.values() for file in files)


def spans(stage: Any) -> list[tuple[int, int]]:
    history = [r for r in stage.table.history("pipe") if r.action in {"append", "row-delta"}]
    return [(r.span.ranges[PARTITION].start, r.span.ranges[PARTITION].end) for r in history]


def test_a_start_is_a_commit_that_records_where_to_begin(stage: Any) -> None:
    """SRC-06, COMMIT-12."""
    begun = coordinator(stage).start(start)
    assert (begun.generation, begun.epoch) == (1, 0)
    seen = stage.table.observe("pipe")
    assert seen.register.frontier == start()
    assert seen.snapshot_id is not None, "an empty snapshot: a change of properties alone fences nobody"

    again = coordinator(stage).start(lambda: pytest.fail("starting offsets are resolved once"))
    assert (again.generation, again.frontier) == (2, start())


def test_data_and_frontier_land_together(stage: Any) -> None:
    """COMMIT-01, COMMIT-14."""
    one = started(stage)
    outcome = epoch(stage, 1, 0, 10)
    landed = one.commit(outcome)
    assert landed is not None
    seen = stage.table.observe("pipe")
    assert seen.register.frontier.offset(PARTITION) == 10
    assert seen.register.snapshot_id == seen.snapshot_id
    assert stage.live_paths() == [outcome.files[stage.table.name][0].path]
    (record,) = [r for r in stage.table.history("pipe") if r.action in {"append", "row-delta"}]
    assert (record.epoch, record.counts.landed, record.data_files) == (1, 10, 1)
    assert record.batch_id == landed.register.batch_id


def test_an_older_coordinator_is_fenced_by_a_start(stage: Any) -> None:
    """COMMIT-12, COMMIT-17, FAULT-05, FAULT-06, TEST-06: one active committer at a time."""
    old = started(stage)
    old.commit(epoch(stage, 1, 0, 10))
    new = started(stage)
    with pytest.raises(Fenced):
        old.commit(epoch(stage, 2, 10, 20))
    new.commit(epoch(stage, 2, 10, 20))
    assert spans(stage) == [(0, 10), (10, 20)]
    assert len(stage.live_paths()) == 2


def test_a_coordinator_paused_across_epochs_compaction_and_expiry_is_fenced(stage: Any) -> None:
    """FAULT-05, FAULT-18, FAULT-19: comparing ancestries alone would let it commit an old epoch again."""
    old = started(stage)
    old.commit(epoch(stage, 1, 0, 10))
    late = epoch(stage, 2, 10, 20)
    new = started(stage)
    new.commit(epoch(stage, 2, 10, 20))
    new.commit(epoch(stage, 3, 20, 30))
    stage.compact_and_expire()
    live = stage.live_paths()
    with pytest.raises(Fenced):
        old.commit(late)
    assert stage.live_paths() == live
    assert stage.table.observe("pipe").register.frontier.offset(PARTITION) == 30


def test_two_coordinators_that_start_at_the_same_moment(stage: Any) -> None:
    """FAULT-06: both saw the same table; one start lands on the other's, and only one can go on."""
    one, two = coordinator(stage), coordinator(stage)
    observe = stage.table.observe

    def meanwhile(writer: str) -> Any:
        seen = observe(writer)
        stage.table.observe = observe
        two.start(start, take_over=True)
        return seen

    stage.table.observe = meanwhile
    one.start(start, take_over=True)
    one.commit(epoch(stage, 1, 0, 10))
    with pytest.raises(Fenced):
        two.commit(epoch(stage, 1, 0, 10))
    assert spans(stage) == [(0, 10)]


def test_a_lost_reply_is_found_to_have_landed(stage: Any) -> None:
    """COMMIT-11, FAULT-07, FAULT-08."""
    one = started(stage)
    stage.lose_next_reply()
    one.commit(epoch(stage, 1, 0, 10))
    one.commit(epoch(stage, 2, 10, 20))
    assert spans(stage) == [(0, 10), (10, 20)]
    assert len(stage.live_paths()) == 2


def test_a_refused_commit_is_tried_again_with_the_same_files(stage: Any) -> None:
    """COMMIT-06, COMMIT-09."""
    one = started(stage)
    outcome = epoch(stage, 1, 0, 10)
    stage.refuse_next(2)
    one.commit(outcome)
    assert stage.live_paths() == [outcome.files[stage.table.name][0].path]


def test_retries_are_bounded_and_the_files_are_kept(stage: Any) -> None:
    """COMMIT-09, FAULT-12."""
    one = started(stage)
    stage.refuse_next(PATIENCE.attempts)
    with pytest.raises(CommitConflict, match="10 attempts"):
        one.commit(epoch(stage, 1, 0, 10))
    assert spans(stage) == []


def test_foreign_commits_in_between_are_no_obstacle(stage: Any) -> None:
    """COMMIT-07, FAULT-19."""
    one = started(stage)
    for number in range(1, 5):
        stage.append_foreign()
        one.commit(epoch(stage, number, number * 10 - 10, number * 10))
        if number == 2:
            stage.compact_and_expire()
    assert stage.table.observe("pipe").register.epoch == 4


def test_half_of_all_commits_in_conflict_lose_and_double_nothing(stage: Any) -> None:
    """FAULT-12, COMMIT-06: a foreign writer gets in between load and commit, again and again; each time is told."""
    one = started(stage)
    dice = random.Random(7)
    commit = stage.table.commit
    conflicts = 0

    def contended(proposal: Any, files: Any) -> Any:
        nonlocal conflicts
        if dice.random() < 0.5:
            stage.before_swap(stage.append_foreign)
            conflicts += 1
        return commit(proposal, files)

    stage.table.commit = contended
    with capture_logs() as told:
        for number in range(1, 9):
            one.commit(epoch(stage, number, number * 10 - 10, number * 10))
    assert spans(stage) == [(n * 10, n * 10 + 10) for n in range(8)]
    assert conflicts > 2
    assert [each["event"] for each in told if each["log_level"] == "warning"] == ["commit failed"] * conflicts


def test_a_rollback_stops_the_running_and_the_next_coordinator(stage: Any) -> None:
    """FAULT-20."""
    one = started(stage)
    one.commit(epoch(stage, 1, 0, 10))
    stage.roll_back()
    with pytest.raises(TableChanged, match="rolled back"):
        one.commit(epoch(stage, 2, 10, 20))
    with pytest.raises(TableChanged, match="rolled back"):
        started(stage)


def test_a_recreated_table_stops_the_running_coordinator(stage: Any) -> None:
    """COMMIT-05, FAULT-38: the uuid is part of what a commit requires."""
    one = started(stage)
    one.commit(epoch(stage, 1, 0, 10))
    stage.recreate()
    with pytest.raises(TableChanged, match="another table"):
        one.commit(epoch(stage, 2, 10, 20))
    assert stage.live_paths() == []


@pytest.mark.parametrize("what", ["schema", "partitioning", "order"])
def test_a_table_altered_since_the_files_were_written_takes_them_only_when_written_again(
    stage: Any, what: str
) -> None:
    """COMMIT-05, FAULT-41, SCHEMA-08: with next-epoch, schema, spec and sort order are what a commit requires."""
    one = started(stage, mixed_epoch="next-epoch")
    outcome = epoch(stage, 1, 0, 10)
    stage.alter(what)
    with pytest.raises(TableAltered, match=r"epoch 1 .* the table has schema"):
        one.commit(outcome)
    assert stage.live_paths() == []

    one.resync()
    again = epoch(stage, 1, 0, 10)
    one.commit(again)

    assert stage.live_paths() == [again.files[stage.table.name][0].path]
    assert spans(stage) == [(0, 10)]


@pytest.mark.parametrize("what", ["schema", "partitioning", "order"])
def test_a_table_altered_between_the_judgement_and_the_swap_is_judged_again(stage: Any, what: str) -> None:
    """COMMIT-05, FAULT-41: the swap fails on other metadata than was judged.

    A REST catalog compares the head only. The files then land in a table that they still fit: their columns
    are known by id, and they name the partition spec that they were written for.
    """
    one = started(stage, mixed_epoch="next-epoch")
    outcome = epoch(stage, 1, 0, 10)
    stage.before_swap(lambda: stage.alter(what))
    if stage.compares_heads_only:
        one.commit(outcome)
        assert spans(stage) == [(0, 10)]
        assert len(stage.live_paths()) == 1
        return
    with pytest.raises(TableAltered):
        one.commit(outcome)
    assert stage.live_paths() == []


@pytest.mark.parametrize("what", ["schema", "partitioning", "order"])
@pytest.mark.parametrize("late", [False, True], ids=["before", "inside"])
def test_files_that_fit_an_altered_table_land_as_they_were_written(stage: Any, what: str, late: bool) -> None:
    """SCHEMA-08, SCHEMA-10: altered before their commit, or inside of it; what is written next is new in shape."""
    if not stage.remembers_layouts:
        pytest.skip("files of a former layout are always written again")
    one = started(stage)
    first, second = epoch(stage, 1, 0, 10), epoch(stage, 2, 10, 20)
    if late:
        stage.before_swap(lambda: stage.alter(what))
    else:
        stage.alter(what)
    for outcome in (first, second, third := epoch(stage, 3, 20, 30)):
        one.commit(outcome)

    assert sorted(stage.live_paths()) == sorted(paths(first) + paths(second) + paths(third))
    assert spans(stage) == [(0, 10), (10, 20), (20, 30)]


@pytest.mark.parametrize("what", ["schema", "partitioning", "order"])
def test_changes_that_fit_an_altered_table_land_as_they_were_written(stage: Any, what: str) -> None:
    """SCHEMA-08, SCHEMA-10: their deletes reach the rows of every partition."""
    one = started(stage)
    first, second = change_epoch(stage, 1, 0, 10), change_epoch(stage, 2, 10, 20)
    one.commit(first)
    stage.alter(what)
    one.commit(second)
    assert sorted(stage.live_paths()) == sorted(paths(first) + paths(second))


@pytest.mark.parametrize(
    ("before", "what", "why"),
    [
        ("schema", "required", "they have no column must"),
        ("order", "key", "a column of the key has changed"),
        ("partitioning", "partitioning", "reach rows of the former partition spec only"),
    ],
)
def test_changes_that_an_altered_table_would_read_otherwise_are_written_again(
    stage: Any, before: str, what: str, why: str
) -> None:
    """SCHEMA-08, SCHEMA-10: rows with deletes, and deletes alone; the last ones reach one partition each."""
    one = started(stage)
    stage.alter(before)
    outcome = change_epoch(stage, 1, 0, 10)
    files = outcome.files[stage.table.name]
    stage.alter(what)
    for some in (files, [file for file in files if not file.is_data]):
        with pytest.raises(TableAltered, match=why):
            one.commit(replace(outcome, files={stage.table.name: some}))
    assert stage.live_paths() == []


def test_rows_that_lack_what_an_altered_table_requires_are_written_again(stage: Any) -> None:
    """SCHEMA-08: there would be nothing to read in the column."""
    one = started(stage)
    outcome = epoch(stage, 1, 0, 10)
    stage.alter("required")
    with pytest.raises(TableAltered, match="they have no column must"):
        one.commit(outcome)
    assert stage.live_paths() == []


@pytest.mark.parametrize("what", ["schema", "partitioning"])
def test_files_of_a_layout_that_the_table_has_forgotten_are_written_again(stage: Any, what: str) -> None:
    """SCHEMA-08: nobody can tell any more what is in them."""
    one = started(stage)
    outcome = epoch(stage, 1, 0, 10)
    stage.alter(what)
    one.commit(epoch(stage, 1, 0, 5))
    stage.forget_former_layouts()
    late = replace(outcome, epoch=Epoch(2), span=Span({PARTITION: Range(5, 15)}))
    with pytest.raises(TableAltered, match="no longer knows"):
        one.commit(late)
    assert spans(stage) == [(0, 5)]


def test_the_same_epoch_again_is_found_to_be_in_already(stage: Any) -> None:
    """COMMIT-04, EPOCH-15, FAULT-03: a replay is a no-op."""
    one = started(stage)
    before = one._registers[stage.table.name]
    one.commit(epoch(stage, 1, 0, 10))
    one._registers[stage.table.name] = before
    one.commit(epoch(stage, 1, 0, 10))
    assert spans(stage) == [(0, 10)]
    assert len(stage.live_paths()) == 1


def test_a_file_reported_twice_is_referenced_once(stage: Any) -> None:
    """COMMIT-19, TEST-04."""
    one = started(stage)
    outcome = epoch(stage, 1, 0, 10)
    (file,) = outcome.files[stage.table.name]
    one.commit(replace(outcome, files={stage.table.name: [file, file]}))
    assert stage.live_paths() == [file.path]


def test_files_that_no_snapshot_has_can_be_told_from_those_that_one_has(stage: Any) -> None:
    """REC-13, REC-16: also when that snapshot is not part of the head's history any more."""
    one = started(stage)
    before = one.registers[stage.table.name].sequence_number
    outcome = epoch(stage, 1, 0, 10)
    landed, lost = outcome.files[stage.table.name][0].path, stage.write(3).path
    one.commit(outcome)
    everything = stage.table.find_files(stage.location, lambda path: path in (landed, lost))

    assert sorted(everything) == sorted([landed, lost])
    assert stage.table.referenced(everything, before) == {landed}
    assert stage.table.referenced(everything, 0) == {landed}
    stage.roll_back()
    assert landed not in stage.live_paths()
    assert stage.table.referenced(everything, before) == {landed}
    assert stage.table.referenced(everything, before + 1) == set(), "snapshots up to there are not looked at"
    stage.table.delete_files([lost])
    assert stage.table.find_files(stage.location, lambda path: path in (landed, lost)) == [landed]


def test_a_folder_that_was_never_written_to_holds_nothing(stage: Any) -> None:
    assert stage.table.find_files(f"{stage.location}/nowhere", lambda _: True) == []


def test_rows_deletes_and_frontier_land_together(stage: Any) -> None:
    """COMMIT-01, COMMIT-02, CHG-09."""
    one = started(stage)
    outcome = change_epoch(stage, 1, 0, 10)
    one.commit(outcome)
    assert sorted(stage.live_paths()) == paths(outcome)
    (record,) = [r for r in stage.table.history("pipe") if r.epoch == 1]
    assert (record.data_files, record.delete_files) == (1, 1)
    assert stage.table.observe("pipe").register.frontier.offset(PARTITION) == 10


def test_a_lost_reply_to_deletes_is_found_to_have_landed(stage: Any) -> None:
    """COMMIT-11, FAULT-07, FAULT-08."""
    one = started(stage)
    stage.lose_next_reply()
    both = [change_epoch(stage, 1, 0, 10), change_epoch(stage, 2, 10, 20)]
    for outcome in both:
        one.commit(outcome)
    assert spans(stage) == [(0, 10), (10, 20)]
    assert sorted(stage.live_paths()) == sorted(paths(both[0]) + paths(both[1]))


def test_deletes_that_were_refused_are_tried_again_behind_what_others_did(stage: Any) -> None:
    """COMMIT-06, COMMIT-07, COMMIT-09, FAULT-12."""
    one = started(stage)
    one.commit(epoch(stage, 1, 0, 10))
    outcome = change_epoch(stage, 2, 10, 20)
    stage.append_foreign()
    stage.refuse_next(2)
    one.commit(outcome)
    assert set(paths(outcome)) < set(stage.live_paths())
    assert spans(stage) == [(0, 10), (10, 20)]


def test_the_same_deletes_again_are_found_to_be_in_already(stage: Any) -> None:
    """COMMIT-04, EPOCH-15, FAULT-03: a delete that came twice could hit what came in between."""
    one = started(stage)
    before = one._registers[stage.table.name]
    first = change_epoch(stage, 1, 0, 10)
    one.commit(first)
    one._registers[stage.table.name] = before
    one.commit(change_epoch(stage, 1, 0, 10))
    assert spans(stage) == [(0, 10)]
    assert sorted(stage.live_paths()) == paths(first)


def test_deletes_of_a_coordinator_that_was_replaced_do_not_land(stage: Any) -> None:
    """COMMIT-12, FAULT-05, FAULT-06."""
    old = started(stage)
    late = change_epoch(stage, 1, 0, 10)
    new = started(stage)
    outcome = change_epoch(stage, 1, 0, 10)
    new.commit(outcome)
    with pytest.raises(Fenced):
        old.commit(late)
    assert sorted(stage.live_paths()) == paths(outcome)


def test_a_commit_that_replaces_leaves_nothing_of_what_was_there(stage: Any) -> None:
    """CHG-08: a TRUNCATE at the source; deletes have nothing left to delete and stay out."""
    one = started(stage)
    one.commit(epoch(stage, 1, 0, 10))
    one.commit(change_epoch(stage, 2, 10, 20))
    commit = stage.table.commit
    stage.table.commit = lambda proposal, files: commit(replace(proposal, replaces=True), files)
    outcome = change_epoch(stage, 3, 20, 30)
    one.commit(outcome)
    rows = [file.path for file in outcome.files[stage.table.name] if file.content == "data"]
    assert stage.live_paths() == rows
    one.commit(replace(change_epoch(stage, 4, 30, 40), files={}), force=True)
    assert stage.live_paths() == []
    assert not stage.table.observe("pipe").has_rows
    stage.table.commit = commit
    one.commit(epoch(stage, 5, 40, 50))
    assert len(stage.live_paths()) == 1


def test_a_commit_that_replaces_lands_in_an_altered_table_whatever_its_deletes_reach(stage: Any) -> None:
    """CHG-08, SCHEMA-08, SCHEMA-10: they stay out, and rows of every partition spec go."""
    one = started(stage)
    one.commit(epoch(stage, 1, 0, 10))
    stage.alter("partitioning")
    one.commit(epoch(stage, 2, 10, 20))
    outcome = replace(change_epoch(stage, 3, 20, 30), replaces=True)
    stage.alter("partitioning")
    one.commit(outcome)
    rows = [file.path for file in outcome.files[stage.table.name] if file.is_data]
    assert sorted(stage.live_paths()) == sorted(rows)


def test_a_commit_that_replaces_counts_what_it_commits_and_removes_the_rest(stage: Any) -> None:
    """CHG-10, FAULT-02: deletes that have nothing left to delete are neither counted nor left behind."""
    one = started(stage)
    one.commit(epoch(stage, 1, 0, 10))
    outcome = replace(change_epoch(stage, 2, 10, 20), replaces=True)
    stage.lose_next_reply()
    landed = one.commit(outcome)
    rows = [file.path for file in outcome.files[stage.table.name] if file.content == "data"]
    (record,) = [record for record in stage.table.history("pipe") if record.epoch == 2]
    assert (record.action, record.data_files, record.delete_files) == ("overwrite", len(rows), 0)
    assert landed is not None
    assert landed.files == len(rows)
    assert stage.live_paths() == rows
    written = set(paths(outcome))
    assert stage.table.find_files(stage.location, written.__contains__) == rows
