"""frazil on a Spark cluster whose executors are slow, or die: one master and two workers on this machine.

The workers have addresses of their own, because Spark never runs two attempts of a task on one host.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import psutil
import pyspark
import pytest

from frazil.engine import Engine, RunOptions, assemble
from frazil.pipeline import load_pipeline
from frazil.pipeline.spec import CatalogSection
from frazil.spark import java_home
from frazil.table.iceberg import spark_catalog_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

RECORDS = 300_000
HOSTS = ("127.0.0.1", "127.0.0.2")
SLOW_TASKS_RUN_TWICE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}
_NAME = re.compile(r"orders-e(?P<epoch>\d+)-t(?P<task>\d+)-.*-(?P<attempt>[0-9a-f]{12})-\d+\.parquet")


@dataclass(frozen=True)
class Cluster:
    """A Spark standalone cluster."""

    master: str
    workers: list[int]
    """process ids, in the order of `HOSTS`"""

    def executor(self) -> psutil.Process:
        """The executor's JVM on the first host."""
        started = [child for child in psutil.Process(self.workers[0]).children() if child.status() != "zombie"]
        (found,) = [child for child in started if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline())]
        return found


@contextmanager
def spark_daemon(folder: Path, kind: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOSTS[0]}
    with (folder / f"{kind}.log").open("ab") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**environment, "SPARK_DAEMON_MEMORY": "256m"},
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with socket.socket() as probe:
        probe.bind((HOSTS[0], 0))
        port = probe.getsockname()[1]
    master = f"spark://{HOSTS[0]}:{port}"
    where = ["--host", HOSTS[0], "--port", str(port), "--webui-port", "0"]
    with spark_daemon(folder, "master.Master", *where):
        until(lambda: f"Starting Spark master at {master}" in (folder / "master.Master.log").read_text())
        more = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder), master]
        with ExitStack() as workers:
            daemons = [spark_daemon(folder, "worker.Worker", "--host", host, *more) for host in HOSTS]
            yield Cluster(master, [workers.enter_context(daemon).pid for daemon in daemons])


def until(holds: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.01)


class Orders:
    """A pipeline on the cluster, with many small files an epoch; looked at by the tests' own Spark."""

    def __init__(self, spark: SparkSession, cluster: Cluster, folder: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._folder = folder
        self._table = f"c{abs(hash(str(folder))):x}.shop.orders"
        section = CatalogSection(warehouse=str(folder / "warehouse"), name=self._table.split(".")[0])
        for key, value in spark_catalog_conf(section).items():
            spark.conf.set(key, value)

    def write_pipeline(self, records: int, conf: dict[str, str]) -> Path:
        settings = {
            "spark.driver.host": HOSTS[0],
            "spark.executor.memory": "512m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.cores.max": "2",
            **conf,
        }
        file = self._folder / "pipeline.toml"
        file.write_text(
            f"""
            pipeline.name = "orders"
            source = {{ type = "generator", records = {records} }}
            decode = {{ format = "json", schema = "order_id BIGINT, customer STRING, note STRING" }}
            table = {{ name = "shop.orders", target_file_size = "100KB" }}
            catalog = {{ name = "{self._table.split(".")[0]}", warehouse = "./warehouse" }}
            epoch = {{ max_records = 10_000_000 }}
            [spark]
            master = "{self._cluster.master}"
            """
            + "\n".join(f"conf.{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items())
        )
        return file

    @contextmanager
    def running(self, records: int, conf: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
        file = self.write_pipeline(records, conf)
        command = [sys.executable, "-m", "frazil", "run", str(file), "--available-now", "--take-over"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "SPARK_LOCAL_IP": HOSTS[0]},
        )
        try:
            yield process
            output, _ = process.communicate(timeout=180)
            assert process.returncode == 0, output
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)

    def run(self, records: int) -> None:
        """Without any fault, and in the tests' own Spark: what a start cleans up does not depend on the cluster."""
        parts = assemble(load_pipeline(self.write_pipeline(records, {})), self._spark)
        Engine(parts, lambda _: None, RunOptions(available_now=True, take_over=True)).run()

    def on_disk(self) -> set[str]:
        return {str(path) for path in (self._folder / "warehouse").glob("shop/orders/data/**/*.parquet")}

    def referenced(self) -> set[str]:
        rows = self._spark.sql(f"SELECT file_path FROM {self._table}.all_data_files").collect()
        return {unquote(urlparse(row[0]).path) for row in rows}

    def attempts(self, epoch: int, paths: set[str]) -> dict[int, set[str]]:
        """By task, the attempts that wrote any of these files."""
        found: dict[int, set[str]] = {}
        for name in map(_NAME.fullmatch, (path.rpartition("/")[2] for path in paths)):
            if name is not None and int(name["epoch"]) == epoch:
                found.setdefault(int(name["task"]), set()).add(name["attempt"])
        return found

    def until_both_tasks_write(self, epoch: int) -> None:
        until(lambda: len(self.attempts(epoch, self.on_disk())) == 2)

    def require_exact(self, records: int) -> None:
        counted = self._spark.sql(
            "SELECT count(*), count(DISTINCT _kafka_partition, _offset), min(_offset), max(_offset) "
            f"FROM {self._table}"
        ).collect()
        assert [tuple(row) for row in counted] == [(records, records, 0, records // 2 - 1)]


@pytest.fixture
def orders(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Orders:
    return Orders(spark, cluster, tmp_path)


def workers_of(executor: psutil.Process) -> list[psutil.Process]:
    """The Python processes that run tasks: children of the executor's Python daemon."""
    return [child for daemon in executor.children() for child in daemon.children()]


@pytest.mark.timeout(300)
def test_of_two_attempts_at_one_task_one_is_committed_and_the_other_cleaned_up(
    orders: Orders, cluster: Cluster
) -> None:
    """FAULT-04, COMMIT-19: a task hangs in the middle of its files, and Spark speculates on another executor."""
    with orders.running(RECORDS, SLOW_TASKS_RUN_TWICE):
        orders.until_both_tasks_write(epoch=1)
        slow = workers_of(cluster.executor())
        for worker in slow:
            worker.suspend()
    orders.require_exact(RECORDS)
    tried, landed = orders.attempts(1, orders.on_disk()), orders.attempts(1, orders.referenced())
    assert sorted(len(attempts) for attempts in tried.values()) == [1, 2], "no task was really run twice"
    assert [len(attempts) for attempts in landed.values()] == [1, 1]
    assert orders.on_disk() - orders.referenced(), "the loser left nothing behind"

    orders.run(RECORDS + 1000)

    assert orders.on_disk() == orders.referenced()
    orders.require_exact(RECORDS + 1000)


@pytest.mark.timeout(300)
def test_an_executor_lost_in_the_middle_of_its_files_costs_no_row_and_doubles_none(
    orders: Orders, cluster: Cluster
) -> None:
    """FAULT-04: SIGKILL of its JVM and its Python; Spark runs the task again elsewhere."""
    with orders.running(RECORDS, {}):
        orders.until_both_tasks_write(epoch=1)
        lost = cluster.executor()
        for process in [lost, *lost.children(recursive=True)]:
            process.kill()
    orders.require_exact(RECORDS)
    tried = orders.attempts(1, orders.on_disk())
    assert sorted(len(attempts) for attempts in tried.values()) == [1, 2], "the executor died too late"
    assert orders.on_disk() - orders.referenced()

    orders.run(RECORDS + 1000)

    assert orders.on_disk() == orders.referenced()
    orders.require_exact(RECORDS + 1000)
