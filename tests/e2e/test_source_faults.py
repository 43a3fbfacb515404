"""What Kafka can do to a pipeline, done to it by a real broker."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from frazil.engine import Assembly
from frazil.engine.events import EpochLanded, EpochPlanned, Event, Retrying
from frazil.errors import DataLoss, SourceChanged

pytestmark = pytest.mark.real


def admin_of(rig: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": rig.bootstrap})


def delete_records(rig: Any, before: int) -> None:
    admin = admin_of(rig)
    for future in admin.delete_records([TopicPartition(rig.topic, 0, before)]).values():
        future.result(30)


def test_only_committed_transactions_land(make_rig: Callable[..., Any]) -> None:
    """FAULT-31: aborted records, control markers and an open transaction at the tail."""
    rig = make_rig()
    producer = Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": f"tx-{rig.topic}"})
    producer.init_transactions(30)

    def transaction(first: int, finish: Callable[[], Any] | None) -> None:
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce(rig.topic, f'{{"id": {number}}}', partition=0)
        producer.flush(10)
        if finish is not None:
            finish()

    transaction(0, producer.commit_transaction)
    transaction(10, producer.abort_transaction)
    transaction(20, producer.commit_transaction)
    transaction(30, None)
    rig.run()
    ids = [row[0] for row in rig.sql("SELECT id FROM {t} ORDER BY id")]
    assert ids == [*range(10), *range(20, 30)]

    producer.abort_transaction()
    transaction(40, producer.abort_transaction)
    events = rig.run()
    assert not rig.epochs(events), "nothing but aborted records: no rows, so no epoch is landed for them"
    transaction(50, producer.commit_transaction)
    rig.run()
    ids = [row[0] for row in rig.sql("SELECT id FROM {t} ORDER BY id")]
    assert ids == [*range(10), *range(20, 30), *range(50, 60)]


def test_gaps_of_a_compacted_topic_are_not_loss(make_rig: Callable[..., Any]) -> None:
    """FAULT-32."""
    rig = make_rig(
        topic_config={
            "cleanup_policy": "compact",
            "segment_ms": "200",
            "min_cleanable_dirty_ratio": "0.01",
            "min_compaction_lag_ms": "0",
            "max_compaction_lag_ms": "200",
            "delete_retention_ms": "100",
        }
    )
    producer = Producer({"bootstrap.servers": rig.bootstrap})
    for number in range(200):
        producer.produce(rig.topic, f'{{"id": {number}}}', key=f"k{number % 4}", partition=0)
    producer.flush(10)

    def oldest_is_gone() -> bool:
        producer.produce(rig.topic, '{"id": 999}', key="tick", partition=0)
        producer.flush(10)
        return len(read_offsets(rig)) < 150

    deadline = time.monotonic() + 60
    while not oldest_is_gone():
        assert time.monotonic() < deadline, "the broker did not compact in time"
        time.sleep(0.5)
    before = read_offsets(rig)

    rig.run()

    landed = [offset for _, offset in rig.offsets()]
    assert len(landed) == len(set(landed))
    assert set(read_offsets(rig)) <= set(landed) <= set(before), "the cleaner may go on while frazil reads"


def read_offsets(rig: Any) -> list[int]:
    from frazil.demo.proof import _offsets_in_topic

    offsets: list[int] = _offsets_in_topic(rig.bootstrap, rig.topic, 0).to_pylist()
    return offsets


def test_retention_that_passed_the_frontier_stops_with_the_lost_range(make_rig: Callable[..., Any]) -> None:
    """EPOCH-07, FAULT-33."""
    rig = make_rig()
    rig.produce_orders(0, 20)
    rig.run()
    rig.produce_orders(20, 30)
    delete_records(rig, before=35)

    with pytest.raises(DataLoss, match=rf"15 offsets .* {rig.topic}\[0\] offsets 20 to 34"):
        rig.run()
    assert rig.offsets() == rig.every(20)


def test_loss_that_the_user_allows_is_skipped_and_recorded(make_rig: Callable[..., Any]) -> None:
    """EPOCH-07: never in silence, the snapshot says what is missing."""
    rig = make_rig(source={"fail_on_data_loss": False})
    rig.produce_orders(0, 20)
    rig.run()
    rig.produce_orders(20, 30)
    delete_records(rig, before=35)

    rig.run()

    assert rig.offsets() == rig.every(20) + rig.every(15, first=35)
    last = rig.open_table().history("orders")[-1]
    assert last.skipped.encode() == f'{{"{rig.topic}":"0:20-35"}}'


def recreate(rig: Any) -> None:
    admin = admin_of(rig)
    admin.delete_topics([rig.topic])[rig.topic].result(30)
    deadline = time.monotonic() + 30
    while rig.topic in admin.list_topics(timeout=10).topics and time.monotonic() < deadline:
        time.sleep(0.1)
    admin.create_topics([NewTopic(rig.topic, 1, 1)])[rig.topic].result(30)


def test_a_recreated_topic_stops_the_pipeline(make_rig: Callable[..., Any]) -> None:
    """FAULT-34, FAULT-35: it has another id, although name and offsets look alike."""
    rig = make_rig()
    rig.produce_orders(0, 20)
    rig.run()
    recreate(rig)
    rig.produce_orders(1000, 40)

    with pytest.raises(SourceChanged, match="deleted and created again"):
        rig.run()
    assert rig.offsets() == rig.every(20)


def test_a_broker_rebuilt_under_its_old_address_stops_the_pipeline(rig: Any, tmp_path: Path) -> None:
    """FAULT-35: address, cluster id, topic and partitions are the same, and there are more records than before."""
    from frazil.demo.broker import Broker

    with Broker(tmp_path / "broker") as broker:
        rig.bootstrap = rig.tree["source"]["kafka"]["bootstrap.servers"] = broker.bootstrap
        admin = admin_of(rig)
        admin.create_topics([NewTopic(rig.topic, 1, 1)])[rig.topic].result(30)
        rig.produce_orders(0, 20)
        rig.run()
        broker.kill()
        shutil.rmtree(broker.data_dir / "logs")
        broker.start()
        admin = admin_of(rig)
        admin.create_topics([NewTopic(rig.topic, 1, 1)])[rig.topic].result(30)
        rig.produce_orders(1000, 40)

        with pytest.raises(SourceChanged, match="deleted and created again"):
            rig.run()
    assert rig.offsets() == rig.every(20)


def test_an_answer_without_partitions_is_waited_out_while_the_pipeline_runs(
    make_rig: Callable[..., Any],
) -> None:
    """FAULT-37: nothing is read again from the earliest offset, and nothing is skipped."""
    rig = make_rig(partitions=2)
    for partition in (0, 1):
        rig.produce_orders(0, 10, partition)
    rig.run()
    for partition in (0, 1):
        rig.produce_orders(10, 10, partition)
    forgetful = 0

    def prepare(parts: Assembly) -> None:
        admin: Any = parts.source._admin  # type: ignore[attr-defined]
        describe = admin.describe_topics

        def forget(*asked: Any, **more: Any) -> Any:
            nonlocal forgetful
            forgetful += 1
            answers = describe(*asked, **more)
            if forgetful > 3:
                return answers
            found = answers[rig.topic].result(30)
            answer: Future[Any] = Future()
            kept = [] if forgetful < 3 else found.partitions[:1]
            answer.set_result(SimpleNamespace(topic_id=found.topic_id, partitions=kept))
            return {rig.topic: answer}

        parts.source._admin = Forgetful(admin, forget)  # type: ignore[attr-defined]

    events = rig.run(prepare=prepare)

    assert forgetful > 3
    assert len([event for event in events if isinstance(event, Retrying)]) == 3
    assert rig.offsets() == rig.every(20) + rig.every(20, partition=1)


class Forgetful:
    """An admin client whose answers about topics are not the broker's."""

    def __init__(self, admin: Any, describe: Callable[..., Any]) -> None:
        self._admin = admin
        self.describe_topics = describe

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, name)


def test_a_topic_recreated_between_planning_and_commit_lands_nothing(make_rig: Callable[..., Any]) -> None:
    """FAULT-34: workers would read another topic's records under the planned offsets."""
    rig = make_rig()
    rig.produce_orders(0, 20)

    def watch(event: Event) -> None:
        if isinstance(event, EpochPlanned):
            recreate(rig)
            rig.produce_orders(1000, 40)

    with pytest.raises(SourceChanged, match="deleted and created again"):
        rig.run(observer=watch)
    assert rig.offsets() == []


def test_new_partitions_are_read_from_their_first_record(make_rig: Callable[..., Any]) -> None:
    """FAULT-36: also when they appear while the pipeline runs."""
    rig = make_rig(source={"starting_offsets": "latest"}, epoch={"interval": "500ms"})
    rig.run()
    rig.produce_orders(0, 10)
    added = False

    def watch(event: Event) -> None:
        nonlocal added
        if isinstance(event, EpochLanded) and not added:
            added = True
            admin = admin_of(rig)
            admin.create_partitions([NewPartitions(rig.topic, 3)])[rig.topic].result(30)
            rig.produce_orders(0, 5, partition=1)
            rig.produce_orders(0, 5, partition=2)
        elif isinstance(event, EpochLanded):
            stop.set()

    stop = threading.Event()
    rig.run(available_now=False, observer=watch, stop=stop)
    rig.run()

    assert rig.offsets() == rig.every(10) + rig.every(5, partition=1) + rig.every(5, partition=2)
    assert rig.run()[0].frontier.offset((rig.topic, 2)) == 5


def test_an_idle_topic_commits_nothing(make_rig: Callable[..., Any]) -> None:
    """EPOCH-14, FAULT-40: starting is the only commit."""
    rig = make_rig()
    rig.run()
    rig.run()
    assert [record.action for record in rig.open_table().history("orders")] == ["start", "start"]
