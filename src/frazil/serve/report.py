"""Status and history, as tables for people and as JSON for machines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table as Grid

from frazil.engine.inspect import PipelineStatus, TableStatus
from frazil.pipeline import PipelineSpec
from frazil.pipeline.secrets import mask
from frazil.protocol.positions import Span, name_partition
from frazil.protocol.resolved import parse_time
from frazil.protocol.summary import CommitRecord


def status_json(spec: PipelineSpec, found: PipelineStatus) -> dict[str, Any]:
    return {
        "pipeline": spec.pipeline.name,
        "tables": [_table_json(table) for table in found.tables],
        "lag": None if found.lag is None else {name_partition(p): lag for p, lag in found.lag.items()},
        "lag_total": None if found.lag is None else sum(found.lag.values()),
        "source_error": mask(found.source_error) or None,
    }


def status_tables(spec: PipelineSpec, found: PipelineStatus) -> Iterator[Grid | str]:
    grid = Grid(title=f"pipeline {spec.pipeline.name}", title_justify="left")
    is_resolved = any(_resolved(table) for table in found.tables)
    for column in (
        "table",
        "epoch",
        "generation",
        "snapshot",
        "last commit",
        *(["resolved"] if is_resolved else []),
    ):
        grid.add_column(column)
    for table in found.tables:
        if not table.exists:
            grid.add_row(table.table, "not there yet")
        elif table.epoch is None:
            grid.add_row(table.table, "no frontier of this pipeline")
        else:
            grid.add_row(
                table.table,
                str(table.epoch),
                str(table.generation),
                str(table.snapshot_id),
                _age(_freshness_s(table)),
                *([_resolved_words(_resolved(table))] if is_resolved else []),
            )
    yield grid
    for table in found.tables:
        if table.trouble is not None:
            yield f"[red]✗[/red] {escape(str(table.trouble))}"
    yield _frontier_grid(found)
    if found.lag is None:
        yield escape(f"lag is unknown: {mask(found.source_error)}")


def history_json(record: CommitRecord) -> dict[str, Any]:
    return {
        "epoch": record.epoch,
        "action": record.action,
        "generation": record.generation,
        "snapshot_id": record.snapshot_id,
        "committed_at": _time(record.timestamp_ms),
        "batch_id": record.batch_id,
        "span": record.span.encode(),
        "skipped": record.skipped.encode(),
        "given_up": record.given_up.encode(),
        "rewound": record.rewound_from is not None,
        "resolved": record.resolved,
        "resolved_at": _resolved_at(record.resolved),
        "delivered": record.counts.delivered,
        "landed": record.counts.landed,
        "filtered": record.counts.filtered,
        "deleted": record.counts.deleted,
        "collapsed": record.counts.collapsed,
        "merged": asdict(record.merged) if record.merged else None,
        "dead_letters": record.counts.dead,
        "files": record.data_files,
        "duration_ms": record.duration_ms,
    }


def history_table(spec: PipelineSpec, records: Sequence[CommitRecord]) -> Grid:
    """One line a commit; the span comes last, because it alone may be long."""
    title = f"{spec.pipeline.name} → {spec.table.name}"
    grid = Grid(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("epoch", "committed", "what"):
        grid.add_column(column, no_wrap=True)
    for column in ("rows", "files", "seconds"):
        grid.add_column(column, justify="right", no_wrap=True)
    grid.add_column("span", overflow="fold")
    for record in records:
        grid.add_row(
            str(record.epoch),
            f"{datetime.fromtimestamp(record.timestamp_ms / 1000, UTC):%m-%d %H:%M:%S}",
            f"start {record.generation}" if record.action == "start" else record.action,
            f"{record.counts.landed:,}",
            str(record.data_files),
            f"{record.duration_ms / 1000:.2f}" if record.duration_ms else "",
            ", ".join(_facts(record)),
        )
    return grid


def span_words(span: Span) -> str:
    """In one line, partition by partition."""
    return " ".join(f"{name_partition(p)} {r}" for p, r in sorted(span.ranges.items()))


def _facts(record: CommitRecord) -> Iterator[str]:
    """The span, and what of it did not become rows."""
    if record.resolved:
        yield f"resolved {_resolved_words(record.resolved)}"
    if record.span:
        yield span_words(record.span)
    if record.merged:
        yield ", ".join(f"{count:,} {what}" for what, count in asdict(record.merged).items())
    if record.counts.deleted:
        yield f"{record.counts.deleted:,} deleted"
    if record.counts.collapsed > 0:  # less: updates that counted twice, as a row that went and one that came
        yield f"{record.counts.collapsed:,} overtaken"
    if record.counts.unknown_ops:
        yield f"{record.counts.unknown_ops:,} of unknown operation"
    if record.counts.filtered:
        yield f"{record.counts.filtered:,} filtered"
    if record.counts.missing:
        yield f"{record.counts.missing:,} of them rows that were not there to go"
    if record.counts.dead:
        yield f"{record.counts.dead:,} dead letters"
    if record.skipped:
        yield f"skipped {span_words(record.skipped)}"
    if record.given_up:
        yield f"rolled back, given up {span_words(record.given_up)}"
    if record.rewound_from is not None:
        yield "rolled back, rewound"


def _frontier_grid(found: PipelineStatus) -> Grid:
    anchor = found.tables[0]
    grid = Grid(title="frontier", title_justify="left")
    grid.add_column("partition")
    grid.add_column("next offset", justify="right")
    grid.add_column("lag", justify="right")
    positions = anchor.frontier.positions if anchor.frontier else {}
    lag = found.lag or {}
    for partition in sorted({*positions, *lag}):
        position = positions.get(partition)
        grid.add_row(
            name_partition(partition),
            f"{position.offset:,}" if position else "–",
            f"{lag[partition]:,}" if partition in lag else "?",
        )
    return grid


def _table_json(table: TableStatus) -> dict[str, Any]:
    positions = table.frontier.positions if table.frontier else {}
    return {
        "table": table.table,
        "exists": table.exists,
        "epoch": table.epoch,
        "generation": table.generation,
        "snapshot_id": table.snapshot_id,
        "committed_at": _time(table.committed_ms) if table.committed_ms else None,
        "freshness_s": _freshness_s(table),
        "frontier": {name_partition(p): position.offset for p, position in sorted(positions.items())},
        "waiting_from": {name_partition(p): at.low for p, at in sorted(positions.items()) if at.low is not None},
        "resolved": _resolved(table),
        "resolved_at": _resolved_at(_resolved(table)),
        "trouble": table.trouble.message if table.trouble else None,
        "remedy": table.trouble.remedy if table.trouble else None,
    }


def _resolved(table: TableStatus) -> str | None:
    return table.frontier.resolved if table.frontier else None


def _resolved_at(resolved: str | None) -> str | None:
    """The wall-clock time, to the microsecond, of a time that a change feed counts in nanoseconds."""
    if resolved is None:
        return None
    try:
        at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(parse_time(resolved) / 1000))
    except OverflowError:
        return None
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _resolved_words(resolved: str | None) -> str:
    return "–" if resolved is None else f"{resolved} ({_resolved_at(resolved) or 'no date'})"


def _freshness_s(table: TableStatus) -> float | None:
    return None if table.committed_ms is None else round(time.time() - table.committed_ms / 1000, 1)


def _age(seconds: float | None) -> str:
    return "its snapshot has expired" if seconds is None else f"{seconds:,.0f} s ago"


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
