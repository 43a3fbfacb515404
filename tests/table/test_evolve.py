"""Tables that are given the columns that a pipeline declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from frazil.errors import SchemaMismatch
from frazil.pipeline.schema import parse_schema, render_schema
from frazil.table.delta import DeltaLake
from frazil.table.delta.evolve import TYPE_CHANGES
from frazil.table.evolve import plan_evolution
from frazil.table.refusal import CommitRefused
from frazil.table.wish import TableWish

NESTED = "box STRUCT<a: INT, list: ARRAY<STRUCT<x: FLOAT>>>, m MAP<STRING, INT>"
GROWN = "box STRUCT<a: BIGINT, list: ARRAY<STRUCT<x: DOUBLE, y: STRING>>, b: STRING>, m MAP<STRING, BIGINT>"
BEFORE = "id INT, name STRING, price FLOAT, amount DECIMAL(10,2)"


@pytest.mark.parametrize(
    ("declared", "adds", "wider"),
    [
        (BEFORE, [], []),
        (BEFORE + ", more STRING, nested STRUCT<a: INT>", ["more", "nested"], []),
        ("id BIGINT, name STRING, price DOUBLE, amount DECIMAL(12,2)", [], ["id", "price", "amount"]),
        ("id STRING, name STRING, price INT, amount DECIMAL(12,3)", [], []),
        ("name STRING", [], []),
    ],
)
def test_what_a_table_lacks(declared: str, adds: list[str], wider: list[str]) -> None:
    """SCHEMA-03, SCHEMA-04: columns are added, types widened, nothing is narrowed or taken away."""
    actual = parse_schema(BEFORE)
    planned = plan_evolution(parse_schema(declared), actual)
    assert ([each.name for each in planned.adds], [each.name for each in planned.widens]) == (adds, wider)
    assert [each.name for each in planned.of(actual).fields] == ["id", "name", "price", "amount", *adds]
    assert not plan_evolution(parse_schema(declared), planned.of(actual))


def test_what_is_inside_of_columns_evolves_as_they_do() -> None:
    """SCHEMA-03, SCHEMA-04: in structs, lists and the values of maps; keys stay, and ids are nobody else's."""
    actual = parse_schema(NESTED)
    planned = plan_evolution(parse_schema(GROWN), actual)
    assert [each.name for each in planned.adds] == ["box.b", "box.list.element.y"]
    assert [each.name for each in planned.widens] == ["box.a", "box.list.element.x", "m.value"]
    grown = planned.of(actual)
    assert render_schema(grown) == render_schema(parse_schema(GROWN))
    assert not plan_evolution(parse_schema(GROWN), grown)
    kept = {number: name for name, number in actual._name_to_id.items()}
    assert {number: grown.find_column_name(number) for number in kept} == kept
    assert not plan_evolution(parse_schema("m MAP<BIGINT, INT>"), parse_schema("m MAP<INT, INT>"))


def wish(declared: str, *, evolves: bool, name: str = "orders", **more: Any) -> TableWish:
    return TableWish(name, parse_schema(declared), evolves=evolves, **more)


def test_a_delta_table_is_given_new_columns_by_a_version_of_metadata(tmp_path: Path) -> None:
    """SCHEMA-03, SCHEMA-06, SCHEMA-07, TEST-13: and only when it was asked for; partition columns stay."""
    lake = DeltaLake({"orders": str(tmp_path / "orders")})
    first = "id BIGINT, name STRING"
    lake.open(wish(first, evolves=False, partition=["name"]))
    grown = first + ", more STRING, tags ARRAY<STRING>"

    with pytest.raises(SchemaMismatch, match="column more is not in the table"):
        lake.open(wish(grown, evolves=False))
    assert DeltaTable(tmp_path / "orders").version() == 0, "nothing was written"
    assert lake.fits(wish(grown, evolves=True))
    assert DeltaTable(tmp_path / "orders").version() == 0, "asking alone changes nothing"
    table = lake.open(wish(grown, evolves=True))

    assert render_schema(table.schema()) == render_schema(parse_schema(grown))
    loaded = DeltaTable(tmp_path / "orders")
    assert (loaded.version(), loaded.metadata().partition_columns) == (1, ["name"])
    lake.open(wish(grown, evolves=True))
    assert DeltaTable(tmp_path / "orders").version() == 1, "there is nothing left to add"


def test_a_delta_table_is_given_wider_types_and_new_columns_in_one_version(tmp_path: Path) -> None:
    """SCHEMA-04, SCHEMA-06, SCHEMA-07, TEST-13: only when asked for; what is no wider is refused."""
    lake = DeltaLake({"orders": str(tmp_path / "orders")})
    lake.open(wish(BEFORE, evolves=False, partition=["id"]))
    grown = "id BIGINT, name STRING, price DOUBLE, amount DECIMAL(12,2), more TIMESTAMP_NTZ"
    with pytest.raises(SchemaMismatch, match="column id is long as declared, but int in the table"):
        lake.open(wish(grown, evolves=False))
    assert lake.fits(wish(grown, evolves=True))
    assert DeltaTable(tmp_path / "orders").version() == 0, "nothing was written"

    table = lake.open(wish(grown, evolves=True))
    assert render_schema(table.schema()) == render_schema(parse_schema(grown))
    loaded = DeltaTable(tmp_path / "orders")
    assert (loaded.version(), loaded.metadata().partition_columns) == (1, ["id"])
    features = {"typeWidening", "timestampNtz"}
    assert features == set(loaded.protocol().reader_features or []) < set(loaded.protocol().writer_features or [])
    changes = {field.name: field.metadata.get(TYPE_CHANGES) for field in loaded.schema().fields}
    assert (changes["id"], changes["name"]) == ([{"toType": "long", "fromType": "integer"}], None)

    lake.open(wish(grown, evolves=True))
    assert DeltaTable(tmp_path / "orders").version() == 1, "there is nothing left to do"
    with pytest.raises(SchemaMismatch, match="column price is string as declared"):
        lake.open(wish("id INT, name STRING, price STRING", evolves=True))


def test_what_a_column_was_is_not_forgotten_when_another_is_added(tmp_path: Path) -> None:
    """SCHEMA-03, SCHEMA-04: readers of older files rest on it; wider once more is one change more."""
    lake = DeltaLake({"orders": str(tmp_path / "orders")})
    for declared in ("amount DECIMAL(4,2)", "amount DECIMAL(6,2)", "amount DECIMAL(6,2), more STRING"):
        lake.open(wish(declared, evolves=True))
    lake.open(wish("amount DECIMAL(8,2), more STRING, last INT", evolves=True))
    amount = DeltaTable(tmp_path / "orders").schema().fields[0]
    assert [each["toType"] for each in amount.metadata[TYPE_CHANGES]] == ["decimal(6,2)", "decimal(8,2)"]
    assert [each["fromType"] for each in amount.metadata[TYPE_CHANGES]] == ["decimal(4,2)", "decimal(6,2)"]


def test_a_delta_table_that_was_altered_meanwhile_is_looked_at_again(tmp_path: Path) -> None:
    """SCHEMA-04, FAULT-41: two starts that widen the same table make one version, and the loser may try again."""
    lake = DeltaLake({"orders": str(tmp_path / "orders")})
    table = lake.open(wish("id INT", evolves=False))
    stale = DeltaTable(tmp_path / "orders")
    lake.open(wish("id BIGINT", evolves=True))
    table._load_table = lambda: stale
    with pytest.raises(CommitRefused, match="version 1 is there"):
        table.evolve(wish("id BIGINT", evolves=True))
    table._load_table = lambda: DeltaTable(tmp_path / "orders")
    table.evolve(wish("id BIGINT", evolves=True))
    assert DeltaTable(tmp_path / "orders").version() == 1, "nothing is widened twice"


@pytest.mark.real
def test_an_iceberg_table_is_given_new_columns_and_wider_types(spark: Any, tmp_path: Path) -> None:
    """SCHEMA-03, SCHEMA-04, SCHEMA-07, TEST-13."""
    from frazil.pipeline.spec import CatalogSection
    from frazil.table.iceberg import IcebergCatalog

    catalog = IcebergCatalog(spark, CatalogSection(warehouse=str(tmp_path), name="evolving"))
    catalog.open(wish(BEFORE, evolves=False, name="shop.orders"))
    grown = "id BIGINT, name STRING, price DOUBLE, amount DECIMAL(12,2), more STRUCT<a: INT, b: ARRAY<STRING>>"

    with pytest.raises(SchemaMismatch):
        catalog.open(wish(grown, evolves=False, name="shop.orders"))
    table = catalog.open(wish(grown, evolves=True, name="shop.orders"))

    assert render_schema(table.schema()) == render_schema(parse_schema(grown))
    number = table.schema().schema_id
    assert catalog.open(wish(grown, evolves=True, name="shop.orders")).schema().schema_id == number
    with pytest.raises(SchemaMismatch, match="column price is string as declared"):
        catalog.open(wish("id INT, name STRING, price STRING", evolves=True, name="shop.orders"))
    catalog.open(wish(NESTED, evolves=False, name="shop.boxes"))
    boxes = catalog.open(wish(GROWN, evolves=True, name="shop.boxes"))
    assert render_schema(boxes.schema()) == render_schema(parse_schema(GROWN))
