"""The workers' side of Kafka: every record of a slice, in offset order.

A slice `[start, end)` ends with the first of these signs; gaps left by compaction, transaction markers or
aborted transactions make no difference:

    a record at or beyond end - 1     the usual case; records at or beyond `end` are dropped
    end of partition at >= end        the tail of the slice holds no readable record
    the consumer's position >= end    the same, seen without an event

What can go wrong, and what it becomes:

    start below or past the log       SpanUnavailable: the driver plans again and decides
    log truncated below the start     SourceChanged (the leader epoch no longer fits)
    nothing comes for `timeout_s`     SourceUnavailable, with partition, offset and time
    any other error on a message      SourceUnavailable

Speed. The cost per record in Python is what limits frazil, so that records are handled by functions written
in C, `map(Message.value, …)`, a thousand at a time: memory that was freed a moment ago is still in the
processor's cache, and ten thousand at a time are slower (measured).
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from frazil.errors import FrazilError, SourceChanged, SourceUnavailable, SpanUnavailable
from frazil.protocol.positions import Partition, Slice, name_partition
from frazil.records import Headers, Records
from frazil.source import Wants
from frazil.source.kafka.failures import Complaints
from frazil.source.kafka.settings import open_consumer

_RUN_RECORDS = 10_000
_RUN_BYTES = 4 * 2**20
_CONSUME_RECORDS = 1_000
# consume() keeps a partial batch, and the end of the partition with it, until its time is over.
_CONSUME_TIMEOUT_S = 0.01
_CLOSE_PATIENCE_S = 2.0

_OFFSET_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._NO_OFFSET}
_NOT_STARTED_YET = {KafkaError._STATE, KafkaError._PREV_IN_PROGRESS, KafkaError._UNKNOWN_PARTITION}
# With auto.offset.reset=error a truncated log arrives under the code of an offset reset; librdkafka puts the
# words of the real code into the text.
_TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION).str()

_second = itemgetter(1)
# The types of these leave room for events, which may lack an offset; records never do.
_offset: Callable[[Message], int] = Message.offset  # type: ignore[assignment]
_headers: Callable[[Message], Headers] = Message.headers  # type: ignore[assignment]


@dataclass(frozen=True)
class KafkaReader:
    """Reads slices with librdkafka; travels to the workers in a pickle."""

    settings: Mapping[str, str] = field(repr=False)
    wants: Wants
    timeout_s: float

    def read(self, part: Slice) -> Iterator[Records]:
        """Every record of the slice, in runs of at most 10,000 records and about 4 MiB."""
        if part.start >= part.end:
            return
        with _lent(self.settings) as client:
            yield from _Reading(client, part, self.wants, self.timeout_s).runs()


def kafka_position(partition: Partition, offset: int, leader_epoch: int | None) -> TopicPartition:
    """With the leader epoch, where it is known, librdkafka checks that the log still is the one it was."""
    if leader_epoch is None:
        return TopicPartition(*partition, offset)
    return TopicPartition(*partition, offset, leader_epoch=leader_epoch)


class _Reading:
    """One slice being read; `_next` is the offset that has not been seen yet."""

    def __init__(self, client: _Client, part: Slice, wants: Wants, timeout_s: float) -> None:
        self._consumer = client.consumer
        self._complaints = client.complaints
        self._part = part
        self._wants = wants
        self._timeout_s = timeout_s
        self._next = part.start
        self._ended = False
        self._waiting_since = time.monotonic()

    def runs(self) -> Iterator[Records]:
        self._assign()
        run, size = self._empty_run(), 0
        while not self._ended:
            messages = self._consume()
            self._append(run, messages)
            size += sum(map(len, messages))
            if len(run) >= _RUN_RECORDS or size >= _RUN_BYTES:
                yield run
                run, size = self._empty_run(), 0
                # The time somebody took to work on the run is not ours.
                self._waiting_since = time.monotonic()
        self._consumer.unassign()
        if len(run):
            yield run

    def _assign(self) -> None:
        part = self._part
        start = kafka_position((part.topic, part.partition), part.start, part.leader_epoch)
        self._consumer.assign([start])
        if part.leader_epoch is not None:
            self._compare_epochs(start)

    def _compare_epochs(self, start: TopicPartition) -> None:
        """Has librdkafka ask the broker whether the log still has this offset under this leader epoch.

        assign() alone asks only when new metadata happens to arrive, and a consumer that is used again then
        reads a truncated log as if nothing had happened (measured); seek() always asks, and delivers nothing
        before the answer.
        """
        while True:
            try:
                return self._consumer.seek(start)
            except KafkaException as error:
                if error.args[0].code() not in _NOT_STARTED_YET:
                    raise self._failed(error.args[0]) from None
            self._check_waiting()
            time.sleep(0.001)

    def _consume(self) -> list[Message]:
        """Some records of the slice, perhaps none; notices when it has ended."""
        wanted = min(_CONSUME_RECORDS, self._part.end - self._next)
        messages = self._consumer.consume(wanted, _CONSUME_TIMEOUT_S)
        if any(map(Message.error, messages)):
            messages = self._heed_events(messages)
        if messages:
            return self._within_slice(messages)
        self._check_waiting()
        return []

    def _within_slice(self, messages: list[Message]) -> list[Message]:
        self._require_ours(messages[0])
        self._require_ours(messages[-1])
        self._complaints.forget()
        self._waiting_since = time.monotonic()
        end = self._part.end
        last = _offset(messages[-1])
        if last >= end:
            messages = messages[: bisect_left(messages, end, key=_offset)]
        self._ended = self._ended or last >= end - 1
        self._next = last + 1
        return messages

    def _require_ours(self, message: Message) -> None:
        """The consumer serves one slice after another; what is left over from another one must never land."""
        part, offset = self._part, _offset(message)
        if (message.topic(), message.partition()) != (part.topic, part.partition) or offset < self._next:
            raise SourceUnavailable(
                f"librdkafka delivered {message.topic()}[{message.partition()}] offset {offset} "
                f"where {self._name} offset {self._next} was due; reading again with a new consumer"
            )

    def _append(self, run: Records, messages: list[Message]) -> None:
        if not messages:
            return
        run.offsets.extend(map(_offset, messages))
        run.values.extend(map(Message.value, messages))
        if self._wants.keys:
            run.keys.extend(map(Message.key, messages))
        if self._wants.timestamps:
            run.timestamps_ms.extend(map(_second, map(Message.timestamp, messages)))
        if self._wants.headers:
            run.headers.extend(map(_headers, messages))
        run.leader_epoch = messages[-1].leader_epoch()

    def _empty_run(self) -> Records:
        return Records(self._part.topic, self._part.partition, [], [])

    def _heed_events(self, messages: list[Message]) -> list[Message]:
        """Looks at every error; what is left are the records."""
        for message in messages:
            error = message.error()
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                ours = (message.topic(), message.partition()) == (self._part.topic, self._part.partition)
                self._ended = self._ended or (ours and _offset(message) >= self._part.end)
            elif message.topic() is None:
                # About the client as a whole, its group for example: reading may well go on.
                self._complaints.note(error)
            else:
                raise self._failed(error)
        return [message for message in messages if message.error() is None]

    def _failed(self, error: KafkaError) -> FrazilError:
        if _TRUNCATED in error.str() or error.code() == KafkaError._LOG_TRUNCATION:
            return SourceChanged(
                f"{self._name} was truncated: offset {self._part.start} was read under leader epoch "
                f"{self._part.leader_epoch}, which the log no longer has ({error.str()})",
                "the table holds records that the topic no longer has; decide which is right before going on",
            )
        if error.code() in _OFFSET_GONE:
            return SpanUnavailable(f"{self._name} no longer holds offset {self._next}: {error.str()}")
        what = f"reading {self._name} at offset {self._next}"
        return self._complaints.translate(what, error, time.monotonic() - self._waiting_since)

    def _check_waiting(self) -> None:
        if self._ended:
            return
        partition = TopicPartition(self._part.topic, self._part.partition)
        with suppress(KafkaException):
            self._ended = self._consumer.position([partition])[0].offset >= self._part.end
        waited_s = time.monotonic() - self._waiting_since
        self._complaints.stop_if_refused(waited_s)
        if not self._ended and waited_s > self._timeout_s:
            what = f"reading {self._name} at offset {self._next} of a slice up to {self._part.end}"
            raise self._complaints.unanswered(what, waited_s)

    @property
    def _name(self) -> str:
        return name_partition((self._part.topic, self._part.partition))


@dataclass(frozen=True)
class _Client:
    """A consumer, and what it complained about."""

    settings: Mapping[str, str]
    consumer: Consumer
    complaints: Complaints

    @classmethod
    def open(cls, settings: Mapping[str, str]) -> _Client:
        complaints = Complaints(settings)
        return cls(settings, open_consumer(settings, complaints.note), complaints)

    def close(self) -> None:
        """Within a bounded time, whatever the brokers do."""
        closing = threading.Thread(target=self._close, daemon=True)
        closing.start()
        closing.join(_CLOSE_PATIENCE_S)

    def _close(self) -> None:
        with suppress(KafkaException, RuntimeError):
            self.consumer.close()


# The consumer that this process used last, ready for the next slice: Spark keeps its Python workers, and a
# connection is worth keeping with them. Keyed by process id, because a forked child inherits the object but
# none of the threads that serve it; the child leaves its parent's entry alone.
_idle: dict[int, _Client] = {}


@contextmanager
def _lent(settings: Mapping[str, str]) -> Iterator[_Client]:
    """A consumer nobody else uses; kept afterwards unless anything at all went wrong with it."""
    client = _idle.pop(os.getpid(), None)
    if client is not None and client.settings != settings:
        client.close()
        client = None
    client = client or _Client.open(settings)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    surplus = _idle.pop(os.getpid(), None)
    _idle[os.getpid()] = client
    if surplus is not None:
        surplus.close()


@atexit.register
def _close_idle() -> None:
    client = _idle.pop(os.getpid(), None)
    if client is not None:
        client.close()
