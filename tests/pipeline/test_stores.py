"""Addresses of object stores, and one setting under three names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from obstore.exceptions import UnknownConfigurationKeyError
from obstore.store import from_url
from pydantic import ValidationError

from frazil.errors import ConfigError
from frazil.pipeline import parse_pipeline, secrets
from frazil.pipeline.spec import TableSection
from frazil.pipeline.stores import STORES, parse_address
from frazil.table.delta.place import Place

KEYS = {"s3.access-key-id": "ada", "s3.secret-access-key": "hunter2"}
ACCOUNT = {"adls.account-name": "lake", "adls.account-key": "a2V5"}


def pipeline(path: str | None, table_format: str = "delta", **storage: str) -> Any:
    told = {"name": "shop.orders", "format": table_format, "storage": storage, **({"path": path} if path else {})}
    decode = {"format": "json", "schema": "id BIGINT"}
    source = {"type": "generator"}
    return parse_pipeline({"pipeline": {"name": "p"}, "source": source, "decode": decode, "table": told})


@pytest.mark.parametrize(
    ("path", "storage", "uri", "for_spark"),
    [
        ("s3://lake/a/orders", {}, "s3://lake/a/orders", "s3a://lake/a/orders"),
        ("s3a://lake/orders/", {}, "s3://lake/orders", "s3a://lake/orders"),
        ("az://box/orders", ACCOUNT, "abfss://box/orders", "abfss://box@lake.dfs.core.windows.net/orders"),
        (
            "abfss://box@lake.dfs.core.windows.net/orders",
            {"adls.sas-token": "sv=1"},
            "abfss://box/orders",
            "abfss://box@lake.dfs.core.windows.net/orders",
        ),
        ("gs://lake/orders", {}, "gs://lake/orders", "gs://lake/orders"),
    ],
)
def test_every_library_gets_the_address_that_it_understands(
    path: str, storage: dict[str, str], uri: str, for_spark: str
) -> None:
    """STORE-01, STORE-04."""
    place = Place.at(path, storage)
    assert (place.uri, place.spark_uri) == (uri, for_spark)
    assert place.for_spark(f"{uri}/day=1/x.parquet") == f"{for_spark}/day=1/x.parquet"
    assert type(place.io()).__name__ == "PyArrowFileIO"


def test_every_library_gets_settings_under_its_own_names() -> None:
    """STORE-03, STORE-04: one table tells them all."""
    storage = {**KEYS, "s3.endpoint": "http://127.0.0.1:9000", "s3.region": "eu-central-1"}
    s3 = Place.at("s3://lake/orders", storage)
    assert {key: s3.io_properties[key] for key in storage} == storage
    assert s3.options is not None
    assert (
        s3.options.items()
        >= {
            "aws_access_key_id": "ada",
            "aws_secret_access_key": "hunter2",
            "aws_endpoint": "http://127.0.0.1:9000",
            "aws_region": "eu-central-1",
            "allow_http": "true",
        }.items()
    )
    assert parse_address("s3://lake/orders", storage).hadoop_settings() == {
        "fs.s3a.access.key": "ada",
        "fs.s3a.secret.key": "hunter2",
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.endpoint.region": "eu-central-1",
        "fs.s3a.path.style.access": "true",
    }
    azure = parse_address("az://box/orders", ACCOUNT)
    assert azure.rust_options() == {"azure_storage_account_name": "lake", "azure_storage_account_key": "a2V5"}
    assert azure.hadoop_settings() == {"fs.azure.account.key.lake.dfs.core.windows.net": "a2V5"}


def test_the_library_behind_delta_knows_every_name() -> None:
    """STORE-02: delta-rs itself passes over names that it does not know."""
    values = {"google_base_url": "https://127.0.0.1", "azure_storage_sas_token": "sv=1"}
    for store in STORES:
        names = [each.rust for each in store.settings.values()]
        from_url(f"{store.scheme}://a/b", config={name: values.get(name, "true") for name in names})
    with pytest.raises(UnknownConfigurationKeyError):
        from_url("s3://a/b", config={"aws_endpont": "true"})


@pytest.mark.parametrize(
    ("path", "storage", "problem"),
    [
        (
            "s3://lake/orders",
            {"s3.endpont": "x"},
            r"storage\.s3\.endpont: unknown setting; did you mean storage\.s3\.endpoint",
        ),
        ("s3://lake/orders", {"whatever": "x"}, r"storage\.whatever: unknown setting; known are s3\.endpoint"),
        ("s3://lake/orders", {"s3.allow_unsafe_rename": "true"}, r"say it as table\.unsafe_rename = true"),
        ("s3://lake/orders", ACCOUNT, r"storage\.adls\.account-name is for Azure, and the table's path is of S3"),
        (
            "s3://lake/orders",
            {"s3.access-key-id": "ada"},
            "access-key-id is given without storage.s3.secret-access-key",
        ),
        ("s3://lake/orders", {"s3.endpoint": "127.0.0.1:9000"}, r"storage\.s3\.endpoint begins with http://"),
        ("az://box/orders", {}, r"storage\.adls\.account-name is required"),
        ("az://box/orders", {**ACCOUNT, "adls.sas-token": "s"}, "are two ways to say the same"),
        ("abfss://box@other.dfs.core.windows.net/orders", ACCOUNT, "are of two accounts"),
        ("s3://ada:hunter2@lake/orders", {}, "credentials belong to table.storage"),
        ("s3://ada:hun/ter2@lake/orders", {}, "credentials belong to table.storage"),
        ("abfss://box@lake.dfs.core.chinacloudapi.cn/orders", ACCOUNT, "after the @ comes an account"),
        ("s3://lake/orders", {"s3.endpoint": "http://ada:hunter2@127.0.0.1"}, "is a host alone"),
        ("s3://lake/orders", {"s3.force-virtual-addressing": "maybe"}, "is true or false"),
        ("s3://lake/a/ ", {}, "a folder without a name, or with a space"),
        ("s3://lake/a/../b", {}, "a folder without a name"),
        ("s3://lake/a//b", {}, "a folder without a name"),
        ("s3:/lake/orders", {}, "neither a folder nor at one of"),
        ("s3://lake", {}, "is a whole bucket"),
        ("hdfs://lake/orders", {}, r"neither a folder nor at one of s3://, s3a://, az://"),
        ("/srv/orders", KEYS, "this one is a folder"),
        (None, {"s3.endpont": "x"}, r"did you mean storage\.s3\.endpoint"),
    ],
)
def test_what_cannot_be_is_said_by_name(path: str | None, storage: dict[str, str], problem: str) -> None:
    """STORE-02, SEC-02: nothing that may be a password is."""
    with pytest.raises(ConfigError, match=problem) as raised:
        pipeline(path, **storage)
    assert not re.search("hunter2|hun/ter2|a2V5", str(raised.value))


@pytest.mark.parametrize("told", [{"format": "iceberg"}, {"format": "delta", "path": "/srv/orders"}])
def test_only_a_store_can_be_unsafe(told: dict[str, str]) -> None:
    """STORE-03"""
    with pytest.raises(ValidationError, match="unsafe_rename is for a path in a store"):
        TableSection(name="shop.orders", unsafe_rename=True, **told)


def test_iceberg_keeps_them_with_its_catalog() -> None:
    """STORE-02."""
    with pytest.raises(ConfigError, match=r"catalog\.prop"):
        pipeline(None, "iceberg", **KEYS)


def test_a_path_in_a_store_is_no_folder_and_its_keys_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """STORE-01, SEC-02: they may come from the environment."""
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setenv("S3_SECRET", "hunter22")
    told = {"s3.access-key-id": "the-ada-key", "s3.secret-access-key": "${S3_SECRET}"}
    spec = pipeline("s3://lake/orders", **told).at(Path("/srv/pipelines"))
    assert spec.table.path == "s3://lake/orders"
    assert spec.table.storage["s3.secret-access-key"] == "hunter22"
    assert secrets.mask("the-ada-key hunter22") == "•••• ••••"
    place = Place.at("s3://lake/orders", spec.table.storage)
    assert "hunter22" not in f"{spec!r} {spec} {spec.table} {place} {place.address}"
