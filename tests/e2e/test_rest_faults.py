"""Faults between frazil and a real REST catalog: commits get lost, land late, land twice, or only seem to.

Most tests drive the real coordinator over the real table adapter, which takes no Spark job; the last ones are
whole runs of the engine. The table is looked at past the proxy, with another library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from frazil.commit import Coordinator, EpochOutcome, World
from frazil.engine.verify import verify_pipeline
from frazil.errors import CommitOutcomeUnknown, Fenced, UnsupportedCatalog
from frazil.pipeline.spec import CatalogSection
from frazil.protocol.positions import Frontier, Position, Range, Span
from frazil.protocol.register import Epoch
from frazil.protocol.retry import Backoff
from frazil.protocol.summary import Counts
from frazil.protocol.verify import Level
from frazil.table.iceberg import IcebergCatalog
from tests.contract.conftest import IcebergStage
from tests.e2e.conftest import Rig
from tests.services.proxy import (
    Exchange,
    Fault,
    FaultProxy,
    claimed,
    conflicting_after_success,
    down,
    dropped,
    dropped_after_success,
    failed,
    held,
    late,
    relayed,
    sent_twice,
    unavailable_after_success,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.rest import RestCatalog

pytestmark = pytest.mark.real

PARTITION = ("orders", 0)
PATIENCE = Backoff(base_s=0.05, max_s=0.5, attempts=10)


def fault_name(fault: Any) -> str:
    return str(fault.__name__)


class Shop:
    """One table of the REST catalog: frazil reaches it through the proxy, others directly."""

    def __init__(self, spark: SparkSession, proxy: FaultProxy, server: RestCatalog, name: str) -> None:
        self.proxy = proxy
        self.stage = IcebergStage(spark, CatalogSection(type="rest", uri=proxy.uri, name=name))
        self._direct = load_catalog("direct", type="rest", uri=server.uri)

    @property
    def name(self) -> str:
        return str(self.stage.table.name)

    def coordinator(self, backoff: Backoff = PATIENCE) -> Coordinator:
        one = Coordinator("pipe", self.stage.table, interval_s=0.0, world=World(), backoff=backoff)
        one.start(lambda: Frontier({PARTITION: Position(0)}, {"orders": "topic-id"}), take_over=True)
        return one

    def epoch(self, number: int) -> EpochOutcome:
        """Ten rows in one file."""
        span = Span({PARTITION: Range(number * 10 - 10, number * 10)})
        files = {self.name: [self.stage.write(10)]}
        return EpochOutcome(Epoch(number), span, Counts(delivered=10, landed=10), files)

    def append_foreign(self) -> None:
        """Somebody else adds one row, in a file of its own."""
        self._direct.load_table(self.name).append(pa.table({"id": [-1]}))

    def require_each_once(self, *landed: EpochOutcome) -> None:
        """Every epoch is in the table once and in order, and all that the head refers to can be read."""
        table = self._direct.load_table(self.name)
        ours = sorted(file.path for outcome in landed for file in outcome.files[self.name])
        live = [task.file.file_path for task in table.scan().plan_files()]
        assert sorted(path for path in live if path in ours) == ours
        rows = table.scan().to_arrow()["id"].to_pylist()
        assert len([row for row in rows if row > 0]) == 10 * len(landed)
        assert rows.count(-1) == len(live) - len(ours)
        history = [record for record in self.stage.table.history("pipe") if record.action == "append"]
        assert [record.span for record in history] == [outcome.span for outcome in landed]


@pytest.fixture
def shop(spark: SparkSession, rest_proxy: FaultProxy, rest_catalog: RestCatalog, tmp_path: Path) -> Shop:
    return Shop(spark, rest_proxy, rest_catalog, f"c{abs(hash(str(tmp_path))):x}")


LANDED = [dropped_after_success, unavailable_after_success, sent_twice, conflicting_after_success]
LOST = [dropped, down, failed(409), failed(429), failed(500), failed(502), failed(504)]


@pytest.mark.parametrize("fault", LANDED, ids=fault_name)
def test_a_commit_that_landed_is_found_whatever_was_answered(shop: Shop, fault: Fault) -> None:
    """FAULT-07, FAULT-08, FAULT-09: the start and an epoch, which 409 must not make anybody take for lost."""
    shop.proxy.arm(fault)
    one = shop.coordinator()
    first, second = shop.epoch(1), shop.epoch(2)
    shop.proxy.arm(fault)
    one.commit(first)
    assert shop.proxy.met.count(fault) == 2
    assert len(shop.proxy.met) == (4 if fault is sent_twice else 2), "only Iceberg's HTTP client sent any again"
    one.commit(second)
    shop.require_each_once(first, second)


@pytest.mark.parametrize("fault", LOST, ids=fault_name)
def test_a_commit_that_did_not_land_is_sent_again(shop: Shop, fault: Fault) -> None:
    """FAULT-07, COMMIT-09: also when the server is gone for a while and refuses connections."""
    one = shop.coordinator()
    first, second = shop.epoch(1), shop.epoch(2)
    shop.proxy.arm(fault, fault)
    one.commit(first)
    one.commit(second)
    assert shop.proxy.met[1:] == [fault, fault, relayed, relayed]
    shop.require_each_once(first, second)


def test_a_commit_that_the_catalog_only_claims_to_have_made_is_seen_and_sent_again(shop: Shop) -> None:
    """FAULT-13: 200 is answered, but the table it shows is the old one."""
    one = shop.coordinator()
    first, second = shop.epoch(1), shop.epoch(2)
    shop.proxy.arm(claimed)
    one.commit(first)
    shop.require_each_once(first)
    shop.proxy.arm(claimed, claimed)
    one.commit(second)
    shop.require_each_once(first, second)


@pytest.mark.parametrize("looks", [1, 2, 4])
def test_a_commit_that_lands_after_the_probe_said_no_is_in_once(shop: Shop, looks: int) -> None:
    """FAULT-10: during the probe, after it, and between the look and the swap of the next attempt."""
    one = shop.coordinator()
    first, second = shop.epoch(1), shop.epoch(2)
    shop.proxy.arm(late(looks))
    one.commit(first)
    assert len(shop.proxy.met) == (3 if looks == 4 else 2), "the last one meets it only when it is sent itself"
    one.commit(second)
    shop.require_each_once(first, second)


def test_a_commit_that_is_delivered_after_its_second_try_has_landed_is_refused(shop: Shop) -> None:
    """FAULT-10: at once, and again after a take-over, when everybody who knew of it is gone."""
    parked: list[Exchange] = []

    def park(exchange: Exchange) -> None:
        parked.append(exchange)
        exchange.fail(504)

    one = shop.coordinator()
    first, second = shop.epoch(1), shop.epoch(2)
    shop.proxy.arm(park)
    one.commit(first)
    assert [exchange.forward().status for exchange in parked] == [409]
    shop.coordinator().commit(second)
    assert [exchange.forward().status for exchange in parked] == [409]
    shop.require_each_once(first, second)


def test_a_coordinator_paused_in_its_commit_is_fenced_by_the_next_one(shop: Shop) -> None:
    """FAULT-05, FAULT-06: its request arrives when another one has started and landed the same epoch."""
    old = shop.coordinator()
    stale, first, second = shop.epoch(1), shop.epoch(1), shop.epoch(2)
    others: list[Coordinator] = []

    def take_over() -> None:
        others.append(shop.coordinator())
        others[0].commit(first)

    shop.proxy.arm(held(take_over))
    with pytest.raises(Fenced):
        old.commit(stale)
    others[0].commit(second)
    shop.require_each_once(first, second)


def test_foreign_commits_while_ours_are_under_way_cost_retries_only(shop: Shop) -> None:
    """COMMIT-06, COMMIT-07, FAULT-12: the server answers 409 to every second commit."""
    one = shop.coordinator()
    epochs = [shop.epoch(number) for number in range(1, 7)]
    shop.proxy.arm(*[held(shop.append_foreign), relayed] * len(epochs))
    for outcome in epochs:
        one.commit(outcome)
    assert len(shop.proxy.met) == 1 + 2 * len(epochs)
    shop.require_each_once(*epochs)


def test_a_catalog_that_stays_silent_leaves_the_files_and_the_next_start_reads_the_outcome(shop: Shop) -> None:
    """FAULT-07, FAULT-08: nobody knows whether it landed, so that nothing is cleaned up."""
    one = shop.coordinator(Backoff(base_s=0.01, max_s=0.01, attempts=3))
    first, second = shop.epoch(1), shop.epoch(2)

    def lost(exchange: Exchange) -> None:
        dropped_after_success(exchange)
        exchange.proxy.close()

    shop.proxy.arm(lost)
    with pytest.raises(CommitOutcomeUnknown, match="its files are kept"):
        one.commit(first)
    shop.proxy.open()
    shop.coordinator().commit(second)
    shop.require_each_once(first, second)


def test_a_server_that_says_it_is_nessie_is_refused_unless_somebody_vouches_for_it(
    spark: SparkSession, rest_proxy: FaultProxy
) -> None:
    """Promise D: acknowledged commits were seen to get lost there."""
    rest_proxy.overrides["nessie.is-nessie-catalog"] = "true"
    with pytest.raises(UnsupportedCatalog, match="is Nessie's REST interface"):
        IcebergCatalog(spark, CatalogSection(type="rest", uri=rest_proxy.uri))
    IcebergCatalog(spark, CatalogSection(type="rest", uri=rest_proxy.uri, vouched=True))


def test_a_rest_server_may_be_named_by_its_class(spark: SparkSession, rest_proxy: FaultProxy) -> None:
    prop = {"catalog-impl": "org.apache.iceberg.rest.RESTCatalog"}
    catalog = IcebergCatalog(spark, CatalogSection(type="rest", uri=rest_proxy.uri, prop=prop))
    assert catalog.find("nowhere.at_all") is None


@pytest.fixture
def make_rest_rig(spark: SparkSession, rest_proxy: FaultProxy, tmp_path: Path) -> Callable[[int], Rig]:
    """`make_rest_rig(records)` builds a pipeline from the generator to the REST catalog, ten records an epoch."""

    def make(records: int) -> Rig:
        catalog = {"type": "rest", "uri": rest_proxy.uri, "warehouse": None}
        return Rig(
            spark,
            "",
            "",
            tmp_path,
            source={"type": "generator", "records": records, "partitions": 1, "topics": None, "kafka": None},
            decode={"schema": "order_id BIGINT, customer STRING", "on_error": "fail"},
            table={"name": f"run_{time.time_ns():x}.orders"},
            catalog=catalog,
            epoch={"max_records": 10},
        )

    return make


def require_holds(rig: Rig, records: int) -> None:
    assert rig.offsets() == rig.every(records)
    assert [r.epoch for r in rig.open_table().history("orders") if r.action == "append"] == [
        *range(1, records // 10 + 1)
    ]
    assert verify_pipeline(rig.spec, rig.spark).level is Level.HOLDS


def test_a_run_whose_every_commit_meets_a_fault_lands_each_record_once(
    make_rest_rig: Callable[[int], Rig], rest_proxy: FaultProxy
) -> None:
    """FAULT-07, FAULT-08, FAULT-09, FAULT-10, FAULT-13: and `verify` holds."""
    faults = [
        dropped_after_success,
        unavailable_after_success,
        claimed,
        relayed,
        late(2),
        conflicting_after_success,
        down,
    ]
    rest_proxy.arm(*faults)
    rig = make_rest_rig(60)
    rig.run()
    assert rest_proxy.met[: len(faults)] == faults
    require_holds(rig, 60)


def test_a_run_paused_in_its_commit_is_fenced_by_another_run(
    make_rest_rig: Callable[[int], Rig], rest_proxy: FaultProxy
) -> None:
    """FAULT-05: the other one lands everything; the first one wakes up, finds out and stops."""
    rig = make_rest_rig(20)
    rest_proxy.arm(relayed, held(rig.run))
    with pytest.raises(Fenced):
        rig.run()
    require_holds(rig, 20)
