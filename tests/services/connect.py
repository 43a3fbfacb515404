"""A real Kafka Connect with Debezium's connector for PostgreSQL.

    with Connect(broker.bootstrap) as connect:
        connect.follow(postgres, "shop", prefix="shop", tables=["public.customers"])

Connect runs standalone: one process, no cluster, offsets in a file. Its jars are fetched when the first test asks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any

from frazil.demo.servers import free_ports
from frazil.spark.jars import jars
from frazil.spark.java import java_home
from tests.services.postgres import SUPERUSER, Postgres
from tests.services.server import Server

_JVM_OPTIONS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_REST_TIMEOUT_S = 60.0


class Connect(Server):
    """One standalone worker; connectors come and go by its REST interface."""

    name = "connect"

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        (self.port,) = free_ports(1)

    def start(self) -> None:
        """Returns when the worker takes connectors."""
        settings = self.folder / "worker.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        classpath = ":".join(map(str, jars("connect")))
        java = str(java_home() / "bin" / "java")
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        self._launch([java, *_JVM_OPTIONS, "-cp", classpath, main, str(settings)])
        self._await("an answer", self._answers)

    def follow(
        self,
        postgres: Postgres,
        database: str,
        *,
        prefix: str,
        tables: Sequence[str],
        partitions: int = 3,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Starts a connector; a table's events come to the topic `prefix.table`, first those of the rows it has."""
        conf = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(postgres.port),
            "database.user": SUPERUSER,
            "database.password": "",
            "database.dbname": database,
            "plugin.name": "pgoutput",
            "publication.name": slot_of(prefix),
            "publication.autocreate.mode": "filtered",
            "slot.name": slot_of(prefix),
            "slot.drop.on.stop": "true",
            "table.include.list": ",".join(tables),
            "topic.prefix": prefix,
            "topic.creation.default.partitions": str(partitions),
            "topic.creation.default.replication.factor": "1",
            "poll.interval.ms": "50",
            **(settings or {}),
        }
        self._tell("PUT", f"/connectors/{prefix}/config", conf)
        self._await("a running connector", lambda: self._runs(prefix))

    def unfollow(self, prefix: str) -> None:
        """Ends a connector, and with it its slot."""
        self._tell("DELETE", f"/connectors/{prefix}")

    def require_running(self, prefix: str) -> None:
        """Raises what a failed connector says of itself."""
        if not self._runs(prefix):
            raise self._failure(f"no longer follows {prefix}")

    def _settings(self) -> dict[str, str]:
        plain = {"converter": "org.apache.kafka.connect.json.JsonConverter", "converter.schemas.enable": "false"}
        return {
            "bootstrap.servers": self._bootstrap,
            "listeners": f"http://127.0.0.1:{self.port}",
            "offset.storage.file.filename": str(self.folder / "offsets"),
            "offset.flush.interval.ms": "200",
            "plugin.discovery": "service_load",
            **{f"{side}.{key}": value for side in ("key", "value") for key, value in plain.items()},
        }

    def _runs(self, prefix: str) -> bool:
        code, status = self._ask("GET", f"/connectors/{prefix}/status")
        if code == HTTPStatus.NOT_FOUND:
            return False
        parts = [status["connector"], *status["tasks"]]
        if failed := [part for part in parts if part["state"] == "FAILED"]:
            raise self._failure(f"gave up on {prefix}: {failed[0]['trace']}")
        return len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts)

    def _answers(self) -> bool:
        try:
            # It listens before it knows its own pages.
            return self._ask("GET", "/connectors")[0] == HTTPStatus.OK
        except OSError:
            return False

    def _tell(self, method: str, path: str, body: object = None) -> None:
        code, answer = self._ask(method, path, body)
        if code >= HTTPStatus.BAD_REQUEST:
            raise self._failure(f"answered {code} to {method} {path}: {answer}")

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_REST_TIMEOUT_S)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read().decode()
            is_json = "json" in (answer.headers["Content-Type"] or "")
            return answer.status, json.loads(content) if is_json else content
        finally:
            connection.close()


def slot_of(prefix: str) -> str:
    """The names of the replication slot and the publication of a connector."""
    return f"{prefix}_feed"
