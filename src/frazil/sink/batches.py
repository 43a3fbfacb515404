"""For Structured Streaming: a function that lands each micro-batch of a query exactly once.

A query numbers its batches, and after a crash it runs the last one again, with the same rows. Its id is kept in its
checkpoint. So batch and id are all that is needed: an epoch and a stream.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from frazil.engine.events import Event, Retrying
from frazil.engine.run import Patience
from frazil.errors import ConfigError, SourceChanged
from frazil.sink.checkpoints import epoch_of
from frazil.sink.config import SinkConfig
from frazil.sink.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = structlog.get_logger()

_QUERY_ID = "sql.streaming.queryId"


class BatchLander:
    """Called by Spark with each batch of a query and its number; `close` is for a query that has ended."""

    def __init__(self, config: SinkConfig) -> None:
        if config.writer.stream is not None:
            raise ConfigError(
                "writer.stream: a query has an id of its own, by which a lost checkpoint is noticed",
                "leave it out in foreach_batch",
            )
        self._config = config
        self._sink: Sink | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if query is None:
            raise ConfigError("this is no batch of a streaming query", "hand it to writeStream.foreachBatch(…)")
        # Whatever a fault left behind, a new sink finds out from the table.
        Patience(_tell, threading.Event()).starting(lambda: self._land(batch, epoch_of(batch_id), query))

    def close(self) -> None:
        """Lets go of the sink; the next batch opens another one."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _land(self, batch: DataFrame, epoch: int, query: str) -> None:
        try:
            sink = self._opened(batch, query)
            _require_latest(epoch, sink.last_committed_epoch(), query)
            sink.begin_epoch(epoch)
            sink.write_batch(batch)
            sink.commit_epoch(epoch)
        except BaseException:
            self.close()
            raise

    def _opened(self, batch: DataFrame, query: str) -> Sink:
        if self._sink is not None and self._sink.config.stream != query:
            self.close()
        if self._sink is None:
            self._sink = Sink(self._config.of_stream(query), batch.sparkSession)
            self._sink.open()
        return self._sink


def foreach_batch(config: SinkConfig) -> BatchLander:
    """For `df.writeStream.foreachBatch(foreach_batch(config))`; the query needs a checkpoint to be resumed."""
    return BatchLander(config)


def _require_latest(epoch: int, last: int | None, query: str) -> None:
    """A query runs no batch again but its last one; an older one means that its checkpoint was set back."""
    if last is not None and epoch < last:
        raise SourceChanged(
            f"the query {query} runs batch {epoch - 1}, and batches up to {last - 1} have landed: its checkpoint "
            "is older than the table",
            "bring its latest checkpoint back; what it reads now may be divided into batches otherwise than before",
        )


def _tell(event: Event) -> None:
    if isinstance(event, Retrying):
        log.warning("batch is tried again", reason=event.reason, attempt=event.attempt, delay_s=event.delay_s)
