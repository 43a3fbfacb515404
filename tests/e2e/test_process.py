"""frazil as its users run it: a process that is stopped, killed and started again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
from confluent_kafka import Producer

import frazil as frazil_package
from frazil import cli
from frazil.spark import java_home
from frazil.spark.jars import jars
from tests.e2e.conftest import place

pytestmark = pytest.mark.real

FRAZIL = [sys.executable, "-m", "frazil"]


def write_pipeline(rig: Any, **epoch: Any) -> Path:
    file: Path = rig.folder / "pipeline.toml"
    settings = {"interval": "300ms", "max_records": 20_000, **epoch}
    table = 'format = "delta"\n        path = "./orders"' if rig.spec.table.path else 'name = "shop.orders"'
    file.write_text(
        f"""
        [pipeline]
        name = "orders"
        [source]
        type = "kafka"
        topics = ["{rig.topic}"]
        timeout = "5s"
        kafka."bootstrap.servers" = "{rig.bootstrap}"
        [decode]
        format = "json"
        schema = "id BIGINT, name STRING"
        [table]
        {table}
        [catalog]
        name = "{rig.spec.catalog.name}"
        warehouse = "./warehouse"
        [epoch]
        """
        + "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items()),
        encoding="utf-8",
    )
    return file


@contextmanager
def running(*arguments: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """frazil in a process group of its own, which is gone afterwards whatever happens."""
    process = subprocess.Popen(
        [*FRAZIL, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **more,
    )
    try:
        yield process
    finally:
        kill_group(process)


def kill_group(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def wait_for(process: subprocess.Popen[str], message: str) -> dict[str, Any]:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith("{") and (entry := json.loads(line))["message"] == message:
            return dict(entry)
    raise AssertionError(f"ended without {message!r}:\n{''.join(seen)}")


class Trickle(threading.Thread):
    """Produces numbered orders to all partitions until told to stop."""

    def __init__(self, rig: Any, partitions: int, per_second: int) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": rig.bootstrap, "enable.idempotence": True})
        self._topic = rig.topic
        self._partitions = partitions
        self._pause_s = 100 / per_second
        self.enough = threading.Event()
        self.produced = 0

    def run(self) -> None:
        while not self.enough.wait(self._pause_s):
            for _ in range(100):
                value = f'{{"id": {self.produced}, "name": "n"}}' if self.produced % 50 else "poison"
                self._producer.produce(self._topic, value, partition=self.produced % self._partitions)
                self.produced += 1
            self._producer.poll(0)
        assert self._producer.flush(30) == 0


MOMENTS = {"epoch begun": 0.3, "epoch committed": 2.0}
"""What is waited for before a kill, and for how many seconds at most after it: in mid-epoch, and at any moment."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_killed_at_random_moments_every_offset_is_there_exactly_once(
    make_rig: Callable[..., Any], tmp_path: Path, table_format: str
) -> None:
    """FAULT-01, FAULT-02, FAULT-03, FAULT-04, FAULT-22, TEST-05, TEST-08: SIGKILL of the group, again and again.

    `make certify` does so two hundred times.
    """
    rig = make_rig(partitions=3, table=place(table_format, tmp_path), decode={"schema": "id BIGINT, name STRING"})
    file = write_pipeline(rig)
    dice = random.Random(20261115)
    trickle = Trickle(rig, partitions=3, per_second=2_000)
    trickle.start()
    for message, seconds in MOMENTS.items():
        with running("run", str(file), "--take-over") as process:
            wait_for(process, message)
            time.sleep(dice.random() * seconds)
    trickle.enough.set()
    trickle.join()

    rig.run()

    landed = sorted(rig.offsets() + rig.dead_offsets())
    per_partition = [trickle.produced // 3 + (p < trickle.produced % 3) for p in range(3)]
    assert landed == [(p, offset) for p in range(3) for offset in range(per_partition[p])]
    assert len(rig.dead_offsets()) == -(-trickle.produced // 50)
    history = rig.open_table().history("orders")
    assert [r.epoch for r in history] == sorted(r.epoch for r in history)
    assert {r.generation for r in history if r.action == "start"} == {1, 2, 3}
    assert any(r.generation == 2 and r.action == "append" for r in history)


def test_a_signal_finishes_the_epoch_and_exits_with_zero(make_rig: Callable[..., Any]) -> None:
    """CLI-01."""
    rig = make_rig()
    rig.produce_orders(0, 50)
    with running("run", str(write_pipeline(rig))) as process:
        wait_for(process, "epoch committed")
        rig.produce_orders(50, 10)
        os.killpg(process.pid, signal.SIGTERM)
        wait_for(process, "stopping")
        assert process.wait(60) == 0
    offsets = [offset for _, offset in rig.offsets()]
    assert offsets in ([*range(50)], [*range(60)])


def test_a_second_signal_aborts_and_the_next_run_makes_good(make_rig: Callable[..., Any]) -> None:
    rig = make_rig()
    rig.produce_orders(0, 50)
    with running("run", str(write_pipeline(rig))) as process:
        wait_for(process, "epoch begun")
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) in (0, 130)
    rig.tree["decode"]["schema"] = "id BIGINT, name STRING"
    rig.run()
    assert [offset for _, offset in rig.offsets()] == [*range(50)]


def test_two_processes_on_one_pipeline_one_is_fenced_and_nothing_doubles(make_rig: Callable[..., Any]) -> None:
    """FAULT-06, TEST-06: with a pause past the take-over, as a long garbage collection makes one.

    The successor is this process. `make certify` has two of `frazil run`.
    """
    rig = make_rig(decode={"schema": "id BIGINT, name STRING"})
    rig.produce_orders(0, 100)
    with running("run", str(write_pipeline(rig))) as old:
        wait_for(old, "epoch committed")
        os.killpg(old.pid, signal.SIGSTOP)
        rig.produce_orders(100, 100)
        assert rig.epochs(rig.run())
        os.killpg(old.pid, signal.SIGCONT)
        rig.produce_orders(200, 100)
        output, _ = old.communicate(timeout=90)
        assert old.returncode == 1, output
        assert "taken this pipeline over" in output
    rig.run()
    assert [offset for _, offset in rig.offsets()] == [*range(300)]


def frazil(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*FRAZIL, *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def test_validate_status_and_history_tell_what_is_there(
    make_rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-02, OBS-32: `status` as a process of its own, the others with the tests' Spark."""
    rig = make_rig(partitions=2, decode={"schema": "id BIGINT, name STRING"})
    file = str(write_pipeline(rig))

    def told(*arguments: str) -> str:
        monkeypatch.setattr(cli, "_spark", lambda *_: nullcontext(rig.spark))
        cli.app([*arguments], standalone_mode=False)
        return capsys.readouterr().out

    rig.produce_orders(0, 30, partition=0)
    validated = told("validate", file, "--connect")
    assert "2 partitions, 30 offsets" in validated
    assert "is missing; run creates it" in validated
    rig.run()
    rig.produce_orders(30, 7, partition=1)

    status = json.loads(frazil("status", file, "--json").stdout)

    assert status["lag"] == {f"{rig.topic}[0]": 0, f"{rig.topic}[1]": 7}
    anchor = status["tables"][0]
    assert (anchor["table"], anchor["epoch"]) == ("shop.orders", 1)
    assert anchor["frontier"] == {f"{rig.topic}[0]": 30, f"{rig.topic}[1]": 0}
    assert anchor["freshness_s"] >= 0
    history = [json.loads(line) for line in told("history", file, "--json").splitlines()]
    assert [(h["action"], h["epoch"], h["landed"]) for h in history] == [("start", 0, 0), ("append", 1, 30)]
    assert "append" in told("history", file)


def test_an_unreachable_broker_is_named_within_bounded_time(tmp_path: Path) -> None:
    """CLI-03, SRC-04."""
    file = tmp_path / "pipeline.toml"
    file.write_text(
        """
        [pipeline]
        name = "x"
        [source]
        type = "kafka"
        topics = ["t"]
        timeout = "200ms"
        kafka."bootstrap.servers" = "127.0.0.1:1"
        [decode]
        format = "raw"
        [table]
        name = "a.b"
        """
    )
    done = frazil("run", str(file), timeout=200)
    assert done.returncode == 1
    assert "MaxRetriesExceeded" in done.stderr
    assert "127.0.0.1:1" in done.stderr
    assert "Connection" in done.stdout, "each attempt is told"


def test_spark_submit_runs_the_same_pipeline_file(tmp_path: Path) -> None:
    """SRC-01: the same code under spark-submit, which brings its own JVM and is given the jars."""
    (tmp_path / "pipeline.toml").write_text(
        """
        [pipeline]
        name = "orders"
        [source]
        type = "generator"
        records = 1000
        [decode]
        format = "raw"
        [table]
        name = "shop.orders"
        """
    )
    home = Path(pyspark.__file__).parent
    main = Path(frazil_package.__file__).parent / "__main__.py"
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--jars", ",".join(map(str, jars("spark"))), str(main)]
    done = subprocess.run(
        [*command, "run", str(tmp_path / "pipeline.toml"), "--available-now"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(home),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (landed,) = [json.loads(line) for line in done.stdout.splitlines() if '"epoch committed"' in line]
    assert landed["rows"] == 1000


def test_the_demo_proves_itself_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The last line of --json is one object; no broker, no folder is left."""
    done = subprocess.run(
        [*FRAZIL, "demo", "--records", "20000", "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["produced"] == result["in_table"] == 20_000
    assert result["duplicates"] == result["missing"] == 0
    assert result["snapshots"] == result["epochs"] + 1
    assert result["seconds"] > 0
    assert not list(tmp_path.glob("frazil-demo-*"))
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]
