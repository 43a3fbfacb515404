"""Tables that a user rolled back or replaced with real Iceberg, and what becomes of them under either choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.engine.inspect import inspect_pipeline
from frazil.engine.recover import look_at_recovery
from frazil.engine.verify import verify_pipeline
from frazil.errors import TableChanged
from frazil.protocol.start import OnRollback
from frazil.protocol.verify import Level, Verdict
from frazil.serve.journal import recovery_lines
from frazil.serve.report import status_json

pytestmark = pytest.mark.real

REWIND, KEEP = OnRollback.REWIND, OnRollback.KEEP
BAD = {5, 13, 17}
"""offsets of records that cannot be decoded"""


def rig_with_rows(make_rig: Callable[..., Any]) -> Any:
    """Three epochs of ten offsets: rows, and a dead letter in the first and two in the second."""
    rig = make_rig(epoch={"max_records": 10})
    rig.tree["journal"] = {"dir": str(rig.folder / ".frazil")}
    rig.produce([b"bad" if n in BAD else {"id": n} for n in range(30)])
    rig.run()
    return rig


def proven(rig: Any) -> Verdict:
    return verify_pipeline(rig.spec, rig.spark, deep=True)


def said(verdict: Verdict) -> str:
    return "\n".join(finding.message for _, finding in verdict.findings)


def good(*ranges: range) -> list[tuple[int, int]]:
    return [(0, offset) for some in ranges for offset in some if offset not in BAD]


def dead(*offsets: int) -> list[tuple[int, int]]:
    return [(0, offset) for offset in offsets]


def test_rewinding_a_rolled_back_table_lands_each_lost_row_again_and_no_dead_letter_twice(
    make_rig: Callable[..., Any],
) -> None:
    """FAULT-20, COMMIT-13: the dead letters were not rolled back, and keep what they have."""
    rig = rig_with_rows(make_rig)
    rig.roll_back(2)
    with pytest.raises(TableChanged, match=r"(?s)rolled back or replaced.*set the current snapshot.*rewind.*keep"):
        rig.run()
    [trouble, none] = [
        table["trouble"] for table in status_json(rig.spec, inspect_pipeline(rig.spec, rig.spark))["tables"]
    ]
    assert "rolled back or replaced" in trouble
    assert none is None
    foreseen = "\n".join(recovery_lines(rig.spec, look_at_recovery(rig.spec, rig.spark)))
    assert f"--on-rollback rewind: goes on at {rig.topic}[0] 10" in foreseen
    assert (
        f"--on-rollback keep: goes on at {rig.topic}[0] 30, shop.orders gives up {rig.topic}[0] 10-30" in foreseen
    )
    rig.produce([{"id": 30}])

    events = rig.run(on_rollback=REWIND)

    assert [e.landed.epoch for e in rig.epochs(events)] == [4, 5, 6], "epochs are counted on"
    assert rig.offsets() == good(range(31))
    assert rig.dead_offsets() == dead(5, 13, 17)
    verdict = proven(rig)
    assert verdict.level is Level.HOLDS, said(verdict)
    assert rig.run() is not None, "the next start needs no word"


def test_keeping_the_frontier_of_a_rolled_back_table_leaves_its_rows_gone_and_says_so(
    make_rig: Callable[..., Any],
) -> None:
    """FAULT-20: what is missing is named as given up, not taken for lost."""
    rig = rig_with_rows(make_rig)
    rig.roll_back(2)
    rig.produce([{"id": 30}, b"bad"])

    rig.run(on_rollback=KEEP)

    assert rig.offsets() == good(range(10), range(30, 31))
    assert rig.dead_offsets() == dead(5, 13, 17, 31)
    verdict = proven(rig)
    assert verdict.level is Level.NOTED, said(verdict)
    assert f"{rig.topic}[0] offsets 10 to 29: given up by the user after a rollback" in said(verdict)
    assert f"{rig.topic}[0]: 18 offsets missing, given up by the user after a rollback: 10, 11, 12" in said(verdict)


def test_both_tables_rolled_back_to_one_moment_get_every_row_again(make_rig: Callable[..., Any]) -> None:
    """FAULT-20: the dead letters of the second epoch were rolled back with it."""
    rig = rig_with_rows(make_rig)
    rig.roll_back(2)
    rig.roll_back(1, rig.spec.dead_letters)
    assert rig.dead_offsets() == dead(5)

    rig.run(on_rollback=REWIND)

    assert rig.offsets() == good(range(30))
    assert rig.dead_offsets() == dead(5, 13, 17)
    verdict = proven(rig)
    assert verdict.level is Level.HOLDS, said(verdict)


def test_dead_letters_rolled_back_alone_are_not_read_again_and_can_be_given_up(
    make_rig: Callable[..., Any],
) -> None:
    """FAULT-20: the anchor is past their records; a rewind that brings nothing back is refused."""
    rig = rig_with_rows(make_rig)
    rig.roll_back(1, rig.spec.dead_letters)
    with pytest.raises(TableChanged, match=r"(?s)offsets 10 to 19.*would not come back.*keep"):
        rig.run(on_rollback=REWIND)
    rig.produce([b"bad"])

    rig.run(on_rollback=KEEP)

    assert rig.offsets() == good(range(30))
    assert rig.dead_offsets() == dead(5, 30)
    verdict = proven(rig)
    assert verdict.level is Level.NOTED, said(verdict)
    assert f"{rig.topic}[0]: 2 offsets missing, given up by the user after a rollback: 13, 17" in said(verdict)


COLUMNS = "id, name, amount, placed_at, _topic, _kafka_partition, _offset, _timestamp, _key"


def replace(rig: Any, where: str) -> None:
    rig.spark.sql(
        f"CREATE OR REPLACE TABLE {rig.table} USING iceberg AS SELECT {COLUMNS} FROM {rig.table} WHERE {where}"
    )


def test_a_table_replaced_by_a_copy_of_itself_is_gone_on_with_where_it_was(make_rig: Callable[..., Any]) -> None:
    """FAULT-20: rewinding would double what was copied, so that takes another word."""
    rig = rig_with_rows(make_rig)
    replace(rig, "true")
    with pytest.raises(TableChanged, match=r"(?s)its head has rows.*keep.*--adopt"):
        rig.run(on_rollback=REWIND)
    rig.produce([{"id": 30}])

    rig.run(on_rollback=KEEP)

    assert rig.offsets() == good(range(31))
    verdict = proven(rig)
    assert verdict.level is Level.NOTED, said(verdict)
    assert "missing" not in said(verdict)


def test_a_table_replaced_by_an_empty_one_begins_again_at_the_starting_offsets(
    make_rig: Callable[..., Any],
) -> None:
    """FAULT-20: every row is read again, and the dead letters are not doubled."""
    rig = rig_with_rows(make_rig)
    replace(rig, "false")
    rig.produce([{"id": 30}])

    rig.run(on_rollback=REWIND)

    assert rig.offsets() == good(range(31))
    assert rig.dead_offsets() == dead(5, 13, 17)
    verdict = proven(rig)
    assert verdict.level is Level.HOLDS, said(verdict)
