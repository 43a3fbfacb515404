"""Sinks by name, and sinks that run in the background."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from frazil.errors import ConfigError, InvalidState
from frazil.sink.checkpoints import CheckpointAdapter, EpochSink, Rows
from frazil.sink.config import SinkConfig
from frazil.sink.facts import Committed
from frazil.sink.sink import Sink
from frazil.sink.status import Condition, Stage, Status, StatusStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Options = SinkConfig | Mapping[str, str]
Factory = Callable[[Options], EpochSink]
Serializer = Callable[[Any], Rows]

_FORMATS = {"iceberg": "iceberg", "delta-lake": "delta"}
_POLL_S = 0.1


def pass_through(rows: Rows) -> Rows:
    """For rows that are Arrow already, or a DataFrame."""
    return rows


class ConnectorRegistry:
    """Which sinks there are; `iceberg` and `delta-lake` always."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = spark
        self._factories: dict[str, Factory] = {name: self._own(name) for name in _FORMATS}

    @property
    def names(self) -> list[str]:
        return sorted(self._factories)

    def register(self, name: str, factory: Factory) -> None:
        """Adds a sink of one's own; a name means one sink for good."""
        if name in self._factories:
            raise ConfigError(f"there is a sink {name} already", "choose another name")
        self._factories[name] = factory

    def create(self, name: str, options: Options) -> EpochSink:
        """A sink that is not open yet."""
        if name not in self._factories:
            raise ConfigError(f"connector: {name!r} is not known", f"known are {', '.join(self.names)}")
        return self._factories[name](options)

    def _own(self, name: str) -> Factory:
        def make(options: Options) -> Sink:
            if not isinstance(options, SinkConfig):
                told = {key: value for key, value in options.items() if key != "connector"}
                options = SinkConfig.from_options({"table.format": _FORMATS[name], **told})
            if options.connector != name:
                raise ConfigError(
                    f'table.format = "{options.table.format}" is not what the connector {name} writes',
                    f"use {options.connector}",
                )
            return Sink(options, self._spark)

        return make


@dataclass(frozen=True, slots=True)
class _Rows:
    checkpoint: int
    rows: Any


@dataclass(frozen=True, slots=True)
class _Complete:
    checkpoint: int
    done: Future[Committed | None]


class SinkHandle:
    """A sink that runs in the background, fed through a queue of limited length: who feeds it faster waits."""

    def __init__(self, name: str, sink: EpochSink, serializer: Serializer, queue_length: int) -> None:
        self.name = name
        self.sink = sink
        self.statuses = StatusStream()
        self.error: BaseException | None = None
        self._serializer = serializer
        self._adapter = CheckpointAdapter(sink)
        self._queue: queue.Queue[_Rows | _Complete] = queue.Queue(queue_length)
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"frazil-sink-{name}", daemon=True)
        self._thread.start()

    def write(self, checkpoint: int, rows: Any) -> None:
        """Hands over rows of a checkpoint; waits while the queue is full."""
        self._put(_Rows(checkpoint, rows))

    def complete(self, checkpoint: int) -> Future[Committed | None]:
        """Ends a checkpoint; the future is done when its rows are in the table."""
        done: Future[Committed | None] = Future()
        self._put(_Complete(checkpoint, done))
        return done

    def stop(self) -> None:
        """Finishes what is in the queue and closes the sink; a checkpoint that is not complete is rolled back."""
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> SinkHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _put(self, item: _Rows | _Complete) -> None:
        while True:
            self._require_running()
            try:
                self._queue.put(item, timeout=_POLL_S)
                break
            except queue.Full:
                continue
        if self._ended.is_set():
            self._refuse_rest()

    def _require_running(self) -> None:
        if self.error is not None:
            raise self.error
        if self._stop.is_set() or self._ended.is_set():
            raise InvalidState(
                f"the sink {self.name} was stopped", "start another one", actual="Stopped", expected="Running"
            )

    def _run(self) -> None:
        try:
            self._tell(Stage.INIT, Condition.STARTING, "opening the table")
            self.sink.open()
            self._tell(Stage.INIT, Condition.RUNNING, "the table is claimed")
            self._feed()
            self._tell(Stage.COMMIT, Condition.STOPPED, "stopped")
        except BaseException as error:
            self.error = error
            self.statuses.halt(error)
        finally:
            self.sink.close()
            self._ended.set()
            self._refuse_rest()
            self.statuses.end()

    def _feed(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=_POLL_S)
            except queue.Empty:
                if self._stop.is_set():
                    return
                continue
            if isinstance(item, _Rows):
                self._tell(Stage.WRITE, Condition.RUNNING, "writing", item.checkpoint)
                self._adapter.write(item.checkpoint, self._serializer(item.rows))
            else:
                self._complete(item)

    def _complete(self, item: _Complete) -> None:
        self._tell(Stage.COMMIT, Condition.RUNNING, "committing", item.checkpoint)
        try:
            committed = self._adapter.complete(item.checkpoint)
        except BaseException as error:
            item.done.set_exception(error)
            raise
        item.done.set_result(committed)

    def _refuse_rest(self) -> None:
        """Nobody waits for ever for a checkpoint that will not be completed."""
        while True:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return
            if isinstance(item, _Complete):
                item.done.set_exception(self.error or InvalidState(f"the sink {self.name} was stopped"))

    def _tell(self, stage: Stage, condition: Condition, message: str, checkpoint: int | None = None) -> None:
        self.statuses.tell(Status(stage, condition, message, checkpoint))


class ConnectorRuntime:
    """Starts sinks by name."""

    def __init__(self, registry: ConnectorRegistry | None = None) -> None:
        self.registry = registry or ConnectorRegistry()

    def start_sink(
        self, name: str, options: Options, serializer: Serializer = pass_through, *, queue_length: int = 16
    ) -> SinkHandle:
        """A sink with a thread that feeds it. `serializer` makes Arrow, or a DataFrame, of what is handed over."""
        return SinkHandle(name, self.registry.create(name, options), serializer, queue_length)
