"""The command line: parse, call, print."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from frazil import __version__
from frazil.errors import ConfigError, FrazilError, SetupError, SparkGone
from frazil.pipeline import PipelineSpec, load_pipeline
from frazil.pipeline.secrets import mask
from frazil.protocol.start import OnRollback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.engine.events import Observer
    from frazil.maintain import Optimized, Vacuumed

app = typer.Typer(
    name="frazil",
    help="Lands streams in lakehouse tables, every record exactly once.\n\n"
    "Start with `frazil demo`, then `frazil init`, `frazil validate` and `frazil run`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

PipelineFile = Annotated[Path, typer.Argument(metavar="FILE", help="the pipeline file")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON for machines")]

_out = Console()
_err = Console(stderr=True)

_LOOKING = "local[1]"
"""The master of commands that only look."""
_SPARK_ENDS_S = 2.0
"""So long may a JVM take to be gone after its connections are."""
_EXIT_CONFIG = 2
_EXIT_ABORTED = 130


def main() -> None:
    """The `frazil` command: every failure prints its kind and a remedy, and exits non-zero."""
    try:
        app()
    except FrazilError as error:
        _err.print(
            f"[bold red]{error.label}[/bold red] {escape(mask(str(error)))}", highlight=False, soft_wrap=True
        )
        sys.exit(_EXIT_CONFIG if isinstance(error, ConfigError | SetupError) else 1)


def _version(wanted: bool) -> None:
    if wanted:
        _out.print(f"frazil {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="the file to write")] = Path("pipeline.toml"),
    name: Annotated[str, typer.Option(help="the pipeline's name")] = "orders",
    force: Annotated[bool, typer.Option(help="replace a file that is there")] = False,
) -> None:
    """Write a commented pipeline file to start from."""
    from frazil.pipeline.load import parse_name
    from frazil.pipeline.template import pipeline_template

    name = parse_name(name)
    if file.exists() and not force:
        raise ConfigError(f"{file} is there already", "choose another name, or replace it with --force")
    try:
        file.write_text(pipeline_template(name), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    written = escape(str(file))
    _out.print(f"wrote {written}; next: [bold]frazil validate {written} --connect[/bold]")


@app.command()
def validate(
    file: PipelineFile,
    connect: Annotated[
        bool, typer.Option("--connect", help="also ask the source, the catalog and the table")
    ] = False,
) -> None:
    """Check a pipeline file, and with --connect everything it points at. Creates no table, writes no row."""
    from frazil.engine import decode_plan

    spec = load_pipeline(file)
    decode_plan(spec)
    _out.print(f"[green]✓[/green] {escape(str(file))}: the file is fine")
    if spec.table.mode == "upsert" and not spec.table.keys and not connect:
        _out.print("! table.keys is not given: the table or the source has to tell them; --connect asks")
    if connect:
        from frazil.engine.check import check_connections

        with _spark(spec, _LOOKING) as spark:
            for finding in check_connections(spec, spark):
                _out.print(f"[green]✓[/green] {escape(mask(finding))}", highlight=False)


@app.command()
def run(
    file: PipelineFile,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="land what is there now, then stop")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark's master URL; local[*] by default")] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="do not wait for another coordinator to fall silent")
    ] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="append to a table that already has data of others")
    ] = False,
    on_rollback: Annotated[
        OnRollback | None,
        typer.Option(
            "--on-rollback",
            help="if a table was rolled back or replaced: rewind reads and lands again what it lacks, keep leaves "
            "it out for good; without it, run stops",
        ),
    ] = None,
) -> None:
    """Run a pipeline until it is stopped.

    The first Ctrl-C or SIGTERM finishes the epochs under way and exits with 0; a second one aborts. Whatever
    happens, the next run goes on from the table.
    """
    from frazil.engine import RunOptions, run_pipeline

    spec = load_pipeline(file)
    stop = threading.Event()
    options = RunOptions(available_now, take_over, adopt, on_rollback)
    with _spark(spec, master) as spark, _watching(spec) as observer, _signals(stop):
        run_pipeline(spec, spark, observer, options, stop)


@app.command()
def status(file: PipelineFile, as_json: AsJson = False) -> None:
    """Show where a pipeline's tables stand: epoch, snapshot, frontier, lag per partition, freshness."""
    from frazil.engine.inspect import inspect_pipeline
    from frazil.serve.report import status_json, status_tables

    spec = load_pipeline(file)
    with _spark(spec, _LOOKING) as spark:
        found = inspect_pipeline(spec, spark)
    if as_json:
        print(json.dumps(status_json(spec, found)))
    else:
        for table in status_tables(spec, found):
            _out.print(table)


@app.command()
def history(
    file: PipelineFile,
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option(min=1, help="the newest commits to show")] = 20,
) -> None:
    """List a pipeline's commits: epoch, span, rows, files, duration."""
    from frazil.engine.inspect import pipeline_history
    from frazil.serve.report import history_json, history_table

    spec = load_pipeline(file)
    with _spark(spec, _LOOKING) as spark:
        records = pipeline_history(spec, spark)[-limit:]
    if as_json:
        for record in records:
            print(json.dumps(history_json(record)))
    else:
        _out.print(history_table(spec, records))


@app.command()
def verify(
    file: PipelineFile,
    deep: Annotated[
        bool, typer.Option("--deep", help="also read the topic again and compare every record with the table")
    ] = False,
    as_json: AsJson = False,
    master: Annotated[str | None, typer.Option(help="Spark's master URL; local[*] by default with --deep")] = None,
) -> None:
    """Prove that nothing was lost or doubled. Writes nothing; the pipeline may run meanwhile.

    From the metadata of the table and its dead letters:

    - **history**: every epoch is one snapshot, and its offsets begin where the epoch before it ended
    - **register**: the frontier is where the last epoch ended
    - **rows**: records delivered = rows landed + filtered + dead letters, and the files have those rows
    - **files**: everything the table references exists, has its size, and is there once
    - **others**: what somebody else did to the table; named, but no fault of the pipeline
    - **dead letters**: those that were counted are there

    With --deep, **offsets**: the rows and dead letters are the records that a read_committed consumer sees.

    ✓ holds, ! is noted, ✗ is broken. Exits with 1 if anything is broken, otherwise with 0.
    """
    from frazil.engine.verify import verify_pipeline
    from frazil.protocol.verify import Level
    from frazil.serve.verdict import progress_bars, verdict_json, verdict_tables

    spec = load_pipeline(file)
    with _spark(spec, master or (None if deep else _LOOKING)) as spark, progress_bars(_err) as tell:
        verdict = verify_pipeline(spec, spark, deep=deep, tell=tell)
    if as_json:
        print(json.dumps(verdict_json(verdict)))
    else:
        for part in verdict_tables(verdict):
            _out.print(part)
    if verdict.level is Level.BROKEN:
        raise typer.Exit(1)


@app.command()
def journal(
    file: PipelineFile,
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option(min=1, help="the newest entries to show")] = 50,
) -> None:
    """Show what a pipeline noted on this machine: epochs begun, written, landed, given up, cleaned up."""
    from frazil.engine.read_back import journal_of
    from frazil.journal import plain
    from frazil.serve.journal import journal_table

    spec = load_pipeline(file)
    found = journal_of(spec)
    for note in found.notes:
        _err.print(escape(f"! {note}"), highlight=False)
    if as_json:
        for each in found.recorded[-limit:]:
            print(json.dumps(plain(each)))
    else:
        _out.print(journal_table(spec, found.recorded[-limit:]))


@app.command()
def recover(
    file: PipelineFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what a start would do")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what the next start does after a crash: where it goes on, and which files it deletes.

    Nothing is deleted here: only after its start commit is in the tables can a coordinator know that no other
    one lands those files. `frazil run` does it by itself.
    """
    from frazil.engine.recover import look_at_recovery
    from frazil.serve.journal import recovery_json, recovery_lines

    if not dry_run:
        raise ConfigError("frazil recover only looks", "add --dry-run to see it; frazil run recovers by itself")
    spec = load_pipeline(file)
    with _spark(spec, _LOOKING) as spark:
        found = look_at_recovery(spec, spark)
    if as_json:
        print(json.dumps(recovery_json(spec, found)))
    else:
        for line in recovery_lines(spec, found):
            _out.print(escape(line), highlight=False, soft_wrap=True)


@app.command()
def maintain(
    file: PipelineFile,
    optimize: Annotated[bool, typer.Option("--optimize", help="pack small files together")] = False,
    z_order: Annotated[str, typer.Option(help="with --optimize: cluster rows by columns, such as a,b")] = "",
    vacuum: Annotated[bool, typer.Option("--vacuum", help="delete files that no version needs any more")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="with --vacuum: only count them")] = False,
    retention: Annotated[str, typer.Option(help="with --vacuum: how old they must be; never under 7d")] = "7d",
    target_file_size: Annotated[str, typer.Option(help="with --optimize: files of about this size")] = "512MB",
    min_files: Annotated[int, typer.Option(min=2, help="with --optimize: leave fewer small files alone")] = 10,
    as_json: AsJson = False,
    master: Annotated[str | None, typer.Option(help="Spark's master URL")] = None,
) -> None:
    """Tend a Delta table and its dead letters; the pipeline may run meanwhile.

    --optimize packs small files into larger ones, --vacuum deletes files that no recent version refers to.
    """
    from frazil.engine.tend import optimize_tables, vacuum_tables
    from frazil.pipeline.values import parse_duration_s, parse_size_bytes

    if not optimize and not vacuum:
        raise ConfigError("frazil maintain was not told what to do", "add --optimize, --vacuum, or both")
    spec = load_pipeline(file)
    columns = [column.strip() for column in z_order.split(",") if column.strip()]
    size = int(_amount("--target-file-size", target_file_size, parse_size_bytes))
    age_h = _amount("--retention", retention, parse_duration_s) / 3600
    with _spark(spec, master) as spark:
        if optimize:
            for packed in optimize_tables(spec, spark, z_order=columns, target_bytes=size, min_files=min_files):
                became = packed.skipped or f"{packed.removed} of {packed.files} files became {packed.added}"
                _tell(packed, f"{packed.table}: {became}", as_json)
        if vacuum:
            for emptied in vacuum_tables(spec, spark, retention_h=age_h, dry_run=dry_run):
                done = "would be deleted" if emptied.dry_run else "were deleted"
                _tell(emptied, f"{emptied.table}: {emptied.files} files {done}", as_json)


@app.command()
def demo(
    records: Annotated[int, typer.Option(min=1, help="how many orders to produce")] = 500_000,
    table_format: Annotated[
        Literal["iceberg", "delta"], typer.Option("--format", help="the format of the table")
    ] = "iceberg",
    as_json: AsJson = False,
) -> None:
    """See it work: a real Kafka, a stream of orders, a lakehouse table, and the proof that each is there once."""
    from frazil.demo.show import show

    if not show(records, table_format, as_json=as_json, out=_err if as_json else _out):
        raise typer.Exit(1)


def _amount(option: str, text: str, parse: Callable[[object], object]) -> float:
    """A duration or a size, as a pipeline file would have it."""
    try:
        return float(str(parse(text)))
    except ValueError as error:
        raise ConfigError(f"{option}: {text!r} is not allowed; expected {error}") from None


def _tell(done: Optimized | Vacuumed, line: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(done)))
    else:
        _out.print(f"[green]✓[/green] {escape(line)}", highlight=False)


@contextmanager
def _spark(spec: PipelineSpec, master: str | None) -> Iterator[SparkSession]:
    from frazil.engine import open_spark
    from frazil.spark import jvm_has_ended

    with _err.status("starting Spark …"):
        spark = open_spark(spec, master)
    try:
        yield spark
    except Exception as error:
        if jvm_has_ended(spark, patience_s=0 if isinstance(error, FrazilError) else _SPARK_ENDS_S):
            raise SparkGone(
                "Spark's JVM has ended: somebody killed it, or the machine ran out of memory",
                "run it again, it goes on from the table; spark.conf has spark.driver.memory",
            ) from error
        raise
    finally:
        if not jvm_has_ended(spark):
            spark.stop()


@contextmanager
def _watching(spec: PipelineSpec) -> Iterator[Observer]:
    """A live view on a terminal, JSON log lines elsewhere."""
    from frazil.serve.console import LiveView
    from frazil.serve.logs import log_events, set_up_logs

    name, table = spec.pipeline.name, spec.table.name
    if not _out.is_terminal:
        set_up_logs(json=True)
        yield log_events(name, table)
        return
    with LiveView(name, table, _out) as view:
        set_up_logs(json=False)
        yield view


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """The first signal asks to stop, the second one does not ask.

    The handler interrupts whatever the main thread does, which may hold the event's own lock: so it takes none,
    and another thread passes the wish on.
    """
    asked = False
    wish, asking = os.pipe()

    def pass_on() -> None:
        if os.read(wish, 1):
            stop.set()

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(_EXIT_ABORTED)
        asked = True
        os.write(asking, b"!")

    messenger = threading.Thread(target=pass_on, name="signals", daemon=True)
    messenger.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(asking)
        messenger.join()
        os.close(wish)


if __name__ == "__main__":
    main()
