from __future__ import annotations

import subprocess
import sys
import threading
from ast import literal_eval
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import pytest

from frazil.spark import ensure_callbacks, java_exception_classes, jvm, open_session
from frazil.spark.daemon import PRELOADED

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real


class Task:
    """A Runnable that remembers the thread it ran on."""

    ran_on: threading.Thread | None = None

    def run(self) -> None:
        self.ran_on = threading.current_thread()

    class Java:
        implements: ClassVar[list[str]] = ["java.lang.Runnable"]


def ask_a_worker(spark: SparkSession, question: str) -> str:
    """What `question`, a Python expression, evaluates to inside a Spark worker."""

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys
        from pathlib import Path

        import pyarrow as pa

        for _ in batches:
            said = str(eval(question, {"sys": sys, "os": os, "Path": Path}))
            yield pa.RecordBatch.from_pydict({"said": [said]})

    return spark.range(1).coalesce(1).mapInArrow(answer, "said string").collect()[0].said


def test_workers_run_the_same_python(spark: SparkSession) -> None:
    assert ask_a_worker(spark, "sys.executable") == sys.executable


def test_workers_are_forked_from_a_daemon_with_everything_loaded(spark: SparkSession) -> None:
    daemon = ask_a_worker(spark, "Path(f'/proc/{os.getppid()}/cmdline').read_text()")
    assert "frazil.spark.daemon" in daemon
    loaded = ask_a_worker(spark, "sorted(sys.modules)")
    assert all(repr(module) in loaded for module in PRELOADED)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_the_daemon_has_no_thread_that_a_fork_would_lose(spark: SparkSession) -> None:
    question = "[f.read_text() for f in Path('/proc', str(os.getppid())).glob('task/*/comm')]"
    threads = literal_eval(ask_a_worker(spark, question))
    # jemalloc, inside pyarrow, has a thread of its own and starts it anew in every child.
    assert len([name for name in threads if "jemalloc" not in name]) == 1


def test_iceberg_and_sqlite_are_on_the_class_path(spark: SparkSession) -> None:
    loader = jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
    assert loader.loadClass("org.apache.iceberg.jdbc.JdbcCatalog") is not None
    assert loader.loadClass("org.sqlite.JDBC") is not None


def test_the_session_thinks_in_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_second_session_has_settings_of_its_own(spark: SparkSession) -> None:
    second = open_session("second", conf={"spark.sql.shuffle.partitions": "3"})
    assert second.sparkContext is spark.sparkContext
    assert second.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get("spark.sql.shuffle.partitions") != "3"


def test_java_calls_a_python_object_while_the_caller_waits(spark: SparkSession) -> None:
    task = Task()
    ensure_callbacks(spark)
    ensure_callbacks(spark)
    jvm(spark).java.util.concurrent.Executors.callable(task).call()
    assert task.ran_on is not None


def test_a_thread_younger_than_the_callback_server_runs_its_own_callbacks(spark: SparkSession) -> None:
    task = Task()
    ensure_callbacks(spark)
    young = threading.Thread(target=jvm(spark).java.util.concurrent.Executors.callable(task).call)
    young.start()
    young.join()
    assert task.ran_on is young


def test_a_java_exception_is_known_by_its_classes_and_those_of_its_causes(spark: SparkSession) -> None:
    from py4j.protocol import Py4JJavaError

    java = jvm(spark).java
    failed = java.util.concurrent.CompletableFuture()
    failed.completeExceptionally(java.io.FileNotFoundException("gone"))
    with pytest.raises(Py4JJavaError) as caught:
        failed.get()
    outer, cause = java_exception_classes(caught.value)
    assert {"java.util.concurrent.ExecutionException", "java.lang.Exception"} <= outer
    assert {"java.io.FileNotFoundException", "java.io.IOException", "java.io.Serializable"} <= cause
    assert "java.io.IOException" not in outer


def test_secrets_reach_spark_but_neither_the_command_line_nor_its_ui() -> None:
    """SEC-02: whoever can list processes, or open the UI, sees none of them."""
    script = """
import re, psutil
from frazil.spark import open_session
key = "spark.sql.catalog.lake.credential"
spark = open_session("secrets", master="local[1]", conf={key: "id:hunter2", "spark.ui.enabled": "false"})
assert spark.conf.get(key) == "id:hunter2"
def command_line(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended meanwhile
        return ""
lines = [command_line(child) for child in psutil.Process().children(recursive=True)]
assert any("java" in line for line in lines) and not any("hunter2" in line for line in lines), lines
assert re.search(spark.conf.get("spark.redaction.regex"), key)
spark.stop()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
