"""Append: the same topic lands in the same kind of table, by frazil and by Spark's own parts.

    python -m bench.append --records-1kb 100000 --records-150b 300000 --rounds 5

Beside them run the libraries alone (bench/limit.py), as the limit that no pipeline made of them can pass.

One Spark session and one broker serve all. After a round to warm up, whose tables must hold the same rows,
rounds alternate, so that whatever else the machine does disturbs everybody alike; the ratios are medians over
the rounds. What a round wrote is deleted before the next one.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer
from pyspark.sql import DataFrame, SparkSession
from rich import box
from rich.console import Console
from rich.table import Table as Grid

from bench.contestants import Contestant, Frazil, Peer
from bench.limit import Limit
from bench.meter import Cost, Meter
from bench.orders import COMPRESSION, LARGE, PARTITIONS, SMALL, Shape, Topic, fill_topic
from bench.pipeline import CATALOG, RunningPipeline, folder_of, pipeline_spec, relation
from frazil.demo.broker import Broker
from frazil.engine import assemble
from frazil.pipeline.spec import CatalogSection
from frazil.spark import open_session
from frazil.spark.jars import jars
from frazil.table.files import TableFormat
from frazil.table.iceberg import spark_catalog_conf

NATIVE, SQL, PEER, LIMIT = "frazil", "frazil SQL", "Spark", "libraries alone"
_RECORDS_A_COMMIT = 100

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_out = Console()
_err = Console(stderr=True)


class WrongRows(Exception):
    """The contestants did not land the same rows, so that their times mean nothing."""


@dataclass
class Score:
    """What one contestant needed for one topic, round by round."""

    topic: Topic
    costs: list[Cost] = field(default_factory=list)
    size: int = 0
    """bytes of the files of one round"""

    @property
    def records_per_s(self) -> float:
        return self.topic.records / statistics.median(cost.wall_s for cost in self.costs)

    @property
    def cpu_s_per_million(self) -> float:
        return statistics.median(cost.cpu_s for cost in self.costs) * 1e6 / self.topic.records

    def wall_ratio(self, peer: Score) -> float:
        return statistics.median(a.wall_s / b.wall_s for a, b in zip(self.costs, peer.costs, strict=True))

    def cpu_ratio(self, peer: Score) -> float:
        return statistics.median(a.cpu_s / b.cpu_s for a, b in zip(self.costs, peer.costs, strict=True))

    def limit_fraction(self, limit: Score) -> float:
        """What is reached of the limit's rate, in records per second of one core's time."""
        return 1 / self.cpu_ratio(limit)


Scores = dict[str, Score]


@app.command()
def main(
    records_1kb: Annotated[int, typer.Option("--records-1kb", min=1, help="orders of about 1 KB")] = 600_000,
    records_150b: Annotated[int, typer.Option("--records-150b", min=1, help="orders of about 150 B")] = 2_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="rounds that count")] = 3,
    commits: Annotated[int, typer.Option(min=1, help="commits to take the median of")] = 50,
    table_format: Annotated[
        Literal["iceberg", "delta"], typer.Option("--format", help="the format of the tables")
    ] = "iceberg",
    as_json: Annotated[bool, typer.Option("--json", help="end with one line of JSON")] = False,
) -> None:
    """Measures how fast a Kafka topic lands in a table, beside Spark's own source and the format's own writer."""
    with _warehouse() as warehouse, bench_session(warehouse) as spark, Broker() as broker:
        contest = Contest(spark, warehouse, Meter(besides=[broker.pid]), table_format)
        results = {
            shape.name: contest.run(_fill(broker, shape, records), rounds)
            for shape, records in ((LARGE, records_1kb), (SMALL, records_150b))
        }
        commit_ms = measure_commits(spark, warehouse, commits, table_format)
    _print_table(results, rounds, commit_ms, table_format)
    if as_json:
        print(json.dumps(_summary(results, commit_ms)))


class Contest:
    """Lets everybody land the same topic, in turns."""

    def __init__(
        self, spark: SparkSession, warehouse: Path, meter: Meter, table_format: TableFormat = "iceberg"
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._meter = meter
        self._format = table_format
        self._tables = 0
        self._contestants: list[Contestant] = [
            Frazil(NATIVE, spark, warehouse, table_format),
            Frazil(SQL, spark, warehouse, table_format, sql="SELECT * FROM source"),
            Peer(PEER, spark, warehouse, table_format),
        ]

    def run(self, topic: Topic, rounds: int) -> Scores:
        scores = {name: Score(topic) for name in [*(each.name for each in self._contestants), LIMIT]}
        self._warm_up(topic)
        for number in range(rounds):
            # Nobody is always the one who goes after the peer and its garbage.
            first = number % len(self._contestants)
            for each in self._contestants[first:] + self._contestants[:first]:
                self._round(each, scores[each.name])
            scores[LIMIT].costs.append(self._measure_limit(topic, f"round {number + 1}"))
        return scores

    def _warm_up(self, topic: Topic) -> None:
        found = {}
        for each in self._contestants:
            table = self._next_table()
            cost = self._meter.measure(each.prepare(topic, table))
            found[each.name] = self._fingerprint(table)
            self._drop(table)
            _tell(topic, each.name, cost, "warm-up")
        self._measure_limit(topic, "warm-up")
        if len(set(found.values())) != 1 or found[PEER][0] != topic.records:
            raise WrongRows(f"{topic.records} records of {topic.name} became (rows, orders, content): {found}")

    def _measure_limit(self, topic: Topic, stage: str) -> Cost:
        rows: list[int] = []
        cost = self._meter.measure(lambda: rows.append(Limit(self._warehouse).run(topic)))
        if rows != [topic.records]:
            raise WrongRows(f"the libraries made {rows[0]} rows of {topic.records} records")
        _tell(topic, LIMIT, cost, stage)
        return cost

    def _round(self, contestant: Contestant, score: Score) -> None:
        table = self._next_table()
        cost = self._meter.measure(contestant.prepare(score.topic, table))
        rows = self._rows(table).count()
        if rows != score.topic.records:
            raise WrongRows(f"{contestant.name} made {rows} rows of {score.topic.records} records")
        score.costs.append(cost)
        score.size = self._size(table)
        self._drop(table)
        _tell(score.topic, contestant.name, cost, f"round {len(score.costs)}")

    def _fingerprint(self, table: str) -> tuple[int, int, str]:
        """Rows, distinct orders, and a sum over hashes of whole rows, which does not depend on their order."""
        counted = "count(*)", "count(DISTINCT order_id)", "sum(CAST(xxhash64(*) AS DECIMAL(38, 0)))"
        row = self._rows(table).selectExpr(*counted).collect()[0]
        return row[0], row[1], str(row[2])

    def _next_table(self) -> str:
        self._tables += 1
        return f"append.t{self._tables}"

    def _size(self, table: str) -> int:
        return sum(file.stat().st_size for file in folder_of(table, self._warehouse).rglob("*.parquet"))

    def _drop(self, table: str) -> None:
        if self._format == "iceberg":
            self._spark.sql(f"DROP TABLE {CATALOG}.{table}")
        shutil.rmtree(folder_of(table, self._warehouse))

    def _rows(self, table: str) -> DataFrame:
        return self._spark.table(relation(table, self._warehouse, self._format))


def measure_commits(
    spark: SparkSession, warehouse: Path, commits: int, table_format: TableFormat = "iceberg"
) -> list[float]:
    """Milliseconds of each commit, Iceberg's to the sqlite catalog, for epochs of one small file."""
    _err.print(f"{commits} commits …")
    source = {"type": "generator", "partitions": 1, "records": commits * _RECORDS_A_COMMIT}
    ddl = "order_id BIGINT, customer STRING, amount DECIMAL(10,2), placed_at TIMESTAMP, note STRING"
    spec = pipeline_spec(source, ddl, "append.commits", warehouse, table_format=table_format)
    pipeline = RunningPipeline(assemble(spec, spark))
    taken_ms = []
    for _ in range(commits):
        written = pipeline.write(pipeline.plan(_RECORDS_A_COMMIT))
        began = time.perf_counter()
        pipeline.commit(written)
        taken_ms.append((time.perf_counter() - began) * 1000)
    return taken_ms


@contextmanager
def _warehouse() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="frazil-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def bench_session(warehouse: Path, further: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Spark with the peer's jars, with the catalog in `warehouse`, and with `further` settings."""
    catalog = CatalogSection(type="sqlite", name=CATALOG, warehouse=str(warehouse))
    conf = spark_catalog_conf(catalog) | {
        "spark.jars": ",".join(str(jar) for jar in jars("spark") + jars("bench")),
        "spark.ui.enabled": "false",
        **(further or {}),
    }
    spark = open_session("frazil bench", conf=conf)
    try:
        yield spark
    finally:
        spark.stop()


def _fill(broker: Broker, shape: Shape, records: int) -> Topic:
    began = time.perf_counter()
    topic = fill_topic(broker, shape, records)
    taken_s = time.perf_counter() - began
    _err.print(f"{shape.name}: {records:,} records of {topic.record_bytes} B produced in {taken_s:.1f} s")
    return topic


def _tell(topic: Topic, name: str, cost: Cost, stage: str) -> None:
    _err.print(
        f"{topic.shape.name} {stage}: {name:<15} {cost.wall_s:6.2f} s, {cost.cpu_s:6.2f} s CPU",
        highlight=False,
    )


def _print_table(
    results: dict[str, Scores], rounds: int, commit_ms: Sequence[float], table_format: TableFormat
) -> None:
    commit = f"A commit takes {statistics.median(commit_ms):.0f} ms (median of {len(commit_ms)})."
    grid = Grid(
        title=f"A Kafka topic into a table of {table_format}, one epoch a round, median of {rounds}",
        caption=f"JSON in {PARTITIONS} partitions and {COMPRESSION} batches, Parquet with zstd. "
        f"CPU s/M: Python and JVM together, for a million records. time, CPU: ÷ {PEER}, lower is better. "
        f"limit: rate per core ÷ that of the {LIMIT}, higher is better. {commit}",
        box=box.SIMPLE_HEAD,
        show_edge=False,
    )
    grid.add_column("topic", no_wrap=True)
    grid.add_column("by", no_wrap=True)
    for heading in ("records/s", "CPU s/M", "MB", "time", "CPU", "limit"):
        grid.add_column(heading, justify="right")
    for scores in results.values():
        for name, score in scores.items():
            grid.add_row(*_row(name, score, scores[PEER], scores[LIMIT]))
        grid.add_section()
    _out.print(grid)


def _row(name: str, score: Score, peer: Score, limit: Score) -> list[str]:
    return [
        f"{score.topic.records / 1000:,.0f}k × {score.topic.record_bytes} B",
        name,
        f"{score.records_per_s:,.0f}",
        f"{score.cpu_s_per_million:.2f}",
        f"{score.size / 1e6:,.0f}" if score.size else "",
        f"{score.wall_ratio(peer):.2f}",
        f"{score.cpu_ratio(peer):.2f}",
        f"{score.limit_fraction(limit):.2f}",
    ]


def _summary(results: dict[str, Scores], commit_ms: Sequence[float]) -> dict[str, float]:
    summary: dict[str, float] = {"commit_ms_p50": round(statistics.median(commit_ms), 1)}
    for size, scores in results.items():
        native, sql, peer = scores[NATIVE], scores[SQL], scores[PEER]
        summary |= {
            f"records_{size}": native.topic.records,
            f"wall_ratio_{size}": round(native.wall_ratio(peer), 3),
            f"cpu_ratio_{size}": round(native.cpu_ratio(peer), 3),
            f"limit_fraction_{size}": round(native.limit_fraction(scores[LIMIT]), 3),
            f"sql_wall_ratio_{size}": round(sql.wall_ratio(peer), 3),
            f"sql_cpu_ratio_{size}": round(sql.cpu_ratio(peer), 3),
            f"native_records_per_s_{size}": round(native.records_per_s),
            f"sql_records_per_s_{size}": round(sql.records_per_s),
            f"peer_records_per_s_{size}": round(peer.records_per_s),
        }
    return summary


if __name__ == "__main__":
    app(prog_name="python -m bench.append")
