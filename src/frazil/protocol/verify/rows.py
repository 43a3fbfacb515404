"""Do the rows add up, do the files exist, and who else was at the table?

found                                       answer
an epoch added other than it claims         broken
delivered ≠ what became of the records      broken
a compaction that changed the count         broken, unless delete files explain it
live rows ≠ what the snapshots add up to    broken
a file missing, resized or live twice       broken
somebody else added, removed or hid rows    noted, snapshot by snapshot
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from frazil.protocol.positions import Partition
from frazil.protocol.summary import NO_COUNTS, Counts
from frazil.protocol.verify.finding import Check, Finding, broken, many, noted
from frazil.protocol.verify.seen import COPIED, Commit, SnapshotSeen, TableSeen


@dataclass(frozen=True)
class FilesSeen:
    """What the head references, and what of it is wrong."""

    manifests: int = 0
    data_files: int = 0
    delete_files: int = 0
    rows: int = 0
    """in live data files"""
    rows_by_snapshot: Mapping[int, int] = field(default_factory=dict)
    """of live data files, by the snapshot that added them"""
    wrong: Sequence[Finding] = ()
    """the first of what is missing, of another size, or live twice"""
    wrong_count: int = 0
    is_complete: bool = True
    """False when a manifest is missing, so that nobody can tell which files there should be"""


def check_files(seen: TableSeen, files: FilesSeen) -> Check:
    """Everything that the head references is there, once."""
    findings = list(files.wrong)
    if files.wrong_count > len(findings):
        findings.append(broken(f"and {many(files.wrong_count - len(findings), 'more file')}"))
    says = many(files.data_files, "data file")
    if files.delete_files:
        says += f", {many(files.delete_files, 'delete file')}"
    if files.manifests or not files.is_complete:
        says += f" and {many(files.manifests, 'manifest')}"
    says += " exist with their sizes, none is live twice"
    numbers = {
        "manifests": files.manifests,
        "data_files": files.data_files,
        "delete_files": files.delete_files,
        "wrong_files": files.wrong_count,
    }
    return Check(seen.table, "files", says, findings, numbers)


def check_rows(seen: TableSeen, files: FilesSeen) -> Check:
    """Epoch by epoch, snapshot by snapshot, and over all."""
    findings = [finding for commit in seen.commits for finding in _claims(commit)]
    findings += _totals(seen)
    findings += [f for snapshot in seen.others for f in _compaction(seen, snapshot)]
    if files.is_complete:
        findings += _live(seen, files)
    counts = sum((commit.record.counts for commit in seen.epochs), NO_COUNTS)
    numbers = {**asdict(counts), "live": files.rows, "expired": seen.expired_rows}
    return Check(seen.table, "rows", _sum(seen, counts, numbers), findings, numbers)


def check_keys(seen: TableSeen, keys: Sequence[str], doubled: int, sample: Sequence[str]) -> Check:
    """Of a table with keys: no two live rows have the same."""
    findings = []
    if doubled:
        named = ", ".join(sample) + (", …" if doubled > len(sample) else "")
        findings.append(broken(f"{many(doubled, 'key')} with more than one row: {named}"))
    return Check(seen.table, "keys", f"no two rows have the same {', '.join(keys)}", findings, {"doubled": doubled})


def check_bag(seen: TableSeen, found: int) -> Check:
    """Of a table whose rows are their own keys: a reader finds as many as came and did not go."""
    expected, alone = 0, seen.is_whole and not _changes_by_others(seen)
    for commit in seen.commits:
        counts = commit.record.counts
        expected = counts.landed + (0 if commit.record.action == "overwrite" else expected - counts.deleted)
    findings = []
    if alone and found != expected:
        findings.append(broken(f"{expected:,} rows came and did not go, a reader finds {found:,}"))
    says = f"{many(found, 'row')} found by a reader"
    says += ", as many as came and did not go" if alone else ", which others or expired epochs had a part in"
    return Check(seen.table, "bag", says, findings, {"found": found})


def check_others(seen: TableSeen) -> Check:
    """What others did to the table; whether it was right is theirs to say."""
    changes = _changes_by_others(seen)
    findings = [noted(_change(s), snapshot_id=s.snapshot_id) for s in changes]
    compactions = sum(_is_compaction(s) and 0 < s.added == s.removed for s in seen.others)
    numbers = {
        "changes": len(changes),
        "added": sum(s.added for s in changes),
        "removed": sum(s.removed for s in changes),
        "compactions": compactions,
    }
    says = "others changed the table" if changes else "nobody else changed its rows"
    if compactions:
        says += f"; {many(compactions, 'compaction')} kept every row"
    return Check(seen.table, "others", says, findings, numbers)


def check_dead_letters(anchor: TableSeen, side: TableSeen | None) -> Check:
    """The anchor's count of dead letters against the rows that their table took for the same offsets.

    A commit of the side table that lies across an edge of what the anchor's history knows, or beyond the
    anchor's frontier while a run is under way, counts for both answers; only those in between decide. So do those
    of offsets that the anchor gave up after a rollback, and what it counted of those that the side table gave up.
    """
    counted = sum(commit.record.counts.dead for commit in anchor.epochs)
    if side is None:
        finding = noted(f"{counted:,} dead letters were counted; the pipeline file no longer names their table")
        says = "no table for them"
        return Check(anchor.table, "dead letters", says, [finding] if counted else [], {"counted": counted})
    within, touching = _dead_rows(anchor, side)
    findings = []
    if not within <= counted <= touching:
        found = f"{within:,}" if within == touching else f"{within:,} to {touching:,}"
        findings.append(
            broken(
                f"{anchor.table} counted {counted:,} dead letters, {side.table} took {found} for the same offsets",
                snapshot_id=anchor.register.snapshot_id,
                epoch=anchor.register.epoch,
            )
        )
    says = f"{counted:,} counted by {anchor.table} are the rows that landed here"
    if not anchor.is_whole:
        says += " in the same epochs" if anchor.epochs else ", as far as its history goes: it has expired"
    return Check(side.table, "dead letters", says, findings, {"counted": counted, "landed": within})


def _dead_rows(anchor: TableSeen, side: TableSeen) -> tuple[int, int]:
    """Rows of the side table that surely, and that possibly, are of the epochs whose counts are known."""
    within = touching = 0
    for commit in side.epochs:
        zones = [_zone(anchor, partition, r.start, r.end) for partition, r in commit.covered.ranges.items()]
        landed = commit.record.counts.landed
        surely = all(zone == "inside" for zone in zones) and not anchor.gave_up(commit.covered)
        within += landed if surely else 0
        touching += landed if any(zone != "outside" for zone in zones) else 0
    if not side.is_whole:
        within += side.expired_rows if anchor.is_whole else 0
        touching += side.expired_rows
    touching += sum(commit.record.counts.dead for commit in anchor.epochs if side.gave_up(commit.covered))
    return within, touching


def _zone(anchor: TableSeen, partition: Partition, start: int, end: int) -> str:
    known = anchor.known.get(partition)
    frontier = anchor.register.frontier.offset(partition) or 0
    first = 0 if anchor.is_whole else (known.start if known else frontier)
    if first <= start and end <= frontier:
        return "inside"
    return "outside" if end <= first or start >= frontier else "across"


def _claims(commit: Commit) -> Iterator[Finding]:
    record, snapshot = commit.record, commit.snapshot
    counts = record.counts
    if snapshot.added != counts.landed:
        yield commit.broken(f"it says {counts.landed:,} rows landed, its files have {snapshot.added:,}")
    if snapshot.number("added-data-files") != record.data_files and not snapshot.is_merge:
        files = snapshot.number("added-data-files")
        yield commit.broken(f"it says {record.data_files:,} files, the snapshot added {files:,}")
    if snapshot.number("added-delete-files") != record.delete_files:
        files = snapshot.number("added-delete-files")
        yield commit.broken(f"it says {record.delete_files:,} delete files, the snapshot added {files:,}")
    if snapshot.removed and record.action != "overwrite" and not snapshot.is_merge:
        yield commit.broken(f"an epoch removed {snapshot.removed:,} rows")
    if not counts.add_up:
        yield commit.broken(f"{counts.delivered:,} delivered are not {_parts(counts)}")


def _parts(counts: Counts) -> str:
    """What became of the records, as a sum; a table of plain rows has neither deletes nor later changes."""
    parts = {"landed": counts.landed, "deleted": counts.deleted, "overtaken": counts.collapsed}
    some = [f"{number:,} {what}" for what, number in parts.items() if number or what == "landed"]
    return " + ".join([*some, f"{counts.filtered:,} filtered", f"{counts.dead:,} dead letters"])


def _totals(seen: TableSeen) -> Iterator[Finding]:
    """Each snapshot's total is its parent's, plus what it added, minus what it removed."""
    before = 0 if seen.is_whole else seen.expired_rows
    for snapshot in seen.history:
        if snapshot.total is None:
            return
        expected = before + snapshot.added - snapshot.removed
        if snapshot.total != expected:
            yield broken(
                f"the snapshot has {snapshot.total:,} rows, with its parent's it should be {expected:,}",
                snapshot_id=snapshot.snapshot_id,
            )
        before = snapshot.total


def _compaction(seen: TableSeen, snapshot: SnapshotSeen) -> Iterator[Finding]:
    if not _is_compaction(snapshot) or snapshot.added == snapshot.removed:
        return
    message = f"a compaction turned {snapshot.removed:,} rows into {snapshot.added:,}"
    hidden = any(s.hides_rows for s in seen.history) or not seen.is_whole
    if hidden and snapshot.added < snapshot.removed:
        yield noted(f"{message}: delete files hid the others", snapshot_id=snapshot.snapshot_id)
    else:
        yield broken(message, snapshot_id=snapshot.snapshot_id)


def _live(seen: TableSeen, files: FilesSeen) -> Iterator[Finding]:
    head = seen.head
    if head is not None and head.total is not None and head.total != files.rows:
        yield broken(
            f"the head says {head.total:,} rows, its data files have {files.rows:,}", snapshot_id=head.snapshot_id
        )
    kept = _kept_since(seen)
    for commit in seen.epochs:
        live, landed = files.rows_by_snapshot.get(commit.record.snapshot_id, 0), commit.record.counts.landed
        too_many = live > landed + commit.snapshot.number(COPIED)
        if too_many or (live < landed and commit.snapshot.sequence_number > kept):
            yield commit.broken(
                f"{landed:,} rows landed in it, {live:,} of them are live, and nobody says that they were removed"
            )


def _kept_since(seen: TableSeen) -> int:
    """The sequence number of the last snapshot that removed a file."""
    return max((s.sequence_number for s in seen.history if s.number("deleted-data-files")), default=-1)


def _changes_by_others(seen: TableSeen) -> list[SnapshotSeen]:
    return [s for s in seen.others if not _is_compaction(s) and (s.added or s.removed or s.hides_rows)]


def _is_compaction(snapshot: SnapshotSeen) -> bool:
    return snapshot.operation == "replace"


def _change(snapshot: SnapshotSeen) -> str:
    facts = []
    if snapshot.added:
        facts.append(f"added {many(snapshot.added, 'row')}")
    if snapshot.removed:
        facts.append(f"removed {many(snapshot.removed, 'row')}")
    if snapshot.hides_rows:
        positions = snapshot.number("added-position-deletes")
        keys = snapshot.number("added-equality-deletes")
        facts.append(f"hid rows with {positions:,} position and {keys:,} equality deletes")
    who = snapshot.summary.get("frazil.writer") or snapshot.summary.get("engine-name") or "somebody"
    return f"{who} {', '.join(facts)} ({snapshot.operation})"


def _sum(seen: TableSeen, counts: Counts, numbers: Mapping[str, int]) -> str:
    says = f"{counts.delivered:,} delivered = {_parts(counts)}; {numbers['live']:,} rows live"
    if seen.is_whole:
        return says
    frontier = seen.register.frontier.positions
    offsets = sum(seen.known[p].start if p in seen.known else here.offset for p, here in frontier.items())
    before = f"epoch {seen.epochs[0].record.epoch}" if seen.epochs else "what is left of the history"
    return f"{says}; before {before}, known by count only: {numbers['expired']:,} rows for {offsets:,} offsets"
