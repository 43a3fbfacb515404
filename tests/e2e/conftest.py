"""A rig around one pipeline: a topic of its own, a warehouse of its own, the shared Spark and broker."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from frazil.engine import Assembly, Engine, RunOptions, assemble
from frazil.engine.events import EpochLanded, Event
from frazil.engine.lakehouse import dead_letter_section, open_lakehouse
from frazil.journal import Journal
from frazil.pipeline import PipelineSpec, parse_pipeline
from frazil.pipeline.spec import TableSection
from frazil.protocol.entries import FilesWritten
from frazil.protocol.start import OnRollback
from frazil.table.iceberg import spark_catalog_conf

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from frazil.demo.broker import Broker

SCHEMA = "id BIGINT, name STRING, amount DECIMAL(10,2), placed_at TIMESTAMP"


class Killed(BaseException):
    """Nobody in the engine catches it, as nobody catches a kill."""


class Rig:
    """Produces, runs, and looks at the result."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, folder: Path, **sections: Any) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.topic = topic
        self.folder = folder
        tree: dict[str, Any] = {
            "pipeline": {"name": "orders"},
            "source": {"type": "kafka", "topics": [topic], "kafka": {"bootstrap.servers": bootstrap}},
            "decode": {"format": "json", "schema": SCHEMA},
            "table": {"name": "shop.orders"},
            "catalog": {"warehouse": str(folder / "warehouse"), "name": f"c{abs(hash(str(folder))):x}"},
            "epoch": {"interval": "1s"},
        }
        for name, section in sections.items():
            merged = {**tree.get(name, {}), **section}
            tree[name] = {key: value for key, value in merged.items() if value is not None}
        self.tree = tree
        for key, value in spark_catalog_conf(self.spec.catalog).items():
            spark.conf.set(key, value)

    @property
    def spec(self) -> PipelineSpec:
        return parse_pipeline(self.tree)

    @property
    def table(self) -> str:
        return self._sql_name(self.spec.table)

    def _sql_name(self, table: TableSection) -> str:
        return f"{self.spec.catalog.name}.{table.name}" if table.path is None else f"delta.`{table.path}`"

    def produce(self, values: Sequence[bytes | str | dict[str, Any]], partition: int = 0, **settings: Any) -> None:
        texts = (json.dumps(value) if isinstance(value, dict) else value for value in values)
        self._send(((f"k{number}", text) for number, text in enumerate(texts)), partition, **settings)

    def produce_keyed(
        self, changes: Sequence[tuple[object, dict[str, Any] | bytes | None]], partition: int = 0
    ) -> None:
        """Records whose message key is the key of a row, as JSON; no value deletes it."""
        texts = [(_text(key), value if isinstance(value, bytes) else _text(value)) for key, value in changes]
        self._send(texts, partition)

    def _send(self, records: Iterable[tuple[Any, Any]], partition: int, **settings: Any) -> None:
        # A broker that has to wait for the machine is no reason to fail, nor to put records in another order.
        roomy = {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "enable.idempotence": True}
        producer = Producer({"bootstrap.servers": self.bootstrap, **roomy, **settings})
        for key, value in records:
            producer.produce(self.topic, value, key=key, partition=partition)
            producer.poll(0)
        assert producer.flush(60) == 0

    def grow(self, partitions: int) -> None:
        """Gives the topic more partitions."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for done in admin.create_partitions([NewPartitions(self.topic, partitions)]).values():
            done.result(30)

    def produce_orders(self, first: int, count: int, partition: int = 0) -> None:
        self.produce([order(n) for n in range(first, first + count)], partition)

    def run(
        self,
        *,
        available_now: bool = True,
        take_over: bool = True,
        adopt: bool = False,
        on_rollback: OnRollback | None = None,
        observer: Callable[[Event], None] | None = None,
        prepare: Callable[[Assembly], None] | None = None,
        stop: threading.Event | None = None,
    ) -> list[Event]:
        """One run of the engine in this process; by default until everything there now has landed."""
        events: list[Event] = []

        def watch(event: Event) -> None:
            events.append(event)
            if observer is not None:
                observer(event)

        parts = assemble(self.spec, self.spark)
        if prepare is not None:
            prepare(parts)
        try:
            Engine(parts, watch, RunOptions(available_now, take_over, adopt, on_rollback), stop).run()
        finally:
            parts.source.close()
        return events

    def run_killed(self, at: type = FilesWritten, *, after: bool = False) -> None:
        """One run that ends, as a process would, at an entry of the journal; by default when files are written."""
        append = Journal.append

        def crashing(journal: Journal, entry: Any, *, durable: bool = False) -> None:
            if not isinstance(entry, at) or after:
                append(journal, entry, durable=durable)
            if isinstance(entry, at):
                journal._let_go()
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "append", crashing)
            with pytest.raises(Killed):
                self.run()

    def epochs(self, events: Sequence[Event]) -> list[EpochLanded]:
        return [event for event in events if isinstance(event, EpochLanded)]

    def sql(self, query: str) -> list[Row]:
        dead = self._sql_name(dead_letter_section(self.spec)) if self.spec.dead_letters else ""
        return self.spark.sql(query.format(t=self.table, dead=dead)).collect()

    @staticmethod
    def every(count: int, partition: int = 0, first: int = 0) -> list[tuple[int, int]]:
        """What `offsets` shows when each of these landed once."""
        return [(partition, offset) for offset in range(first, first + count)]

    def offsets(self) -> list[tuple[int, int]]:
        """(partition, offset) of every row, sorted: a multiset."""
        return sorted((r[0], r[1]) for r in self.sql("SELECT _kafka_partition, _offset FROM {t}"))

    def dead_offsets(self) -> list[tuple[int, int]]:
        return sorted((r[0], r[1]) for r in self.sql("SELECT partition, offset FROM {dead}"))

    def open_table(self) -> Any:
        table = open_lakehouse(self.spec, self.spark).find(self.spec.table.name)
        assert table is not None
        return table

    def roll_back(self, commits: int, name: str | None = None) -> None:
        """So many snapshots back, with Iceberg's own procedure."""
        table = name or self.spec.table.name
        catalog = self.spec.catalog.name
        history = self.spark.sql(
            f"SELECT snapshot_id FROM {catalog}.{table}.history WHERE is_current_ancestor ORDER BY made_current_at"
        ).collect()
        before = history[-1 - commits][0]
        self.spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{table}', {before})")

    def call(self, procedure: str, arguments: str) -> list[Row]:
        catalog = self.spec.catalog.name
        return self.spark.sql(
            f"CALL {catalog}.system.{procedure}(table => '{self.spec.table.name}', {arguments})"
        ).collect()


def place(table_format: str, folder: Path) -> dict[str, Any]:
    """What `[table]` of a rig says of where the table is; Iceberg's is in the rig's own catalog."""
    if table_format == "iceberg":
        return {}
    return {"format": table_format, "name": None, "path": str(folder / "orders")}


def _text(value: object) -> str | None:
    return None if value is None else json.dumps(value)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"customer-{number % 17}",
        "amount": f"{number % 1000}.{number % 100:02d}",
        "placed_at": f"2026-03-{1 + number % 28:02d}T10:00:00Z",
    }


@pytest.fixture
def make_rig(
    spark: SparkSession, broker: Broker, make_topic: Callable[..., str], tmp_path: Path
) -> Callable[..., Rig]:
    """`make_rig(partitions=1, topic_config={}, **sections)` builds a rig; sections override the pipeline's."""

    def make(partitions: int = 1, topic_config: dict[str, str] | None = None, **sections: Any) -> Rig:
        topic = make_topic(partitions, **(topic_config or {}))
        return Rig(spark, broker.bootstrap, topic, tmp_path, **sections)

    return make


@pytest.fixture(scope="module")
def make_shared_rig(
    spark: SparkSession,
    broker: Broker,
    make_topic: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Rig]:
    """`make_rig` for a pipeline that several tests of a module look at."""

    def make(partitions: int = 1, **sections: Any) -> Rig:
        folder = tmp_path_factory.mktemp("shared")
        return Rig(spark, broker.bootstrap, make_topic(partitions), folder, **sections)

    return make


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    """One topic with one partition, JSON orders, an unpartitioned table."""
    return make_rig()
