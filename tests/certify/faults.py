"""Everything that the supervisor can break; each leaves the world whole again and says what it expected of frazil.

A fault *within* a life is survived by it: the next epoch lands in the same process. A fault that *ends* a life is
made good by the next start. What happens *between* lives is found by the next one.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.certify.life import Broken, Life
from tests.certify.points import POINTS, Point
from tests.certify.stage import Stage

Act = Callable[[Stage, Life, random.Random], "Life | None"]
When = Literal["within", "end", "between"]


@dataclass(frozen=True)
class Fault:
    """`act` returns the life that goes on, if it is another one than before."""

    name: str
    when: When
    act: Act
    kills: bool = False
    """whether a process dies of SIGKILL"""
    needs_small_disk: bool = False
    needs_merge: bool = False


def kill_worker(_stage: Stage, life: Life, dice: random.Random) -> None:
    """At any moment, which is often an idle one, or as soon as an epoch has begun."""
    if dice.random() < 0.5:
        life.await_said("epoch begun", len(life.said("epoch begun")))

    def killed() -> bool:
        workers = life.workers()
        return bool(workers) and _kill(dice.choice(workers))

    life.await_true(killed, "no Python worker")


def kill_broker(stage: Stage, _life: Life, dice: random.Random) -> None:
    stage.broker.kill()
    time.sleep(dice.random() * 2)
    stage.broker.start()


def pause_broker(stage: Stage, _life: Life, dice: random.Random) -> None:
    stage.broker.pause()
    time.sleep(1 + dice.random() * 6)
    stage.broker.resume()


def cut_connections(stage: Stage, _life: Life, dice: random.Random) -> None:
    """Several times in a row, so that new connections are hit as well."""
    for _ in range(3):
        stage.proxy.cut()
        time.sleep(dice.random())


def refuse_connections(stage: Stage, _life: Life, dice: random.Random) -> None:
    stage.proxy.refuse()
    time.sleep(1 + dice.random() * 4)


def delay_traffic(stage: Stage, _life: Life, dice: random.Random) -> None:
    stage.proxy.delay(0.1 + dice.random() * 0.5)
    time.sleep(3)


def swallow_traffic(stage: Stage, _life: Life, dice: random.Random) -> None:
    stage.proxy.swallow()
    time.sleep(1 + dice.random() * 6)


def fill_disk(stage: Stage, life: Life, _dice: random.Random) -> None:
    """Until the pipeline notices: a commit or an epoch fails."""

    def complaints() -> int:
        return len(life.said("retrying")) + len(life.said("commit failed"))

    before = complaints()
    stage.disk.fill()
    try:
        life.await_true(lambda: complaints() > before, "nobody noticed that the disk is full")
    finally:
        stage.disk.make_room()


def write_foreign_row(stage: Stage, _life: Life, dice: random.Random) -> None:
    """With a key that no record has."""
    key = 10**15 + dice.randrange(10**15)
    if stage.delta is None:
        stage.tend(f"INSERT INTO {stage.table} (id) VALUES ({key})")
    else:
        table = DeltaTable(stage.delta)
        rows = pa.Table.from_pylist([{"id": key}], schema=pa.schema(table.schema().to_arrow()))
        write_deltalake(table, rows, mode="append")


def compact(stage: Stage, _life: Life, _dice: random.Random) -> None:
    if stage.delta is None:
        stage.call("rewrite_data_files", "options => map('min-input-files', '2')")
    else:
        stage.tend(f"OPTIMIZE {stage.table}")


def expire(stage: Stage, _life: Life, dice: random.Random) -> None:
    kept = dice.choice((1, 10, 50))
    if stage.delta is None:
        stage.call("expire_snapshots", f"older_than => now(), retain_last => {kept}")
    else:
        clean_up_log(stage.delta, kept)


def clean_up_log(folder: Path, kept: int) -> None:
    """As Delta itself does behind a checkpoint, only sooner."""
    table = DeltaTable(folder)
    table.create_checkpoint()
    for version in range(table.version() - kept + 1):
        (folder / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)


def kill_driver(_stage: Stage, life: Life, _dice: random.Random) -> None:
    _kill(life.driver)
    _require_end(life, -signal.SIGKILL)


def kill_jvm(_stage: Stage, life: Life, _dice: random.Random) -> None:
    """The driver cannot go on without it, and must not pretend to."""
    life.await_true(lambda: life.jvm is not None and _kill(life.jvm), "no JVM")
    _require_end(life, 1)
    if life.said("started") and "SparkGone" not in life.text:
        raise Broken(f"the driver does not say that Spark is gone:\n{life.tail}")


def kill_all(_stage: Stage, life: Life, _dice: random.Random) -> None:
    """Driver, JVM, daemon and workers at once, as a machine that goes down."""
    for _ in range(2):  # and those that were forked meanwhile
        life.send(signal.SIGKILL)
    _require_end(life, -signal.SIGKILL)


def ask_to_stop(_stage: Stage, life: Life, _dice: random.Random) -> None:
    """What no fault is, beside all that are."""
    life.driver.send_signal(signal.SIGTERM)
    _require_end(life, 0)


def pause_past_take_over(stage: Stage, life: Life, _dice: random.Random) -> Life:
    """The old one sleeps through its successor's start and first commit, and must be refused when it wakes up."""
    commits = len(life.said("epoch committed"))
    life.await_said("epoch committed", commits)  # asleep inside a commit it would hold SQLite's lock all night
    life.send(signal.SIGSTOP)
    successor = stage.start("--take-over")
    successor.await_commit()
    life.send(signal.SIGCONT)
    _require_end(life, 1)
    if "taken this pipeline over" not in life.text:
        raise Broken(f"the old one does not say that it was fenced:\n{life.tail}")
    return successor


def tear_journal(stage: Stage, _life: Life, dice: random.Random) -> None:
    newest = _logs(stage)[-1]
    newest.write_bytes(newest.read_bytes()[: -dice.randint(1, 40)])


def flip_journal(stage: Stage, _life: Life, dice: random.Random) -> None:
    log = dice.choice(_logs(stage))
    data = bytearray(log.read_bytes())
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        log.write_bytes(data)


def delete_journal(stage: Stage, _life: Life, _dice: random.Random) -> None:
    for file in stage.journal.iterdir():
        file.unlink()


def crash(point: Point) -> Act:
    def act(stage: Stage, life: Life, _dice: random.Random) -> None:
        point.arm(stage.armed)
        try:
            if point.place == "driver":
                _require_end(life, -signal.SIGKILL)
            else:
                life.await_true(lambda: not point.is_armed(stage.armed), f"nobody passed {point.name!r}")
        finally:
            point.disarm(stage.armed)

    return act


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("kill a Python worker", "within", kill_worker, kills=True),
        Fault("kill the broker", "within", kill_broker, kills=True),
        Fault("pause the broker", "within", pause_broker),
        Fault("cut connections", "within", cut_connections),
        Fault("refuse connections", "within", refuse_connections),
        Fault("delay traffic", "within", delay_traffic),
        Fault("swallow traffic", "within", swallow_traffic),
        Fault("fill the disk", "within", fill_disk, needs_small_disk=True),
        Fault("write a foreign row", "within", write_foreign_row),
        Fault("compact the table", "within", compact),
        Fault("expire snapshots", "within", expire),
        Fault("kill the driver", "end", kill_driver, kills=True),
        Fault("kill the JVM", "end", kill_jvm, kills=True),
        Fault("kill all processes", "end", kill_all, kills=True),
        Fault("ask to stop", "end", ask_to_stop),
        Fault("pause past a take-over", "end", pause_past_take_over),
        Fault("tear the journal", "between", tear_journal),
        Fault("flip a bit of the journal", "between", flip_journal),
        Fault("delete the journal", "between", delete_journal),
        *(
            Fault(
                f"crash {point.name}",
                "end" if point.place == "driver" else "within",
                crash(point),
                kills=True,
                needs_merge=point.needs_merge,
            )
            for point in POINTS
        ),
    )
}


def _kill(process: psutil.Process) -> bool:
    """Whether it was there to be killed."""
    with suppress(psutil.NoSuchProcess):
        process.kill()
        return True
    return False


def _require_end(life: Life, code: int) -> None:
    ended = life.await_end()
    if ended != code:
        raise Broken(f"frazil ended with {ended} instead of {code}\n{life.tail}")


def _logs(stage: Stage) -> list[Path]:
    return sorted(stage.journal.glob("txlog-*"))
