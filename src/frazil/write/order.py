"""What the rows of a table are ordered by while they are written."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortOrder
from pyiceberg.transforms import UnknownTransform

from frazil.write.partition import transformed
from frazil.write.sort import SortKey


def order_to_write(order: SortOrder) -> SortOrder:
    """The table's order, or none if it uses a transform that is not known here.

    Iceberg leaves it to writers whether they sort; a file must only not claim an order that it does not have.
    """
    known = not any(isinstance(each.transform, UnknownTransform) for each in order.fields)
    return order if known else UNSORTED_SORT_ORDER


def partition_keys(schema: Schema, spec: PartitionSpec) -> list[SortKey]:
    """Keys that bring the rows of each partition together."""
    return [SortKey(transformed(schema, each)) for each in spec.fields]


def sort_keys(schema: Schema, order: SortOrder) -> list[SortKey]:
    """The keys of a sort order."""
    return [
        SortKey(
            transformed(schema, each),
            descending=each.direction == SortDirection.DESC,
            nulls_first=each.null_order == NullOrder.NULLS_FIRST,
        )
        for each in order.fields
    ]
