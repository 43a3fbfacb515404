"""Whether Spark gets to a Delta table in a store, and writes there as others do."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from frazil.errors import SetupError
from frazil.spark import LOG_STORE, LOG_STORE_KEY, has_log_store, jvm
from frazil.table.delta.place import Place

_S3 = "s3a"


def teach(session: SparkSession, place: Place) -> SparkSession:
    """The session, which then knows how to reach the store; other sessions do not."""
    settings = {} if place.address is None else place.address.hadoop_settings()
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def require_spark_writes(name: str, place: Place, spark: SparkSession, *, unsafe: bool = False) -> None:
    """Refuses a Spark that has no way to the store, or would write over versions that others wrote meanwhile."""
    if place.address is None:
        return
    scheme = place.address.store.hadoop_scheme
    files = jvm(spark).org.apache.hadoop.fs.FileSystem
    try:
        files.getFileSystemClass(scheme, jvm(spark).org.apache.hadoop.conf.Configuration())
    except Py4JJavaError:
        raise SetupError(
            f"{name}: changes and clean-ups are Spark's, and this Spark has no way to {place.spark_uri}",
            "give it the jars: python -m frazil.spark.jars s3 fetches those for S3; for Azure name hadoop-azure, "
            "for Google gcs-connector, as spark.jars.packages in [spark] conf",
        ) from None
    if scheme == _S3 and not unsafe and not has_log_store(spark):
        raise SetupError(
            f"{name}: this Spark was started to write versions on S3 without looking who else does: two drivers "
            "would overwrite each other's",
            f"start it with --conf {LOG_STORE_KEY}={LOG_STORE}, or let frazil start it",
        )
