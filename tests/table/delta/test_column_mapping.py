"""Delta tables whose files have other names for columns than their users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.table.delta.landing import Landing, Readers

pytestmark = pytest.mark.real

SCHEMA = """id BIGINT, `a b` INT, place STRUCT<city: STRING, spots: ARRAY<STRUCT<q: SMALLINT>>>,
    named MAP<STRING, STRUCT<w: INT>>, region STRING, placed_at TIMESTAMP,
    day DATE GENERATED ALWAYS AS (CAST(placed_at AS DATE))"""
SPOTS = pa.struct({"city": pa.string(), "spots": pa.list_(pa.struct({"q": pa.int32()}))})
NAMED = pa.map_(pa.string(), pa.struct({"w": pa.int32()}))


def rows(first: int, region: str, number: str = "a b", **more: Any) -> pa.Table:
    """Two of them, the second with nulls."""
    return pa.table(
        {
            "id": pa.array([first, first + 1], pa.int64()),
            number: pa.array([7, None], pa.int32()),
            "place": pa.array([{"city": "Oslo", "spots": [{"q": 3}, None]}, None], SPOTS),
            "named": pa.array([[("k", {"w": 4})], None], NAMED),
            "region": [region, None],
            "placed_at": pa.array([1_700_000_000_000_000, None], pa.timestamp("us", "UTC")),
            **more,
        }
    )


@pytest.mark.parametrize("mode", ["name", "id"])
def test_files_have_the_names_and_numbers_that_the_table_keeps_for_them(
    folder: Path, delta_spark: Any, readers: Readers, mode: str
) -> None:
    """Column mapping: nested ones, partitions, statistics; renamed and dropped columns; a checkpoint on the way."""
    properties = f"'delta.columnMapping.mode' = '{mode}', 'delta.checkpointInterval' = '3'"
    created = f"CREATE TABLE delta.`{folder}` ({SCHEMA}) USING delta PARTITIONED BY (region, day)"
    delta_spark.sql(f"{created} TBLPROPERTIES ({properties})")
    landing = Landing(folder)
    (add, _) = landing.land(rows(1, "é north"))
    fields = {field["name"]: field for field in told(landing)}
    physical = {name: field["metadata"]["delta.columnMapping.physicalName"] for name, field in fields.items()}
    assert set(add["partitionValues"]) == {physical["region"], physical["day"]}
    assert add["partitionValues"][physical["day"]] == "2023-11-14"
    assert add["stats"]["minValues"][physical["a b"]] == 7
    (city, _) = fields["place"]["type"]["fields"]
    inner = city["metadata"]["delta.columnMapping.physicalName"]
    assert add["stats"]["maxValues"][physical["place"]] == {inner: "Oslo"}

    delta_spark.sql(f"ALTER TABLE delta.`{folder}` RENAME COLUMN `a b` TO number")
    delta_spark.sql(f"ALTER TABLE delta.`{folder}` RENAME COLUMN place.city TO town")
    delta_spark.sql(f"ALTER TABLE delta.`{folder}` DROP COLUMN named")
    place = pa.array(
        [{"town": "Rome", "spots": []}, None],
        pa.struct({"town": pa.string(), "spots": pa.list_(pa.struct({"q": pa.int32()}))}),
    )
    later = rows(3, "south", "number", place=place).drop_columns("named")
    landing.land(later)
    values = "(5, 8, 'south', TIMESTAMP '2023-11-15 00:00:00')"
    delta_spark.sql(f"INSERT INTO delta.`{folder}` (id, number, region, placed_at) VALUES {values}")
    expected = [
        (1, 7, "Oslo", "é north", "2023-11-14"),
        (2, None, None, None, None),
        (3, 7, "Rome", "south", "2023-11-14"),
        (4, None, None, None, None),
        (5, 8, None, "south", "2023-11-15"),
    ]
    question = "SELECT id, number, place.town, region, CAST(day AS STRING) FROM {t}"
    assert readers.spark(folder, question) == readers.rust(folder, question) == expected
    # DuckDB 1.5.5 has null for every partition column of a table with column mapping, whoever wrote it.
    assert readers.duckdb(folder, "SELECT id, number, place.town FROM {t}") == [each[:3] for each in expected]
    for reader, answers in readers.ask(folder, "SELECT id FROM {t} WHERE number = 7 AND id > 1").items():
        assert answers == [(3,)], reader
    assert readers.rust(folder, "SELECT id FROM {t} WHERE region = 'south' AND number = 7") == [(3,)]
    spots = readers.spark(folder, "SELECT place.spots[0].q FROM {t} WHERE id = 1")
    assert spots == [(3,)]


def test_field_ids_are_those_of_the_table(folder: Path, delta_spark: Any) -> None:
    delta_spark.sql(
        f"CREATE TABLE delta.`{folder}` (id BIGINT, place STRUCT<spots: ARRAY<STRUCT<q: SMALLINT>>>, tiny TINYINT) "
        "USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'id')"
    )
    landing = Landing(folder)
    (add,) = landing.land(pa.table({"id": pa.array([1], pa.int64())}))
    schema = pq.ParquetFile(folder / add["path"]).schema_arrow
    (top, place, tiny) = told(landing)
    for field, each in zip(schema, (top, place, tiny), strict=True):
        assert field.name == each["metadata"]["delta.columnMapping.physicalName"]
        assert number(field) == each["metadata"]["delta.columnMapping.id"]
    (spots,) = place["type"]["fields"]
    element = spots["type"]["elementType"]["fields"][0]
    held = schema.field(1).type.field(0)
    assert number(held) == spots["metadata"]["delta.columnMapping.id"]
    assert number(held.type.value_type.field(0)) == element["metadata"]["delta.columnMapping.id"]
    assert schema.field(2).type == pa.int8()


def number(field: pa.Field) -> int:
    return int(field.metadata[b"PARQUET:field_id"])


def told(landing: Landing) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(landing.delta().schema().to_json())["fields"]
    return fields
