from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from frazil.demo.broker import Broker
from frazil.errors import SetupError

pytestmark = pytest.mark.real


def create_topic(broker: Broker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name].result(timeout=30)


def produce(broker: Broker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, str(number).encode())
    assert producer.flush(30) == 0


def end_offset(broker: Broker, topic: str) -> int:
    """A broker that has just started may not lead its partitions yet."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test"})
    deadline = time.monotonic() + 30
    try:
        while True:
            try:
                return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
            except KafkaException as error:
                is_early = error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION
                if not is_early or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_fresh_topic_takes_records(broker: Broker, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=2, retention_ms=1000)
    produce(broker, topic, 10)
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(topic, timeout=30)
    assert len(metadata.topics[topic].partitions) == 2


def test_a_topic_nobody_created_does_not_exist(broker: Broker) -> None:
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics("nobody", timeout=30)
    assert metadata.topics["nobody"].error is not None


def test_port_and_data_survive_a_kill_and_a_stop_and_nothing_is_left_at_the_end() -> None:
    with Broker() as broker:
        port, first_pid = broker.port, broker.pid
        create_topic(broker, "kept")
        produce(broker, "kept", 100)
        broker.kill()
        assert not is_alive(first_pid)
        broker.start()
        assert (broker.port, end_offset(broker, "kept")) == (port, 100)
        broker.stop()
        broker.start()
        assert (broker.port, end_offset(broker, "kept")) == (port, 100)
        last_pid = broker.pid
    assert not is_alive(last_pid)
    assert not broker.data_dir.exists()


def test_a_paused_broker_is_silent_until_resumed(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        broker.pause()
        with pytest.raises(KafkaException):
            client.list_topics(timeout=1)
        broker.resume()
        assert client.list_topics(timeout=30).brokers
    assert (tmp_path / "logs" / "meta.properties").exists()


def test_a_setting_kafka_refuses_is_reported_with_its_own_words() -> None:
    with (
        pytest.raises(SetupError, match=r"ended while starting[\s\S]*num\.io\.threads"),
        Broker(properties={"num.io.threads": "none"}),
    ):
        pass


def test_a_broker_does_not_outlive_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from frazil.demo.broker import Broker;"
        "broker = Broker(pathlib.Path(sys.argv[1])); broker.start(); print(broker.pid, flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid)
