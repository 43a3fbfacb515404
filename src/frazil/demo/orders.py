"""The orders of the demo, produced to a topic while the pipeline runs."""

from __future__ import annotations

import threading
import time

from confluent_kafka import KafkaError, Message, Producer

from frazil.source.generator import order

SEED = 1
_CHUNK = 5_000
_FLUSH_S = 60


class OrderStream(threading.Thread):
    """Produces orders in the background, spread evenly over `seconds` or as fast as it can."""

    def __init__(self, bootstrap: str, topic: str, records: int, partitions: int, seconds: float) -> None:
        super().__init__(name="orders", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 200_000,
                "log_level": 2,
            }
        )
        self._topic = topic
        self._records = records
        self._partitions = partitions
        self._seconds = seconds
        self.produced = 0
        """records that the broker has acknowledged"""
        self.error: str | None = None

    def run(self) -> None:
        try:
            self._produce_all()
        except Exception as error:  # whoever waits for the orders must hear of it
            self.error = str(error)

    def _produce_all(self) -> None:
        began = time.monotonic()
        for number in range(self._records):
            self._produce(number)
            if number % _CHUNK == 0:
                self._serve_until(began + number / self._records * self._seconds)
        if (left := self._producer.flush(_FLUSH_S)) > 0:
            self.error = f"{left:,} orders were not acknowledged in {_FLUSH_S} s"

    def _serve_until(self, moment: float) -> None:
        """Takes acknowledgements until it is time to go on."""
        self._producer.poll(0)
        while (ahead_s := moment - time.monotonic()) > 0:
            self._producer.poll(ahead_s)

    def _produce(self, number: int) -> None:
        partition, offset = number % self._partitions, number // self._partitions
        value = order(SEED, partition, offset)
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key=b"%d" % number, partition=partition, on_delivery=self._delivered
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.produced += 1
        else:
            self.error = str(error)
