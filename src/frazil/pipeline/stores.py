"""Object stores: their addresses, and what their settings are called by whom.

Settings are given under the names that Iceberg has for them. Delta's own library writes through another one, and
Spark through Hadoop, each with names of its own; the tables below are the only place that knows them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_ADDRESS = re.compile(r"([a-z0-9]+)://(?:([^/@]+)@)?([^/@]+)/?(.*)")
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]+:")
_AZURE_HOST = "dfs.core.windows.net"
_AZURE_ACCOUNT = re.compile(r"([a-z0-9]+)\.(?:dfs|blob)\.core\.windows\.net")


class Names(NamedTuple):
    """What a setting is called by others."""

    rust: str
    """by the library that Delta's log is written with"""
    hadoop: str = ""
    """by Hadoop; empty if it has no such setting"""


@dataclass(frozen=True, slots=True)
class Store:
    """One kind of store."""

    name: str
    scheme: str
    """how files are addressed"""
    hadoop_scheme: str
    schemes: tuple[str, ...]
    """how people address them"""
    settings: Mapping[str, Names]
    together: tuple[tuple[str, ...], ...] = ()
    """settings that mean nothing alone"""
    rivals: tuple[str, ...] = ()
    """ways to say who one is, of which there can be one"""
    required: tuple[str, ...] = ()


_S3 = Store(
    name="S3",
    scheme="s3",
    hadoop_scheme="s3a",
    schemes=("s3", "s3a"),
    settings={
        "s3.endpoint": Names("aws_endpoint", "fs.s3a.endpoint"),
        "s3.region": Names("aws_region", "fs.s3a.endpoint.region"),
        "s3.access-key-id": Names("aws_access_key_id", "fs.s3a.access.key"),
        "s3.secret-access-key": Names("aws_secret_access_key", "fs.s3a.secret.key"),
        "s3.session-token": Names("aws_session_token", "fs.s3a.session.token"),
        "s3.force-virtual-addressing": Names("aws_virtual_hosted_style_request"),
    },
    together=(("s3.access-key-id", "s3.secret-access-key"),),
)
_AZURE = Store(
    name="Azure",
    scheme="abfss",
    hadoop_scheme="abfss",
    schemes=("az", "abfss", "abfs"),
    settings={
        "adls.account-name": Names("azure_storage_account_name"),
        "adls.account-key": Names("azure_storage_account_key", "fs.azure.account.key.{account}"),
        "adls.sas-token": Names("azure_storage_sas_token", "fs.azure.sas.fixed.token.{account}"),
        "adls.tenant-id": Names("azure_storage_tenant_id"),
        "adls.client-id": Names("azure_storage_client_id"),
        "adls.client-secret": Names("azure_storage_client_secret"),
    },
    together=(("adls.tenant-id", "adls.client-id", "adls.client-secret"),),
    rivals=("adls.account-key", "adls.sas-token", "adls.client-secret"),
    required=("adls.account-name",),
)
_GCS = Store(
    name="Google Cloud Storage",
    scheme="gs",
    hadoop_scheme="gs",
    schemes=("gs", "gcs"),
    settings={
        "gcs.service.host": Names("google_base_url", "fs.gs.storage.root.url"),
    },
)
STORES = (_S3, _AZURE, _GCS)

_SWITCHES = {"s3.force-virtual-addressing"}
_UNSAFE = re.compile("unsafe[-_.]?rename|single[-_.]?driver")


@dataclass(frozen=True, slots=True)
class Address:
    """A folder of a store."""

    store: Store
    bucket: str
    folder: str
    storage: Mapping[str, str] = field(repr=False)
    """as the user said it; of Azure with the account that the address names"""

    @property
    def uri(self) -> str:
        return f"{self.store.scheme}://{self.bucket}/{self.folder}"

    def rust_options(self) -> dict[str, str]:
        told = {self.store.settings[key].rust: value for key, value in self.storage.items()}
        plain = any(value.startswith("http://") for key, value in self.storage.items() if is_host(key))
        return {**told, "allow_http": "true"} if plain else told

    def hadoop_settings(self) -> dict[str, str]:
        account = f"{self.storage.get('adls.account-name', '')}.{_AZURE_HOST}"
        named = {self.store.settings[key].hadoop: value for key, value in self.storage.items()}
        told = {key.format(account=account): value for key, value in named.items() if key}
        if self.store is _S3:
            virtual = self.storage.get("s3.force-virtual-addressing", "false").lower() == "true"
            told["fs.s3a.path.style.access"] = str(not virtual).lower()
        return told

    def for_hadoop(self, uri: str) -> str:
        """A file's address as Spark takes it."""
        rest = uri.removeprefix(f"{self.store.scheme}://{self.bucket}")
        host = f"@{self.storage['adls.account-name']}.{_AZURE_HOST}" if self.store is _AZURE else ""
        return f"{self.store.hadoop_scheme}://{self.bucket}{host}{rest}"


def is_host(key: str) -> bool:
    """Whether the setting is the address of a server."""
    return key in ("s3.endpoint", "gcs.service.host")


def is_on_store(path: str) -> bool:
    """Whether a path is one of a store, rather than a folder that this machine sees; s3:/bucket means one, too."""
    return _SCHEME.match(path) is not None and not path.startswith("file:")


def parse_address(path: str, storage: Mapping[str, str]) -> Address:
    """Raises ValueError for what is not the address of a store, or contradicts what is said of it."""
    read = _ADDRESS.fullmatch(path.rstrip("/"))
    store = next((each for each in STORES if read is not None and read[1] in each.schemes), None)
    if read is None or store is None:
        schemes = ", ".join(f"{scheme}://" for each in STORES for scheme in each.schemes)
        raise ValueError(f"{path} is neither a folder nor at one of {schemes}")
    if "@" in path and (store is not _AZURE or not read[2]):
        raise ValueError(
            "only Azure's addresses have an @, before the account; credentials belong to table.storage"
        )
    container, host = (read[2], read[3]) if read[2] else (read[3], "")
    if not read[4]:
        raise ValueError(f"{path} is a whole bucket: name a folder in it, such as {path.rstrip('/')}/orders")
    if any(part in ("", ".", "..") or part != part.strip() for part in read[4].split("/")):
        raise ValueError(
            f"{path!r} has a folder without a name, or with a space at its end: readers look elsewhere"
        )
    if host and not _AZURE_ACCOUNT.fullmatch(host):
        raise ValueError(f"{path}: after the @ comes an account, such as lake.{_AZURE_HOST}")
    told = dict(storage)
    account = host.partition(".")[0]
    if account and told.setdefault("adls.account-name", account) != account:
        raise ValueError(f"{path} and storage.adls.account-name are of two accounts: keep one of them")
    for problem in _problems(store, told):
        raise ValueError(problem)
    return Address(store, container, read[4], told)


def require_known(storage: Mapping[str, str]) -> None:
    """Raises ValueError for a setting of no store."""
    known = [key for store in STORES for key in store.settings]
    for key in storage:
        if key not in known:
            raise ValueError(_unknown(key, known))


def _problems(store: Store, storage: Mapping[str, str]) -> Iterator[str]:
    others = {key: each for each in STORES for key in each.settings if each is not store}
    for key in storage:
        if key in others:
            yield f"storage.{key} is for {others[key].name}, and the table's path is of {store.name}: leave it out"
        elif key not in store.settings:
            yield _unknown(key, list(store.settings))
        elif is_host(key) and not storage[key].startswith(("http://", "https://")):
            yield f"storage.{key} begins with http:// or https://"
        elif is_host(key) and "@" in storage[key]:
            yield f"storage.{key} is a host alone: a user and a password have settings of their own"
        elif key in _SWITCHES and storage[key].lower() not in ("true", "false"):
            yield f"storage.{key} is true or false"
    for group in store.together:
        missing = [key for key in group if key not in storage]
        if missing and len(missing) < len(group):
            given = next(key for key in group if key in storage)
            yield f"storage.{given} is given without storage.{missing[0]}"
    rivals = [f"storage.{key}" for key in store.rivals if key in storage]
    if len(rivals) > 1:
        yield f"{' and '.join(rivals)} are two ways to say the same: keep one of them"
    for key in store.required:
        if key not in storage:
            yield f"storage.{key} is required for {store.name}"


def _unknown(key: str, known: list[str]) -> str:
    if _UNSAFE.search(key):
        return f"storage.{key}: unknown setting; say it as table.unsafe_rename = true"
    near = difflib.get_close_matches(key, known, 1)
    more = f"did you mean storage.{near[0]}?" if near else f"known are {', '.join(known)}"
    return f"storage.{key}: unknown setting; {more}"
