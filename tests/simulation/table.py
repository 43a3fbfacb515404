"""The shipped table in memory, at the far end of a bad network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from frazil.errors import CatalogUnavailable
from frazil.protocol.commit import Proposal, TableObserved
from frazil.protocol.layout import Layout
from frazil.protocol.register import Register
from frazil.protocol.summary import PREFIX
from frazil.table import WrittenFile
from frazil.table.memory import MemoryTable
from frazil.table.refusal import CommitRefused
from tests.simulation.broker import Row

if TYPE_CHECKING:
    from tests.simulation.world import World


class DistantTable(MemoryTable):
    """Every call can be overtaken by somebody else's, before and after it is carried out."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, lambda: world.now_ms)
        self._world = world
        self._lives = 1
        self._uuid = f"{name} 1"
        self.before_swap = self._between
        self.contents: dict[str, tuple[Row, ...]] = {}
        self.was_moved = False
        """whether a user has ever set its head"""
        self.misplaced: set[int] = set()
        """commits of ours on top of a rollback that they do not know of; only Delta takes such"""
        self.keyed = False
        """whether a row that lands again takes the place of the one that was there"""
        self.will_expire = False
        """after a rollback either others write or history expires: both together hide it for good"""
        self.dropped: set[Row] = set()
        """what it held when it was dropped and created again"""
        self.written_for: dict[str, Layout] = {}
        """of each file of ours, what the table was like for the worker that wrote it"""
        self._readable = {Layout()}
        """what the table was like since users last altered it so that older files do not fit"""

    def observe(self, writer: str, proposal: Proposal | None = None) -> TableObserved:
        self._world.pause(f"looks at {self.name}")
        if self.silences > 0:
            self._world.hurt()
        if self._world.happens(0.15, f"{self.name} gives no answer"):
            self._world.hurt()
            raise CatalogUnavailable(f"{self.name} gave no answer")
        seen = super().observe(writer, proposal)
        if self.is_delayed and self._world.happens(0.8, "delayed commits arrive right after a look"):
            self.let_through()
        self._world.pause(f"sees {self.name} at {brief(seen.register)}")
        return seen

    def commit(self, proposal: Proposal, files: Sequence[WrittenFile]) -> Register:
        action = proposal.summary[f"{PREFIX}action"]
        self._world.pause(f"commits to {self.name}: {action}, {brief(proposal.register)}, {len(files)} files")
        if not self.faults:
            self.faults.extend(self._world.commit_faults(self, action))
        try:
            register = super().commit(proposal, files)
        except CommitRefused as refused:
            self._world.count("commits refused inside")
            self._world.hurt()
            self._world.pause(f"is told: {str(refused)[:100]}")
            raise
        except Exception as error:
            self._world.hurt()
            self._world.pause(f"is told: {error}")
            raise
        self._world.pause(f"is told that {brief(register)} is in {self.name}")
        return register

    @property
    def is_delayed(self) -> bool:
        """Whether commits are still under way that nobody waits for any more."""
        return bool(self.delayed)

    def path_of(self, epoch: int, number: int) -> str:
        """Where a worker puts a file."""
        return f"{self.name}/{number}.parquet"

    def release(self) -> int:
        """Nobody's turn: what arrives late is judged and swapped at one go."""
        self.before_swap, hook = lambda: None, self.before_swap
        try:
            return super().release()
        finally:
            self.before_swap = hook

    def _between(self) -> None:
        self._world.pause(f"is between judgement and swap on {self.name}")

    def delete_files(self, paths: Sequence[str]) -> None:
        self._world.pause(f"deletes {len(paths)} files of {self.name}")
        if self._world.happens(0.9, "a file cannot be deleted"):
            super().delete_files(paths[: len(paths) // 2])
            raise PermissionError(13, "denied")
        self._world.count("files deleted", len(paths))
        super().delete_files(paths)

    def set_head(self, snapshot_id: int | None) -> None:
        super().set_head(snapshot_id)
        self.was_moved = True

    @property
    def is_rolled_back(self) -> bool:
        """Told by the table's whole past, not by the product: our last snapshot is no ancestor of the head."""
        ours = [snapshot.id for snapshot in self.ledger if snapshot.register is not None]
        if not self.was_moved or not ours:
            return False
        return ours[-1] in self.misplaced or ours[-1] not in self.line(self.head)

    def line(self, snapshot_id: int | None) -> set[int]:
        """A snapshot and all of its ancestors, expired or not."""
        parents = {snapshot.id: snapshot.parent for snapshot in self.ledger}
        found = set()
        while snapshot_id is not None:
            found.add(snapshot_id)
            snapshot_id = parents[snapshot_id]
        return found

    @property
    def snapshots(self) -> int:
        return len(self._state.lineage())

    def moments(self) -> list[tuple[int, int]]:
        """When the head and its ancestors were committed, and their ids, oldest first."""
        return [(snapshot.timestamp_ms, snapshot.id) for snapshot in self._state.lineage()]

    @property
    def head(self) -> int | None:
        return self._state.head

    def lists(self, snapshot_id: int | None) -> bool:
        return snapshot_id in self._state.snapshots

    @property
    def layout(self) -> Layout:
        return self._state.layout

    def alter(self, layout: Layout, misfit: str = "", changed: frozenset[int] = frozenset()) -> None:
        super().alter(layout, misfit, changed)
        self._readable = {self.layout} if misfit else self._readable | {self.layout}

    def _push(
        self,
        summary: Mapping[str, str],
        paths: tuple[str, ...],
        register: Register | None = None,
        *,
        replaces: bool = False,
    ) -> None:
        """Looks at what lands, whoever let it through."""
        formers = {self.written_for.get(path, self.layout) for path in paths} - {self.layout}
        if formers:
            self._world.count("landed as written before an alteration")
            if self._world.settings.spec.schema_.mixed_epoch == "next-epoch":
                self._world.defects.append(f"B: {self.name} got files of {formers}, and is {self.layout}")
        if not formers <= self._readable:
            self._world.defects.append(f"B: {self.name} cannot read files of {formers - self._readable}")
        super()._push(summary, paths, register, replaces=replaces)

    def history(self, writer: str) -> NoReturn:
        """TEST-11: whoever lands rows has no business reading what is there."""
        raise AssertionError(f"{writer} reads the history of {self.name}")

    def recreate(self) -> None:
        self.dropped.update(
            row for snapshot in self.ledger for path in snapshot.paths for row in self.contents[path]
        )
        super().recreate()
        self.was_moved = False
        self._readable = {Layout()}
        self._lives += 1
        self._uuid = f"{self.name} {self._lives}"

    def let_through(self) -> None:
        """What was stuck arrives, in any order."""
        self._world.random.shuffle(self.delayed)
        landed = self.release()
        self._world.count("delayed commits that landed", landed)
        self._world.tell("network", f"lets delayed commits to {self.name} through: {landed} landed")

    def tidy(self) -> None:
        """Compaction: all rows move into one file, and every snapshot but that one expires."""
        rows = tuple(row for path in self.live_paths for row in self.contents[path])
        self.compact()
        self.contents[self.live_paths[-1]] = rows

    @property
    def register(self) -> Register | None:
        """What it says of the pipeline, for those who need no network to see it."""
        return super().observe(self._world.settings.pipeline).register if self.silences == 0 else self._quietly()

    def _quietly(self) -> Register | None:
        silences, self.silences = self.silences, 0
        try:
            return self.register
        finally:
            self.silences = silences


def brief(register: Register | None) -> str:
    if register is None:
        return "nothing"
    return f"epoch {register.epoch} of {register.coordinator} (generation {register.generation})"
