"""What happened how often: for people as a table, for machines as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from rich import box
from rich.table import Table

from tests.certify.faults import FAULTS


@dataclass
class Report:
    """The counts of one certification."""

    seed: int
    kind: str = "iceberg"
    """which kind of table was written"""
    meaningless: tuple[str, ...] = ()
    """faults that cannot happen to this kind of table, or on this machine"""
    faults: Counter[str] = field(default_factory=Counter)
    """by name; a fault counts once it is over and frazil did what was expected of it"""
    kills: int = 0
    """processes that ended by SIGKILL: drivers, JVMs, workers, brokers; a whole tree at once counts as one"""
    lives: int = 0
    """how often `frazil run` was started"""
    fenced: int = 0
    """lives that woke up replaced, said so and ended with 1"""
    generations: int = 0
    """starts that got as far as their commit, as the table counts them"""
    epochs: int = 0
    """the number of the last epoch in the table"""
    records: int = 0
    """what a read_committed consumer finds in the topic in the end"""
    rows: int = 0
    dead_letters: int = 0
    foreign_rows: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    verifications: int = 0
    """runs of `frazil verify`; each ended with 0"""
    deep_verifications: int = 0
    """of these, the ones that compared every record with the topic"""
    broken: str | None = None
    """the promise that was not kept"""
    seconds: float = 0.0

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "faults": {name: self.faults[name] for name in FAULTS}}

    def table(self) -> Table:
        grid = Table(
            box=box.SIMPLE,
            show_header=False,
            title=f"certification of {self.kind}, seed {self.seed}",
            title_justify="left",
        )
        grid.add_column()
        grid.add_column(justify="right")
        for name in FAULTS:
            grid.add_row(name, "cannot happen here" if name in self.meaningless else f"{self.faults[name]:,}")
        grid.add_section()
        for name, value in asdict(self).items():
            if name not in {"seed", "kind", "meaningless", "faults", "broken", "seconds"}:
                grid.add_row(name.replace("_", " "), f"{value:,}")
        grid.add_row("time", f"{self.seconds / 60:.1f} min")
        return grid
