"""A real Kafka broker on this machine: one KRaft node, no container, nothing to install but its jars.

    with Broker() as broker:
        Producer({"bootstrap.servers": broker.bootstrap})

It listens on free ports of 127.0.0.1, keeps port and data over a restart, and can be killed and paused as a
real one is. It never outlives the Python process that started it.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from frazil.demo.servers import Served, free_ports, watch
from frazil.errors import SetupError, SourceUnavailable
from frazil.spark.cache import cache_folder
from frazil.spark.jars import jar_folder, jars
from frazil.spark.java import java_home

CLUSTER_ID = "ZnJhemlsLWRlbW8tYnJva2"

_JVM_OPTIONS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # starts fast; a demo ends before the second compiler pays
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0
_LOG_LINES_SHOWN = 15


class Broker(Served):
    """A single-node Kafka; `properties` are server properties that win over ours."""

    def __init__(self, data_dir: Path | None = None, properties: Mapping[str, str] | None = None) -> None:
        self._temporary = data_dir is None
        self.data_dir = data_dir if data_dir is not None else Path(tempfile.mkdtemp(prefix="frazil-broker-"))
        self.port, self._controller_port = free_ports(2)
        self._properties = dict(properties or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        return self._running().pid

    @property
    def log_file(self) -> Path:
        """Everything the broker printed, over all its starts."""
        return self.data_dir / "broker.log"

    def start(self) -> None:
        """Start, or start again on the same port and data; returns when the broker answers."""
        if self._process is not None:
            raise SetupError(f"the broker on port {self.port} already runs", "stop() or kill() it first")
        self._write_configuration()
        self._process = self._launch()
        self._watchdog = watch(self._process.pid, [self.data_dir] if self._temporary else [])
        try:
            self._await_answer()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down cleanly; by force if that takes too long."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, as a crashed machine would look to its clients; the data stays."""
        # The watchdog goes first: once the broker is reaped, its process id may belong to somebody else.
        for process in (self._watchdog, self._process):
            if process is not None:
                process.kill()
                process.wait()
        if self._watchdog is not None and self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        self._process = self._watchdog = None

    def pause(self) -> None:
        """Freeze the broker: connections stay open and nobody answers."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused broker go on."""
        self._running().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the broker for good; a temporary data folder goes with it."""
        if self._temporary:
            # Nobody will read this data again, so that a clean shutdown would only cost time.
            self.kill()
            shutil.rmtree(self.data_dir, ignore_errors=True)
        else:
            self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise SetupError(f"the broker on port {self.port} is not running", "start() it first")
        return self._process

    def _write_configuration(self) -> None:
        logs = self.data_dir / "logs"
        if not (logs / "meta.properties").exists():
            logs.mkdir(parents=True, exist_ok=True)
            for file in _formatted_storage().iterdir():
                shutil.copy(file, logs)
        properties = {**_server_properties(self.port, self._controller_port, logs), **self._properties}
        _write_properties(self._configuration_file, properties)

    @property
    def _configuration_file(self) -> Path:
        return self.data_dir / "server.properties"

    def _launch(self) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                _kafka_command("kafka.Kafka", str(self._configuration_file)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is ours to handle, not the broker's
            )

    def _await_answer(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        # librdkafka waits ever longer between attempts, so that it is asked only when somebody listens.
        for answered in (self._accepts, self._knows_itself):
            self._await(answered, deadline)

    def _await(self, answered: Callable[[], bool], deadline: float) -> None:
        while not answered():
            if self._running().poll() is not None:
                raise SetupError(f"the broker on port {self.port} ended while starting:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                waited = f"gave no answer in {_START_TIMEOUT_S:.0f} s"
                raise SourceUnavailable(f"the broker on port {self.port} {waited}:\n{self._log_tail()}")
            time.sleep(0.05)

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _knows_itself(self) -> bool:
        """Whether the broker lists itself, which it does only once it takes requests for topics."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def _log_tail(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES_SHOWN:])


def _server_properties(port: int, controller_port: int, logs: Path) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(logs),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": "2097152",
        # A broker that comes back after a kill is let in only when its former life is taken for dead.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }


def _write_properties(file: Path, properties: Mapping[str, str]) -> None:
    # Java reads a backslash in a properties file as an escape.
    lines = (f"{key}={value}".replace("\\", "\\\\") for key, value in properties.items())
    file.write_text("\n".join(lines) + "\n")


def _kafka_command(main_class: str, *arguments: str) -> list[str]:
    classpath = ":".join(str(jar) for jar in jars("kafka"))
    return [str(java_home() / "bin" / "java"), *_JVM_OPTIONS, "-cp", classpath, main_class, *arguments]


def _formatted_storage() -> Path:
    """A folder with the two files that make an empty directory a Kafka log directory.

    They are the same for every single-node broker of one version, so that one run of Kafka's own tool, two
    seconds long, serves all brokers that this machine ever starts.
    """
    formatted = cache_folder() / "kafka" / jar_folder("kafka").parent.name
    if not formatted.exists():
        formatted.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=formatted.parent) as draft:
            logs = _format(Path(draft))
            with suppress(OSError):  # another process was first, with the same result
                logs.rename(formatted)
    return formatted


def _format(folder: Path) -> Path:
    logs = folder / "logs"
    configuration = folder / "server.properties"
    _write_properties(configuration, _server_properties(9092, 9093, logs))
    done = subprocess.run(
        _kafka_command("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(configuration)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SetupError(f"Kafka could not format its storage:\n{done.stdout}")
    return logs
