"""A shop in PostgreSQL, and the topics in which Debezium tells of it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from tests.e2e.cdc.tables import TABLES, Row, Rows, Table
from tests.e2e.cdc.workload import Workload
from tests.services.connect import Connect, slot_of
from tests.services.postgres import Postgres

_SETTLE_TIMEOUT_S = 120.0
_MARK_EVERY_S = 0.3
_MARKERS = "markers"


class Shop:
    """A database of its own, its workload, and its connector once it is followed."""

    def __init__(self, postgres: Postgres, connect: Connect, bootstrap: str, seed: int) -> None:
        self.name = f"s{uuid.uuid4().hex[:10]}"
        self.bootstrap = bootstrap
        self._postgres = postgres
        self._connect = connect
        self._followed = False
        postgres.create_database(self.name)
        self.connection = postgres.connect(self.name)
        self._marks = postgres.connect(self.name)
        for table in TABLES:
            self.connection.execute(table.create)
        self.connection.execute(f"CREATE TABLE {_MARKERS} (id bigserial PRIMARY KEY)")
        self.workload = Workload(self.connection, seed)

    def follow(self, partitions: int = 3) -> None:
        """Starts the feed, which begins with the rows that are there."""
        tables = [f"public.{name}" for name in (*(table.name for table in TABLES), _MARKERS)]
        self._connect.follow(self._postgres, self.name, prefix=self.name, tables=tables, partitions=partitions)
        self._followed = True

    def topic(self, table: Table) -> str:
        return f"{self.name}.public.{table.name}"

    def settle(self) -> None:
        """Returns when all that was committed before is in the topics.

        Connect confirms a place in PostgreSQL's log only when Kafka has acknowledged every event before it. The
        place moves only with the feed's own tables, so that marks are written until it has moved far enough.
        """
        self._mark()
        goal = self._marks.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        reached = "SELECT coalesce(bool_and(confirmed_flush_lsn >= %s::pg_lsn), false) FROM pg_replication_slots"
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while not self._marks.execute(f"{reached} WHERE slot_name = %s", [*goal, slot_of(self.name)]).fetchone()[0]:
            assert time.monotonic() < deadline, f"the feed of {self.name} did not reach {goal} in time"
            self._connect.require_running(self.name)
            time.sleep(_MARK_EVERY_S)
            self._mark()

    def ends(self, table: Table) -> dict[int, int]:
        """The end offset of every partition of the table's topic."""
        consumer = self._consumer()
        try:
            return {
                p: consumer.get_watermark_offsets(TopicPartition(self.topic(table), p), 30)[1]
                for p in self._partitions(consumer, table)
            }
        finally:
            consumer.close()

    def events(self, table: Table) -> Iterator[Message]:
        """Everything in the table's topic up to its present end, in the order of each partition."""
        ends = {p: end for p, end in self.ends(table).items() if end > 0}
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(self.topic(table), p, OFFSET_BEGINNING) for p in ends])
            while ends:
                message = consumer.poll(30)
                assert message is not None, f"{self.topic(table)} gave no more events before {ends}"
                assert message.error() is None, message.error()
                yield message
                if message.offset() + 1 >= ends.get(message.partition(), 0):
                    ends.pop(message.partition(), None)
        finally:
            consumer.close()

    def close(self) -> None:
        if self._followed:
            self._connect.unfollow(self.name)
        self.connection.close()
        self._marks.close()

    def _mark(self) -> None:
        self._marks.execute(f"INSERT INTO {_MARKERS} DEFAULT VALUES")

    def _consumer(self) -> Consumer:
        return Consumer({"bootstrap.servers": self.bootstrap, "group.id": "feed", "enable.auto.commit": False})

    def _partitions(self, consumer: Consumer, table: Table) -> list[int]:
        return sorted(consumer.list_topics(self.topic(table), 30).topics[self.topic(table)].partitions)


def fold(table: Table, events: Iterator[Message]) -> list[Row]:
    """The model: of every key the last event counts."""
    rows: Rows = {}
    for event in events:
        key = tuple(json.loads(event.key())[name] for name in table.key_names)
        after = None if event.value() is None else json.loads(event.value())["after"]
        if after is None:
            rows.pop(key, None)
        else:
            rows[key] = _row(table, after)
    return list(rows.values())


def _row(table: Table, after: dict[str, Any]) -> Row:
    values = ((column.kind, after[column.name]) for column in table.columns)
    return tuple(None if value is None else kind.of_event(value) for kind, value in values)
