"""One Spark, one broker, one REST catalog and one S3 for all tests, started when the first asks for it."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from frazil.demo.broker import Broker
    from tests.services.proxy import FaultProxy
    from tests.services.rest import RestCatalog
    from tests.services.s3 import S3
    from tests.services.trino import Trino


def pytest_configure() -> None:
    """A console keeps the width that the environment had when it was made; tests say their own."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """It has little to do in each of many queries: half of its time went into compiling, and into empty tasks."""
    from frazil.spark import LOG_STORE, LOG_STORE_KEY, open_session

    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "4",
        LOG_STORE_KEY: LOG_STORE,
    }
    session = open_session("frazil-tests", master="local[2]", conf=conf, jar_sets=["s3"])
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    from frazil.demo.broker import Broker

    with Broker() as running:
        _await_groups(running)
        yield running


def _await_groups(broker: Broker) -> None:
    """The first to ask for a consumer group is put off until there is a topic for all of them."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "first"})
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.committed([TopicPartition("any", 0)], timeout=10)
            break
        except KafkaException:
            assert time.monotonic() < deadline, "the broker has no consumer groups"
            time.sleep(0.1)
    consumer.close()


@pytest.fixture(scope="session")
def rest_catalog() -> Iterator[RestCatalog]:
    from tests.services.rest import RestCatalog

    with RestCatalog() as running:
        yield running


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    from tests.services.s3 import S3

    with S3() as running:
        yield running


@pytest.fixture(scope="session")
def trino(rest_catalog: RestCatalog) -> Iterator[Trino]:
    from tests.services.trino import Trino

    with Trino(rest_catalog.uri) as running:
        yield running


@pytest.fixture(scope="session")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its Iceberg reader; it knows nothing of catalogs here, only of metadata files."""
    import duckdb
    from duckdb_extensions import import_extension

    with duckdb.connect() as connection:
        for extension in ("avro", "iceberg"):
            import_extension(extension)
            connection.execute(f"LOAD {extension}")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture(scope="session")
def delta_duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its Delta reader."""
    import duckdb
    from duckdb_extensions import import_extension

    with duckdb.connect() as connection:
        import_extension("delta")
        connection.execute("LOAD delta")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture
def rest_proxy(rest_catalog: RestCatalog) -> Iterator[FaultProxy]:
    """Relays to the REST catalog, until it is armed with faults."""
    from tests.services.proxy import FaultProxy

    with FaultProxy(rest_catalog.uri) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def make_topic(broker: Broker) -> Callable[..., str]:
    """`make_topic(partitions=1, **config)` creates a topic with a name of its own."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        # Kafka's setting names have dots, Python's arguments cannot: retention_ms means retention.ms.
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin.create_topics([topic])[name].result(timeout=30)
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A fresh topic with one partition."""
    return make_topic()
