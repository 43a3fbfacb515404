"""What a Spark that is about to start must know of the tables of a pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.engine.lakehouse import jar_sets, lakehouse_conf, start_conf
from frazil.pipeline import PipelineSpec, parse_pipeline
from frazil.spark import LOG_STORE, LOG_STORE_KEY


def pipeline(**table: Any) -> PipelineSpec:
    tree = {
        "pipeline": {"name": "p"},
        "source": {"type": "generator"},
        "decode": {"format": "json", "schema": "id BIGINT"},
        "table": {"format": "delta", **table},
    }
    return parse_pipeline(tree)


def test_a_table_on_s3_brings_its_jars_its_settings_and_a_careful_writer() -> None:
    """STORE-03, FAULT-25: sessions know settings of Hadoop by their own names, a new Spark by longer ones."""
    spec = pipeline(path="s3://lake/orders", storage={"s3.region": "eu-central-1"})
    assert jar_sets(spec) == ["s3"]
    assert lakehouse_conf(spec)["fs.s3a.endpoint.region"] == "eu-central-1"
    assert start_conf(spec)["spark.hadoop.fs.s3a.endpoint.region"] == "eu-central-1"
    assert start_conf(spec)[LOG_STORE_KEY] == LOG_STORE


@pytest.mark.parametrize("place", [{"path": "/srv/orders"}, {"name": "shop.orders"}])
def test_other_tables_bring_nothing(place: dict[str, str]) -> None:
    spec = pipeline(**place)
    assert (jar_sets(spec), start_conf(spec)) == ([], {})
