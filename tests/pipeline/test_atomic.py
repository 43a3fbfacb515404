"""Catalogs that cannot be known to swap atomically are refused before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.errors import ConfigError, UnsupportedCatalog
from frazil.pipeline import PipelineSpec, parse_pipeline
from frazil.pipeline.atomic import require_hive_lock, require_no_nessie
from frazil.table.iceberg.catalog import catalog_properties

HIVE = {"type": "hive", "uri": "thrift://127.0.0.1:9083", "warehouse": "s3://shop"}
GLUE = {"type": "glue", "warehouse": "s3://shop"}
NO_LOCK = "engine.hive.lock-enabled"


def implementation(name: str, **keys: object) -> dict[str, Any]:
    return {"catalog": {"prop": {"catalog-impl": name}, **keys}}


def spec(sections: dict[str, Any]) -> PipelineSpec:
    tree: dict[str, Any] = {
        "pipeline": {"name": "orders"},
        "source": {"type": "generator"},
        "decode": {"format": "json", "schema": "order_id BIGINT"},
        "table": {"name": "shop.orders"},
    }
    return parse_pipeline({name: {**tree.get(name, {}), **sections.get(name, {})} for name in {*tree, *sections}})


DOUBTFUL = {
    "hadoop": (implementation("org.apache.iceberg.hadoop.HadoopCatalog"), "by renaming a file", 'type = "sqlite"'),
    "unknown": (implementation("com.shop.Catalog"), "nothing is known of com.shop.Catalog", "that is known"),
    "glue-lock": (
        {"catalog": {**GLUE, "prop": {"lock-impl": "com.shop.Lock"}}},
        "lock-impl",
        "leave lock-impl out",
    ),
    "hive-table": (
        {"catalog": HIVE, "table": {"properties": {NO_LOCK: "false"}}},
        "shop.orders: Hive's lock is off",
        f"remove the table property {NO_LOCK}",
    ),
    "hive-setting": (
        {"catalog": HIVE, "spark": {"conf": {f"spark.hadoop.iceberg.{NO_LOCK}": "FALSE"}}},
        "shop.orders: Hive's lock is off",
        f"the setting iceberg.{NO_LOCK}",
    ),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_catalog_that_may_lose_a_commit_is_refused_unless_somebody_vouches_for_it(name: str) -> None:
    """SINK-10, DESIGN promise D: the message says why, what to do, and how to insist."""
    sections, cause, remedy = DOUBTFUL[name]
    with pytest.raises(UnsupportedCatalog) as refused:
        spec(sections)
    assert cause in refused.value.message
    assert remedy in refused.value.remedy
    assert "catalog.vouched = true" in refused.value.remedy
    vouched = spec({**sections, "catalog": {**sections["catalog"], "vouched": True}})
    assert vouched.catalog.vouched


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"catalog": {"type": "memory"}},
        {"catalog": {"type": "rest", "uri": "http://127.0.0.1:8181"}},
        {"catalog": {"type": "nessie", "uri": "http://127.0.0.1:19120/api/v2"}},
        {"catalog": {"type": "jdbc", "uri": "jdbc:postgresql://127.0.0.1/shop"}},
        {"catalog": HIVE},
        {"catalog": {**GLUE, "prop": {"glue.skip-archive": "true"}}},
        {"catalog": {"prop": {"io-impl": "com.shop.Storage"}}},
        implementation("org.apache.iceberg.aws.dynamodb.DynamoDbCatalog"),
        # The table's own word wins, as it does in Iceberg.
        {
            "catalog": HIVE,
            "table": {"name": "shop.orders", "properties": {NO_LOCK: "true"}},
            "spark": {"conf": {f"spark.hadoop.iceberg.{NO_LOCK}": "false"}},
        },
        # A setting for Hive says nothing about another catalog.
        {"table": {"name": "shop.orders", "properties": {NO_LOCK: "false"}}},
    ],
)
def test_a_catalog_with_an_atomic_swap_is_taken(sections: dict[str, Any]) -> None:
    spec(sections)


def test_a_lock_that_is_off_in_an_existing_hive_table_or_in_the_metastores_settings_is_refused() -> None:
    catalog = spec({"catalog": HIVE}).catalog
    require_hive_lock(catalog, "shop.orders", {}, None)
    for properties, setting in (({NO_LOCK: "false"}, None), ({}, "false"), ({NO_LOCK: "false"}, "true")):
        with pytest.raises(UnsupportedCatalog, match="Hive's lock is off"):
            require_hive_lock(catalog, "shop.orders", properties, setting)


def test_nessie_behind_a_rest_interface_is_refused_unless_somebody_vouches_for_it() -> None:
    nessie = {"nessie.is-nessie-catalog": "true"}
    rest = {"type": "rest", "uri": "http://127.0.0.1:19120/iceberg"}
    require_no_nessie(spec({"catalog": rest}).catalog, {})
    require_no_nessie(spec({"catalog": {**rest, "vouched": True}}).catalog, nessie)
    with pytest.raises(UnsupportedCatalog, match=r'(?s)19120/iceberg is Nessie.*type = "nessie"'):
        require_no_nessie(spec({"catalog": rest}).catalog, nessie)


def test_a_type_hidden_among_the_properties_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"catalog: prop\.type is not allowed; say it as catalog\.type"):
        spec({"catalog": {"prop": {"type": "hadoop"}}})


def test_a_rest_server_is_asked_for_a_warehouse_only_if_one_is_named(tmp_path: Path) -> None:
    """Its own default is not ours; a folder on this machine would mean nothing to it."""
    rest = {"type": "rest", "uri": "http://127.0.0.1:8181"}
    assert "warehouse" not in catalog_properties(spec({"catalog": rest}).at(tmp_path).catalog)
    named = spec({"catalog": {**rest, "warehouse": "shop"}}).at(tmp_path).catalog
    assert catalog_properties(named)["warehouse"] == "shop"
    assert catalog_properties(spec({}).at(tmp_path).catalog)["warehouse"] == (tmp_path / "warehouse").as_uri()
