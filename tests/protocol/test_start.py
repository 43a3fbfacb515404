"""Starting, row by row of the table in `protocol/start.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import TableChanged
from frazil.protocol.commit import Held, Sign, Standing, TableObserved
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Position, Range, Span
from frazil.protocol.register import BatchId, Epoch, Generation, Register
from frazil.protocol.start import (
    Amends,
    Begin,
    Circumstances,
    OnRollback,
    Resume,
    Stop,
    Wait,
    begin_at,
    decide_start,
    side_frontier,
)

NOW_MS = 1_000_000_000
LATER = Circumstances(NOW_MS)
"""long after anybody's last sign of life"""


def at(offset: int) -> Frontier:
    return Frontier({("t", 0): Position(offset)}, {"t": "id"})


def register(
    name: str, epoch: int, offset: int, generation: int = 1, coordinator: str = "old", uuid: str = ""
) -> Register:
    return Register(
        Generation(generation),
        coordinator,
        Epoch(epoch),
        BatchId(f"{name}-{epoch}"),
        at(offset),
        table_uuid=uuid or f"uuid of {name}",
        snapshot_id=epoch + 1,
    )


def table(
    name: str,
    epoch: int | None = None,
    offset: int = 0,
    generation: int = 1,
    *,
    data: bool | None = None,
    standing: Standing = Standing.ANCESTOR,
    sign: Sign | None = None,
) -> TableObserved:
    found = None if epoch is None else register(name, epoch, offset, generation)
    has_data = found is not None if data is None else data
    return TableObserved(name, f"uuid of {name}", 77, found, has_rows=has_data, standing=standing, sign=sign)


def stopped(decision: object) -> TableChanged:
    assert isinstance(decision, Stop)
    assert isinstance(decision.error, TableChanged)
    assert decision.error.remedy
    return decision.error


def test_nothing_anywhere_begins() -> None:
    assert decide_start(table("main"), [], LATER) == Begin(Generation(1), Epoch(0))
    assert decide_start(table("main"), [table("dead"), table("late")], LATER) == Begin(Generation(1), Epoch(0))


def test_data_of_another_pipeline_is_refused_with_its_name() -> None:
    """FAULT-14: a pipeline that was renamed would land everything again."""
    theirs = replace(table("main", data=True), other_writers=("orders", "orders-2"))
    problem = stopped(decide_start(theirs, [], LATER))
    assert "no frontier of this pipeline; it has those of orders, orders-2" in problem.message
    assert "give pipeline.name back: orders or orders-2" in problem.remedy
    assert "--adopt" in problem.remedy
    assert "it has those" not in stopped(decide_start(table("main", data=True), [], LATER)).message


def test_a_table_with_snapshots_but_without_rows_is_as_good_as_new() -> None:
    empty = TableObserved("main", "uuid of main", 77, None, has_rows=False)
    assert decide_start(empty, [], LATER) == Begin(Generation(1), Epoch(0))


def test_otherwise_it_resumes_from_the_anchor_under_a_new_generation() -> None:
    """FAULT-14, FAULT-22, REC-18, REC-19: the table alone says where to go on."""
    decision = decide_start(table("main", 7, 70, generation=3), [], LATER)
    assert decision == Resume(Generation(4), Epoch(7), at(70))


def test_a_first_start_that_died_between_side_and_anchor_has_already_decided_what_latest_means() -> None:
    """`latest` is decided once: the side table remembers it."""
    decision = decide_start(table("main"), [table("dead", 0, offset=123)], LATER)
    assert decision == Resume(Generation(2), Epoch(0), at(123))


def test_a_first_start_that_died_between_two_side_tables_has_decided_it_too() -> None:
    sides = [table("dead", 0, offset=123), table("late")]
    assert decide_start(table("main"), sides, LATER) == Resume(Generation(2), Epoch(0), at(123))
    sides = [table("dead"), table("late", 0, offset=123)]
    assert decide_start(table("main"), sides, LATER) == Resume(Generation(2), Epoch(0), at(123))


def test_an_anchor_without_a_register_beside_a_side_table_further_on_was_recreated() -> None:
    """FAULT-38."""
    problem = stopped(decide_start(table("main"), [table("dead", 5, 50)], LATER))
    assert "main was dropped and created again" in problem.message
    assert "dead is at epoch 5" in problem.message


def test_the_side_table_that_is_furthest_on_decides_whether_the_anchor_was_recreated() -> None:
    """FAULT-38: several side tables, the first of them idle."""
    sides = [table("idle", 0, 0), table("dead", 5, 50), table("new")]
    problem = stopped(decide_start(table("main"), sides, LATER))
    assert "dead is at epoch 5" in problem.message


@pytest.mark.parametrize("name", ["main", "dead"])
def test_data_without_a_register_is_refused_on_any_table(name: str) -> None:
    tables = {each: table(each, data=each == name) for each in ("main", "dead")}
    problem = stopped(decide_start(tables["main"], [tables["dead"]], LATER))
    assert name in problem.message
    assert "--adopt" in problem.remedy


def test_data_without_a_register_is_adopted_when_told_to() -> None:
    told = replace(LATER, adopt=True)
    decision = decide_start(table("main", data=True), [table("dead", data=True)], told)
    assert decision == Begin(Generation(1), Epoch(0))


@pytest.mark.parametrize("epoch", [0, 5])
def test_adopting_after_a_rollback_takes_the_starting_offsets_and_not_a_side_tables_old_ones(epoch: int) -> None:
    """FAULT-20: the remedy says so, and rows from the side table's first offsets on would land twice."""
    told = replace(LATER, adopt=True)
    decision = decide_start(table("main", data=True), [table("dead", epoch, 10, generation=3)], told)
    assert decision == Begin(Generation(4), Epoch(epoch))


def test_adopting_changes_nothing_for_a_table_with_a_register() -> None:
    told = replace(LATER, adopt=True)
    assert decide_start(table("main", 7, 70), [], told) == decide_start(table("main", 7, 70), [], LATER)


@pytest.mark.parametrize("name", ["main", "dead"])
def test_a_register_of_another_table_uuid_is_refused(name: str) -> None:
    """FAULT-38: properties may be copied, by CREATE TABLE LIKE for example."""
    tables = {each: table(each, 3, 30) for each in ("main", "dead")}
    copied = replace(tables[name], register=register(name, 3, 30, uuid="another uuid"))
    tables[name] = copied
    problem = stopped(decide_start(tables["main"], [tables["dead"]], LATER))
    assert "another uuid" in problem.message
    assert f"uuid of {name}" in problem.message


@pytest.mark.parametrize("name", ["main", "dead"])
@pytest.mark.parametrize("told", [LATER, replace(LATER, take_over=True), replace(LATER, adopt=True)])
def test_a_rolled_back_table_stops_whatever_else_was_said(name: str, told: Circumstances) -> None:
    """FAULT-20."""
    tables = {each: table(each, 3, 30) for each in ("main", "dead")}
    tables[name] = replace(tables[name], standing=Standing.ROLLED_BACK)
    problem = stopped(decide_start(tables["main"], [tables["dead"]], told))
    assert name in problem.message


def test_expired_snapshots_change_nothing() -> None:
    """FAULT-18, FAULT-19, REC-19, REC-20."""
    decision = decide_start(table("main", 7, 70, standing=Standing.EXPIRED), [], LATER)
    assert decision == Resume(Generation(2), Epoch(7), at(70))


def test_generation_and_epoch_rise_above_those_of_every_table() -> None:
    """EPOCH-01, COMMIT-12: a crash left a side table one commit or one claim ahead."""
    sides = [table("dead", 8, 80, generation=5), table("late", 2, 20, generation=6)]
    decision = decide_start(table("main", 7, 70, generation=4), sides, LATER)
    assert decision == Resume(Generation(7), Epoch(8), at(70))


def test_the_anchor_decides_where_to_read_on_even_if_a_side_table_is_ahead_or_behind() -> None:
    for offset in (0, 70, 500):
        decision = decide_start(table("main", 7, 70), [table("dead", 7, offset)], LATER)
        assert isinstance(decision, Resume)
        assert decision.frontier == at(70)


class TestCourtesy:
    """A start that sees a recent commit by another coordinator waits; safety never rests on it."""

    def recent(self, name: str = "main", silent_s: float = 10, interval_s: float = 30) -> TableObserved:
        sign = Sign(NOW_MS - int(silent_s * 1000), "host/1/2", interval_s)
        return table(name, 7, 70, sign=sign)

    def test_it_waits_until_three_intervals_have_passed_in_silence(self) -> None:
        assert decide_start(self.recent(silent_s=10), [], LATER) == Wait(80, "old")
        assert decide_start(self.recent(silent_s=89.5), [], LATER) == Wait(0.5, "old")
        assert isinstance(decide_start(self.recent(silent_s=90), [], LATER), Resume)

    def test_it_does_not_wait_for_a_process_that_is_known_to_be_dead(self) -> None:
        assert isinstance(decide_start(self.recent(), [], replace(LATER, dead_process=True)), Resume)

    def test_it_does_not_wait_when_told_to_take_over(self) -> None:
        assert isinstance(decide_start(self.recent(), [], replace(LATER, take_over=True)), Resume)

    def test_the_latest_sign_on_any_table_counts(self) -> None:
        sides = [self.recent("dead", silent_s=80), self.recent("late", silent_s=20)]
        assert decide_start(self.recent(silent_s=50), sides, LATER) == Wait(70, "old")

    def test_it_waits_for_a_first_start_that_is_between_side_and_anchor(self) -> None:
        """FAULT-06: two coordinators starting at the same moment."""
        sign = Sign(NOW_MS, "host/1/2", 30)
        assert decide_start(table("main"), [table("dead", 0, 5, sign=sign)], LATER) == Wait(90, "old")

    def test_it_does_not_wait_before_it_stops(self) -> None:
        broken = replace(self.recent(), standing=Standing.ROLLED_BACK)
        assert isinstance(decide_start(broken, [], LATER), Stop)


@given(
    own=st.dictionaries(st.tuples(st.just("t"), st.integers(0, 4)), st.builds(Position, st.integers(0, 99))),
    anchor=st.dictionaries(st.tuples(st.just("t"), st.integers(0, 4)), st.builds(Position, st.integers(0, 99))),
)
def test_a_side_table_takes_rows_from_the_later_of_both_frontiers(
    own: dict[tuple[str, int], Position], anchor: dict[tuple[str, int], Position]
) -> None:
    """An idle side table never drags the pipeline back, one that is ahead never takes a row twice."""
    mine = replace(register("dead", 1, 0), frontier=Frontier(own))
    floor = side_frontier(mine, Frontier(anchor))
    for partition in own.keys() | anchor.keys():
        known = [f[partition].offset for f in (own, anchor) if partition in f]
        assert floor.offset(partition) == max(known)


def test_a_side_table_that_is_new_begins_with_the_anchor() -> None:
    assert side_frontier(None, at(70)) == at(70)


REWIND = replace(LATER, on_rollback=OnRollback.REWIND)
KEEP = replace(LATER, on_rollback=OnRollback.KEEP)


def span(start: int, end: int) -> Span:
    return Span({("t", 0): Range(start, end)})


def rolled_back(
    name: str, epoch: int, offset: int, held: Frontier | None, lost: Span | None = None, *, data: bool = True
) -> TableObserved:
    seen = table(name, epoch, offset, standing=Standing.ROLLED_BACK, data=data)
    return replace(seen, held=Held(held, lost))


class TestRollback:
    """FAULT-20, COMMIT-13: the two tables on rollbacks in `protocol/start.py`, line by line."""

    main = rolled_back("main", 7, 70, at(40), span(40, 70))

    def test_without_a_word_both_choices_are_named(self) -> None:
        remedy = stopped(decide_start(self.main, [], LATER)).remedy
        assert "--on-rollback rewind" in remedy
        assert "--on-rollback keep" in remedy
        assert "set the current snapshot to 8" in remedy

    def test_rewind_goes_back_to_what_the_head_holds_but_no_epoch_back(self) -> None:
        decision = decide_start(self.main, [table("dead", 7, 70)], REWIND)
        amends = {"main": Amends(at(40), at(40), rewound_from=at(70))}
        assert decision == Resume(Generation(2), Epoch(7), at(40), amends)

    def test_keep_goes_on_from_the_register_and_names_what_is_given_up(self) -> None:
        decision = decide_start(self.main, [table("dead", 7, 70)], KEEP)
        assert decision == Resume(
            Generation(2), Epoch(7), at(70), {"main": Amends(at(40), at(70), given_up=span(40, 70))}
        )

    def test_rewind_takes_side_tables_back_that_lost_nothing_before_the_anchors_place(self) -> None:
        side = rolled_back("dead", 7, 65, at(10), span(40, 65))
        decision = decide_start(self.main, [side], REWIND)
        assert isinstance(decision, Resume)
        assert decision.amends["dead"] == Amends(at(10), at(10), rewound_from=at(65))

    @pytest.mark.parametrize("lost", [span(39, 65), None])
    def test_rewind_stops_if_rows_of_a_side_table_would_not_come_back(self, lost: Span | None) -> None:
        problem = stopped(decide_start(self.main, [rolled_back("dead", 7, 65, at(10), lost)], REWIND))
        assert "dead was rolled back" in problem.message
        assert "--on-rollback keep" in problem.remedy

    def test_rewind_of_a_side_table_alone_brings_back_only_what_it_was_ahead(self) -> None:
        ahead = rolled_back("dead", 8, 80, at(60), span(70, 80))
        decision = decide_start(table("main", 7, 70), [ahead], REWIND)
        assert isinstance(decision, Resume)
        assert (decision.frontier, decision.epoch) == (at(70), 8)
        behind = rolled_back("dead", 7, 70, at(60), span(60, 70))
        assert "offsets 60 to 69" in stopped(decide_start(table("main", 7, 70), [behind], REWIND)).message

    def test_keep_of_a_side_table_alone_gives_up_its_rows_only(self) -> None:
        decision = decide_start(table("main", 7, 70), [rolled_back("dead", 7, 65, at(10))], KEEP)
        amends = {"dead": Amends(at(10), at(65), given_up=span(10, 65))}
        assert decision == Resume(Generation(2), Epoch(7), at(70), amends)

    def test_rewinding_to_nothing_begins_at_the_starting_offsets(self) -> None:
        main = rolled_back("main", 7, 70, Frontier(), data=False)
        side = rolled_back("dead", 7, 65, Frontier(), span(5, 65), data=False)
        begin = decide_start(main, [side], REWIND)
        assert isinstance(begin, Begin)
        resume = begin_at(begin, main, [side], at(5))
        assert isinstance(resume, Resume)
        assert resume.amends == {
            "main": Amends(Frontier(), at(5), rewound_from=at(70)),
            "dead": Amends(Frontier(), at(5), rewound_from=at(65)),
        }
        assert "offsets 5 to 5" in stopped(begin_at(begin, main, [side], at(6))).message

    def test_starting_offsets_beyond_the_register_are_refused(self) -> None:
        """`latest`, say: who begins again would leave out what nobody has read."""
        main = rolled_back("main", 7, 70, Frontier(), data=False)
        begin = decide_start(main, [], REWIND)
        assert isinstance(begin, Begin)
        assert "t[0] offsets 70 to 99" in stopped(begin_at(begin, main, [], at(100))).message

    def test_rows_without_a_snapshot_of_ours_are_not_doubled_unasked(self) -> None:
        """CREATE OR REPLACE … AS SELECT may have copied them."""
        main = rolled_back("main", 7, 70, Frontier())
        assert "--adopt" in stopped(decide_start(main, [], REWIND)).remedy
        assert isinstance(decide_start(main, [], replace(REWIND, adopt=True)), Begin)
        kept = decide_start(main, [], KEEP)
        assert isinstance(kept, Resume)
        assert kept.amends["main"].given_up == span(0, 70)

    @pytest.mark.parametrize("told", [REWIND, KEEP])
    def test_a_head_that_holds_more_or_nobody_knows_what_stops(self, told: Circumstances) -> None:
        assert "branch" in stopped(decide_start(rolled_back("main", 7, 70, at(71)), [], told)).message
        assert "expired" in stopped(decide_start(rolled_back("main", 7, 70, None), [], told)).message

    @pytest.mark.parametrize(("lost", "offset"), [(Span({("t", 1): Range(3, 9)}), 3), (EMPTY_SPAN, 0), (None, 0)])
    def test_a_partition_that_came_later_goes_back_to_where_it_began(self, lost: Span | None, offset: int) -> None:
        """Found by the simulation: from its present beginning on, what retention took would be lost in silence."""
        two = Frontier({("t", 0): Position(70), ("t", 1): Position(9)}, {"t": "id"})
        main = rolled_back("main", 7, 70, at(40), lost)
        assert main.register is not None
        decision = decide_start(replace(main, register=replace(main.register, frontier=two)), [], REWIND)
        assert isinstance(decision, Resume)
        assert decision.frontier.offset(("t", 1)) == offset

    def test_a_recreated_table_is_not_covered(self) -> None:
        """FAULT-38."""
        other = replace(self.main, register=register("main", 7, 70, uuid="another uuid"))
        for told in (REWIND, KEEP):
            assert "another table" in stopped(decide_start(other, [], told)).message

    @pytest.mark.parametrize("told", [REWIND, KEEP])
    def test_tables_that_were_not_rolled_back_start_as_ever(self, told: Circumstances) -> None:
        tables = table("main", 7, 70), [table("dead", 5, 50)]
        assert decide_start(*tables, told) == decide_start(*tables, LATER)
