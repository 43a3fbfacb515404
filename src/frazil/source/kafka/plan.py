"""The driver's side of Kafka: how far the topics reach, where a pipeline starts, what lag monitors see.

Every look asks for everything anew: topic ids and partitions, earliest and end offsets, topic ids again. That
is four requests of about half a millisecond each (measured), cheap enough for ten looks a second, so that
nothing is ever planned from an old answer. The ids are asked twice because they must belong to the offsets
between them: an id never comes back, so that equal ids before and after mean the same topic all the while.

The same rule holds for records: whoever commits a span looks once more after the workers have read it,
because a topic recreated in between gives them another topic's records under the planned offsets.

    answer                                outcome
    nobody answers within the timeout     SourceUnavailable, with the addresses and the time
    credentials refused                   ConfigError, with the mechanism
    topic missing at the first look       ConfigError, with topics of a similar name
    topic missing later                   SourceUnavailable: it may be on its way back, and its id will tell
    fewer partitions than before          SourceUnavailable: the answer is incomplete, Kafka removes none
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import structlog
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    admin,
)
from confluent_kafka.admin import AdminClient

from frazil.errors import ConfigError, FrazilError, SourceUnavailable
from frazil.pipeline import KafkaSource
from frazil.protocol.plan import Log, SourceObserved
from frazil.protocol.positions import Frontier, Partition, Position, Span, name_partition
from frazil.source import Wants
from frazil.source.kafka.failures import Complaints
from frazil.source.kafka.read import KafkaReader, kafka_position
from frazil.source.kafka.settings import open_admin, planning_settings, reading_settings

_LATEST, _EARLIEST = -1, -2
"""How Kafka's own tools, and Spark, spell these as offsets."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SETTLES_SOON = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
_SETTLING_PAUSE_S = 0.05
_SERVE_CALLBACKS_EVERY_S = 0.1
# Time limits are kept here. librdkafka aborts the whole process when its own one has passed and the answer comes
# all the same, as it does after the process was stopped for a while (measured).
_LIBRDKAFKA_PATIENCE_S = 600.0
_CLOSING_PATIENCE_S = 2.0

Answer = TypeVar("Answer")

# confluent_kafka exports it, though its types do not say so.
_OffsetSpec: Any = admin.OffsetSpec  # type: ignore[attr-defined]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Topic:
    id: str
    partitions: int


class KafkaTopics:
    """The topics of one pipeline; implements `Source`."""

    def __init__(self, spec: KafkaSource, pipeline_name: str) -> None:
        self._spec = spec
        self._group_id = spec.group_id or f"frazil-{pipeline_name}"
        self._reading_settings = reading_settings(spec.kafka, self._group_id)
        settings = planning_settings(spec.kafka)
        self._complaints = Complaints(settings)
        self._admin = open_admin(settings, self._complaints.note)
        self._known: dict[str, _Topic] = {}
        self._acknowledgements = _Acknowledgements(self._admin, self._group_id, spec.timeout)

    def observe(self) -> SourceObserved:
        """How far every partition reaches right now; ends at the last stable offset."""
        request = self._request("looking at " + ", ".join(self._spec.topics))
        return request.once_settled(lambda: self._look(request))

    def starting_frontier(self) -> Frontier:
        """Resolves `source.starting_offsets` for every partition there is."""
        seen = self.observe()
        wanted = self._spec.starting_offsets
        if isinstance(wanted, datetime):
            offsets = self._offsets_at(wanted, seen.logs)
        elif isinstance(wanted, dict):
            offsets = _explicit_offsets(wanted, seen.logs)
        else:
            offsets = {p: log.earliest if wanted == "earliest" else log.end for p, log in seen.logs.items()}
        return Frontier({p: Position(offset) for p, offset in offsets.items()}, seen.topic_ids)

    def resume(self, frontier: Frontier) -> None:
        """Nothing to prepare: the brokers hold the records, whoever reads them."""

    def marks(self, span: Span) -> Mapping[Partition, str]:
        """None: an offset says it all."""
        return {}

    def reader(self, wants: Wants, span: Span) -> KafkaReader:
        """What the workers read with."""
        return KafkaReader(self._reading_settings, wants, self._spec.timeout)

    def acknowledge(self, frontier: Frontier) -> None:
        """Commits offsets to the consumer group in the background; a failure is logged and nothing more."""
        self._acknowledgements.send(frontier)

    def close(self) -> None:
        """Waits a moment for the last acknowledgement."""
        self._acknowledgements.finish()

    def _request(self, what: str) -> _Request:
        return _Request(self._admin, self._complaints, self._spec.timeout, what)

    def _look(self, request: _Request) -> SourceObserved:
        topics = self._describe(request)
        partitions = self._selected(topics)
        logs = self._logs(request, partitions)
        self._require_unchanged(topics, self._describe(request))
        self._known.update(topics)
        return SourceObserved(logs, {name: topic.id for name, topic in topics.items()})

    def _describe(self, request: _Request) -> dict[str, _Topic]:
        names = TopicCollection(self._spec.topics)
        asked = self._admin.describe_topics(names, request_timeout=_LIBRDKAFKA_PATIENCE_S)
        topics = {}
        for name, future in asked.items():
            try:
                description = request.answer(future)
            except _Unsettled as error:
                if error.code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._missing(name, request) from None
                raise
            topics[name] = self._checked(name, description)
        return topics

    def _checked(self, name: str, description: Any) -> _Topic:
        """An answer that leaves partitions out never counts: a partition would seem new when it came back."""
        numbers = sorted(partition.id for partition in description.partitions)
        topic = _Topic(str(description.topic_id), len(numbers))
        known = self._known.get(name)
        fewest = known.partitions if known is not None and known.id == topic.id else 1
        if len(numbers) < fewest or numbers != list(range(len(numbers))):
            raise SourceUnavailable(
                f"the brokers' answer for topic {name} has partitions {numbers}, "
                f"at least {fewest} without a gap are expected; asking again"
            )
        return topic

    def _selected(self, topics: Mapping[str, _Topic]) -> list[Partition]:
        partitions = []
        for name, topic in topics.items():
            chosen = self._spec.partitions.get(name, range(topic.partitions))
            for number in chosen:
                if not 0 <= number < topic.partitions:
                    raise ConfigError(
                        f"source.partitions names {name}[{number}], of {topic.partitions} partitions",
                        f"use numbers from 0 to {topic.partitions - 1}",
                    )
                partitions.append((name, number))
        return partitions

    def _logs(self, request: _Request, partitions: Sequence[Partition]) -> dict[Partition, Log]:
        earliest = self._ask_offsets(request, partitions, _OffsetSpec.earliest())
        ends = self._ask_offsets(request, partitions, _OffsetSpec.latest())
        logs = {}
        for partition in partitions:
            start = request.offset(earliest[partition])
            end = request.offset(ends[partition])
            # Retention may move the start past an end that was answered a moment before.
            logs[partition] = Log(start, max(start, end))
        return logs

    def _offsets_at(self, moment: datetime, logs: Mapping[Partition, Log]) -> dict[Partition, int]:
        """The first record at or after `moment`, or the end; a time without a zone is UTC."""
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        since_ms = -((_EPOCH - moment) // timedelta(milliseconds=1))  # rounded up: never a record before it
        spec = _OffsetSpec.for_timestamp(max(0, since_ms))
        request = self._request(f"looking for offsets at {moment.isoformat()}")
        found = request.once_settled(lambda: self._offsets(request, logs, spec))
        return {
            partition: log.end if found[partition] < 0 else min(max(found[partition], log.earliest), log.end)
            for partition, log in logs.items()
        }

    def _offsets(self, request: _Request, partitions: Iterable[Partition], spec: Any) -> dict[Partition, int]:
        asked = self._ask_offsets(request, partitions, spec)
        return {partition: request.offset(future) for partition, future in asked.items()}

    def _ask_offsets(
        self, request: _Request, partitions: Iterable[Partition], spec: Any
    ) -> dict[Partition, Future[Any]]:
        asked = self._admin.list_offsets(
            {TopicPartition(*partition): spec for partition in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_LIBRDKAFKA_PATIENCE_S,
        )
        return {(p.topic, p.partition): future for p, future in asked.items()}

    def _require_unchanged(self, before: Mapping[str, _Topic], after: Mapping[str, _Topic]) -> None:
        for name, topic in before.items():
            if after[name].id != topic.id:
                raise SourceUnavailable(f"topic {name} was recreated while it was looked at; asking again")

    def _missing(self, name: str, request: _Request) -> FrazilError:
        if name in self._known:
            return SourceUnavailable(f"topic {name} is not there any more")
        try:
            existing = sorted(self._admin.list_topics(timeout=request.left_s).topics)
        except KafkaException as error:
            return self._complaints.translate(request.what, error.args[0], request.waited_s)
        near = difflib.get_close_matches(name, existing, n=3)
        return ConfigError(
            f"topic {name} does not exist",
            f"topics of a similar name: {', '.join(near)}" if near else "create it, or correct source.topics",
        )


class _Unsettled(Exception):
    """The brokers do not know yet, or no longer, who leads a partition; soon they will."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.code = error.code()


class _Request:
    """One question to the brokers, in one or more requests, with one time limit for all of them."""

    def __init__(self, admin: AdminClient, complaints: Complaints, timeout_s: float, what: str) -> None:
        self._admin = admin
        self._complaints = complaints
        self._timeout_s = timeout_s
        self._started = time.monotonic()
        self.what = what

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def left_s(self) -> float:
        return max(0.1, self._timeout_s - self.waited_s)

    def once_settled(self, look: Callable[[], Answer]) -> Answer:
        """Looks again while partitions change hands, which takes a moment after a topic was created too."""
        while True:
            try:
                return look()
            except _Unsettled as error:
                if self.waited_s + _SETTLING_PAUSE_S > self._timeout_s:
                    raise SourceUnavailable(f"{self.what}: for {self.waited_s:.1f} s: {error}") from None
                time.sleep(_SETTLING_PAUSE_S)

    def answer(self, future: Future[Answer]) -> Answer:
        """The result, or frazil's error for what came instead."""
        while True:
            try:
                result = future.result(timeout=_SERVE_CALLBACKS_EVERY_S)
                self._complaints.forget()
                return result
            except TimeoutError:
                self._admin.poll(0)
                self._complaints.stop_if_refused(self.waited_s)
                if self.waited_s > self._timeout_s:
                    raise self._complaints.unanswered(self.what, self.waited_s) from None
            except KafkaException as error:
                self._admin.poll(0)
                raise self._translate(error.args[0]) from None

    def offset(self, future: Future[Any]) -> int:
        """The offset that a broker named.

        When a connection breaks at the wrong moment, librdkafka answers without an error and without an offset:
        taken for a number, it would be a truncated log, or a start in the wrong place.
        """
        offset = int(self.answer(future).offset)
        if offset == OFFSET_INVALID:
            raise _Unsettled(KafkaError(KafkaError._TRANSPORT, "the connection broke before an offset was named"))
        return offset

    def _translate(self, error: KafkaError) -> Exception:
        if error.code() in _SETTLES_SOON:
            return _Unsettled(error)
        return self._complaints.translate(self.what, error, self.waited_s)


class _Acknowledgements:
    """Offsets for lag monitors: one commit under way at a time, the newest frontier next, nobody waits."""

    def __init__(self, admin: AdminClient, group_id: str, timeout_s: float) -> None:
        self._admin = admin
        self._group_id = group_id
        self._timeout_s = timeout_s
        self._under_way: Future[object] | None = None
        self._sent_at = 0.0
        self._next: Frontier | None = None
        self._failing = False

    def send(self, frontier: Frontier) -> None:
        self._next = frontier
        if self._under_way is None or self._under_way.done():
            self._settle()
            self._commit_next()
        elif time.monotonic() - self._sent_at > self._timeout_s:
            self._report(TimeoutError(f"no answer in {self._timeout_s:g} s"))

    def finish(self) -> None:
        deadline = time.monotonic() + _CLOSING_PATIENCE_S
        while self._under_way is not None and time.monotonic() < deadline:
            if self._under_way.done():
                self._settle()
                self._commit_next()
            else:
                time.sleep(0.005)

    def _commit_next(self) -> None:
        frontier, self._next = self._next, None
        if frontier is None or not frontier.positions:
            return
        group = ConsumerGroupTopicPartitions(self._group_id, _as_kafka(frontier))
        try:
            asked = self._admin.alter_consumer_group_offsets([group], request_timeout=_LIBRDKAFKA_PATIENCE_S)
            self._under_way, self._sent_at = asked[self._group_id], time.monotonic()
        except (KafkaException, ValueError) as error:
            self._report(error)

    def _settle(self) -> None:
        future, self._under_way = self._under_way, None
        if future is not None:
            self._report(future.exception())

    def _report(self, error: BaseException | None) -> None:
        """Says once that acknowledging fails; says it again only after it worked in between."""
        if error is not None and not self._failing:
            _log.warning("consumer group offsets not committed", group=self._group_id, error=str(error))
        self._failing = error is not None


def _as_kafka(frontier: Frontier) -> list[TopicPartition]:
    return [
        kafka_position(partition, position.offset, position.leader_epoch)
        for partition, position in sorted(frontier.positions.items())
    ]


def _explicit_offsets(
    wanted: Mapping[str, Mapping[str, int]], logs: Mapping[Partition, Log]
) -> dict[Partition, int]:
    """The offsets the user names; partitions that are not named start at their earliest."""
    offsets = {partition: log.earliest for partition, log in logs.items()}
    for topic, by_partition in wanted.items():
        for number, offset in by_partition.items():
            partition = _named_partition(topic, number, logs)
            offsets[partition] = _within(partition, offset, logs[partition])
    return offsets


def _named_partition(topic: str, number: str, logs: Mapping[Partition, Log]) -> Partition:
    partition = (topic, int(number)) if number.isdecimal() else (topic, -1)
    if partition not in logs:
        read = ", ".join(name_partition(p) for p in sorted(logs))
        raise ConfigError(
            f"source.starting_offsets names {topic}[{number}], which is not read", f"these are: {read}"
        )
    return partition


def _within(partition: Partition, offset: int, log: Log) -> int:
    if offset == _LATEST:
        return log.end
    if offset == _EARLIEST:
        return log.earliest
    if not log.earliest <= offset <= log.end:
        raise ConfigError(
            f"source.starting_offsets says {offset} for {name_partition(partition)}, "
            f"which holds offsets {log.earliest} to {log.end}",
            f"choose from {log.earliest} to {log.end}, or -2 for the earliest and -1 for the latest",
        )
    return offset
