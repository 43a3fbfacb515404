"""Upsert: the same changes land in the same table, by frazil and by `MERGE INTO`.

    python -m bench.upsert --rows 1m,5m,20m --changes 100k --epochs 3 --read-epochs 1,10,50
    python -m bench.upsert --rows 1m --changes 50k --read-epochs 1,5      a quick one

The keys of an epoch are spread over the whole table, which is what makes a merge read all of it. After two epochs
to warm up, which must leave the same content everywhere, epochs are landed in turns; ratios are medians over the
epochs. Then the smallest table goes on, to see what the epochs cost its readers, before a compaction and after.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich import box
from rich.console import Console
from rich.table import Table as Grid

from bench.append import WrongRows, bench_session
from bench.changes import ChangeTopic, base_rows
from bench.meter import Cost, Meter
from bench.orders import Chance
from bench.pipeline import CATALOG
from bench.upserters import FrazilUpsert, MergeInto, Upserter, create_table
from frazil.demo.broker import Broker

FRAZIL, MERGE_V2, MERGE_V3 = "frazil", "merge-v2", "merge-v3"
EVERYBODY = (FRAZIL, MERGE_V2, MERGE_V3)

_WARM_UP_EPOCHS = 2
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
# The default of 200 tasks would only hold up a merge on a machine of a few cores.
_CONF = {"spark.sql.shuffle.partitions": "8", "spark.driver.memory": "4g"}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_out = Console()
_err = Console(stderr=True)

Costs = dict[str, list[Cost]]


@dataclass
class Reads:
    """How long a read of the whole table takes, in seconds: by epochs landed, and after a compaction."""

    after_epochs: dict[int, float] = field(default_factory=dict)
    compaction_s: float = 0.0
    compacted_s: float = 0.0


@app.command()
def main(
    rows: Annotated[str, typer.Option(help="sizes of the table, such as 1m,5m,20m")] = "1m,5m,20m",
    changes: Annotated[str, typer.Option(help="changes an epoch, such as 50k")] = "100k",
    epochs: Annotated[int, typer.Option(min=1, help="epochs that count, for each size")] = 3,
    read_epochs: Annotated[str, typer.Option(help="read the smallest table after so many epochs")] = "1,10,50",
    by: Annotated[str, typer.Option(help="who takes part")] = ",".join(EVERYBODY),
    as_json: Annotated[bool, typer.Option("--json", help="end with one line of JSON")] = False,
) -> None:
    """Measures how fast changes land in an Iceberg table, beside MERGE INTO, and what they cost its readers."""
    sizes, per_epoch, names = sorted(map(parse_count, rows.split(","))), parse_count(changes), by.split(",")
    if strangers := sorted(set(names) - set(EVERYBODY)):
        raise typer.BadParameter(f"{strangers[0]} is not among {', '.join(EVERYBODY)}")
    looks = sorted(int(each) for each in read_epochs.split(",") if each)
    costs: dict[int, Costs] = {}
    reads: dict[str, Reads] = {}
    with _warehouse() as warehouse, bench_session(warehouse, _CONF) as spark, Broker() as broker:
        stage = Stage(spark, warehouse, broker, Meter(besides=[broker.pid]))
        for size in sizes:
            contest = Contest(stage, size, names, looks if size == sizes[0] else [])
            costs[size] = contest.run(per_epoch, epochs)
            reads |= contest.finish_reads(per_epoch)
            contest.close()
    _print_costs(costs, per_epoch, epochs)
    if looks:
        _print_reads(reads, looks, sizes[0], per_epoch)
    if as_json:
        print(json.dumps(summary(costs, reads, per_epoch)))


@dataclass(frozen=True)
class Stage:
    """What all contests share."""

    spark: SparkSession
    warehouse: Path
    broker: Broker
    meter: Meter


class Contest:
    """Tables of one size, one for everybody, and one topic of changes for all of them."""

    def __init__(self, stage: Stage, rows: int, names: Sequence[str], looks: Collection[int]) -> None:
        self._stage = stage
        self._label = format_count(rows)
        self._looks = looks
        self._epochs = 0
        self._topic = ChangeTopic(stage.broker, f"changes-{self._label}", rows, Chance())
        self._upserters = [self._upserter(name) for name in names]
        self._reads = {name: Reads() for name in names} if looks else {}
        _err.print(f"{self._label}: writing the table …")
        create_table(stage.spark, self._base, format_version=2)
        base_rows(stage.spark, rows).writeTo(f"{CATALOG}.{self._base}").append()
        for each in self._upserters:
            each.open(self._base)

    def run(self, changes: int, epochs: int) -> Costs:
        """Lands a few epochs to warm up and to compare, then the ones that count."""
        for _ in range(_WARM_UP_EPOCHS):
            self._land(changes)
            self._require_same()
            self._look()
        landed = [self._land_and_look(changes) for _ in range(epochs)]
        self._require_same()
        return {each.name: [costs[each.name] for costs in landed] for each in self._upserters}

    def finish_reads(self, changes: int) -> dict[str, Reads]:
        """Goes on to the last epoch that is looked at, then compacts the tables and looks again."""
        if not self._looks:
            return {}
        while self._epochs < max(self._looks):
            self._land_and_look(changes)
        for each in self._upserters:
            reads = self._reads[each.name]
            reads.compaction_s = self._stage.meter.measure(partial(self._compact, each)).wall_s
            reads.compacted_s = self._read(each)
            self._tell(
                each.name, f"compacted in {reads.compaction_s:.2f} s, then read in {reads.compacted_s:.2f} s"
            )
        self._require_same()
        return self._reads

    def close(self) -> None:
        """Makes room on the disk for the next size."""
        for table in [*(each.table for each in self._upserters), self._base]:
            self._stage.spark.sql(f"DROP TABLE {CATALOG}.{table}")
        shutil.rmtree(self._stage.warehouse / self._namespace)

    @property
    def _namespace(self) -> str:
        return f"upsert_{self._label}"

    @property
    def _base(self) -> str:
        return f"{self._namespace}.base"

    def _upserter(self, name: str) -> Upserter:
        spark, table = self._stage.spark, f"{self._namespace}.{name.replace('-', '_')}"
        if name == FRAZIL:
            return FrazilUpsert(name, table, spark, self._topic, self._stage.warehouse)
        return MergeInto(name, table, spark, self._topic, format_version=int(name[-1]))

    def _land_and_look(self, changes: int) -> dict[str, Cost]:
        costs = self._land(changes)
        self._look()
        return costs

    def _land(self, changes: int) -> dict[str, Cost]:
        """One epoch, by everybody in turn."""
        self._topic.grow(changes)
        self._epochs += 1
        # Nobody is always the one who goes after another's garbage.
        first = self._epochs % len(self._upserters)
        costs = {}
        for each in self._upserters[first:] + self._upserters[:first]:
            costs[each.name] = self._stage.meter.measure(each.land)
            cost = costs[each.name]
            self._tell(each.name, f"epoch {self._epochs}: {cost.wall_s:6.2f} s, {cost.cpu_s:6.2f} s CPU")
        return costs

    def _look(self) -> None:
        if self._epochs in self._looks:
            for each in self._upserters:
                self._reads[each.name].after_epochs[self._epochs] = taken_s = self._read(each)
                self._tell(each.name, f"read after epoch {self._epochs}: {taken_s:.2f} s")

    def _read(self, upserter: Upserter) -> float:
        """Seconds to read every value of the table; the better of two tries."""
        read = partial(self._fingerprint, upserter)
        return min(self._stage.meter.measure(read).wall_s for _ in range(2))

    def _compact(self, upserter: Upserter) -> None:
        options = "options => map('delete-file-threshold', '1')"
        self._stage.spark.sql(
            f"CALL {CATALOG}.system.rewrite_data_files(table => '{upserter.table}', {options})"
        ).collect()

    def _require_same(self) -> None:
        found = {each.name: self._fingerprint(each) for each in self._upserters}
        if len(set(found.values())) != 1:
            raise WrongRows(f"after epoch {self._epochs} of {self._label} the tables hold (rows, content): {found}")

    def _fingerprint(self, upserter: Upserter) -> tuple[int, str]:
        """Rows, and a sum over hashes of whole rows, which does not depend on their order."""
        counted = "count(*)", "sum(CAST(xxhash64(*) AS DECIMAL(38, 0)))"
        row = self._stage.spark.table(f"{CATALOG}.{upserter.table}").selectExpr(*counted).collect()[0]
        return row[0], str(row[1])

    def _tell(self, name: str, what: str) -> None:
        _err.print(f"{self._label} {name:<9} {what}", highlight=False)


def parse_count(text: str) -> int:
    """50k is 50,000 and 20m is 20,000,000."""
    found = re.fullmatch(r"(\d+)([km]?)", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise typer.BadParameter(f"{text!r} is not a number such as 50000, 50k or 20m")
    return int(found[1]) * _UNITS[found[2]]


def format_count(count: int) -> str:
    """The shortest way to say it that `parse_count` understands."""
    return next(f"{count // _UNITS[unit]}{unit}" for unit in ("m", "k", "") if count % _UNITS[unit] == 0)


def wall_ratio(ours: Sequence[Cost], theirs: Sequence[Cost]) -> float:
    return statistics.median(a.wall_s / b.wall_s for a, b in zip(ours, theirs, strict=True))


def cpu_ratio(ours: Sequence[Cost], theirs: Sequence[Cost]) -> float:
    return statistics.median(a.cpu_s / b.cpu_s for a, b in zip(ours, theirs, strict=True))


def summary(costs: Mapping[int, Costs], reads: Mapping[str, Reads], changes: int) -> dict[str, float]:
    """Ratios are frazil's time beside that of the faster merge; growth is that of frazil's time."""
    found: dict[str, float] = {"changes": changes}
    for size, by_name in costs.items():
        label = format_count(size)
        for name, each in by_name.items():
            found[f"wall_s_{_plain(name)}_{label}"] = round(_wall_s(each), 3)
        if rival := _rival(by_name):
            ours = by_name[FRAZIL]
            found[f"wall_ratio_{label}"] = round(wall_ratio(ours, by_name[rival]), 3)
            found[f"cpu_ratio_{label}"] = round(cpu_ratio(ours, by_name[rival]), 3)
    smallest = min(costs)
    for size in costs:
        if size != smallest and FRAZIL in costs[size]:
            growth = _wall_s(costs[size][FRAZIL]) / _wall_s(costs[smallest][FRAZIL])
            found[f"growth_{format_count(size)}_over_{format_count(smallest)}"] = round(growth, 3)
    for name, read in reads.items():
        for epochs, taken_s in read.after_epochs.items():
            found[f"read_s_{_plain(name)}_{epochs}"] = round(taken_s, 3)
        found[f"read_s_{_plain(name)}_compacted"] = round(read.compacted_s, 3)
    return found


def _rival(by_name: Costs) -> str | None:
    """The faster of those who merge; nobody where frazil does not take part."""
    merges = [name for name in by_name if name != FRAZIL]
    if FRAZIL not in by_name or not merges:
        return None
    return min(merges, key=lambda name: _wall_s(by_name[name]))


def _wall_s(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.wall_s for cost in costs)


def _cpu_s(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.cpu_s for cost in costs)


def _plain(name: str) -> str:
    return name.replace("-", "_")


@contextmanager
def _warehouse() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="frazil-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _print_costs(costs: Mapping[int, Costs], changes: int, epochs: int) -> None:
    grid = _grid(
        f"{changes:,} changes an epoch, keys spread over the whole table, median of {epochs}",
        "time, CPU: frazil's ÷ theirs, lower is better. CPU: Python and JVM together.",
        ("table", "by"),
        ("s", "CPU s", "time", "CPU"),
    )
    for size, by_name in costs.items():
        for name, each in by_name.items():
            ratios = ["", ""]
            if name != FRAZIL and (ours := by_name.get(FRAZIL)):
                ratios = [f"{wall_ratio(ours, each):.2f}", f"{cpu_ratio(ours, each):.2f}"]
            grid.add_row(f"{size:,} rows", name, f"{_wall_s(each):.2f}", f"{_cpu_s(each):.2f}", *ratios)
        grid.add_section()
    _out.print(grid)


def _print_reads(reads: Mapping[str, Reads], looks: Sequence[int], rows: int, changes: int) -> None:
    grid = _grid(
        f"Seconds to read the table of {rows:,} rows, after epochs of {changes:,} changes",
        "compaction: rewrite_data_files of every file that has deletes.",
        ("by",),
        (*(f"{look} epoch{'s' if look > 1 else ''}" for look in looks), "compaction", "then"),
    )
    for name, each in reads.items():
        taken = [each.after_epochs[look] for look in looks]
        grid.add_row(name, *(f"{s:.2f}" for s in [*taken, each.compaction_s, each.compacted_s]))
    _out.print(grid)


def _grid(title: str, caption: str, names: Sequence[str], numbers: Sequence[str]) -> Grid:
    grid = Grid(title=title, caption=caption, box=box.SIMPLE_HEAD, show_edge=False)
    for heading in names:
        grid.add_column(heading, no_wrap=True)
    for heading in numbers:
        grid.add_column(heading, justify="right")
    return grid


if __name__ == "__main__":
    app(prog_name="python -m bench.upsert")
