"""Files of changes that wait for a MERGE: all columns of a row and what happens to it, one row for each key.

They are read once, whole, by the MERGE of their epoch. So they have no partitions, no order and no statistics.
"""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from frazil.changes import OP
from frazil.table.files import STAGED_FOLDER, UNSORTED, WriteTarget

_NO_STATISTICS = {"write.metadata.metrics.default": "none"}


def staged_target(target: WriteTarget) -> WriteTarget:
    """The table as the writer of its staged changes sees it; a delete need not have what is required of rows."""
    schema = Schema.model_validate_json(target.schema_json)
    columns = [each.model_copy(update={"required": False}) for each in schema.fields]
    columns.append(NestedField(schema.highest_field_id + 1, OP, StringType(), required=True))
    return replace(
        target,
        location=f"{target.location.rstrip('/')}/{STAGED_FOLDER}",
        schema_json=Schema(*columns, schema_id=schema.schema_id).model_dump_json(),
        spec_json=UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
        sort_order_json=UNSORTED,
        properties=_NO_STATISTICS,
        bloom_filters={},
        in_folders=(),
        stored={},
    )
