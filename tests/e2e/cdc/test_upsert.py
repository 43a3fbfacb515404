"""PostgreSQL, Debezium, Kafka, frazil, Iceberg: at every point of comparison the tables are the same."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.cdc.compare import iceberg_rows, postgres_rows, require_same
from tests.e2e.cdc.feed import Shop
from tests.e2e.cdc.tables import CUSTOMERS, ORDERS, TABLES, Table
from tests.e2e.conftest import Rig
from tests.e2e.test_process import MOMENTS, running, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sections(table: Table, **changes: Any) -> dict[str, dict[str, Any]]:
    """What the pipeline of a table has that others do not."""
    return {
        "pipeline": {"name": table.name},
        "decode": {
            "format": "json",
            "envelope": "debezium",
            "schema": table.ddl,
            "epoch_unit": table.epoch_units or None,
        },
        "table": {"name": f"shop.{table.name}", "mode": "upsert", "keys": list(table.key_names)},
        "changes": changes,
    }


pytestmark = pytest.mark.real


def make_rigs(spark: SparkSession, shop: Shop, folder: Path, **changes: Any) -> dict[Table, Rig]:
    """A pipeline for each table, all of them in one warehouse."""
    return {
        table: Rig(spark, shop.bootstrap, shop.topic(table), folder, **sections(table, **changes))
        for table in TABLES
    }


def require_landed(spark: SparkSession, shop: Shop, table: Table, rig: Rig) -> None:
    """The table has what PostgreSQL has, no record was put aside, and the frontier is the topic's end."""
    require_same(table, postgres_rows(shop.connection, table), iceberg_rows(spark, table, rig.table))
    assert rig.sql("SELECT partition, offset, error FROM {dead} LIMIT 5") == []
    register = rig.open_table().observe(table.name).register
    assert register is not None
    landed = {partition: position.offset for (_, partition), position in register.frontier.positions.items()}
    assert landed == shop.ends(table)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("trust_inserts", "comparisons"), [(False, 10), (True, 4)])
def test_the_tables_are_those_of_postgres_at_every_point_of_comparison(
    spark: SparkSession, open_shop: Callable[[int], Shop], tmp_path: Path, trust_inserts: bool, comparisons: int
) -> None:
    """TEST-14, FAULT-17: rows from before the feed, small and big transactions, changed keys, all types."""
    shop = open_shop(41)
    shop.workload.fill(300)
    shop.follow()
    rigs = make_rigs(spark, shop, tmp_path, trust_inserts=trust_inserts)
    for number in range(comparisons):
        shop.workload.run(30)
        if number == 1:
            shop.workload.insert_many(ORDERS)
        if number == 2:
            shop.workload.change_many(ORDERS)
        shop.settle()
        for table, rig in rigs.items():
            rig.run()
            require_landed(spark, shop, table, rig)


class Restless(threading.Thread):
    """Lets the workload go on until told to stop; a failure comes out of `finish`."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(daemon=True)
        self._shop = shop
        self._enough = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._enough.wait(0.02):
                self._shop.workload.step()
        except BaseException as failure:
            self._failure = failure

    def finish(self) -> None:
        self._enough.set()
        self.join()
        if self._failure is not None:
            raise self._failure


@pytest.mark.timeout(900)
def test_killed_while_the_workload_goes_on_the_table_is_that_of_postgres_in_the_end(
    spark: SparkSession, open_shop: Callable[[int], Shop], tmp_path: Path
) -> None:
    """FAULT-01, FAULT-02, FAULT-03, FAULT-16: SIGKILL of the whole process group at random moments."""
    shop = open_shop(43)
    shop.workload.fill(500)
    shop.follow()
    shop.settle()
    rig = make_rigs(spark, shop, tmp_path)[CUSTOMERS]
    rig.tree["epoch"] = {"interval": "300ms"}
    file = write_pipeline(rig)
    dice = random.Random(43)
    restless = Restless(shop)
    restless.start()
    for message, seconds in MOMENTS.items():
        with running("run", str(file), "--take-over") as process:
            wait_for(process, message)
            time.sleep(dice.random() * seconds)
    restless.finish()
    shop.settle()

    rig.run()

    require_landed(spark, shop, CUSTOMERS, rig)


def write_pipeline(rig: Rig) -> Path:
    file = rig.folder / "pipeline.toml"
    file.write_text("\n".join(f"[{name}]\n{_lines(section)}" for name, section in rig.tree.items()))
    return file


def _lines(section: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in section.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(each)}" for key, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
