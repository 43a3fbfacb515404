"""The journal and what a start would make of it, for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table as Grid

from frazil.engine.recover import Recovery
from frazil.journal import Recorded
from frazil.pipeline import PipelineSpec
from frazil.protocol import entries
from frazil.protocol.positions import Frontier, name_partition
from frazil.protocol.recovery import orphan_kind
from frazil.protocol.start import Begin, Decision, Resume, Stop, Wait
from frazil.serve.report import span_words


def journal_table(spec: PipelineSpec, recorded: Sequence[Recorded]) -> Grid:
    """One line an entry; what it says comes last, because it alone may be long."""
    title = f"journal of {spec.pipeline.name} in {spec.journal.dir}"
    grid = Grid(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("when", "what", "epoch", "token"):
        grid.add_column(column, no_wrap=True)
    grid.add_column("facts", overflow="fold")
    for each in recorded:
        grid.add_row(
            f"{datetime.fromtimestamp(each.at_ms / 1000, UTC):%m-%d %H:%M:%S}",
            each.kind.replace("-", " "),
            str(getattr(each.entry, "epoch", "")),
            getattr(each.entry, "token", ""),
            escape(_facts(each.entry)),
        )
    return grid


def recovery_json(spec: PipelineSpec, found: Recovery) -> dict[str, Any]:
    """REC-14: everything that recovery knows."""
    state = found.journal
    return {
        "pipeline": spec.pipeline.name,
        "epoch": found.register.epoch if found.register else None,
        "generation": found.register.generation if found.register else None,
        "frontier": _offsets(found.frontier),
        "stops": str(found.stop) if found.stop else None,
        "on_rollback": {choice.value: _prospect(decision) for choice, decision in found.choices.items()},
        "journal": {
            "folder": spec.journal.dir,
            "entries_processed": state.entries,
            "last_offsets": _offsets(state.frontier),
            "last_snapshots": dict(state.snapshots),
            "committed_files": state.committed_files,
            "notes": list(found.notes),
        },
        "incomplete_epochs": [
            {"epoch": begun.epoch, "token": begun.token, "batch_id": begun.batch_id, "span": begun.span.encode()}
            for begun in state.incomplete.values()
        ],
        "orphan_files": found.orphans,
        "unreferenced_metadata": list(found.metadata),
        "orphan_types": {path: orphan_kind(path).value for path in [*found.orphans, *found.metadata]},
        "kept_files": sorted(path for each in found.leftovers for path in each.kept),
    }


def recovery_lines(spec: PipelineSpec, found: Recovery) -> Iterator[str]:
    if found.stop is not None:
        yield f"a start stops: {found.stop}"
        for choice, decision in found.choices.items():
            yield f"--on-rollback {choice.value}: {_prospect(decision)}"
    elif found.register is None:
        yield f"{spec.table.name} has no frontier of this pipeline: a start begins at starting_offsets"
    else:
        yield f"a start goes on after epoch {found.register.epoch}, at {_at(found.frontier)}"
    for note in found.notes:
        yield f"! {note}; no row depends on it"
    for begun in found.journal.incomplete.values():
        said = (
            "landed, but Spark ran some of its tasks twice"
            if begun.winners
            else "began and was not noted as landed"
        )
        yield f"epoch {begun.epoch} ({begun.token}) {said}: {span_words(begun.span)}"
    for leftovers in found.leftovers:
        for path in leftovers.kept:
            yield f"keeps   {path}: it had landed"
        for path in leftovers.orphans:
            yield f"deletes {path} ({orphan_kind(path)})"
    for path in found.metadata:
        yield f"leaves  {path} ({orphan_kind(path)}): no snapshot has it; a commit failed, or one is under way"
    yield f"{len(found.orphans)} files to delete"
    if found.journal.incomplete:
        yield "epochs of a pipeline that runs now are under way: nothing of them is deleted while it does"


def _prospect(decision: Decision) -> str:
    match decision:
        case Resume():
            lacking = [
                f"{table} gives up {span_words(a.given_up)}" for table, a in decision.amends.items() if a.given_up
            ]
            return ", ".join([f"goes on at {_at(decision.frontier)}", *lacking])
        case Begin():
            return "begins again at starting_offsets"
        case Stop(error):
            return f"stops as well: {error}"
        case Wait():
            return "waits for another coordinator"


def _facts(entry: entries.Entry) -> str:
    match entry:
        case entries.Started():
            return f"generation {entry.generation}, coordinator {entry.coordinator}, at {_at(entry.frontier)}"
        case entries.SchemaChanged():
            fields = [*(f"+{name}" for name in entry.fields_added), *(f"-{name}" for name in entry.fields_removed)]
            return f"{entry.table} from schema {entry.old_schema_id} to {entry.new_schema_id}: {' '.join(fields)}"
        case entries.EpochBegun():
            return f"{entry.span.records:,} offsets: {span_words(entry.span)}"
        case entries.FilesWritten():
            size, rows = sum(file.size for file in entry.files), sum(file.rows for file in entry.files)
            return f"{len(entry.files)} files, {rows:,} rows, {size:,} bytes"
        case entries.EpochLanded():
            snapshots = ", ".join(f"{table} {snapshot}" for table, snapshot in entry.snapshots.items())
            return f"{entry.files} files, snapshots: {snapshots}"
        case entries.EpochAbandoned():
            return entry.reason
        case entries.OrphansDeleted():
            return f"{len(entry.paths)} files of {len(entry.tokens)} epochs"
        case entries.Checkpoint():
            return f"number {entry.number}, {entry.entries:,} entries, {len(entry.incomplete)} epochs incomplete"
        case _:
            return ""


def _at(frontier: Frontier) -> str:
    return " ".join(f"{name_partition(p)} {position.offset}" for p, position in sorted(frontier.positions.items()))


def _offsets(frontier: Frontier) -> dict[str, int]:
    return {name_partition(p): position.offset for p, position in sorted(frontier.positions.items())}
