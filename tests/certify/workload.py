"""Producers that write while everything around them breaks."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

PARTITIONS = 3
_CLIENT = {"reconnect.backoff.max.ms": 500, "message.timeout.ms": 0, "linger.ms": 5}
_TRANSACTION_S = 20


class Workload:
    """A plain producer and a transactional one, each on a thread of its own, until `stop`."""

    def __init__(self, bootstrap: str, topic: str, seed: int, per_second: int) -> None:
        self.acknowledged = 0
        self.committed = 0
        self.aborted = 0
        self._client = {"bootstrap.servers": bootstrap, "log_level": 0, **_CLIENT}
        self._topic = topic
        self._seed = seed
        self._batch = max(1, per_second // 5)
        self._enough = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._produce_plainly, self._produce_in_transactions)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """After the last record and the end of the last transaction."""
        self._enough.set()
        for thread in self._threads:
            thread.join(180)
        if self._errors or any(thread.is_alive() for thread in self._threads):
            raise RuntimeError(f"the producers did not come to their end: {self._errors}")

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._errors.append(error)
            raise

    def _produce_plainly(self) -> None:
        dice = random.Random(f"{self._seed} plain")
        producer = Producer({**self._client, "enable.idempotence": True})
        number = 0

        def note(error: object, _message: object) -> None:
            if error is not None:
                raise RuntimeError(f"a record was refused: {error}")
            self.acknowledged += 1

        while not self._enough.wait(0.2):
            # A producer that cannot reach its broker keeps records in memory; it is given no more meanwhile.
            if len(producer) < 20 * self._batch:
                for _ in range(self._batch):
                    key, value = str(number), _value(dice, number)
                    producer.produce(self._topic, value, key, number % PARTITIONS, on_delivery=note)
                    number += 1
            producer.poll(0)
        if producer.flush(120):
            raise RuntimeError("the broker did not take the last records")

    def _produce_in_transactions(self) -> None:
        dice = random.Random(f"{self._seed} transactions")
        number = -1
        while not self._enough.is_set():
            try:
                producer = self._transactional()
                while not self._enough.wait(0.3):
                    number = self._transact(producer, dice, number)
            except KafkaException:
                self._enough.wait(0.5)
        self._transactional()

    def _transactional(self) -> Producer:
        """Whoever takes the name ends the transaction that its forerunner left open."""
        producer = Producer({**self._client, "transactional.id": "certify", "transaction.timeout.ms": 60_000})
        producer.init_transactions(_TRANSACTION_S)
        return producer

    def _transact(self, producer: Producer, dice: random.Random, number: int) -> int:
        keep = dice.random() < 0.6
        producer.begin_transaction()
        for _ in range(dice.randint(1, max(2, self._batch // 2))):
            producer.produce(self._topic, _value(dice, number), str(number), -number % PARTITIONS)
            number -= 1
        producer.poll(0)
        if keep:
            producer.commit_transaction(_TRANSACTION_S)
            self.committed += 1
        else:
            producer.flush(_TRANSACTION_S)
            producer.abort_transaction(_TRANSACTION_S)
            self.aborted += 1
        return number


def _value(dice: random.Random, number: int) -> str:
    """One in fifty cannot be decoded."""
    if dice.random() < 0.02:
        return f"poison {number}"
    return json.dumps({"id": number, "name": f"customer-{number % 17}"})
