"""The live view of `frazil run` on a terminal."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table as Grid
from rich.text import Text

from frazil.engine.events import (
    BacklogSeen,
    EpochCarried,
    EpochLanded,
    EpochPlanned,
    Event,
    PipelineStarted,
    Retrying,
    Stopping,
)
from frazil.pipeline.secrets import mask

_RATE_WINDOW_S = 30.0


class LiveView:
    """Watches a run and redraws a few times a second; an observer and a context manager."""

    def __init__(self, pipeline: str, table: str, console: Console) -> None:
        self._pipeline = pipeline
        self._table = table
        self._state = "starting"
        self._ui: str | None = None
        self._epoch = 0
        self._in_flight: set[int] = set()
        self._lag: int | None = None
        self._rows = self._dead = self._filtered = self._epochs = 0
        self._last_commit: tuple[float, int] | None = None
        self._rates: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=4)

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def __call__(self, event: Event) -> None:
        match event:
            case PipelineStarted():
                self._state, self._epoch, self._ui = "running", event.epoch, event.ui
                self._rates = deque([(time.monotonic(), 0)])
            case BacklogSeen(records):
                self._lag = records
                self._recover()
            case EpochPlanned(epoch):
                self._in_flight.add(epoch)
                self._recover()
            case EpochLanded(landed):
                self._in_flight.discard(landed.epoch)
                self._epoch = landed.epoch
                self._epochs += 1
                self._rows += landed.counts.landed
                self._dead += landed.counts.dead
                self._filtered += landed.counts.filtered
                self._last_commit = (time.monotonic(), landed.commit_ms)
                self._rates.append((time.monotonic(), landed.counts.delivered))
            case EpochCarried(epoch):
                self._in_flight.discard(epoch)
            case Retrying():
                self._in_flight.clear()
                self._state = mask(f"retrying in {event.delay_s:.1f} s: {event.reason}")
            case Stopping(reason):
                self._state = f"stopping: {reason}"
            case _:
                pass

    def _recover(self) -> None:
        if self._state.startswith("retrying"):
            self._state = "running"

    def render(self) -> RenderableType:
        grid = Grid.grid(padding=(0, 2))
        grid.add_column(style="dim", justify="right")
        grid.add_column()
        grid.add_row("state", Text(self._state, style="green" if self._state == "running" else "yellow"))
        grid.add_row("epoch", f"{self._epoch}  ({len(self._in_flight)} in flight)")
        grid.add_row("landed", f"{self._rows:,} rows in {self._epochs:,} epochs of this run")
        grid.add_row("rate", f"{self._rate():,.0f} records/s")
        grid.add_row("lag", "–" if self._lag is None else f"{self._lag:,} records")
        if self._dead or self._filtered:
            grid.add_row("aside", f"{self._dead:,} dead letters, {self._filtered:,} filtered")
        grid.add_row("last commit", self._last())
        if self._ui:
            grid.add_row("Spark UI", self._ui)
        return Panel(grid, title=f"{self._pipeline} → {self._table}", title_align="left", expand=False)

    def _rate(self) -> float:
        now = time.monotonic()
        while len(self._rates) > 1 and now - self._rates[1][0] > _RATE_WINDOW_S:
            self._rates.popleft()
        since = now - self._rates[0][0]
        return sum(records for _, records in list(self._rates)[1:]) / since if since > 0 else 0.0

    def _last(self) -> str:
        if self._last_commit is None:
            return "none yet"
        at, commit_ms = self._last_commit
        return f"{time.monotonic() - at:.0f} s ago, took {commit_ms} ms"
