"""What `frazil verify` found: for people, for machines, and on the way there as bars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid
from rich.text import Text

from frazil.engine.verify import Tell
from frazil.pipeline.secrets import mask
from frazil.protocol.positions import name_partition
from frazil.protocol.verify import Check, Finding, Level, Verdict

_MARKS = {Level.HOLDS: ("✓", "green"), Level.NOTED: ("!", "yellow"), Level.BROKEN: ("✗", "bold red")}
_SHOWN = 10
"""So many findings of a check are printed; --json has them all."""


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "pipeline": verdict.pipeline,
        "verdict": verdict.level.name.lower(),
        "deep": verdict.deep,
        "checks": [_check_json(check) for check in verdict.checks],
    }


def verdict_tables(verdict: Verdict) -> Iterator[Grid | Text]:
    """One grid a table, one line a check, and below it what was found."""
    for table in dict.fromkeys(check.table for check in verdict.checks):
        grid = Grid(title=escape(table), title_justify="left", box=box.SIMPLE, show_header=False, pad_edge=False)
        for _ in range(2):
            grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for check in verdict.checks:
            if check.table == table:
                _add_check(grid, check)
        yield grid
    yield _conclusion(verdict)


@contextmanager
def progress_bars(console: Console) -> Iterator[Tell]:
    """A bar for each thing that takes long; they are gone when it is done."""
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def tell(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(escape(what))
        bars.update(tasks[what], completed=done, total=total)

    with bars:
        yield tell


def _check_json(check: Check) -> dict[str, Any]:
    return {
        "table": check.table,
        "check": check.name,
        "level": check.level.name.lower(),
        "says": mask(check.says),
        "numbers": dict(check.numbers),
        "findings": [_finding_json(finding) for finding in check.findings],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "level": finding.level.name.lower(),
        "message": mask(finding.message),
        "snapshot_id": finding.snapshot_id,
        "epoch": finding.epoch,
        "partition": None if finding.partition is None else name_partition(finding.partition),
        "path": finding.path,
    }


def _add_check(grid: Grid, check: Check) -> None:
    mark, style = _MARKS[check.level]
    # What a broken check would have said is not so; its findings say what is.
    says = "" if check.level is Level.BROKEN else mask(check.says)
    lines = [says] if says else []
    lines += [_finding(finding) for finding in check.findings[:_SHOWN]]
    if len(check.findings) > _SHOWN:
        lines.append(f"and {len(check.findings) - _SHOWN:,} more")
    for number, line in enumerate(lines):
        first = number == 0
        text = Text(line, style="" if says and first else style)
        grid.add_row(Text(mark if first else "", style), check.name if first else "", text)


def _finding(finding: Finding) -> str:
    where = []
    if finding.epoch is not None:
        where.append(f"epoch {finding.epoch}")
    if finding.snapshot_id is not None:
        where.append(f"snapshot {finding.snapshot_id}")
    return mask(f"{', '.join(where)}: {finding.message}" if where else finding.message)


def _conclusion(verdict: Verdict) -> Text:
    mark, style = _MARKS[verdict.level]
    count = sum(finding.level is verdict.level for _, finding in verdict.findings)
    what = "finding" if count == 1 else "findings"
    means = {
        Level.HOLDS: "nothing was lost or doubled",
        Level.NOTED: "the pipeline kept its promises; what is marked with ! is not its doing",
        Level.BROKEN: f"{count:,} {what}: something was lost, doubled or damaged",
    }[verdict.level]
    scope = "" if verdict.deep else " (from metadata; --deep compares with the topic)"
    return Text(f"{mark} {verdict.pipeline}: {means}{scope}", style)
