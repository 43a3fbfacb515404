"""A real Iceberg REST catalog on this machine: Iceberg's own servlet in a Jetty, its tables kept in SQLite.

It listens on a free port of 127.0.0.1 only. Its JVM ends when the pipe from this process closes, so that it
never outlives it, however that ends.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from frazil.spark.jars import jars
from frazil.spark.java import java_home

MODULE_FILE = Path(__file__).with_name("jvm.xml")
_JVM_OPTIONS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"]


class RestCatalog:
    """The server; `uri` is what a pipeline file says as `catalog.uri`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="frazil-rest-"))
        port, token, self._process = _launch()
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        self._server: Any = None
        self.uri = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        jvm = self._gateway.jvm
        address = jvm.java.net.InetSocketAddress("127.0.0.1", 0)
        handler = jvm.org.eclipse.jetty.ee10.servlet.ServletContextHandler(0)
        adapter = jvm.org.apache.iceberg.rest.RESTCatalogAdapter(self._tables())
        servlet = jvm.org.apache.iceberg.rest.RESTCatalogServlet(adapter)
        handler.addServlet(jvm.org.eclipse.jetty.ee10.servlet.ServletHolder(servlet), "/*")
        self._server = jvm.org.eclipse.jetty.server.Server(address)
        self._server.setHandler(handler)
        self._server.start()
        self.uri = f"http://127.0.0.1:{self._server.getURI().getPort()}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gateway.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _tables(self) -> Any:
        jvm = self._gateway.jvm
        catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
        properties = jvm.java.util.HashMap()
        properties.put("uri", f"jdbc:sqlite:{self._folder / 'catalog.db'}")
        properties.put("warehouse", (self._folder / "warehouse").as_uri())
        properties.put("jdbc.schema-version", "V1")
        catalog.initialize("tests", properties)
        return catalog


def _launch() -> tuple[int, str, subprocess.Popen[bytes]]:
    """A JVM that does what Python tells it, and ends with the pipe that Python holds."""
    spark_jars = Path(pyspark.__file__).parent / "jars"
    (gateway_jar,) = spark_jars.glob("py4j-*.jar")
    return launch_gateway(
        jarpath=str(gateway_jar),
        classpath=":".join([*map(str, jars("rest", MODULE_FILE)), f"{spark_jars}/*"]),
        java_path=str(java_home() / "bin" / "java"),
        javaopts=_JVM_OPTIONS,
        die_on_exit=True,
        create_new_process_group=True,
        enable_auth=True,
        return_proc=True,
    )
