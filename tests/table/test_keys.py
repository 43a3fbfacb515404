"""Where the deletes of a keyed table go."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionSpec

from frazil.changes import ChangeTarget
from frazil.errors import ConfigError, SchemaMismatch
from frazil.pipeline.keys import keyed
from frazil.pipeline.partition import parse_partition
from frazil.pipeline.schema import parse_schema
from frazil.table.files import WriteTarget
from frazil.table.iceberg.keys import change_target, needs_plain_spec, require_same_keys, whole_row_target
from frazil.write.deletes import guides

SCHEMA = parse_schema("id BIGINT, region STRING, place STRUCT<city: STRING>, placed_at TIMESTAMP")
PLAIN = PartitionSpec()
BY_KEY = parse_partition(["bucket(4, id)"], SCHEMA)
BY_DAY = parse_partition(["day(placed_at)", "place.city"], SCHEMA)


def scope(*specs: PartitionSpec, tells_before: bool = False) -> str:
    return change_target("shop.orders", ["id"], SCHEMA, specs, tells_before=tells_before).scope


def test_under_an_unpartitioned_spec_they_reach_every_row() -> None:
    """CHG-11: whatever specs came after or before it."""
    assert scope(PLAIN) == scope(PLAIN, BY_DAY) == scope(BY_KEY, PLAIN, BY_DAY) == "global"
    target = change_target("shop.orders", ["id"], SCHEMA, [PLAIN, BY_DAY], tells_before=True)
    assert PartitionSpec.model_validate_json(target.delete_spec_json).is_unpartitioned()


def test_a_key_that_says_which_partition_needs_no_more() -> None:
    assert scope(BY_KEY) == scope(BY_KEY, tells_before=True) == "partition"


def test_what_a_row_was_before_says_where_it_is() -> None:
    assert scope(BY_DAY, tells_before=True) == "before"
    target = WriteTarget("shop.orders", "", SCHEMA.model_dump_json(), BY_DAY.model_dump_json())
    assert tuple(each.name for each in guides(target, ChangeTarget(("id",), "before"))) == ("place", "placed_at")


@pytest.mark.parametrize(
    ("specs", "tells_before", "reason"),
    [
        ([BY_DAY], False, "its key does not say which one"),
        ([BY_KEY, BY_DAY], True, "several partition specs"),
        ([BY_DAY, BY_KEY], False, "several partition specs"),
    ],
)
def test_a_table_with_rows_that_could_never_be_deleted_is_refused(
    specs: list[PartitionSpec], tells_before: bool, reason: str
) -> None:
    """CHG-11."""
    with pytest.raises(ConfigError) as refused:
        scope(*specs, tells_before=tells_before)
    assert reason in refused.value.message
    assert "table.keys" in refused.value.remedy


def test_a_table_that_names_other_keys_is_refused() -> None:
    require_same_keys("shop.orders", ["id"], SCHEMA)
    require_same_keys("shop.orders", ["region", "id"], keyed(SCHEMA, ["id", "region"]))
    for keys in (["id"], ["*"]):
        with pytest.raises(SchemaMismatch, match="identifier fields are id, region"):
            require_same_keys("shop.orders", keys, keyed(SCHEMA, ["id", "region"]))


def test_rows_that_are_their_own_keys_need_no_unpartitioned_spec() -> None:
    """LIM-04: they are deleted by their places, in the way of the table's format."""
    assert [needs_plain_spec(BY_DAY, SCHEMA, keys) for keys in (["*"], ["id"], [])] == [False, True, False]
    assert [whole_row_target(version).vectors for version in (2, 3, 4)] == [False, True, True]
