"""What a verification says: findings, the checks they belong to, and the verdict over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from frazil.protocol.positions import Partition


class Level(IntEnum):
    """How bad it is; the worst one counts."""

    HOLDS = 0
    NOTED = 1
    """no fault of the pipeline, but somebody should know"""
    BROKEN = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be, and where."""

    level: Level
    message: str
    snapshot_id: int | None = None
    epoch: int | None = None
    partition: Partition | None = None
    path: str | None = None


@dataclass(frozen=True)
class Check:
    """One question asked of one table, and the answer."""

    table: str
    name: str
    says: str
    findings: Sequence[Finding] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)

    @property
    def level(self) -> Level:
        return max((finding.level for finding in self.findings), default=Level.HOLDS)


@dataclass(frozen=True)
class Verdict:
    """All checks of one pipeline."""

    pipeline: str
    checks: Sequence[Check]
    deep: bool = False

    @property
    def level(self) -> Level:
        return max((check.level for check in self.checks), default=Level.HOLDS)

    @property
    def findings(self) -> list[tuple[Check, Finding]]:
        return [(check, finding) for check in self.checks for finding in check.findings]


def many(count: int, noun: str) -> str:
    """`1 file`, `2,000 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def broken(
    message: str,
    *,
    snapshot_id: int | None = None,
    epoch: int | None = None,
    partition: Partition | None = None,
    path: str | None = None,
) -> Finding:
    return Finding(Level.BROKEN, message, snapshot_id, epoch, partition, path)


def noted(
    message: str,
    *,
    snapshot_id: int | None = None,
    epoch: int | None = None,
    partition: Partition | None = None,
) -> Finding:
    return Finding(Level.NOTED, message, snapshot_id, epoch, partition)
