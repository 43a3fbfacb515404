"""Files of equality deletes: keys of rows that earlier snapshots may hold, and the partitions these rows are in.

A delete reaches the rows of one partition, or under a spec without fields those of all. So it is written for the
partition that the row was in, as `ChangeTarget.scope` says how to know it:

    partition   all that rows are partitioned by is part of the key: old and new row are in the same one
    before      the change tells the old values of what rows are partitioned by and is no part of the key
    global      nothing need be known
    merge       there are no such files: the table finds its rows itself
"""

from __future__ import annotations

from dataclasses import fields, replace

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from frazil.changes import ChangeTarget
from frazil.errors import ConfigError
from frazil.table.files import UNSORTED, WriteTarget
from frazil.write.partition import path_to


def delete_target(target: WriteTarget, changes: ChangeTarget) -> WriteTarget:
    """The table as the writer of its delete files sees it: of the columns only those of the key."""
    schema = Schema.model_validate_json(target.schema_json)
    keys = Schema(*(each for each in schema.fields if each.name in changes.keys), schema_id=schema.schema_id)
    own = target.deletes
    looks = {} if own is None else {each.name: getattr(own, each.name) for each in fields(own)}
    return replace(
        target,
        **looks,
        schema_json=keys.model_dump_json(),
        spec_json=_spec_json(target, changes),
        # Keys come in their order, and none of the table's own orders is by them.
        sort_order_json=UNSORTED,
        bloom_filters={},
    )


def guides(target: WriteTarget, changes: ChangeTarget) -> list[NestedField]:
    """The columns that tell the partition of a row and are no part of its key."""
    schema = Schema.model_validate_json(target.schema_json)
    spec = PartitionSpec.model_validate_json(_spec_json(target, changes))
    places = {path_to(schema.as_struct(), each.source_id)[0] for each in spec.fields}
    outside = [schema.fields[place] for place in sorted(places) if schema.fields[place].name not in changes.keys]
    if outside and changes.scope != "before":
        names = ", ".join(each.name for each in outside)
        raise ConfigError(
            f"{target.table} is partitioned by {names}, which is not part of its key {', '.join(changes.keys)}: "
            "deletes would not reach rows of other partitions",
            "add it to table.keys, or let deletes apply to all partitions",
        )
    return outside


def _spec_json(target: WriteTarget, changes: ChangeTarget) -> str:
    if changes.scope == "merge":
        return UNPARTITIONED_PARTITION_SPEC.model_dump_json()
    return changes.delete_spec_json if changes.scope == "global" else target.spec_json
