"""Which task writes which rows: what is decided from what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform, VoidTransform

from frazil.engine.distribute import Distribution
from frazil.table.files import MIB, WriteTarget, WrittenFile

PARTITIONED = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
GIVEN_UP = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "day"))


def target(distribution: str = "auto", spec: PartitionSpec = PARTITIONED) -> WriteTarget:
    plain = WriteTarget("shop.orders", "file:/data", "{}", spec.model_dump_json(), distribution=distribution)
    return replace(plain, target_file_size_bytes=128 * MIB)


def files(values: int, tasks: int, size: int = 10_000) -> list[WrittenFile]:
    """A file of every task for every value."""
    return [
        WrittenFile("shop.orders", f"{value}-{task}", 0, 0, 1, size, partition=(value,))
        for value in range(values)
        for task in range(tasks)
    ]


@pytest.mark.parametrize(("mode", "shuffled"), [("none", False), ("hash", True), ("auto", False)])
def test_a_choice_is_obeyed_and_auto_begins_without_a_shuffle(mode: str, shuffled: bool) -> None:
    """FILE-08."""
    assert Distribution().shuffles(target(mode)) is shuffled


@pytest.mark.parametrize("spec", [PartitionSpec(), GIVEN_UP])
def test_a_table_without_partitions_is_never_shuffled(spec: PartitionSpec) -> None:
    assert not Distribution().shuffles(target("hash", spec))


@pytest.mark.parametrize(
    ("values", "tasks", "size", "shuffled"),
    [
        (1_000, 2, 10_000, True),
        (1_000, 1, 10_000, False),
        (4, 8, 10_000, False),
        (40, 8, 10_000, True),
        (1_000, 2, 100 * MIB, False),
    ],
)
def test_auto_shuffles_when_that_spares_many_small_files(
    values: int, tasks: int, size: int, shuffled: bool
) -> None:
    distribution = Distribution()
    distribution.learn(files(values, tasks, size), tasks, shuffled=False)
    assert distribution.shuffles(target()) is shuffled


def test_auto_goes_on_shuffling_while_it_pays_and_stops_when_it_does_not() -> None:
    distribution = Distribution()
    distribution.learn(files(1_000, 8), 8, shuffled=False)
    distribution.learn(files(1_000, 1), 8, shuffled=True)
    assert distribution.shuffles(target())
    distribution.learn(files(3, 1), 8, shuffled=True)
    assert not distribution.shuffles(target())


def test_an_epoch_without_files_teaches_nothing() -> None:
    distribution = Distribution()
    distribution.learn(files(1_000, 8), 8, shuffled=False)
    distribution.learn([], 8, shuffled=True)
    assert distribution.shuffles(target())
