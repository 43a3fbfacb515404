"""Everything that a certification plays on: broker, proxy, disk, pipeline file, and a session to look with."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from confluent_kafka.admin import AdminClient, NewTopic

from frazil import cli
from frazil.demo.broker import Broker
from frazil.pipeline import PipelineSpec, load_pipeline
from frazil.spark import own_session
from frazil.table.iceberg import spark_catalog_conf
from tests.certify.disk import Disk
from tests.certify.life import LONG_S, Broken, Life
from tests.certify.points import FOLDER
from tests.certify.proxy import Proxy
from tests.certify.workload import PARTITIONS, Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW_TASKS = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}
"""Those who tend the table leave the cores to the pipeline."""

_ATTEMPTS = 10

TOPIC = "orders"
TABLE = "shop.orders"
PLACES = {
    "iceberg": f'name = "{TABLE}"',
    "delta": 'format = "delta"\npath = "./orders"',
    "keyed-delta": 'format = "delta"\npath = "./orders"\nmode = "upsert"\nkeys = ["id"]',
}
"""By kind of table, what `[table]` says of it."""
PIPELINE = """
[pipeline]
name = "orders"
[source]
type = "kafka"
topics = ["{topic}"]
timeout = "5s"
kafka."bootstrap.servers" = "{bootstrap}"
kafka."reconnect.backoff.max.ms" = 500
[decode]
format = "json"
schema = "id BIGINT, name STRING"
[table]
{place}
[catalog]
name = "{catalog}"
warehouse = "./warehouse"
[epoch]
interval = "1s"
[spark]
master = "local[2]"
conf."spark.ui.enabled" = false
"""


@dataclass
class Stage:
    """One pipeline and all that can be broken around it."""

    folder: Path
    spark: SparkSession
    broker: Broker
    proxy: Proxy
    disk: Disk
    workload: Workload
    file: Path
    lives: list[Life] = field(default_factory=list)

    @property
    def spec(self) -> PipelineSpec:
        return load_pipeline(self.file)

    @property
    def table(self) -> str:
        path = self.spec.table.path
        return f"{self.spec.catalog.name}.{TABLE}" if path is None else f"delta.`{path}`"

    @property
    def delta(self) -> Path | None:
        """The folder of a Delta table; None of an Iceberg table."""
        return None if self.spec.table.path is None else Path(self.spec.table.path)

    @property
    def armed(self) -> Path:
        """The folder of armed crash points."""
        return self.folder / "points"

    @property
    def journal(self) -> Path:
        return Path(str(self.spec.journal.dir))

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"

    def start(self, *options: str) -> Life:
        log = self.folder / "logs" / f"life-{len(self.lives) + 1:04d}.log"
        command = ["-m", "tests.certify.launch", "run", str(self.file), *options]
        self.lives.append(Life(command, log, {FOLDER: str(self.armed)}))
        return self.lives[-1]

    def verify(self, *, deep: bool = False) -> dict[str, Any]:
        """What `frazil verify` does and says, in a session that is already warm; raises unless its code is 0."""
        options = ["--json", *(["--deep"] if deep else [])]

        @contextmanager
        def warm(*_: object) -> Iterator[SparkSession]:
            yield self.spark

        with (
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()),
            patch.object(cli, "_spark", warm),
        ):
            code = cli.app(["verify", str(self.file), *options], standalone_mode=False)
        return held(code, out.getvalue())

    def verify_apart(self) -> dict[str, Any]:
        """The same with `--deep`, as its users run it: a process of its own."""
        life = Life(["-m", "frazil", "verify", str(self.file), "--deep", "--json"], self.folder / "verify.log", {})
        try:
            code = life.await_end(LONG_S)
        finally:
            life.close()
        return held(code, next((line for line in life.text.splitlines() if line.startswith("{")), life.text))

    def tend(self, statement: str) -> None:
        """What somebody else does to the table; SQLite refuses who comes while another one writes."""
        for is_last in [False] * (_ATTEMPTS - 1) + [True]:
            try:
                self.spark.sql(statement).collect()
                return
            except Exception:
                if is_last:
                    raise
                time.sleep(1)

    def call(self, procedure: str, arguments: str) -> None:
        self.tend(f"CALL {self.spec.catalog.name}.system.{procedure}(table => '{TABLE}', {arguments})")


def held(code: int | None, told: str) -> dict[str, Any]:
    if code:
        raise Broken(f"frazil verify ended with {code}: {told}")
    return dict(json.loads(told))


@contextmanager
def set_up(
    folder: Path,
    spark: SparkSession,
    *,
    seed: int,
    per_second: int,
    megabytes: int,
    kind: str = "iceberg",
) -> Iterator[Stage]:
    """Everything started; after a failure the folder is left for inspection, processes never are."""
    for name in ("logs", "points"):
        (folder / name).mkdir(parents=True)
    with Proxy() as proxy, Disk(folder / "disk", megabytes) as disk:
        address = f"127.0.0.1:{proxy.port}"
        advertised = {"advertised.listeners": f"PLAINTEXT://{address}"}
        with Broker(folder / "broker", advertised) as broker:
            proxy.target = broker.port
            _create_topic(address)
            catalog = f"certify{seed}"
            file = disk.folder / "pipeline.toml"
            told = {"topic": TOPIC, "bootstrap": address, "catalog": catalog, "place": PLACES[kind]}
            file.write_text(PIPELINE.format(**told))
            workload = Workload(address, TOPIC, seed, per_second)
            session = own_session(spark)
            stage = Stage(folder, session, broker, proxy, disk, workload, file)
            for key, value in (_FEW_TASKS | spark_catalog_conf(stage.spec.catalog)).items():
                session.conf.set(key, value)
            try:
                yield stage
            finally:
                for life in stage.lives:
                    life.close()


def _create_topic(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])[TOPIC].result(30)
