"""Which Delta tables frazil writes to, and which it refuses, with the feature named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.errors import ConfigError, TableAltered
from frazil.table.delta.features import require_writable
from frazil.table.delta.schema import read_columns
from frazil.table.wish import TableWish
from tests.table.delta.landing import WRITER, Landing

PLAIN = {"name": "id", "type": "long", "nullable": True, "metadata": {}}


def require(
    *features: str,
    version: int = 7,
    fields: Any = (PLAIN,),
    properties: dict[str, str] | None = None,
    only_appends: bool = True,
) -> None:
    listed = list(features) if version == 7 else None
    require_writable("shop.orders", version, listed, properties or {}, list(fields), only_appends=only_appends)


@pytest.mark.parametrize(
    "feature",
    [
        "allowColumnDefaults",
        "catalogManaged",
        "clustering",
        "collations-preview",
        "domainMetadata",
        "icebergCompatV2",
        "inCommitTimestamp",
        "rowTracking",
        "typeWidening-preview",
        "vacuumProtocolCheck",
        "somethingOfTheFuture",
    ],
)
def test_a_table_with_a_feature_that_frazil_does_not_follow_is_refused_by_its_name(feature: str) -> None:
    with pytest.raises(ConfigError, match=rf"shop\.orders uses the Delta feature {feature}"):
        require("appendOnly", "invariants", feature)


def test_features_that_frazil_follows_are_written() -> None:
    require("appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors")
    require("generatedColumns", "identityColumns", "invariants", "timestampNtz", "typeWidening", "v2Checkpoint")
    for version in range(1, 7):
        require(version=version)


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"delta.identity.start": 1}, "identityColumns"),
        ({"delta.invariants": '{"expression": {"expression": "size > 1"}}'}, "invariants"),
        ({"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}, r"varchar\(5\)"),
    ],
)
def test_a_column_with_a_rule_of_its_own_is_refused_wherever_it_is(metadata: dict[str, Any], named: str) -> None:
    field = {"name": "size", "type": "string", "nullable": True, "metadata": metadata}
    array = {"type": "array", "elementType": {"type": "struct", "fields": [field]}, "containsNull": True}
    with pytest.raises(ConfigError, match=rf"{named} \(of column size\)"):
        require(version=6, fields=[field])
    with pytest.raises(ConfigError, match=rf"{named} \(of column box\.size\)"):
        require(fields=[{"name": "box", "type": array, "nullable": True, "metadata": {}}])


def test_a_check_constraint_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"checkConstraints \(positive\)"):
        require(version=3, properties={"delta.constraints.positive": "id > 0"})


def test_a_table_that_only_takes_rows_takes_no_changes_of_them() -> None:
    only_rows = {"delta.appendOnly": "true"}
    require("appendOnly", properties=only_rows)
    with pytest.raises(ConfigError, match=r"delta\.appendOnly"):
        require("appendOnly", properties=only_rows, only_appends=False)


def test_a_table_that_forgets_registers_is_refused_when_it_is_opened(folder: Path) -> None:
    """FAULT-24."""
    forgetful = {"delta.setTransactionRetentionDuration": "interval 1 days"}
    with pytest.raises(ConfigError, match="erase the pipeline's register"):
        Landing(folder, "id BIGINT", **forgetful)
    assert not folder.exists()

    landing = Landing(folder, "id BIGINT")
    landing.set_properties(**forgetful)
    with pytest.raises(ConfigError, match="erase the pipeline's register"):
        landing.lake.open(TableWish(folder.name, landing.table.schema()))


@pytest.mark.parametrize(
    "rule",
    [
        {"delta.setTransactionRetentionDuration": "interval 1 days"},
        {"delta.constraints.positive": "id > 0"},
    ],
)
def test_files_from_before_a_rule_was_made_do_not_land_and_no_more_are_written(
    folder: Path, rule: dict[str, str]
) -> None:
    """FAULT-24: files are of the table as it was, so the commit is refused, and so is the next look at it."""
    landing = Landing(folder, "id BIGINT")
    rows = pa.table({"id": pa.array([1], pa.int64())})
    landing.land(rows)
    files = landing.write(rows)
    landing.set_properties(**rule)
    with pytest.raises(TableAltered):
        landing.commit(files)
    with pytest.raises(ConfigError, match=r"register|positive"):
        landing.write(rows)
    assert landing.table.observe(WRITER).register is not None


def test_a_property_that_tells_writers_nothing_keeps_no_files_from_landing(folder: Path) -> None:
    landing = Landing(folder, "id BIGINT")
    files = landing.write(pa.table({"id": pa.array([1], pa.int64())}))
    landing.set_properties(**{"delta.logRetentionDuration": "interval 60 days"})
    landing.commit(files)
    assert landing.delta().count() == 1


@pytest.mark.parametrize("kind", ["BINARY", "FLOAT", "DOUBLE"])
def test_bytes_and_floats_are_no_partitions(folder: Path, kind: str) -> None:
    """FILE-10."""
    with pytest.raises(ConfigError, match="kind"):
        Landing(folder, f"id BIGINT, kind {kind}", ["kind"])
    landing = Landing(folder, "id BIGINT, kind STRING", ["kind"])
    path = landing.path / "_delta_log" / f"{0:020d}.json"
    path.write_text(path.read_text().replace('\\"type\\":\\"string', f'\\"type\\":\\"{kind.lower()}'))
    with pytest.raises(ConfigError, match=f"partitioned by kind, which is {kind.lower()}"):
        landing.write(pa.table({"id": pa.array([1], pa.int64())}))


@pytest.mark.parametrize(
    "expression",
    ["DATE_FORMAT(ts, 'yyyy-MM-dd-hh')", "date_format(ts,'yyyy-MM-DD-HH')", "DATE_FORMAT(ts, 'yyyy-mm')"],
)
def test_a_computed_column_of_another_pattern_is_not_taken_for_a_known_one(expression: str) -> None:
    """FILE-10: HH is not hh, and MM is not mm: rows would land in the wrong partitions."""
    fields = [
        {"name": "ts", "type": "timestamp", "nullable": True, "metadata": {}},
        {"name": "p", "type": "string", "nullable": True, "metadata": {"delta.generationExpression": expression}},
    ]
    with pytest.raises(ConfigError, match="which frazil does not know"):
        read_columns("shop.orders", json.dumps({"type": "struct", "fields": fields}), ["p"])
