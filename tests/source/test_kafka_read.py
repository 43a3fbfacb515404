"""Reading slices from a real broker: every record once, in order, whatever the log looks like."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from frazil.errors import SourceChanged, SourceUnavailable, SpanUnavailable
from frazil.pipeline import KafkaSource
from frazil.protocol.plan import SourceStop, cut, reconcile
from frazil.protocol.positions import EMPTY_SPAN, Slice
from frazil.records import Records
from frazil.source import Wants
from frazil.source.kafka import KafkaReader, KafkaTopics
from frazil.source.kafka import read as read_module

if TYPE_CHECKING:
    from frazil.demo.broker import Broker

pytestmark = pytest.mark.real


@pytest.fixture
def reader(broker: Broker) -> KafkaReader:
    return make_reader(broker.bootstrap)


@pytest.fixture(scope="module", autouse=True)
def _leave_no_consumer_behind() -> Iterator[None]:
    yield
    read_module._close_idle()


def topics_of(bootstrap: str, *topics: str, timeout: float = 10.0, **keys: Any) -> KafkaTopics:
    spec = {"type": "kafka", "topics": list(topics), "kafka": {"bootstrap.servers": bootstrap}}
    return KafkaTopics(KafkaSource.model_validate({**spec, "timeout": timeout, **keys}), "orders")


def make_reader(bootstrap: str, wants: Wants | None = None, timeout: float = 10.0) -> KafkaReader:
    return topics_of(bootstrap, "any", timeout=timeout).reader(wants or Wants(), EMPTY_SPAN)


def produce(bootstrap: str, topic: str, values: Iterable[bytes | None], **keys: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
    for value in values:
        while True:
            try:
                producer.produce(topic, value, **keys)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def numbers(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def collect(runs: Iterable[Records]) -> list[tuple[int, bytes | None]]:
    return [pair for run in runs for pair in zip(run.offsets, run.values, strict=True)]


def oracle(bootstrap: str, topic: str, end: int) -> list[tuple[int, bytes | None]]:
    """What a plain read_committed consumer sees below `end`."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "oracle", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[tuple[int, bytes | None]] = []
    while True:
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                consumer.close()
                return [pair for pair in seen if pair[0] < end]
            seen.append((message.offset(), message.value()))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ every record once


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_slices_that_split_partitions_deliver_every_record_once_in_order(
    tasks: int, broker: Broker, make_topic: Callable[..., str]
) -> None:
    """SRC-02: promise A, whatever the number of tasks."""
    topic = make_topic(partitions=2)
    produce(broker.bootstrap, topic, numbers(7000), partition=0)
    produce(broker.bootstrap, topic, numbers(3001), partition=1)
    topics = topics_of(broker.bootstrap, topic)
    frontier = topics.starting_frontier()
    span = cut(frontier, topics.observe(), max_records=10**9)
    reader = topics.reader(Wants(), EMPTY_SPAN)
    read: dict[int, list[tuple[int, bytes | None]]] = {0: [], 1: []}
    for share in span.split(tasks, frontier):
        for part in share:
            read[part.partition].extend(collect(reader.read(part)))
    assert read == {0: list(enumerate(numbers(7000))), 1: list(enumerate(numbers(3001)))}


def test_runs_are_bounded_in_records_and_in_bytes(broker: Broker, make_topic: Callable[..., str]) -> None:
    """SRC-02: a run closes on records or on bytes."""
    small, large = make_topic(), make_topic()
    produce(broker.bootstrap, small, [b"x"] * 25_000)
    produce(broker.bootstrap, large, [bytes(100_000)] * 200)
    reader = make_reader(broker.bootstrap)
    counts = [len(run) for run in reader.read(Slice(small, 0, 0, 25_000))]
    assert sum(counts) == 25_000
    assert max(counts) <= 11_000
    sizes = [sum(len(value or b"") for value in run.values) for run in reader.read(Slice(large, 0, 0, 200))]
    assert sum(sizes) == 20_000_000
    assert len(sizes) > 1


def test_keys_timestamps_and_headers_come_only_when_wanted(broker: Broker, topic: str) -> None:
    headers = [("trace", b"1"), ("none", None)]
    produce(broker.bootstrap, topic, [b"v", None], key=b"k", timestamp=1234, headers=headers)
    part = Slice(topic, 0, 0, 2)
    (everything,) = make_reader(broker.bootstrap, Wants(headers=True)).read(part)
    assert everything.values == [b"v", None]
    assert everything.keys == [b"k", b"k"]
    assert everything.timestamps_ms == [1234, 1234]
    assert everything.headers == [headers, headers]
    assert everything.leader_epoch == 0
    (bare,) = make_reader(broker.bootstrap, Wants(keys=False, timestamps=False)).read(part)
    assert (bare.keys, bare.timestamps_ms, bare.headers) == ([], [], [])


def test_the_groups_own_position_does_not_matter(broker: Broker, topic: str) -> None:
    """SRC-06: reading begins where the table says."""
    produce(broker.bootstrap, topic, numbers(10))
    topics = topics_of(broker.bootstrap, topic, group_id=f"g-{topic}")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"g-{topic}"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 9)], asynchronous=False)
    consumer.close()
    assert len(collect(topics.reader(Wants(), EMPTY_SPAN).read(Slice(topic, 0, 2, 10)))) == 8


def test_an_empty_slice_needs_no_broker() -> None:
    assert list(make_reader("127.0.0.1:1").read(Slice("orders", 0, 5, 5))) == []


# ---------------------------------------------------------------------------------------- logs with gaps


def test_aborted_transactions_markers_and_an_open_transaction_never_show(
    broker: Broker, topic: str, reader: KafkaReader
) -> None:
    """FAULT-31: none in the table, no false gap, and every way of slicing ends."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(30)
    for round_ in range(4):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, f"{round_}.{number}".encode(), partition=0)
        producer.flush(30)
        if round_ % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    producer.flush(30)

    end = topics_of(broker.bootstrap, topic).observe().logs[topic, 0].end
    assert end == 24  # the tail is an aborted transaction and its marker
    expected = oracle(broker.bootstrap, topic, end)
    assert len(expected) == 10
    for middle in range(end + 1):
        bounds = [0, middle, end]
        read = [collect(reader.read(Slice(topic, 0, a, b))) for a, b in pairwise(bounds)]
        assert read[0] + read[1] == expected, f"cut at {middle}"
    producer.abort_transaction(30)


def test_a_slice_of_nothing_but_aborted_records_ends_quickly(
    broker: Broker, topic: str, reader: KafkaReader
) -> None:
    """FAULT-31: it does not wait for a record that never comes."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(1000):
        producer.produce(topic, b"aborted", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    started = time.monotonic()
    assert list(reader.read(Slice(topic, 0, 0, 1001))) == []
    assert time.monotonic() - started < 3


def test_gaps_that_compaction_leaves_are_not_loss(
    broker: Broker, make_topic: Callable[..., str], reader: KafkaReader
) -> None:
    """FAULT-32: also where a slice begins or ends inside a gap."""
    topic = make_topic(
        cleanup_policy="compact",
        segment_bytes="1048576",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        min_compaction_lag_ms="0",
        max_compaction_lag_ms="100",
        delete_retention_ms="100",
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    deadline = time.monotonic() + 90
    written = 0
    while True:
        for number in range(100):
            producer.produce(topic, f"{written}".encode(), key=str(number % 10).encode())
            written += 1
        producer.flush(30)
        expected = oracle(broker.bootstrap, topic, written)
        if expected[0][0] > 50 and len(expected) < written - 50:
            break
        assert time.monotonic() < deadline, "the broker did not compact"
        time.sleep(0.5)
    # What the oracle saw may be compacted further meanwhile; what is left must be a part of it, in order.
    for bounds in ([0, written], [0, 45, written], [0, expected[0][0], expected[0][0] + 1, written]):
        read = [pair for a, b in pairwise(bounds) for pair in collect(reader.read(Slice(topic, 0, a, b)))]
        assert read
        assert read[-1] == (written - 1, str(written - 1).encode())
        assert set(read) <= set(expected)
        assert read == sorted(read)


# -------------------------------------------------------------------------------- offsets that are gone


def test_offsets_that_retention_took_are_reported_to_the_planner(
    broker: Broker, topic: str, reader: KafkaReader
) -> None:
    """FAULT-33: nothing is skipped in silence."""
    produce(broker.bootstrap, topic, numbers(10))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        done.result(timeout=30)
    with pytest.raises(SpanUnavailable, match=rf"{topic}\[0\] no longer holds offset 2"):
        list(reader.read(Slice(topic, 0, 2, 10)))
    assert len(collect(reader.read(Slice(topic, 0, 6, 10)))) == 4


def test_offsets_past_the_end_of_the_log_are_reported_to_the_planner(
    broker: Broker, topic: str, reader: KafkaReader
) -> None:
    """FAULT-44: a log that shrank below the start of a slice."""
    produce(broker.bootstrap, topic, numbers(10))
    with pytest.raises(SpanUnavailable, match="offset 50"):
        list(reader.read(Slice(topic, 0, 50, 60)))


def test_a_slice_that_the_log_does_not_fill_is_given_up_within_the_timeout(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap, topic, numbers(10))
    started = time.monotonic()
    with pytest.raises(SourceUnavailable, match=rf"{topic}\[0\] at offset 10 of a slice up to 20.*1\.\d s"):
        list(make_reader(broker.bootstrap, timeout=1.0).read(Slice(topic, 0, 0, 20)))
    assert time.monotonic() - started < 4


def test_the_leader_epoch_of_the_records_before_lets_reading_go_on(
    broker: Broker, topic: str, reader: KafkaReader
) -> None:
    """FAULT-44: the check does not stand in the way of a log that is as it was."""
    produce(broker.bootstrap, topic, numbers(10))
    assert len(collect(reader.read(Slice(topic, 0, 4, 10, leader_epoch=0)))) == 6


def test_an_unreachable_broker_is_named_when_epochs_cannot_be_compared() -> None:
    with pytest.raises(SourceUnavailable, match=r"orders\[0\] at offset 3 "):
        list(make_reader("127.0.0.1:1", timeout=1.0).read(Slice("orders", 0, 3, 5, leader_epoch=1)))


def test_slices_with_a_leader_epoch_follow_each_other_on_one_consumer(
    broker: Broker, topic: str, reader: KafkaReader
) -> None:
    """FAULT-44: comparing epochs gets along with a consumer that has just left the same partition."""
    produce(broker.bootstrap, topic, numbers(2000))
    for start in range(10, 2000, 10):
        read = collect(reader.read(Slice(topic, 0, start, start + 10, leader_epoch=0)))
        assert [offset for offset, _ in read] == list(range(start, start + 10))


def test_a_leader_epoch_that_the_log_never_had_stops_the_pipeline(
    broker: Broker, topic: str, reader: KafkaReader
) -> None:
    """FAULT-44."""
    produce(broker.bootstrap, topic, numbers(10))
    with pytest.raises(SourceChanged, match=rf"{topic}\[0\] was truncated"):
        list(reader.read(Slice(topic, 0, 4, 10, leader_epoch=9)))


def test_a_topic_recreated_while_it_is_read_is_noticed_by_the_look_that_follows(broker: Broker, topic: str) -> None:
    """FAULT-34: librdkafka goes on with the new topic, so that a look before the commit has to tell."""
    produce(broker.bootstrap, topic, numbers(5))
    topics = topics_of(broker.bootstrap, topic)
    frontier = topics.starting_frontier()
    (part,) = cut(frontier, topics.observe(), max_records=100).split(1, frontier)[0]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(timeout=30)
    deadline = time.monotonic() + 30
    while topic in admin.list_topics(timeout=10).topics and time.monotonic() < deadline:
        time.sleep(0.05)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=30)
    produce(broker.bootstrap, topic, [b"another"] * 5)
    assert [value for _, value in collect(topics.reader(Wants(), EMPTY_SPAN).read(part))] == [b"another"] * 5
    assert isinstance(reconcile(frontier, topics.observe(), fail_on_data_loss=True), SourceStop)


def test_a_log_that_lost_its_records_and_grew_again_stops_the_pipeline() -> None:
    """FAULT-44, FAULT-35: only the leader epoch tells the new records from the old ones."""
    from frazil.demo.broker import Broker

    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(timeout=30)
        produce(broker.bootstrap, "orders", numbers(10))
        topics = topics_of(broker.bootstrap, "orders")
        before = topics.observe().topic_ids
        (run,) = topics.reader(Wants(), EMPTY_SPAN).read(Slice("orders", 0, 0, 8))
        broker.stop()
        folder = broker.data_dir / "logs" / "orders-0"
        identity = (folder / "partition.metadata").read_bytes()
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "partition.metadata").write_bytes(identity)
        broker.start()
        produce(broker.bootstrap, "orders", [b"another"] * 20)

        assert topics.observe().topic_ids == before
        part = Slice("orders", 0, 8, 20, run.leader_epoch)
        kept = read_module._idle[os.getpid()]
        # It has heard of the new leader epoch, so that no news makes it compare again.
        kept.consumer.list_topics("orders", timeout=30)
        for consumer in ("kept", "new"):
            with pytest.raises(SourceChanged, match="truncated"):
                pytest.fail(f"{consumer}: {list(topics.reader(Wants(), EMPTY_SPAN).read(part))}")
        read_module._close_idle()


# ---------------------------------------------------------------------------------------- broken brokers


def test_an_unreachable_broker_is_named_within_the_timeout() -> None:
    started = time.monotonic()
    with pytest.raises(SourceUnavailable, match=r"orders\[0\] at offset 3 .*127\.0\.0\.1:1 in 1\.\d s"):
        list(make_reader("127.0.0.1:1", timeout=1.0).read(Slice("orders", 0, 3, 5)))
    assert time.monotonic() - started < 5


def test_a_topic_that_is_not_there_is_an_error_and_not_an_empty_slice(broker: Broker) -> None:
    with pytest.raises(SourceUnavailable, match="no-such-topic"):
        list(make_reader(broker.bootstrap, timeout=1.0).read(Slice("no-such-topic", 0, 0, 5)))


def test_a_broker_that_freezes_for_a_while_costs_time_and_nothing_else(
    broker: Broker, topic: str, reader: KafkaReader
) -> None:
    produce(broker.bootstrap, topic, [bytes(1000)] * 60_000)
    runs = reader.read(Slice(topic, 0, 0, 60_000))
    seen = list(next(runs).offsets)
    broker.pause()
    thaw = threading.Timer(1.5, broker.resume)
    thaw.start()
    for run in runs:
        seen.extend(run.offsets)
    thaw.join()
    assert seen == list(range(60_000))


# ------------------------------------------------------------------------------- one consumer a process


def test_a_reader_survives_pickling_and_shows_no_settings(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap, topic, numbers(3))
    reader = make_reader(broker.bootstrap)
    travelled = pickle.loads(pickle.dumps(reader))
    assert travelled == reader
    assert "bootstrap" not in repr(reader)
    assert len(collect(travelled.read(Slice(topic, 0, 0, 3)))) == 3


def test_the_consumer_is_used_again_until_something_goes_wrong(
    broker: Broker, topic: str, reader: KafkaReader
) -> None:
    produce(broker.bootstrap, topic, numbers(10))
    list(reader.read(Slice(topic, 0, 0, 5)))
    first = read_module._idle[os.getpid()]
    list(reader.read(Slice(topic, 0, 5, 10)))
    assert read_module._idle[os.getpid()] is first
    with pytest.raises(SpanUnavailable):
        list(reader.read(Slice(topic, 0, 90, 99)))
    assert os.getpid() not in read_module._idle


def test_an_abandoned_read_leaves_nothing_behind_for_the_next(
    broker: Broker, make_topic: Callable[..., str], reader: KafkaReader
) -> None:
    one, two = make_topic(), make_topic()
    produce(broker.bootstrap, one, numbers(30_000))
    produce(broker.bootstrap, two, numbers(5))
    abandoned = reader.read(Slice(one, 0, 0, 30_000))
    next(abandoned)
    assert collect(reader.read(Slice(two, 0, 0, 5))) == list(enumerate(numbers(5)))
    abandoned.close()  # type: ignore[attr-defined]
    assert len(collect(reader.read(Slice(one, 0, 100, 300)))) == 200


def test_the_slices_of_two_partitions_in_turn_never_mix(
    broker: Broker, make_topic: Callable[..., str], reader: KafkaReader
) -> None:
    """What the consumer had fetched ahead for one slice must not show up in the next."""
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        produce(broker.bootstrap, topic, [f"{partition}".encode()] * 20_000, partition=partition)
    for start in range(0, 20_000, 500):
        for partition in (0, 1):
            read = collect(reader.read(Slice(topic, partition, start, start + 500)))
            assert read == [(offset, f"{partition}".encode()) for offset in range(start, start + 500)]


def test_a_forked_process_opens_a_consumer_of_its_own(broker: Broker, topic: str, reader: KafkaReader) -> None:
    """PySpark forks its workers; a consumer's threads do not come along."""
    produce(broker.bootstrap, topic, numbers(10))
    part = Slice(topic, 0, 0, 10)
    assert len(collect(reader.read(part))) == 10
    child = os.fork()
    if child == 0:
        os._exit(0 if len(collect(reader.read(part))) == 10 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(collect(reader.read(part))) == 10


_READ_AND_MEASURE = """
import pickle, resource, sys
from frazil.protocol.positions import EMPTY_SPAN, Slice
from frazil.source.kafka import read
reader, topic, end = pickle.loads(bytes.fromhex(sys.argv[1])), sys.argv[2], int(sys.argv[3])
list(reader.read(Slice(topic, 0, 0, 10)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert sum(map(len, reader.read(Slice(topic, 0, 0, end)))) == end
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_stays_bounded_while_a_large_slice_is_read(broker: Broker, topic: str, reader: KafkaReader) -> None:
    """200 MB pass through less than 80 MB; the process then ends at once although a consumer is kept."""
    produce(broker.bootstrap, topic, [os.urandom(500) * 4] * 100_000)
    arguments = [pickle.dumps(reader).hex(), topic, "100000"]
    done = subprocess.run(
        [sys.executable, "-c", _READ_AND_MEASURE, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 80 * 1024
