"""Planning against a real broker: what is observed, where a pipeline starts, what errors say."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_INVALID, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from structlog.testing import capture_logs

from frazil.errors import ConfigError, DataLoss, SourceChanged, SourceUnavailable
from frazil.pipeline import KafkaSource
from frazil.protocol.plan import Log, Ready, SourceStop, Unsure, reconcile
from frazil.protocol.positions import Frontier, Position
from frazil.source.kafka import KafkaTopics

if TYPE_CHECKING:
    from frazil.demo.broker import Broker

pytestmark = pytest.mark.real

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def open_topics(broker: Broker) -> Iterator[Callable[..., KafkaTopics]]:
    opened = []

    def open_(*names: str, **keys: Any) -> KafkaTopics:
        opened.append(KafkaTopics(source(broker.bootstrap, *names, **keys), "orders"))
        return opened[-1]

    yield open_
    for topics in opened:
        topics.close()


def source(bootstrap: str, *topics: str, kafka: dict[str, str] | None = None, **keys: Any) -> KafkaSource:
    settings = {"bootstrap.servers": bootstrap, **(kafka or {})}
    return KafkaSource.model_validate({"type": "kafka", "topics": list(topics), "kafka": settings, **keys})


def produce(bootstrap: str, topic: str, count: int, partition: int = 0, timestamp_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition, timestamp=timestamp_ms + number)
    assert producer.flush(30) == 0


def open_transaction(bootstrap: str, topic: str, count: int) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, f"open {number}".encode(), partition=0)
    producer.flush(30)
    return producer


def await_until(found: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline, f"not seen within {seconds} s"
        time.sleep(0.05)


def create(admin: AdminClient, topic: str, partitions: int = 1) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(timeout=30)


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(timeout=30)
    await_until(lambda: topic not in admin.list_topics(timeout=10).topics)


# ------------------------------------------------------------------------------------------- observing


def test_a_look_shows_every_partition_of_every_topic(
    broker: Broker, make_topic: Callable[..., str], open_topics: Callable[..., KafkaTopics]
) -> None:
    """SRC-01, SRC-14: many topics may feed one pipeline."""
    one, two = make_topic(partitions=2), make_topic()
    produce(broker.bootstrap, one, 5, partition=1)
    seen = open_topics(one, two).observe()
    assert seen.logs == {(one, 0): Log(0, 0), (one, 1): Log(0, 5), (two, 0): Log(0, 0)}
    assert set(seen.topic_ids) == {one, two}
    assert len(set(seen.topic_ids.values())) == 2


def test_only_chosen_partitions_are_observed(
    make_topic: Callable[..., str], open_topics: Callable[..., KafkaTopics]
) -> None:
    """SRC-14: an instance may own any subset of a topic's partitions."""
    topic = make_topic(partitions=4)
    topics = open_topics(topic, partitions={topic: [1, 3]})
    assert set(topics.observe().logs) == {(topic, 1), (topic, 3)}
    assert set(topics.starting_frontier().positions) == {(topic, 1), (topic, 3)}


def test_choosing_a_partition_that_is_not_there_is_refused(
    topic: str, open_topics: Callable[..., KafkaTopics]
) -> None:
    with pytest.raises(ConfigError, match=rf"{topic}\[7\], of 1 partitions"):
        open_topics(topic, partitions={topic: [7]}).observe()


def test_the_end_stops_before_an_open_transaction(
    broker: Broker, topic: str, open_topics: Callable[..., KafkaTopics]
) -> None:
    """FAULT-31: what may still be aborted is never planned."""
    produce(broker.bootstrap, topic, 3)
    transaction = open_transaction(broker.bootstrap, topic, 4)
    topics = open_topics(topic, starting_offsets="latest")
    assert topics.observe().logs == {(topic, 0): Log(0, 3)}
    assert topics.starting_frontier().positions == {(topic, 0): Position(3)}
    transaction.commit_transaction(30)
    await_until(lambda: topics.observe().logs == {(topic, 0): Log(0, 8)})  # four records and a marker


def test_retention_beyond_the_frontier_names_the_lost_range(
    broker: Broker, admin: AdminClient, topic: str, open_topics: Callable[..., KafkaTopics]
) -> None:
    """FAULT-33: it stops, and says what is gone."""
    produce(broker.bootstrap, topic, 10)
    topics = open_topics(topic)
    frontier = topics.starting_frontier()
    for done in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        done.result(timeout=30)
    seen = topics.observe()
    assert seen.logs == {(topic, 0): Log(6, 10)}
    outcome = reconcile(frontier, seen, fail_on_data_loss=True)
    assert isinstance(outcome, SourceStop)
    assert isinstance(outcome.error, DataLoss)
    assert "offsets 0 to 5" in str(outcome.error)


def test_a_recreated_topic_has_another_id_and_stops_the_pipeline(
    broker: Broker, admin: AdminClient, topic: str, open_topics: Callable[..., KafkaTopics]
) -> None:
    """FAULT-34, FAULT-35: even when it has grown past the frontier again."""
    produce(broker.bootstrap, topic, 3)
    topics = open_topics(topic, starting_offsets="latest")
    frontier = topics.starting_frontier()
    delete(admin, topic)
    create(admin, topic)
    produce(broker.bootstrap, topic, 5)
    outcome = reconcile(frontier, topics.observe(), fail_on_data_loss=True)
    assert isinstance(outcome, SourceStop)
    assert isinstance(outcome.error, SourceChanged)


def test_added_partitions_are_seen_at_the_next_look_and_read_from_their_start(
    broker: Broker, admin: AdminClient, topic: str, open_topics: Callable[..., KafkaTopics]
) -> None:
    """FAULT-36: from earliest although the pipeline began at latest."""
    produce(broker.bootstrap, topic, 3)
    topics = open_topics(topic, starting_offsets="latest")
    frontier = topics.starting_frontier()
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(timeout=30)
    await_until(lambda: len(topics.observe().logs) == 3)
    produce(broker.bootstrap, topic, 2, partition=2)
    outcome = reconcile(frontier, topics.observe(), fail_on_data_loss=True)
    assert isinstance(outcome, Ready)
    assert [outcome.frontier.offset((topic, p)) for p in range(3)] == [3, 0, 0]


@pytest.mark.parametrize("answered", [[], [0], [0, 2], [1, 2]])
def test_an_answer_that_leaves_partitions_out_does_not_count(
    answered: list[int],
    make_topic: Callable[..., str],
    open_topics: Callable[..., KafkaTopics],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FAULT-37: no partition ever starts over because an answer forgot it."""
    topic = make_topic(partitions=3)
    topics = open_topics(topic)
    topic_id = topics.observe().topic_ids[topic]
    future: Future[Any] = Future()
    future.set_result(
        SimpleNamespace(topic_id=topic_id, partitions=[SimpleNamespace(id=number) for number in answered])
    )
    monkeypatch.setattr(topics._admin, "describe_topics", lambda *_, **__: {topic: future})
    with pytest.raises(SourceUnavailable, match="asking again"):
        topics.observe()


def test_a_first_answer_without_partitions_does_not_count_either(
    topic: str, open_topics: Callable[..., KafkaTopics], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULT-37: `latest` resolved from nothing would later mean earliest."""
    topics = open_topics(topic, starting_offsets="latest")
    future: Future[Any] = Future()
    future.set_result(SimpleNamespace(topic_id="x", partitions=[]))
    monkeypatch.setattr(topics._admin, "describe_topics", lambda *_, **__: {topic: future})
    with pytest.raises(SourceUnavailable):
        topics.starting_frontier()


@pytest.mark.parametrize("start", ["earliest", "latest", datetime(2026, 1, 1, tzinfo=UTC)], ids=str)
def test_an_answer_without_an_offset_is_no_answer(
    broker: Broker,
    topic: str,
    open_topics: Callable[..., KafkaTopics],
    monkeypatch: pytest.MonkeyPatch,
    start: object,
) -> None:
    """FAULT-37: librdkafka gives one, and no error, when a connection breaks at the wrong moment.

    It would be a log that ends at 0, or a start in the wrong place.
    """
    produce(broker.bootstrap, topic, 7)
    topics = open_topics(topic, starting_offsets=start)
    expected = topics.starting_frontier()
    ask, broken = topics._ask_offsets, [True, True, True]

    def lossy(*arguments: Any) -> dict[Any, Future[Any]]:
        future: Future[Any] = Future()
        future.set_result(SimpleNamespace(offset=OFFSET_INVALID))
        return {(topic, 0): future} if broken and broken.pop() else ask(*arguments)

    monkeypatch.setattr(topics, "_ask_offsets", lossy)

    assert topics.observe().logs[topic, 0] == Log(0, 7)
    broken += [False, False, True]
    assert topics.starting_frontier() == expected
    assert not broken


def test_a_topic_outside_the_chosen_partitions_leaves_the_rest_unsure(
    make_topic: Callable[..., str], open_topics: Callable[..., KafkaTopics]
) -> None:
    """FAULT-37: a frontier that knows more than the answer waits instead of going on."""
    topic = make_topic(partitions=2)
    frontier = open_topics(topic).starting_frontier()
    narrowed = open_topics(topic, partitions={topic: [0]})
    assert isinstance(reconcile(frontier, narrowed.observe(), fail_on_data_loss=True), Unsure)


def test_a_topic_recreated_during_a_look_is_looked_at_again(
    broker: Broker,
    admin: AdminClient,
    topic: str,
    open_topics: Callable[..., KafkaTopics],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FAULT-34: offsets never travel under another topic's id."""
    topics = open_topics(topic)
    look_up = topics._logs

    def recreate_meanwhile(*asked: Any) -> Any:
        delete(admin, topic)
        create(admin, topic)
        return look_up(*asked)

    monkeypatch.setattr(topics, "_logs", recreate_meanwhile)
    with pytest.raises(SourceUnavailable, match="recreated"):
        topics.observe()


def test_a_look_is_quick_enough_to_be_taken_ten_times_a_second(
    make_topic: Callable[..., str], open_topics: Callable[..., KafkaTopics]
) -> None:
    topics = open_topics(make_topic(partitions=8))
    topics.observe()
    started = time.monotonic()
    for _ in range(20):
        topics.observe()
    assert (time.monotonic() - started) / 20 < 0.05


# ------------------------------------------------------------------------------------ what errors say


def test_an_unreachable_broker_is_named_within_the_timeout() -> None:
    topics = KafkaTopics(source(NOWHERE, "orders", timeout=1.0), "orders")
    started = time.monotonic()
    with pytest.raises(SourceUnavailable, match=rf"no answer from {NOWHERE} in \d.*refused"):
        topics.observe()
    assert time.monotonic() - started < 3


def test_a_broker_that_accepts_but_never_answers_is_given_up_within_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        topics = KafkaTopics(source(address, "orders", timeout=1.0), "orders")
        started = time.monotonic()
        with pytest.raises(SourceUnavailable, match=address):
            topics.observe()
        assert time.monotonic() - started < 3


def test_a_missing_topic_is_refused_with_similar_names(
    admin: AdminClient, topic: str, open_topics: Callable[..., KafkaTopics]
) -> None:
    misspelt = topic + "s"
    with pytest.raises(ConfigError, match=topic) as caught:
        open_topics(misspelt).starting_frontier()
    assert misspelt in caught.value.message


def test_a_topic_that_goes_away_later_is_waited_for(
    admin: AdminClient, topic: str, open_topics: Callable[..., KafkaTopics]
) -> None:
    """FAULT-37: it may be an answer of a broker that has just started."""
    topics = open_topics(topic)
    topics.observe()
    delete(admin, topic)
    with pytest.raises(SourceUnavailable, match=topic):
        topics.observe()


def test_a_wrong_password_stops_at_once_and_names_the_mechanism() -> None:
    """SRC-01: refused credentials are not offered again and again; the right ones work."""
    from frazil.demo.broker import Broker

    secured = Broker()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    secured._properties.update(
        {
            "listeners": f"PLAINTEXT://127.0.0.1:{secured.port},SASL_PLAINTEXT://127.0.0.1:{port},"
            f"CONTROLLER://127.0.0.1:{secured._controller_port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{plain} user_alice="alice-pw";',
        }
    )
    with secured:
        create(AdminClient({"bootstrap.servers": secured.bootstrap}), "orders")

        def opened(password: str) -> KafkaTopics:
            login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
            login |= {"sasl.username": "alice", "sasl.password": password}
            return KafkaTopics(source(f"127.0.0.1:{port}", "orders", kafka=login, timeout=20.0), "orders")

        assert opened("alice-pw").observe().logs == {("orders", 0): Log(0, 0)}
        started = time.monotonic()
        with pytest.raises(ConfigError, match="refused PLAIN authentication of user alice") as caught:
            opened("wr0ng-pw").observe()
        assert time.monotonic() - started < 10
        assert "wr0ng-pw" not in str(caught.value)


@pytest.mark.parametrize(
    "key",
    ["enable.auto.commit", "auto.offset.reset", "isolation.level", "enable.partition.eof", "group.id"],
)
def test_settings_that_correctness_rests_on_cannot_be_changed(key: str) -> None:
    with pytest.raises(ConfigError, match=f'"{key}" cannot be set: '):
        KafkaTopics(source(NOWHERE, "orders", kafka={key: "x"}), "orders")


def test_an_unknown_setting_is_refused_in_librdkafkas_words_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r'No such configuration property: "fetch.min.byte"') as caught:
        KafkaTopics(source(NOWHERE, "orders", kafka={"fetch.min.byte": "1"}), "orders")
    assert "fetch.min.bytes" in caught.value.remedy


def test_a_bad_value_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"fetch\.min\.bytes"):
        KafkaTopics(source(NOWHERE, "orders", kafka={"fetch.min.bytes": "many"}), "orders")


# --------------------------------------------------------------------------------------- where to start


def offsets(frontier: Frontier) -> list[int]:
    return [position.offset for _, position in sorted(frontier.positions.items())]


def test_earliest_and_latest_are_resolved_for_every_partition(
    broker: Broker, make_topic: Callable[..., str], open_topics: Callable[..., KafkaTopics]
) -> None:
    topic = make_topic(partitions=2)
    produce(broker.bootstrap, topic, 4, partition=1)
    earliest = open_topics(topic).starting_frontier()
    assert offsets(earliest) == [0, 0]
    assert earliest.topic_ids.keys() == {topic}
    assert offsets(open_topics(topic, starting_offsets="latest").starting_frontier()) == [0, 4]


def test_explicit_offsets_count_and_partitions_not_named_start_at_their_earliest(
    broker: Broker, make_topic: Callable[..., str], open_topics: Callable[..., KafkaTopics]
) -> None:
    topic = make_topic(partitions=4)
    for partition in range(4):
        produce(broker.bootstrap, topic, 5, partition=partition)
    wanted = {topic: {"0": 3, "1": -1, "2": -2}}
    assert offsets(open_topics(topic, starting_offsets=wanted).starting_frontier()) == [3, 5, 0, 0]


def test_explicit_offsets_outside_the_log_are_refused_with_the_range(
    broker: Broker, topic: str, open_topics: Callable[..., KafkaTopics]
) -> None:
    produce(broker.bootstrap, topic, 5)
    with pytest.raises(ConfigError, match=r"holds offsets 0 to 5\b"):
        open_topics(topic, starting_offsets={topic: {"0": 6}}).starting_frontier()


@pytest.mark.parametrize("number", ["9", "first"])
def test_explicit_offsets_for_a_partition_that_is_not_read_are_refused(
    number: str, topic: str, open_topics: Callable[..., KafkaTopics]
) -> None:
    with pytest.raises(ConfigError, match=rf"{topic}\[{number}\], which is not read"):
        open_topics(topic, starting_offsets={topic: {number: 0}}).starting_frontier()


def test_a_time_starts_at_the_first_record_since_then(
    broker: Broker, make_topic: Callable[..., str], open_topics: Callable[..., KafkaTopics]
) -> None:
    """A time without a zone is UTC; a partition without later records starts at its end."""
    topic = make_topic(partitions=2)
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    noon_ms = int(noon.timestamp() * 1000)
    produce(broker.bootstrap, topic, 10, partition=0, timestamp_ms=noon_ms - 4)
    produce(broker.bootstrap, topic, 3, partition=1, timestamp_ms=noon_ms - 5000)
    for moment in (noon, noon.replace(tzinfo=None), noon - timedelta(microseconds=1)):
        assert offsets(open_topics(topic, starting_offsets=moment).starting_frontier()) == [4, 3]
    after = noon + timedelta(microseconds=1)
    assert offsets(open_topics(topic, starting_offsets=after).starting_frontier()) == [5, 3]


# ---------------------------------------------------------------------------------------- acknowledging


def committed(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return {(p.topic, p.partition): p.offset for p in asked.result(timeout=30).topic_partitions}


def test_acknowledged_offsets_are_seen_in_the_consumer_group(
    admin: AdminClient, topic: str, broker: Broker
) -> None:
    """SRC-05: a courtesy to lag monitors, after the table holds the records."""
    topics = KafkaTopics(source(broker.bootstrap, topic), f"pipeline-{topic}")
    for offset in (1, 2, 3):
        topics.acknowledge(Frontier({(topic, 0): Position(offset, 0)}))
    topics.close()
    assert committed(admin, f"frazil-pipeline-{topic}") == {(topic, 0): 3}


def test_the_group_can_be_named(admin: AdminClient, topic: str, broker: Broker) -> None:
    topics = KafkaTopics(source(broker.bootstrap, topic, group_id=f"g-{topic}"), "orders")
    topics.acknowledge(Frontier({(topic, 0): Position(7)}))
    topics.close()
    assert committed(admin, f"g-{topic}") == {(topic, 0): 7}


def test_a_failing_acknowledgement_is_logged_once_and_never_raised() -> None:
    topics = KafkaTopics(source(NOWHERE, "orders", timeout=0.2), "orders")
    with capture_logs() as logs:
        for offset in range(1, 4):
            topics.acknowledge(Frontier({("orders", 0): Position(offset)}))
            time.sleep(0.4)
        started = time.monotonic()
        topics.close()
    assert time.monotonic() - started < 4
    assert [entry["group"] for entry in logs] == ["frazil-orders"]
