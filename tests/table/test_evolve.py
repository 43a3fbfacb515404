"""Tables that are given the columns that a pipeline declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from frazil.errors import SchemaMismatch
from frazil.pipeline.schema import parse_schema, render_schema
from frazil.table.delta import DeltaLake
from frazil.table.evolve import plan_evolution
from frazil.table.wish import TableWish

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
    planned = plan_evolution(parse_schema(declared), actual, can_widen=True)
    assert ([each.name for each in planned.adds], [each.name for each in planned.widens]) == (adds, wider)
    assert [each.name for each in planned.of(actual).fields] == ["id", "name", "price", "amount", *adds]
    assert not plan_evolution(parse_schema(declared), planned.of(actual), can_widen=True)


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


def test_a_delta_table_does_not_widen(tmp_path: Path) -> None:
    """SCHEMA-07: Delta has a feature for it that delta-rs does not write; expected and actual are told."""
    lake = DeltaLake({"orders": str(tmp_path / "orders")})
    lake.open(wish("id INT", evolves=False))
    with pytest.raises(SchemaMismatch, match="column id is long as declared, but int in the table") as told:
        lake.open(wish("id BIGINT", evolves=True))
    assert (told.value.expected, told.value.actual) == ("id BIGINT", "id INT")


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
