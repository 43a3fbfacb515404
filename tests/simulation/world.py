"""One history: what happens next is drawn, until it is enough; then the weather clears up."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from frazil.engine.run import RunOptions
from frazil.errors import DataLoss, SourceChanged, TableChanged
from frazil.protocol.positions import Frontier
from frazil.table.memory import Fault
from tests.simulation.broker import Broker
from tests.simulation.happenings import Happenings
from tests.simulation.lake import DistantLake
from tests.simulation.oracle import Broken, require_explained, require_promises, require_reached
from tests.simulation.process import Process, Write
from tests.simulation.settings import Settings
from tests.simulation.stage import PATIENCE, staged
from tests.simulation.table import DistantTable
from tests.simulation.workers import Workers

FAULTS = {Fault.REFUSED: 2, Fault.REPLY_LOST: 3, Fault.DELAYED: 4}
"""and how likely each is"""
LAST_TURNS_MAX = 2000
ZOMBIE_TURNS_MAX = 40
CRASH_LOOP = 3
SILENCE = PATIENCE.attempts
"""as many looks as a coordinator takes before it calls an outcome unknown"""


@dataclass(frozen=True)
class Told:
    """One line of a history."""

    now_ms: int
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.now_ms / 1000:10.3f}  {self.who:<15} {self.what}"


class World:
    """Everything there is, and the one random number generator that moves it."""

    def __init__(self, seed: int, **changes: object) -> None:
        """`changes` to what the seed draws as settings."""
        self.seed = seed
        self.random = random.Random(seed)
        self.settings = replace(Settings.draw(self.random), **changes)  # type: ignore[arg-type]
        self.now_ms = 1_000_000
        self.current: Process | None = None
        self.trace: list[Told] = []
        self.counts: Counter[str] = Counter()
        self.defects: list[str] = []
        self.disasters: set[str] = set()
        self.processes: list[Process] = []
        self.ended_rolled_back = False
        """whether the last coordinator left a table rolled back; those who were held back may still make amends"""
        self.anchor = self._table("shop.orders", keyed=True)
        self.dead = self._table("shop.orders__dead", keyed=False) if self.settings.has_dead_letters else None
        self.broker = Broker(self, ["orders", "returns"][: self.settings.topics])
        for topic in self.broker.ids:
            for _ in range(self.random.randint(1, 2)):
                self.broker.add_partition(topic)
        self.workers = Workers(self)
        self.happenings = Happenings(self)

    def _table(self, name: str, *, keyed: bool) -> DistantTable:
        return DistantLake(name, self, keyed=keyed) if self.settings.is_delta else DistantTable(name, self)

    def run(self) -> None:
        """The whole history; raises `Broken` if a promise was."""
        with self.begun():
            for step in range(self.settings.steps):
                if step == self.settings.disaster_step and self.settings.disaster is not None:
                    self.happenings.disaster(self.settings.disaster)
                self._step()
                if self._is_crash_loop():
                    break
            self.finish()

    @contextmanager
    def begun(self) -> Iterator[None]:
        """While it lasts, processes live in this world; none outlives it."""
        with staged(self):
            try:
                yield
            finally:
                for process in self.living:
                    process.kill()

    def _is_crash_loop(self) -> bool:
        """Supervisors give up when several starts in a row end the same way."""
        ends = {type(process.error) for process in self.processes[-CRASH_LOOP:] if process.is_ended}
        stuck = len(ends) == 1 and ends <= {DataLoss, SourceChanged, TableChanged}
        return stuck and len(self.processes) >= CRASH_LOOP and not self.living

    def _step(self) -> None:
        weights, happenings = zip(*self.happenings.possible(), strict=True)
        self.random.choices(happenings, weights)[0]()
        self._require_sane()

    def finish(self) -> None:
        """1. one last coordinator under a clear sky, 2. all that is still under way comes too late,
        3. so do those who were held back, 4. the promises."""
        self._clear_up()
        zombies = self.living
        choice = self.happenings.choice_after_rollback()
        last = self.start(RunOptions(available_now=True, take_over=True, on_rollback=choice))
        self.drive(last, LAST_TURNS_MAX)
        if not last.is_ended:
            raise Broken("D: the last coordinator never comes to an end")
        self.ended_rolled_back = any(table.is_rolled_back for table in self.tables)
        if last.error is None:
            require_reached(self)
            if any(table.release() for table in self.tables):
                raise Broken("C: a commit landed that was given up for lost before the last coordinator started")
        for zombie in zombies:
            zombie.is_paused = False
            self.drive(zombie, ZOMBIE_TURNS_MAX)
        self._require_sane()
        require_promises(self)
        for process in self.processes:
            require_explained(self, process, is_last=process is last)

    def _clear_up(self) -> None:
        self.settings.storminess = 0.0
        for table in self.tables:
            table.silences = 0
            table.faults.clear()
        self.tell("weather", "clears up")

    def drive(self, process: Process, turns: int) -> None:
        """Only this one runs, and its workers."""
        for _ in range(turns):
            if process.is_ended:
                return
            if process.is_runnable:
                process.turn()
            for write in process.writes:
                if not write.done():
                    write.perform()

    def _require_sane(self) -> None:
        if self.defects:
            raise Broken(self.defects[0])

    @property
    def process(self) -> Process:
        """The one that has the baton."""
        assert self.current is not None
        return self.current

    @property
    def tables(self) -> list[DistantTable]:
        return [self.anchor] if self.dead is None else [self.dead, self.anchor]

    @property
    def living(self) -> list[Process]:
        return [process for process in self.processes if not process.is_ended]

    @property
    def runnable(self) -> list[Process]:
        return [process for process in self.living if process.is_runnable]

    @property
    def pending(self) -> list[Write]:
        return [write for process in self.living for write in process.writes if not write.done()]

    def start(self, options: RunOptions) -> Process:
        host = self.random.choice("ab")
        process = Process(self, f"{host}/{len(self.processes) + 1}", options)
        self.processes.append(process)
        self.count("coordinators")
        self.tell(process.name, f"is started, {options}")
        return process

    def tell(self, who: str, what: str) -> None:
        self.trace.append(Told(self.now_ms, who, what))

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times

    def pause(self, doing: str) -> None:
        """Somebody touches the world; the world's own hands are not interrupted."""
        if self.current is not None:
            self.current.pause(doing)

    def hurt(self) -> None:
        if self.current is not None:
            self.current.hurt += 1

    def happens(self, share: float, what: str) -> bool:
        """Whether a fault comes, as often as the weather has it."""
        if self.random.random() >= share * self.settings.storminess:
            return False
        self.count(what.removeprefix("shop.orders__dead ").removeprefix("shop.orders "))
        self.tell("weather", what)
        return True

    def commit_faults(self, table: DistantTable, action: str) -> list[Fault]:
        """What becomes of the next commits; where the network fails, it often does for longer than patience lasts.

        Starts have better weather: who does not get past them has no adventures.
        """
        if self.random.random() >= self.settings.storminess * (0.3 if action == "start" else 1.0):
            return [Fault.NONE]
        lies = self.settings.liar and not self.settings.is_delta
        kinds = {**FAULTS, Fault.ACKNOWLEDGED_ONLY: 1} if lies else FAULTS
        fault = self.random.choices(list(kinds), list(kinds.values()))[0]
        times = self.random.choice((1, 1, 1, 1, 2, 5))
        long = SILENCE if fault is Fault.DELAYED else 0
        table.silences = self.random.choice((0, self.random.randint(1, 6), long))
        self.count(f"commits {fault.name.lower().replace('_', ' ')}", times)
        self.tell("weather", f"{table.name}: {fault.value}, {times} times; then no answer {table.silences} times")
        return [fault] * times

    @property
    def was_lied_to(self) -> bool:
        return self.counts["commits acknowledged only"] > 0

    def skew_ms(self, process: str) -> int:
        return self.settings.skew_ms if process.startswith("b/") else 0

    def is_known_dead(self, process: str) -> bool:
        """Only those of the same host are known."""
        same_host = process[:2] == self.process.name[:2]
        return same_host and all(each.name != process for each in self.living)

    def require_committed(self, frontier: Frontier) -> None:
        """COMMIT-20: nobody is told of progress that is not in the table."""
        committed = [s.register.frontier for s in reversed(self.anchor.ledger) if s.register is not None]
        if self.was_lied_to or "recreation of the anchor" in self.disasters:
            return
        if not any(each.covers(frontier) for each in committed):
            self.defects.append(f"C: {frontier.encode()} was acknowledged before it was committed")
