"""One life of one coordinator: a thread that runs only while it holds the baton."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from frazil.engine.epoch import WrittenEpoch
from frazil.engine.events import BacklogSeen, EpochLanded, EpochPlanned, Event, Retrying
from frazil.engine.run import Engine, RunOptions
from frazil.errors import FrazilError, WorkerFailed
from frazil.journal import NO_JOURNAL
from tests.simulation.broker import DriverSource

if TYPE_CHECKING:
    from tests.simulation.world import World


class Killed(BaseException):
    """The process is gone; nothing it does on the way out touches the world."""


class Process:
    """The engine of one coordinator; `turn` lets it go on until it gives the baton back."""

    def __init__(self, world: World, name: str, options: RunOptions) -> None:
        self.name = name
        self.options = options
        self.is_paused = False
        self.is_ended = False
        self.error: FrazilError | None = None
        self.hurt = 0
        """how often the world did it wrong: only then may it give up"""
        self.stop = Wish(self)
        self.writes: list[Write] = []
        self._world = world
        self._is_killed = False
        self._wakes_ms = 0
        self._waits_for: Write | None = None
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    @property
    def is_runnable(self) -> bool:
        return not self.is_paused and (self._waits_for is None or self._waits_for.done())

    def turn(self) -> None:
        """Called by the world."""
        self._world.now_ms = max(self._world.now_ms + 1, self._wakes_ms)
        self._world.current = self
        self._go.release()
        self._back.acquire()
        self._world.current = None

    def kill(self) -> None:
        """Called by the world: it never gets to do anything again."""
        self._is_killed = True
        while not self.is_ended:
            self.turn()

    def pause(self, doing: str) -> None:
        """Called by the process wherever it touches the world; somebody else may have a turn."""
        if self._is_killed:
            raise Killed
        self._world.tell(self.name, doing)
        if self._world.random.random() < self._world.settings.restlessness:
            self._give_back()

    def sleep(self, seconds: float) -> None:
        self._wakes_ms = self._world.now_ms + round(seconds * 1000)
        self._give_back()

    def await_any(self, writes: Sequence[Write], seconds: float) -> None:
        """As `concurrent.futures.wait`, which may well return before anything is done."""
        if not any(write.done() for write in writes):
            self.sleep(seconds)

    def wait_for(self, write: Write) -> None:
        while not write.done():
            self._waits_for = write
            self._give_back()
        self._waits_for = None

    def _give_back(self) -> None:
        if self._is_killed:
            raise Killed
        self._back.release()
        self._go.acquire()
        if self._is_killed:
            raise Killed

    def _live(self) -> None:
        self._go.acquire()
        try:
            if not self._is_killed:
                self._engine().run()
                self._world.tell(self.name, "is done")
        except Killed:
            pass
        except FrazilError as error:
            self.error = error
            self._world.tell(self.name, f"stops with {type(error).__name__}: {error.message}")
        except BaseException as defect:
            self._world.defects.append(f"{self.name} dies of {defect!r}")
            self._world.tell(self.name, f"dies of {defect!r}")
        finally:
            self.is_ended = True
            self._back.release()

    def _engine(self) -> Engine:
        world = self._world
        context = SimpleNamespace(uiWebUrl=None, cancelJobGroup=self._cancel)
        parts = SimpleNamespace(
            spec=world.settings.spec,
            source=DriverSource(world, self),
            anchor=world.anchor,
            sides=[] if world.dead is None else [world.dead],
            dead_letters=world.dead,
            journal=NO_JOURNAL,
            spark=SimpleNamespace(sparkContext=context),
        )
        return Engine(cast(Any, parts), self._told, self.options, self.stop)

    def _told(self, event: Event) -> None:
        match event:
            case BacklogSeen():
                return
            case EpochPlanned(epoch, span):
                self.pause(f"plans epoch {epoch}: {span.encode()}")
            case EpochLanded(landed):
                self.pause(f"is told that epoch {landed.epoch} has landed")
            case Retrying(reason):
                late, unknown = "landed after all" in reason, reason.startswith("Transaction")
                known = "late landings" if late else "written again" if "was altered" in reason else None
                self._world.count(known or ("outcomes unknown" if unknown else "retries"))
                self.pause(f"tries again: {reason}")
            case _:
                self.pause(type(event).__name__)

    def _cancel(self, _group: str) -> None:
        for write in self.writes:
            write.cancel()


class Wish(threading.Event):
    """A wish to stop; waiting for it is sleeping."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self._process.sleep(timeout or 0.0)
        return self.is_set()


@dataclass
class Write:
    """An epoch that workers write, some time between now and later; stands where a `Future` would."""

    process: Process
    work: Callable[[], WrittenEpoch]
    outcome: WrittenEpoch | None = None
    error: Exception | None = None

    def perform(self) -> None:
        """Called by the world."""
        try:
            self.outcome = self.work()
        except FrazilError as error:
            self.error = error
            self.process.hurt += 1

    def cancel(self) -> None:
        """May come too late."""
        if not self.done() and self.process._world.random.random() < 0.5:
            self.error = WorkerFailed("the job was cancelled")

    def done(self) -> bool:
        return self.outcome is not None or self.error is not None

    def result(self) -> WrittenEpoch:
        self.process.wait_for(self)
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome


class Pool:
    """Stands where the engine's `ThreadPoolExecutor` would."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to wait for: the engine has waited for every write, whatever ended it."""

    def submit(self, work: Callable[..., WrittenEpoch], *arguments: object) -> Write:
        write = Write(self._process, lambda: work(*arguments))
        self._process.writes = [each for each in self._process.writes if not each.done()]
        self._process.writes.append(write)
        return write
