"""What an altered table says of files that were written for it as it was: each rule of Iceberg, broken once."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from frazil.protocol.layout import Former, Layout
from frazil.table.iceberg.former import former

LAYOUT = Layout(1, 2, 3)
PLAIN = PartitionSpec()
BY_ID = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))


def column(field_id: int, name: str, kind: IcebergType, required: bool = False, **more: object) -> NestedField:
    return NestedField(field_id, name, kind, required=required, **more)


ID, NAME = column(1, "id", IntegerType(), required=True), column(2, "name", StringType())
WRITTEN = Schema(ID, NAME)


def told(*now: NestedField, written: Schema | None = WRITTEN, spec: PartitionSpec | None = PLAIN) -> Former:
    return former(LAYOUT, written, spec, Schema(*now))


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        pytest.param([ID, NAME], set(), id="nothing"),
        pytest.param([NAME, ID], set(), id="order of columns"),
        pytest.param([ID, NAME, column(3, "region", StringType())], set(), id="added"),
        pytest.param([ID, column(2, "customer", StringType())], set(), id="renamed"),
        pytest.param([ID], {2}, id="dropped"),
        pytest.param([ID, column(3, "name", LongType())], {2}, id="dropped and added again"),
        pytest.param([column(1, "id", LongType(), required=True), NAME], {1}, id="widened"),
        pytest.param([column(1, "id", IntegerType()), NAME], set(), id="may be null now"),
        pytest.param(
            [ID, NAME, column(3, "tax", LongType(), required=True, initial_default=0)], set(), id="with default"
        ),
        pytest.param(
            [ID, NAME, column(3, "place", StructType(column(4, "city", StringType(), required=True)))],
            set(),
            id="required inside of what is new",
        ),
    ],
)
def test_what_iceberg_reads_by_id_fits(now: list[NestedField], changed: set[int]) -> None:
    """SCHEMA-05, SCHEMA-08: a renamed column keeps its values, a dropped one loses them as its user wants."""
    assert told(*now) == Former(LAYOUT, "", frozenset(changed))


@pytest.mark.parametrize(
    ("now", "problem"),
    [
        ([ID, NAME, column(3, "tax", LongType(), required=True)], "no column tax, which is required"),
        ([ID, column(2, "name", StringType(), required=True)], "column name may be null"),
        ([ID, column(2, "name", LongType())], "column name is string, which cannot be read as long"),
    ],
)
def test_a_column_that_files_cannot_fill_is_a_misfit(now: list[NestedField], problem: str) -> None:
    assert problem in told(*now).misfit


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (IntegerType(), LongType()),
        (FloatType(), DoubleType()),
        (DecimalType(9, 2), DecimalType(11, 2)),
    ],
)
def test_types_widen_and_never_narrow(then: IcebergType, now: IcebergType) -> None:
    """SCHEMA-04: the promotions that Iceberg has."""
    for wrap in (lambda kind: kind, _in_struct, _in_list, _in_map):
        narrow, wide = column(1, "it", wrap(then)), column(1, "it", wrap(now))
        assert told(wide, written=Schema(narrow)).misfit == ""
        assert "cannot be read as" in told(narrow, written=Schema(wide)).misfit


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (DecimalType(9, 2), DecimalType(11, 3)),
        (IntegerType(), StringType()),
        (DateType(), TimestampType()),
        (StructType(column(5, "x", LongType())), LongType()),
        (ListType(5, LongType(), False), StructType(column(5, "x", LongType()))),
    ],
)
def test_other_changes_of_a_type_are_a_misfit(then: IcebergType, now: IcebergType) -> None:
    found = told(column(1, "it", now), written=Schema(column(1, "it", then)))
    assert "cannot be read as" in found.misfit
    assert 1 in found.changed


def test_what_is_required_inside_of_others_is_required() -> None:
    def place(*fields: NestedField) -> NestedField:
        return column(3, "place", StructType(*fields))

    city = column(4, "city", StringType())
    found = told(place(city, column(5, "zip", StringType(), required=True)), written=Schema(place(city)))
    assert "no column place.zip" in found.misfit
    tags = [column(3, "tags", ListType(4, StringType(), required)) for required in (False, True)]
    assert "tags.element may be null" in told(tags[1], written=Schema(tags[0])).misfit
    counts = [column(3, "c", MapType(4, StringType(), 5, LongType(), required)) for required in (False, True)]
    assert "c.value may be null" in told(counts[1], written=Schema(counts[0])).misfit


@pytest.mark.parametrize("now", [[NAME], [column(1, "id", LongType(), required=True), NAME]])
def test_files_whose_partitions_are_by_a_column_that_changed_are_a_misfit(now: list[NestedField]) -> None:
    """SCHEMA-10: Iceberg cannot tell a partition value's type without its column."""
    assert "partitioned by id_bucket" in told(*now, spec=BY_ID).misfit
    assert told(*now).misfit == ""
    assert told(ID, spec=BY_ID).misfit == ""


def test_what_the_table_has_forgotten_is_a_misfit() -> None:
    assert "no longer knows schema 1" in told(ID, NAME, written=None).misfit
    assert "no longer knows partition spec 2" in told(ID, NAME, spec=None).misfit


def _in_struct(kind: IcebergType) -> IcebergType:
    return StructType(column(9, "inner", kind))


def _in_list(kind: IcebergType) -> IcebergType:
    return ListType(9, kind, True)


def _in_map(kind: IcebergType) -> IcebergType:
    return MapType(8, StringType(), 9, kind, True)
