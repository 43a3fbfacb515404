"""The sink: epochs of rows in, one snapshot or version each, every epoch exactly once.

    new → open → (begin_epoch → write_batch* → commit_epoch, or rollback_epoch)* → close

It is a pipeline's coordinator and writers without a source: the caller says where an epoch begins and ends, and
hands it over again if it does not know what became of it. What the table says of the writer decides whether it has
landed: `protocol/stream.py`. (A sink that is content with at least once asks nobody: `appends.py`.)

    what goes wrong                     what becomes of the epoch
    a batch cannot be written           it lacks rows: it can only be rolled back
    a commit raises                     its outcome is unknown: commit again, which looks first; or roll back, which
                                        claims the table anew, so that what was sent cannot land any more
    the process dies                    it has landed or not; the next open tells, its files stay if it has not
    another sink opens as this writer   it is refused: Fenced
    close                               an epoch that is open is rolled back, never committed
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog

from frazil.commit import World
from frazil.commit.world import this_process
from frazil.errors import FrazilError, InvalidState, TransientError
from frazil.protocol.stream import EPOCH_MAX
from frazil.sink.appends import Appends
from frazil.sink.claim import Claim
from frazil.sink.config import SinkConfig
from frazil.sink.facts import Capabilities, Committed, ConnectorInfo, Health, Metrics, State, Tally, Written
from frazil.sink.hold import Hold
from frazil.sink.info import capabilities, describe
from frazil.sink.staging import Limits, OpenEpoch, batches_of, with_changes
from frazil.sink.tables import must_evolve, open_table, schema_of
from frazil.table import LakeTable
from frazil.table.files import WriteTarget

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyspark.sql import DataFrame, SparkSession

log = structlog.get_logger()


class Sink:
    """One writer of one table. Several threads may use it, and take turns; how it is can be asked at any time."""

    def __init__(
        self, config: SinkConfig, spark: SparkSession | None = None, *, world: World | None = None
    ) -> None:
        self._config = config
        self._world = world or World(process=this_process())
        self._spark = spark
        self._turn = threading.RLock()
        self._state = State.CREATED
        self._claim: Hold | None = None
        self._epoch: OpenEpoch | None = None
        self._tally = Tally()
        self._last_success: datetime | None = None
        self._trouble: str | None = None

    # -- what it is

    @property
    def config(self) -> SinkConfig:
        return self._config

    @property
    def state(self) -> State:
        return self._state

    def info(self) -> ConnectorInfo:
        """What kind of sink it is, and every option there is."""
        return describe(self._config)

    def capabilities(self) -> Capabilities:
        """What it can do, as it is configured."""
        return capabilities(self._config)

    # -- its life

    def open(self) -> Sink:
        """Finds the table, or creates it if its columns are declared, and claims it: older sinks are fenced.

        Without a table and without columns, the first batch creates it.
        """
        with self._turn, self._noting():
            self._require(State.CREATED)
            table = open_table(self._config, self._needed_spark(), None)
            if table is None:
                log.info("table is missing: the first batch creates it", table=self._config.table.name)
            else:
                self._take(table)
            self._state = State.RUNNING
            self._tally = Tally()
            log.info("sink opened", table=self._config.table.name, last_epoch=self.last_committed_epoch())
        return self

    def close(self) -> None:
        """Rolls back an epoch that is open; commits nothing."""
        with self._turn:
            epoch, self._epoch = self._epoch, None
            if self._state is State.RUNNING:
                log.info("sink closed", table=self._config.table.name)
            self._state = State.STOPPED
            if epoch is None:
                return
            if epoch.has_rows:
                log.warning("sink closed inside an epoch: it is rolled back", epoch=epoch.number)
            epoch.abort()
            if self._claim is not None and not epoch.sent:
                self._claim.delete(epoch.staged.files)

    def __enter__(self) -> Sink:
        return self if self._state is State.RUNNING else self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- epochs

    def begin_epoch(self, epoch: int) -> None:
        """Begins an epoch; one that is still open is rolled back first. One that has landed is a no-op."""
        with self._turn, self._noting():
            self._require(State.RUNNING)
            epoch = _number(epoch)
            if self._epoch is not None:
                log.warning("an epoch was open and is rolled back", epoch=self._epoch.number, next=epoch)
                self._roll_back(self._epoch)
            skipped = self._has_landed(epoch)
            if skipped:
                last = self.last_committed_epoch()
                log.warning("epoch has landed before: its rows are dropped", epoch=epoch, last=last)
            opened = OpenEpoch(epoch, self._config.writer_name, self._tally, skipped=skipped)
            if self._claim is not None and not skipped:
                self._prepare(opened, self._claim)
            self._epoch = opened

    def write_batch(self, batch: pa.RecordBatch | pa.Table | DataFrame) -> Written:
        """Takes rows of the open epoch into files that no table knows yet."""
        with self._turn, self._noting():
            epoch = self._filling("write_batch")
            if epoch.skipped:
                return Written(0, 0)
            began = time.monotonic()
            with _spoiling(epoch):
                written = self._write(epoch, batch)
            self._tally.took(written, time.monotonic() - began)
            return written

    def flush(self) -> None:
        """Puts rows that wait in memory into files; nobody can see them before the commit."""
        with self._turn, self._noting():
            epoch = self._filling("flush")
            with _spoiling(epoch):
                epoch.flush()

    def commit_epoch(self, epoch: int) -> Committed | None:
        """Lands the open epoch in one snapshot or version, also one without rows; None if it had landed before."""
        with self._turn, self._noting():
            self._require(State.RUNNING)
            epoch = _number(epoch)
            if self._is_replay(epoch):
                log.warning("epoch has landed before", epoch=epoch, last=self.last_committed_epoch())
                self._epoch = None
                return None
            opened = self._opened("commit_epoch")
            if opened.number != epoch:
                raise InvalidState(
                    f"epoch {epoch} is not the one that was begun",
                    f"commit or roll back epoch {opened.number}",
                    actual=str(epoch),
                    expected=str(opened.number),
                )
            return self._commit(opened)

    def rollback_epoch(self, epoch: int) -> None:
        """Gives the open epoch up, and deletes its files; it may be begun again. Not of one that has landed."""
        with self._turn, self._noting():
            self._require(State.RUNNING)
            opened = self._epoch
            if opened is None or opened.number != epoch:
                if self._has_landed(epoch):
                    raise _landed(epoch)
                return
            self._roll_back(opened)
            if not opened.skipped and self._has_landed(epoch):
                raise _landed(epoch)

    # -- how it is

    def last_committed_epoch(self) -> int | None:
        """The last epoch of this stream that is in the table; 0 before the first, None with at-least-once."""
        return self._kind.nothing if self._claim is None else self._claim.last

    def schema(self) -> Schema | None:
        """The table's columns; None while there is no table."""
        return None if self._claim is None else self._claim.table.schema()

    def health_check(self) -> Health:
        """How the sink is, by what it met last."""
        details = {"table": self._config.table.path or self._config.table.name}
        if (claim := self._claim) is not None:
            kind = "snapshot" if self._config.table.format == "iceberg" else "version"
            told = {kind: claim.version, "last_committed_epoch": claim.last}
            details |= {key: str(value) for key, value in told.items() if value is not None}
        healthy = self._state is State.RUNNING and self._trouble is None
        return Health(healthy, self._trouble or self._state.value, self._last_success, details)

    def metrics(self) -> Metrics:
        """Counts since it was opened."""
        epoch, claim = self._epoch, self._claim
        custom = {"pending_files": len(epoch.staged.files) if epoch else 0}
        if claim is not None and claim.version is not None:
            custom["snapshot_id" if self._config.table.format == "iceberg" else "delta_version"] = claim.version
        return self._tally.metrics(epoch.staged.taken if epoch else 0, custom)

    # -- how it is done

    @property
    def _kind(self) -> type[Hold]:
        return Claim if self._config.is_exactly_once else Appends

    def _take(self, table: LakeTable) -> Hold:
        self._claim = self._kind(self._config, table, self._world)
        self._succeeded()
        return self._claim

    def _prepare(self, epoch: OpenEpoch, claim: Hold) -> None:
        target, told = claim.write_target(), self._config.buffer
        max_age_s = None if told.max_age == "off" else told.max_age
        epoch.prepare(
            with_changes(target, self._config.columns.sequence_by),
            Limits(told.max_records, target.target_file_size_bytes, max_age_s),
            claim.ordinal(epoch.number),
        )

    def _write(self, epoch: OpenEpoch, batch: pa.RecordBatch | pa.Table | DataFrame) -> Written:
        if isinstance(batch, pa.RecordBatch | pa.Table):
            self._require_target(epoch, lambda: batch.schema, None)
            epoch.write(list(batches_of(batch)), lambda: self._flush_overdue(epoch))
            return Written(batch.num_rows, batch.nbytes)
        return self._write_frame(epoch, batch)

    def _write_frame(self, epoch: OpenEpoch, rows: DataFrame) -> Written:
        from pyspark.sql import DataFrame

        from frazil.sink.frames import FramePlan, arrow_schema, require_alone, write_frame

        if not isinstance(rows, DataFrame):
            raise TypeError(f"a batch is an Arrow RecordBatch or Table, or a DataFrame, not {type(rows).__name__}")
        target = self._require_target(epoch, lambda: arrow_schema(rows), rows.sparkSession)
        require_alone(rows, target, epoch)
        reports = write_frame(rows, FramePlan(self._config.writer_name, epoch.ordinal, target, epoch.token))
        epoch.add(reports)
        size = sum(file.file_size_bytes for report in reports for file in report.files)
        return Written(sum(report.taken for report in reports), size)

    def _require_target(
        self, epoch: OpenEpoch, arriving: Callable[[], pa.Schema], spark: SparkSession | None
    ) -> WriteTarget:
        """Where the rows go; the first batch of all creates the table if nobody else did, others may evolve it."""
        if epoch.target is None or must_evolve(self._config, epoch, arriving):
            table = open_table(self._config, self._needed_spark(spark), schema_of(arriving(), self._config))
            assert table is not None
            self._prepare(epoch, self._claim or self._take(table))
        assert epoch.target is not None
        return epoch.target

    def _needed_spark(self, spark: SparkSession | None = None) -> SparkSession | None:
        """Spark's JVM asks Iceberg's catalogs, and merges changes of Delta tables; nothing else needs it."""
        if self._config.table.format == "delta" and self._config.table.mode != "upsert":
            return self._spark or spark
        if self._spark is None:
            from frazil.engine.lakehouse import jar_sets, start_conf
            from frazil.spark import open_session

            told, name = self._config.spark, f"frazil {self._config.writer_name}"
            conf = start_conf(self._config) | told.conf
            self._spark = spark or open_session(
                name, master=told.master, conf=conf, jar_sets=jar_sets(self._config)
            )
        return self._spark

    def _flush_overdue(self, epoch: OpenEpoch) -> None:
        """On a thread of its own: nobody else may come by before the rows have waited for too long."""
        with self._turn:
            if self._epoch is not epoch or epoch.failed is not None:
                return
            try:
                with self._noting(), _spoiling(epoch):
                    epoch.flush()
            except Exception as error:  # kept in the epoch, which cannot be committed any more
                log.warning("rows could not be flushed", epoch=epoch.number, error=str(error))

    def _has_landed(self, epoch: int) -> bool:
        return self._claim is not None and self._claim.has(epoch)

    def _is_replay(self, epoch: int) -> bool:
        """Whether it has landed, and nothing was taken for it."""
        opened = self._epoch
        if opened is None:
            return self._has_landed(epoch)
        return opened.skipped and opened.number == epoch

    def _commit(self, epoch: OpenEpoch) -> Committed | None:
        if self._claim is None:
            log.warning("epoch had no rows, and there is no table to note it in", epoch=epoch.number)
            self._epoch = None
            return None
        with _spoiling(epoch):
            staged = epoch.complete()
        landed = self._claim.land(epoch, staged)
        self._epoch = None
        self._succeeded()
        if landed is None:
            log.info("commit had landed", epoch=epoch.number)
            if not epoch.sent:
                self._claim.delete(staged.files)
            return None
        self._tally.commits += 1
        log.info(
            "epoch committed", epoch=epoch.number, rows=staged.taken, files=landed.files, version=landed.version
        )
        return landed

    def _roll_back(self, epoch: OpenEpoch) -> None:
        """Files that were sent are deleted only once a new claim has made sure that they cannot land any more."""
        epoch.abort()
        if self._claim is not None and (not epoch.sent or self._claim.forsake(epoch.number)):
            self._claim.delete(epoch.staged.files)
        self._epoch = None
        if not epoch.skipped:
            log.info("epoch rolled back", epoch=epoch.number, rows=epoch.staged.taken)

    def _require(self, expected: State) -> None:
        if self._state is not expected:
            remedy = {
                State.CREATED: "call open() first",
                State.RUNNING: "a sink is opened once",
                State.STOPPED: "make a new one",
            }[self._state]
            raise InvalidState(
                f"the sink is {self._state.value}", remedy, actual=self._state.value, expected=expected.value
            )

    def _opened(self, deed: str) -> OpenEpoch:
        """The epoch that was begun, if it can go on."""
        self._require(State.RUNNING)
        if self._epoch is None:
            raise InvalidState(
                f"{deed}: no epoch was begun",
                "call begin_epoch() first",
                actual="between epochs",
                expected="in an epoch",
            )
        if self._epoch.failed is not None:
            raise InvalidState(
                f"{deed}: epoch {self._epoch.number} has failed and lacks rows: {self._epoch.failed.message}",
                f"roll it back with rollback_epoch({self._epoch.number}), and write it again",
                actual="failed",
                expected="in an epoch",
            )
        return self._epoch

    def _filling(self, deed: str) -> OpenEpoch:
        """The epoch that was begun, if its rows can still be added to."""
        epoch = self._opened(deed)
        if epoch.sent:
            raise InvalidState(
                f"{deed}: a commit of epoch {epoch.number} was tried and may have landed, without these rows",
                f"commit_epoch({epoch.number}) once more, or roll it back",
                actual="committing",
                expected="in an epoch",
            )
        return epoch

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Keeps what went wrong for whoever asks how the sink is."""
        try:
            yield
        except InvalidState:
            self._tally.errors += 1
            raise
        except Exception as error:
            self._tally.errors += 1
            self._trouble = f"{error.label}: {error.message}" if isinstance(error, FrazilError) else str(error)
            raise

    def _succeeded(self) -> None:
        self._last_success, self._trouble = datetime.now(UTC), None


@contextmanager
def _spoiling(epoch: OpenEpoch) -> Iterator[None]:
    """An epoch that a batch of is missing must never be committed."""
    try:
        yield
    except FrazilError as error:
        epoch.failed = error
        raise
    except BaseException as error:
        epoch.failed = TransientError(f"{type(error).__name__}: {error}")
        raise


def _number(epoch: int) -> int:
    if isinstance(epoch, bool) or not 1 <= epoch <= EPOCH_MAX:
        raise InvalidState(
            f"{epoch} is no epoch", "epochs are counted from 1 on", actual=str(epoch), expected=f"1 to {EPOCH_MAX}"
        )
    return operator.index(epoch)


def _landed(epoch: int) -> InvalidState:
    return InvalidState(
        f"epoch {epoch} has landed and cannot be rolled back",
        "roll the table itself back if its rows must go",
        actual="committed",
        expected="an open epoch",
    )
