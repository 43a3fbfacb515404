"""A real S3 server on this machine: s3proxy in front of a folder; it checks signatures and conditional writes.

with S3() as s3:
    s3.make_bucket()            "s3://b-1f2e3d", which nobody else has
    s3.storage                  what a pipeline file says to reach it
"""

from __future__ import annotations

import uuid
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from frazil.demo.servers import free_ports
from frazil.spark.jars import jars
from frazil.spark.java import java_home
from tests.services.server import Server

ACCESS_KEY = "frazil-tests"
SECRET_KEY = "not-for-everybody"

_MODULE_FILE = Path(__file__).with_name("s3.xml")
_JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class S3(Server):
    """The server; its buckets are folders in a folder of its own."""

    name = "s3"

    def __init__(self) -> None:
        super().__init__()
        (self.port,) = free_ports(1)
        self.buckets = self.folder / "buckets"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def storage(self) -> dict[str, str]:
        return storage_at(self.endpoint)

    def start(self) -> None:
        """Returns when a request has been answered."""
        self.buckets.mkdir()
        settings = self.folder / "s3proxy.conf"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        (jar,) = jars("s3", _MODULE_FILE)
        java = str(java_home() / "bin" / "java")
        self._launch([java, *_JVM_OPTIONS, "-jar", str(jar), "--properties", str(settings)])
        self._await("an answer", self._answers)

    def make_bucket(self) -> str:
        """A new bucket, as its address."""
        name = f"b-{uuid.uuid4().hex[:12]}"
        (self.buckets / name).mkdir()
        return f"s3://{name}"

    def _settings(self) -> dict[str, str]:
        return {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": ACCESS_KEY,
            "s3proxy.credential": SECRET_KEY,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.buckets),
        }

    def _answers(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()
        return True


def storage_at(endpoint: str) -> dict[str, str]:
    """What `table.storage` says of the server, or of somebody in front of it."""
    return {
        "s3.endpoint": endpoint,
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
        "s3.region": "us-east-1",
    }
