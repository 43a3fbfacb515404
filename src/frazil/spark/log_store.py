"""Lets Spark write versions of Delta tables on S3 so that the second of two drivers is told.

Delta's own writer for S3 looks whether a version is there, and then writes it over whatever came in between: it is
made for one driver. Hadoop can leave the decision to S3, but only for those who ask, and Delta does not. The class
that asks is compiled by the compiler that Spark has on board, once for each JVM.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from frazil.spark.gateway import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_STORE = "frazil.ConditionalLogStore"
LOG_STORE_KEY = "spark.delta.logStore.s3a.impl"

_SOURCE = Path(__file__).with_name("ConditionalLogStore.java")


def with_log_store(spark: SparkSession) -> SparkSession:
    """The session, with the class in its JVM if its settings name it."""
    if has_log_store(spark) and not _is_there(spark):
        _add(spark)
    return spark


def has_log_store(spark: SparkSession) -> bool:
    """Whether Delta is told to write by it; only a Spark that is about to start can be told."""
    return bool(spark.sparkContext.getConf().get(LOG_STORE_KEY) == LOG_STORE)


def _is_there(spark: SparkSession) -> bool:
    try:
        _loader(spark).loadClass(LOG_STORE)
    except Py4JJavaError:
        return False
    return True


def _add(spark: SparkSession) -> None:
    compiler = jvm(spark).org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(_loader(spark))
    compiler.cook(_SOURCE.read_text(encoding="utf-8"))
    jar = Path(str(spark.sparkContext._temp_dir)) / "frazil-log-store.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for name, code in compiler.getBytecodes().items():
            archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))
    _loader(spark).addURL(jvm(spark).java.net.URL(jar.as_uri()))
    spark.sparkContext._jsc.addJar(str(jar))


def _loader(spark: SparkSession) -> Any:
    return jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
