"""Opens the Spark session that every pipeline runs in, on a laptop or under spark-submit."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.errors import SetupError
from frazil.pipeline.secrets import SECRET_PATTERN, is_secret
from frazil.spark.gateway import jvm
from frazil.spark.jars import jars
from frazil.spark.java import java_home
from frazil.spark.log_store import with_log_store

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

LOGGING_FILE = Path(__file__).with_name("log4j2.properties")

_ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_DELTA_EXTENSIONS = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA = {
    "spark.sql.extensions": _DELTA_EXTENSIONS,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What a session needs for SQL about Delta tables."""

# These hold wherever the session comes from: a worker that got timestamps in another zone would land them
# wrong.
_SQL_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

_CORE_CONF = {
    **_DELTA,
    "spark.sql.extensions": f"{_ICEBERG_EXTENSIONS},{_DELTA_EXTENSIONS}",
    "spark.python.daemon.module": "frazil.spark.daemon",
    "spark.ui.showConsoleProgress": "false",
    "spark.port.maxRetries": "100",  # several pipelines on one machine each find a port for their UI
    "spark.redaction.regex": f"(?i){SECRET_PATTERN}",  # what its UI and event log must not show
    **_SQL_CONF,
}

# Delta reads a table's log in so many tasks, however short it is; its default is for clusters.
_LOCAL_CONF = {"spark.databricks.delta.snapshotPartitions": "2"}


def open_session(
    app_name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] = {},
    jar_sets: Sequence[str] = (),
) -> SparkSession:
    """The session to run a pipeline in; `conf` wins over frazil's own settings, `jar_sets` are needed besides.

    In a Python process of our own we start the JVM and choose everything. Under spark-submit the JVM already
    runs: what was given to it stays, and it must have been given the jars. Beside somebody else's running
    context we get a session of our own within it, so that our time zone is not theirs.
    """
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        return with_log_store(_join_context(conf))
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return with_log_store(_join_submitted_jvm(app_name, master, conf))
    return with_log_store(_start_jvm(app_name, master or "local[*]", conf, jar_sets))


def _start_jvm(app_name: str, master: str, conf: Mapping[str, str], jar_sets: Sequence[str]) -> SparkSession:
    os.environ["JAVA_HOME"] = str(java_home())
    # Otherwise workers run whichever python3 comes first on the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    local = _LOCAL_CONF if master.startswith("local") else {}
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    needed = [str(jar) for name in ("spark", *jar_sets) for jar in jars(name)]
    further = [jar for jar in conf.get("spark.jars", "").split(",") if jar and jar not in needed]
    settings = {
        **_CORE_CONF,
        **local,
        "spark.driver.memory": "2g",
        "spark.driver.defaultJavaOptions": f'"-Dlog4j2.configurationFile={LOGGING_FILE.as_uri()}"',
        **conf,
        "spark.jars": ",".join([*needed, *further]),
    }
    _launch_apart(settings)
    return _open(app_name, master, settings)


def _launch_apart(settings: Mapping[str, str]) -> None:
    """Starts the JVM in a process group of its own.

    A supervisor that signals our whole group wants us to finish; without this it would kill the JVM under the
    epoch that is being finished. The JVM ends by itself when we do: it reads our end of a pipe.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        # This ends up on a command line, for everybody on the machine to read; the rest follows by the gateway.
        public = [(key, value) for key, value in settings.items() if not is_secret(key)]
        conf = SparkConf(loadDefaults=False).setAll(public)
        gateway = launch_gateway(conf, popen_kwargs={"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


def _join_submitted_jvm(app_name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf

    given = SparkConf()
    settings = {**_not_given(_CORE_CONF, given), **conf}
    return require_iceberg(_open(app_name, master, settings))


def _not_given(defaults: Mapping[str, str], given: SparkConf) -> dict[str, str]:
    return {key: value for key, value in defaults.items() if not given.contains(key)}


def _join_context(conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    spark = own_session(SparkSession.builder.getOrCreate())
    for key, value in conf.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    return require_iceberg(spark)


def own_session(spark: SparkSession) -> SparkSession:
    """A session beside `spark`, with views of its own; a new session forgets settings made at run time."""
    session = spark.newSession()
    for key, value in _SQL_CONF.items():
        session.conf.set(key, value)
    return session


def _open(app_name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    return builder.config(map=dict(settings)).getOrCreate()


def require_delta(spark: SparkSession) -> SparkSession:
    """Refuse a session that somebody else started without Delta: a MERGE would fail there, and be tried again."""
    missing = [key for key, name in _DELTA.items() if name not in (spark.conf.get(key, None) or "")]
    if missing:
        raise SetupError(
            "changes of a Delta table land by MERGE, and this Spark was started without Delta",
            f"start it with Delta's jars and {', '.join(f'{key}={_DELTA[key]}' for key in missing)}",
        )
    return spark


def require_iceberg(spark: SparkSession) -> SparkSession:
    """Refuse a JVM that somebody else started without Iceberg, before Spark says so late and unreadably."""
    loader = jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource(_ICEBERG_EXTENSIONS.replace(".", "/") + ".class") is None:
        needed = ",".join(str(jar) for jar in jars("spark"))
        raise SetupError("this Spark was started without Iceberg's classes", f"spark-submit --jars {needed} …")
    return spark
