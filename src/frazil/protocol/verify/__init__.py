"""Proving, from what a table shows, that nothing was lost or doubled.

Theory. A pipeline's promises can be checked after the fact, by somebody who believes nobody:

    history    every epoch is one snapshot, and its span begins where the one before it ended
    register   says what the last snapshot of the pipeline says, and points at it
    rows       each epoch's files hold the rows that it claims, and each record became something
    files      whatever the head references exists, has its size, and is live once
    others     what somebody else did to the table
    dead       the dead letters that the anchor counted are the rows of their own table
    keys       of a table with keys, no two rows have the same
    bag        of a table whose rows are their own keys, as many are found as came and did not go
    offsets    the table and its dead letters, record by record against the topic

These modules are given plain data and answer with a `Check`. They hold three levels apart: what holds, what is
only noted because it is no fault of the pipeline (others changed the table, history was expired), and what is
broken.
"""

from frazil.protocol.verify.finding import Check, Finding, Level, Verdict
from frazil.protocol.verify.history import check_history, check_register
from frazil.protocol.verify.rows import (
    FilesSeen,
    check_bag,
    check_dead_letters,
    check_files,
    check_keys,
    check_others,
    check_rows,
)
from frazil.protocol.verify.seen import COPIED, SnapshotSeen, TableSeen

__all__ = [
    "COPIED",
    "Check",
    "FilesSeen",
    "Finding",
    "Level",
    "SnapshotSeen",
    "TableSeen",
    "Verdict",
    "check_bag",
    "check_dead_letters",
    "check_files",
    "check_history",
    "check_keys",
    "check_others",
    "check_register",
    "check_rows",
]
