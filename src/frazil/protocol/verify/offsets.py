"""The table and its dead letters against the topic, record by record: what to compare, and what it means.

Per partition there are up to four stretches:

    0 ──────── low ──────────── counted ─────────── high ────────▶
      the topic    compared with    its epochs'         nothing may
      lost these   the topic        counts are known    be here yet

`low` is the later of the topic's log start and the offset that the pipeline started at, `high` the frontier.
Rows below `low` can only be looked through for doubles. Where a query stands between topic and table, offsets
may be missing, as many as the epochs say were filtered; that can be told only of the counted stretch, which
begins after whatever was given up.

    found                                           without a query     with one
    in the topic, neither in table nor dead         broken              as many as were filtered
      and given up by the user after a rollback     noted               noted
    more than once in table and dead letters        broken              noted if the counts add up
    in the topic, later than the resolved time      waits: counted when it lands
    in the table, not in the topic                  broken              broken
      and the topic is compacted                    noted               noted
    in the table at or beyond the frontier          broken              broken
    of no topic of the pipeline                     noted               noted
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from frazil.protocol.plan import Log, SourceObserved
from frazil.protocol.positions import Partition, Range, Span, name_partition
from frazil.protocol.verify.finding import Check, Finding, Level, broken, many, noted
from frazil.protocol.verify.seen import Commit, TableSeen

SAMPLE = 5
"""So many offsets of each kind are named."""


@dataclass(frozen=True, slots=True)
class Window:
    """What to compare of one partition; see the drawing above."""

    partition: Partition
    low: int
    counted: int
    high: int
    dead_high: int
    """the dead letters' own frontier, which may be ahead"""
    given_up: tuple[Range, ...] = ()
    """what may be missing, on the user's word"""


@dataclass(frozen=True)
class Comparison:
    """All there is to compare, and what stands in the way."""

    windows: Sequence[Window]
    epochs: Sequence[Commit]
    """those that lie within the counted stretches"""
    obstacles: Sequence[Finding] = ()

    @property
    def span(self) -> Span:
        """What is read from the topic."""
        return Span({w.partition: Range(w.low, w.high) for w in self.windows if w.low < w.high})

    @property
    def delivered(self) -> int:
        return sum(commit.record.counts.delivered for commit in self.epochs)

    @property
    def filtered(self) -> int:
        return sum(commit.record.counts.filtered for commit in self.epochs)


@dataclass(slots=True)
class Tally:
    """What one partition came to; tallies of several tasks add up."""

    records: int = 0
    rows: int = 0
    dead: int = 0
    below: int = 0
    """rows and dead letters whose records the topic no longer has"""
    records_counted: int = 0
    missing_counted: int = 0
    surplus_counted: int = 0
    missing: int = 0
    doubled: int = 0
    """offsets that are there more than once"""
    surplus: int = 0
    """rows beyond the first of each offset"""
    strangers: int = 0
    beyond: int = 0
    given_up: int = 0
    """missing, on the user's word"""
    samples: dict[str, list[int]] = field(default_factory=dict)
    """the first offsets of each kind"""

    def __add__(self, other: Tally) -> Tally:
        total = Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)[:-1]))
        for kind in {*self.samples, *other.samples}:
            both = sorted([*self.samples.get(kind, ()), *other.samples.get(kind, ())])
            total.samples[kind] = both[:SAMPLE]
        return total

    def to_json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


def plan_comparison(
    anchor: TableSeen, side: TableSeen | None, seen: SourceObserved, *, from_earliest: bool
) -> Comparison:
    """Decides what can be compared.

    Once the first epochs have expired, only a pipeline that began at the earliest offset is known to have
    everything from the log start on; for others, it is what the history still knows.
    """
    obstacles: list[Finding] = []
    lows: dict[Partition, int] = {}
    highs: dict[Partition, int] = {}
    for partition, position in sorted(anchor.register.frontier.positions.items()):
        log = seen.logs.get(partition)
        if log is None or _is_another_topic(anchor, seen, partition[0]):
            obstacles.append(_incomparable(partition, log))
            continue
        if log.end < position.offset:
            obstacles.append(_truncated(partition, log.end, position.offset))
        known = anchor.known.get(partition)
        begun = known.start if known else position.offset
        if not anchor.is_whole and from_earliest:
            begun = 0
        highs[partition] = min(position.offset, log.end)
        lows[partition] = min(max(begun, log.earliest), highs[partition])
    given_up = {p: _given_up(anchor, side, p) for p in lows}
    floors = {p: max([low, *(r.end for r in given_up[p])]) for p, low in lows.items()}
    epochs = _countable(anchor.epochs, floors)
    counted = {p: min(r.start for r in ranges) for p, ranges in _ranges(epochs).items()}
    windows = [
        Window(p, lows[p], counted.get(p, highs[p]), highs[p], _side_frontier(side, p, highs[p]), given_up[p])
        for p in lows
    ]
    return Comparison(windows, epochs, obstacles)


def check_offsets(
    anchor: TableSeen,
    comparison: Comparison,
    tallies: Mapping[Partition, Tally],
    *,
    has_query: bool,
    has_origin: bool,
    strangers: int,
    compacted: frozenset[str] = frozenset(),
    is_keyed: bool = False,
) -> Check:
    """Weighs what the comparison came to; without columns of origin, only counts can be.

    Of a table with keys, later changes take rows of earlier records away: what is there must be of the topic, and
    once, but nothing can be missing.
    """
    total = sum(tallies.values(), Tally())
    findings = list(comparison.obstacles)
    if any(commit.record.resolved for commit in anchor.epochs):
        findings += _delivered_or_waiting(anchor, comparison, total, compacted)
    else:
        findings += _delivered(comparison, total, compacted)
    # Of a table with keys, only a query makes several rows of one record, or none.
    filters = has_query or (not is_keyed and any(commit.record.counts.filtered for commit in anchor.epochs))
    if has_origin:
        if filters and not is_keyed:
            findings += _filtered(comparison, total)
        for partition, tally in sorted(tallies.items()):
            findings += _partition(partition, tally, filters, partition[0] in compacted, is_keyed)
    if strangers:
        findings.append(noted(f"{many(strangers, 'row')} of no topic of this pipeline: others wrote them"))
    numbers = {key: value for key, value in total.to_json().items() if isinstance(value, int)}
    numbers["others_rows"] = strangers
    return Check(anchor.table, "offsets", _says(comparison, total, filters, has_origin), findings, numbers)


def _is_another_topic(anchor: TableSeen, seen: SourceObserved, topic: str) -> bool:
    recorded, found = anchor.register.frontier.topic_ids.get(topic), seen.topic_ids.get(topic)
    return recorded is not None and found is not None and recorded != found


def _incomparable(partition: Partition, log: Log | None) -> Finding:
    why = "is in the frontier, but not in the topic" if log is None else "is of another topic than the frontier's"
    return broken(f"{name_partition(partition)} {why}: nothing of it can be compared", partition=partition)


def _truncated(partition: Partition, end: int, frontier: int) -> Finding:
    return broken(
        f"{name_partition(partition)} ends at {end}, before the frontier {frontier}: its log was truncated",
        partition=partition,
    )


def _given_up(anchor: TableSeen, side: TableSeen | None, partition: Partition) -> tuple[Range, ...]:
    sides = side.given_up.get(partition, []) if side is not None else []
    return (*anchor.given_up.get(partition, []), *sides)


def _countable(epochs: Sequence[Commit], lows: Mapping[Partition, int]) -> list[Commit]:
    """The newest epochs, back to the first one that the topic no longer holds whole, or that was given up."""
    countable: list[Commit] = []
    for commit in reversed(epochs):
        if any(r.start < lows.get(p, r.end) for p, r in commit.covered.ranges.items()):
            break
        countable.append(commit)
    return countable[::-1]


def _ranges(epochs: Sequence[Commit]) -> dict[Partition, list[Range]]:
    ranges: dict[Partition, list[Range]] = {}
    for commit in epochs:
        for partition, r in commit.covered.ranges.items():
            ranges.setdefault(partition, []).append(r)
    return ranges


def _side_frontier(side: TableSeen | None, partition: Partition, high: int) -> int:
    return high if side is None else max(high, side.register.frontier.offset(partition) or 0)


def _delivered(comparison: Comparison, total: Tally, compacted: frozenset[str]) -> list[Finding]:
    if comparison.obstacles or total.records_counted == comparison.delivered:
        return []
    message = (
        f"the topic has {total.records_counted:,} records in the spans of these epochs, which say that "
        f"{comparison.delivered:,} were delivered"
    )
    return [noted(f"{message}; the topic is compacted") if compacted else broken(message)]


def _delivered_or_waiting(
    anchor: TableSeen, comparison: Comparison, total: Tally, compacted: frozenset[str]
) -> list[Finding]:
    """With resolved times a record counts in the epoch that its change lands in, which may be later than its span.

    So the first epochs that are known may count records of earlier spans, unless there were none before them.
    """
    if comparison.obstacles or not anchor.is_whole or len(comparison.epochs) < len(anchor.epochs):
        return []
    positions = anchor.register.frontier.positions.values()
    waiting = total.records_counted - comparison.delivered
    if 0 <= waiting <= sum(position.offset - position.unsettled for position in positions):
        return []
    return _delivered(comparison, total, compacted)


def _filtered(comparison: Comparison, total: Tally) -> list[Finding]:
    """A query that returns a record twice makes up for one that it leaves out, in the counts as well."""
    absent = total.missing_counted - total.surplus_counted
    if absent == comparison.filtered:
        return []
    return [broken(f"{absent:,} records are not in the table, but {comparison.filtered:,} were filtered")]


def _partition(partition: Partition, tally: Tally, filters: bool, compacted: bool, is_keyed: bool) -> list[Finding]:
    findings = []

    def add(say: Callable[..., Finding], kind: str, count: int, what: str) -> None:
        if count:
            sample = tally.samples.get(kind, [])
            named = ", ".join(map(str, sample)) + (", …" if count > len(sample) else "")
            findings.append(
                say(f"{name_partition(partition)}: {many(count, 'offset')} {what}: {named}", partition=partition)
            )

    if not filters and not is_keyed:
        add(broken, "missing", tally.missing, "missing")
    add(noted, "given_up", tally.given_up, "missing, given up by the user after a rollback")
    hint = "more than once, which the query may have meant" if filters else "more than once"
    add(noted if filters else broken, "doubled", tally.doubled, hint)
    gone = "in the table, no longer in the compacted topic" if compacted else "in the table, but not in the topic"
    add(noted if compacted else broken, "strangers", tally.strangers, gone)
    add(broken, "beyond", tally.beyond, "in the table beyond the frontier")
    return findings


def _says(comparison: Comparison, total: Tally, filters: bool, has_origin: bool) -> str:
    if not has_origin:
        return (
            f"{total.records_counted:,} records in the topic for {comparison.delivered:,} delivered; the table "
            "has no _topic, _kafka_partition and _offset, so that only counts can be compared"
        )
    says = (
        f"{many(total.records, 'record')} in the topic, "
        f"{many(total.rows, 'row')} and {many(total.dead, 'dead letter')} here"
    )
    says += f", {comparison.filtered:,} filtered" if filters else ""
    if total.below:
        says += f"; {total.below:,} more are older than the topic's log, and were looked through for doubles only"
    return says


def not_compared(anchor: TableSeen) -> Check:
    """For a table that cannot be read."""
    finding = noted("not compared with the topic: the table cannot be read without these files")
    return Check(anchor.table, "offsets", "", [finding])


def is_readable(checks: Sequence[Check]) -> bool:
    """Not so if a file is missing, or is another one."""
    return all(check.level < Level.BROKEN for check in checks if check.name == "files")
