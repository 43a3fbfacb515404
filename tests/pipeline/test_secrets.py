"""Secrets: taken from the environment, never shown again."""

from __future__ import annotations

import pytest

from frazil.errors import ConfigError
from frazil.pipeline import secrets
from frazil.pipeline.secrets import is_secret, mask, masked, resolve

ENVIRONMENT = {"PASSWORD": "hunter2", "USER_NAME": "ada", "EMPTY": "", "SHORT": "ab", "_X1": "under-score"}


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())


def test_references_are_replaced_wherever_they_stand() -> None:
    """SEC-02."""
    tree = {
        "source": {"kafka": {"sasl.password": "${PASSWORD}", "nested": {"deep": ["${USER_NAME}", 5, True, None]}}},
        "catalog": {"uri": "jdbc:pg://${USER_NAME}:${PASSWORD}@host/${EMPTY}db"},
        "other": "${_X1}",
    }
    assert resolve(tree, environ=ENVIRONMENT) == {
        "source": {"kafka": {"sasl.password": "hunter2", "nested": {"deep": ["ada", 5, True, None]}}},
        "catalog": {"uri": "jdbc:pg://ada:hunter2@host/db"},
        "other": "under-score",
    }


@pytest.mark.parametrize("text", ["$PASSWORD", "${}", "${1X}", "${PASS WORD}", "{PASSWORD}", "$${", "%PASSWORD%"])
def test_what_is_no_reference_stays_as_it_is(text: str) -> None:
    assert resolve(text, environ=ENVIRONMENT) == text


def test_a_missing_variable_is_named_with_its_key() -> None:
    """SEC-02, CLI-03."""
    with pytest.raises(ConfigError, match=r"source\.kafka\.sasl\.password: .* MISSING is not set") as refused:
        resolve({"source": {"kafka": {"sasl.password": "${MISSING}"}}}, environ=ENVIRONMENT)
    assert "export MISSING" in refused.value.remedy


def test_a_value_from_the_environment_is_masked_from_then_on_whatever_its_key() -> None:
    """SEC-02."""
    assert mask("login of ada with hunter2") == "login of ada with hunter2"
    resolve({"plain": "${PASSWORD}"}, environ=ENVIRONMENT)
    assert mask("login of ada with hunter2, hunter2!") == "login of ada with ••••, ••••!"


def test_a_secret_written_into_the_file_is_masked_too() -> None:
    """SEC-02."""
    resolve({"source": {"kafka": {"sasl.password": "in-the-file"}, "topics": ["orders"]}}, environ=ENVIRONMENT)
    assert mask("in-the-file orders") == "•••• orders"


def test_a_secret_made_of_a_reference_and_more_is_masked_as_a_whole() -> None:
    resolve({"catalog": {"prop": {"credential": "client:${PASSWORD}!"}}}, environ=ENVIRONMENT)
    assert mask("sent client:hunter2! to the server") == "sent •••• to the server"
    assert mask("hunter2") == "••••"


def test_a_secret_that_contains_another_is_masked_whole() -> None:
    resolve({"a": "${PASSWORD}", "token": "hunter2-and-more"}, environ=ENVIRONMENT)
    assert mask("hunter2-and-more") == "••••"


@pytest.mark.parametrize("value", ["", "a", "ab", "true", "False", "none"])
def test_values_too_common_to_be_secrets_do_not_maim_the_text(value: str) -> None:
    """catalog.prop."token-refresh-enabled" = "false" sounds secret, and is not."""
    resolve({"token-refresh-enabled": value}, environ=ENVIRONMENT)
    text = f"an {value} about nothing; abc, trueish, False, none"
    assert mask(text) == text


def test_values_are_masked_however_deep_they_lie() -> None:
    """SEC-02."""
    resolve({"a": "${PASSWORD}"}, environ=ENVIRONMENT)
    value = {"a": ["x hunter2", {"b": ("hunter2", 5)}], "error": ValueError("bad hunter2"), "n": None}
    assert masked(value) == {"a": ["x ••••", {"b": ["••••", 5]}], "error": "bad ••••", "n": None}


@pytest.mark.parametrize(
    "key",
    [
        "source.kafka.sasl.password",
        "source.kafka.ssl.key.password",
        "source.kafka.ssl.key.pem",
        "source.kafka.ssl.keystore.password",
        "source.kafka.sasl.oauthbearer.client.secret",
        "source.kafka.sasl.oauthbearer.config",
        "source.kafka.sasl.jaas.config",
        "catalog.prop.token",
        "catalog.prop.credential",
        "catalog.prop.header.Authorization",
        "catalog.prop.header.X-Api-Key",
        "catalog.prop.jdbc.password",
        "catalog.prop.aws_access_key_id",
        "catalog.prop.aws_secret_access_key",
        "catalog.prop.s3.access-key-id",
        "catalog.prop.s3.secret-access-key",
        "catalog.prop.s3.session-token",
        "catalog.prop.adls.account-key",
        "catalog.prop.adls.sas-token.account",
        "catalog.prop.adls.connection-string.account",
        "catalog.prop.gcs.oauth2.token",
        "storage.azure_storage_account_key",
        "storage.azure_storage_sas_token",
        "storage.google_service_account_key",
        "spark.conf.spark.hadoop.fs.s3a.access.key",
        "spark.conf.spark.hadoop.fs.azure.account.key.acct.blob.core.windows.net",
        "spark.conf.spark.hadoop.fs.azure.sas.box.acct.blob.core.windows.net",
    ],
)
def test_these_settings_hold_secrets(key: str) -> None:
    """SEC-02, CFG-43, CFG-46, CFG-47, CFG-51, CFG-53, CFG-54."""
    assert is_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "pipeline.name",
        "source.topics",
        "source.kafka.bootstrap.servers",
        "source.kafka.sasl.username",
        "source.kafka.sasl.mechanism",
        "source.kafka.ssl.key.location",
        "source.kafka.sasl.oauthbearer.token.endpoint.url",
        "catalog.uri",
        "catalog.prop.oauth2-server-uri",
        "catalog.prop.s3.endpoint",
        "table.name",
        "table.partition",
        "epoch.interval",
    ],
)
def test_these_settings_do_not(key: str) -> None:
    assert not is_secret(key)
