"""All that others do meanwhile: producers, retention, maintenance, other writers, users, supervisors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.engine.run import RunOptions
from frazil.protocol.positions import Frontier, Partition
from frazil.protocol.start import OnRollback
from tests.simulation.broker import BAD, FILTERED, GAP, GOOD
from tests.simulation.lake import DistantLake
from tests.simulation.table import DistantTable

if TYPE_CHECKING:
    from tests.simulation.world import World

Happening = tuple[float, Callable[[], None]]

RECORDS_MAX = 400
PROCESSES_MAX = 3
PARTITIONS_MAX = 5


class Happenings:
    """Each method is one thing that happens; `possible` says which can, and how likely each is."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = world.random

    def possible(self) -> list[Happening]:
        world = self.world
        always: list[Happening] = [
            (3.0, self.produce),
            (0.4, self.foreign_write),
            (0.3, self.compact),
            (0.3, self.expire),
            (0.3, self.retention),
            (0.1, self.add_partition),
            (0.5 * world.settings.storminess, self.silence),
        ]
        if world.settings.alters:
            always.append((0.5, self.alter))
        if any(table.is_delayed for table in world.tables):
            always.append((0.8, self.release))
        if any(table.is_rolled_back for table in world.tables):
            always.append((0.15, self.restore))
        living = len(world.living)
        if living:
            always += [(0.25, self.kill), (0.4, self.pause), (0.08, self.ask_to_stop)]
        if any(process.is_paused for process in world.living):
            always.append((0.4, self.resume))
        if living < PROCESSES_MAX:
            always.append((5.0 if living == 0 else 0.3 / living, self.start))
        if world.runnable:
            always.append((12.0, self.turn))
        if world.pending:
            always.append((5.0, self.write))
        return always

    def turn(self) -> None:
        self.chance.choice(self.world.runnable).turn()

    def write(self) -> None:
        self.chance.choice(self.world.pending).perform()

    def start(self) -> None:
        """A supervisor starts a coordinator, whether or not there is one."""
        take_over, now = self.chance.random() < 0.6, self.chance.random() < 0.2
        for _ in range(self.chance.choice((1, 1, 1, 2))):
            self.world.start(
                RunOptions(available_now=now, take_over=take_over, on_rollback=self.choice_after_rollback())
            )

    def choice_after_rollback(self) -> OnRollback | None:
        """What a user says who knows that a table was rolled back."""
        if not any(table.is_rolled_back for table in self.world.tables):
            return None
        return self.chance.choice((None, OnRollback.REWIND, OnRollback.REWIND, OnRollback.KEEP))

    def kill(self) -> None:
        victim = self.chance.choice(self.world.living)
        self.world.tell(victim.name, "is killed")
        self.world.count("crashes")
        victim.kill()

    def pause(self) -> None:
        victim = self.chance.choice(self.world.living)
        self.world.tell(victim.name, "is paused")
        self.world.count("pauses")
        victim.is_paused = True

    def resume(self) -> None:
        process = self.chance.choice([each for each in self.world.living if each.is_paused])
        self.world.tell(process.name, "goes on after a pause")
        process.is_paused = False

    def ask_to_stop(self) -> None:
        process = self.chance.choice(self.world.living)
        self.world.tell(process.name, "is asked to stop")
        process.stop.set()

    def produce(self) -> None:
        """A batch of records of one kind or mixed, in a transaction or not; or the end of a transaction."""
        partition = self.chance.choice(list(self.world.broker.logs))
        log = self.world.broker.logs[partition]
        if log.is_frozen or len(log.kinds) > RECORDS_MAX:
            return
        if log.open_since is not None and self.chance.random() < 0.6:
            commit = self.chance.random() < 0.5
            self.world.count("transactions committed" if commit else "transactions aborted")
            log.close(commit=commit)
        else:
            if log.open_since is None and self.chance.random() < 0.4:
                log.open_since = len(log.kinds)
            log.kinds.extend(self._kinds(self.chance.randint(1, 12)))
        self.world.tell("producer", f"{partition} ends at {len(log.kinds)}, stable up to {log.end}")

    def _kinds(self, records: int) -> list[str]:
        common = self.chance.choice((GOOD, GOOD, BAD, FILTERED, GAP, None))
        kinds = [common or self.chance.choice((GOOD, GOOD, BAD, FILTERED, GAP)) for _ in range(records)]
        return kinds if self.world.dead is not None else [GOOD if kind is BAD else kind for kind in kinds]

    def retention(self) -> None:
        """Removes what the table already has."""
        for partition, offset in self._committed():
            log = self.world.broker.logs[partition]
            log.start = max(log.start, min(offset, log.end))
            self.world.count("retentions")
            self.world.tell("retention", f"{partition} starts at {log.start}")

    def add_partition(self) -> None:
        broker = self.world.broker
        if len(broker.logs) < PARTITIONS_MAX:
            self.world.count("partitions added")
            self.world.tell("admin", f"adds {broker.add_partition(self.chance.choice(list(broker.ids)))}")

    def silence(self) -> None:
        table = self._table()
        table.silences = self.chance.randint(1, 6)
        self.world.count("silences")
        self.world.tell("network", f"{table.name} will be silent {table.silences} times")

    def release(self) -> None:
        for table in self.world.tables:
            if table.is_delayed:
                table.let_through()

    def foreign_write(self) -> None:
        table = self._table()
        if table.register is not None and not (table.is_rolled_back and table.will_expire):
            self.world.count("foreign commits")
            self.world.tell("foreign writer", f"commits to {table.name}")
            path = f"foreign/{len(table.ledger)}"
            table.contents[path] = ()
            table.append_foreign(path)

    def compact(self) -> None:
        table = self._table()
        if table.live_paths and not table.is_rolled_back:
            self.world.count("compactions")
            self.world.tell("maintenance", f"compacts {table.name} and expires its history")
            table.tidy()

    def expire(self) -> None:
        table = self._table()
        if not table.is_rolled_back or table.will_expire:
            self.world.count("expiries")
            self.world.tell("maintenance", f"expires every snapshot of {table.name} but the head")
            table.expire()

    def alter(self) -> None:
        """A user changes schema, partitioning or sort order; files that are under way may fit or not."""
        table, misfit = self._table(), self.chance.choice(("", "", "a column is required now"))
        self.world.count("alterations")
        self.world.tell("user", f"alters {table.name}" + (f": {misfit}" if misfit else ""))
        name = self.chance.choice(("schema_id", "spec_id", "sort_order_id"))
        table.alter(replace(table.layout, **{name: getattr(table.layout, name) + 1}), misfit)

    def restore(self) -> None:
        """The user follows the remedy: the snapshot that the register names becomes the current one again."""
        for table in self.world.tables:
            register = table.register
            if register is None or register.snapshot_id in table.misplaced:
                continue
            if table.is_rolled_back and table.lists(register.snapshot_id):
                self.world.count("rollbacks taken back")
                self.world.tell("user", f"sets {table.name} to snapshot {register.snapshot_id} again")
                table.set_head(register.snapshot_id)

    def disaster(self, kind: str) -> None:
        """The one thing of its kind in this history, if it can happen at all."""
        happened = {
            "rollback of the anchor": self._roll_back_anchor,
            "rollback of the dead letters": lambda: self._roll_back(self.world.dead),
            "rollback of both tables": self._roll_back_both,
            "recreation of the anchor": lambda: self._recreate(self.world.anchor),
            "recreation of the dead letters": lambda: self._recreate(self.world.dead),
            "loss of records": self._lose,
            "recreation of a topic": self._recreate_topic,
            "truncation of a log": self._truncate,
        }[kind]()
        if happened:
            self.world.disasters.add(kind)
            self.world.count(kind)

    def _roll_back_anchor(self) -> bool:
        """At once, or in the middle of the next MERGE."""
        anchor = self.world.anchor
        if not isinstance(anchor, DistantLake) or self.chance.random() < 0.3:
            return self._roll_back(anchor)
        anchor.ambush = lambda: self._roll_back(anchor)
        return True

    def _roll_back(self, table: DistantTable | None) -> bool:
        if table is None or table.snapshots < 2:
            return False
        table.will_expire = self.chance.random() < 0.3
        table.roll_back(self.chance.choice((self.chance.randint(1, table.snapshots - 1), table.snapshots)))
        self.world.tell("user", f"rolls {table.name} back to snapshot {table.head}")
        return True

    def _roll_back_both(self) -> bool:
        """To one moment, as a user would, or each as far as it happens."""
        dead, anchor = self.world.dead, self.world.anchor
        if dead is None or self.chance.random() < 0.3:
            return any([self._roll_back(anchor), self._roll_back(dead)])
        moments = anchor.moments()
        if len(moments) < 2:
            return False
        moment, _ = self.chance.choice(moments[:-1])
        for table in (dead, anchor):
            before = [snapshot for at, snapshot in table.moments() if at <= moment]
            table.set_head(before[-1] if before else None)
            self.world.tell("user", f"rolls {table.name} back to snapshot {table.head}, as of {moment / 1000:.3f}")
        return True

    def _recreate(self, table: DistantTable | None) -> bool:
        if table is None or not table.ledger:
            return False
        self.world.tell("user", f"drops {table.name} and creates it again")
        table.recreate()
        return True

    def _lose(self) -> bool:
        for partition, offset in self._committed():
            log = self.world.broker.logs[partition]
            if offset < log.end:
                log.start = self.chance.randint(offset + 1, log.end)
                self.world.tell("retention", f"{partition} starts at {log.start}, beyond the frontier {offset}")
                return True
        return False

    def _recreate_topic(self) -> bool:
        """Its producers refill it at once, so that old spans can be read from it."""
        topic = self.chance.choice(list(self.world.broker.ids))
        self.world.broker.recreate(topic)
        self.world.tell("admin", f"deletes {topic} and creates it again")
        for (name, _), log in self.world.broker.logs.items():
            if name == topic:
                log.kinds.extend(self._kinds(self.chance.randint(0, 100)))
        return True

    def _truncate(self) -> bool:
        for partition, offset in self._committed():
            if offset > 0:
                self.world.broker.truncate(partition, offset - self.chance.randint(1, offset))
                self.world.tell("brokers", f"{partition} was truncated to {self.world.broker.logs[partition].end}")
                return True
        return False

    def _committed(self) -> list[tuple[Partition, int]]:
        """A partition that the anchor knows, and how far it has come there."""
        register = self.world.anchor.register
        frontier = Frontier() if register is None else register.frontier
        known = [(p, at.offset) for p, at in frontier.positions.items()]
        return [self.chance.choice(known)] if known else []

    def _table(self) -> DistantTable:
        return self.chance.choice(self.world.tables)
