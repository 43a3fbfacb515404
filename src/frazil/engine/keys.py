"""Whether the changes of each key were all in one task, in which alone their order is known.

Kafka keeps the order of a key's records as long as all of them go to one partition. That is so when the message
key decides the table's key, and it is looked at, not believed: every task reports the hashes of the keys it had.
Two keys may share a hash, one time in very many; that costs a second try, and no row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from frazil.engine.worker import TaskReport
from frazil.errors import ChangesUnordered
from frazil.pipeline import PipelineSpec
from frazil.protocol.positions import Frontier, Partition, name_partition
from frazil.table.files import WriteTarget


def share_keys(reports: Sequence[TaskReport]) -> bool:
    """Whether a key was in more than one task."""
    hashes = [keys for report in reports if len(keys := report.keys())]
    if len(hashes) < 2:
        return False
    together = np.concatenate(hashes)
    return len(np.unique(together)) < len(together)


def require_sequence(target: WriteTarget) -> None:
    """Refuses to guess which of two partitions had a key's last change."""
    if target.changes is None or target.changes.sequence_by is None:
        raise ChangesUnordered(
            f"{target.table}: changes of one key come from several Kafka partitions, whose order nobody knows",
            "name a column that orders them in changes.sequence_by, or have producers use the table's key as "
            "message key; in a transform that moves rows between tasks, _order is such a column",
        )


def require_ordered(spec: PipelineSpec, added: Sequence[Partition]) -> None:
    """Refuses a topic that got more partitions: its keys have moved, and changes from both places may cross."""
    if added and spec.changes.sequence_by is None:
        raise ChangesUnordered(
            f"{', '.join(map(name_partition, added))} is new: keys of the topic go elsewhere than before, "
            "and which of two changes is the newer one cannot be told",
            "name a column that orders the changes of a key in changes.sequence_by",
        )


def require_one_task(reports: Sequence[TaskReport]) -> None:
    """A task that does not have the truncate itself takes changes for good that stand before it."""
    if any(report.truncated for report in reports) and sum(report.taken > 0 for report in reports) > 1:
        raise ChangesUnordered(
            "the source emptied its table; transform.sql brought its changes to several tasks, of which only one "
            "can tell what came after",
            'use a query that moves no rows between tasks, or set changes.truncate = "ignore" and empty the table '
            "yourself",
        )


def require_one_partition(*frontiers: Frontier) -> None:
    """A truncate stands before or behind the changes of its own partition only."""
    partitions = {partition for frontier in frontiers for partition in frontier.positions}
    if len(partitions) > 1:
        raise ChangesUnordered(
            "the source emptied its table; with several Kafka partitions nobody can tell which changes came after",
            'set changes.truncate = "ignore" and empty the table yourself, or use a topic of one partition',
        )
