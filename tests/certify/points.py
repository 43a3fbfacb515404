"""Crash points: named places in the product, watched from outside of it.

A name may stand for one place in each kind of table; a run passes those of its own.

A point is armed by a file of its name. Whoever passes it next removes the file, which only one process can, and
kills itself with SIGKILL right there. The product knows nothing of this: its functions are wrapped from outside.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

FOLDER = "FRAZIL_CERTIFY_POINTS"
"""The environment variable that names the folder of armed points."""


@dataclass(frozen=True)
class Point:
    """Just before or just after a function of the product, in the driver or in one of Spark's Python workers."""

    name: str
    place: Literal["driver", "worker"]
    when: Literal["before", "after"]
    function: str
    """module:class.method"""
    needs_merge: bool = False
    """whether it lies in the MERGE of a keyed Delta table"""

    @property
    def file(self) -> str:
        return self.name.replace(" ", "-")

    def arm(self, folder: Path) -> None:
        (folder / self.file).touch()

    def is_armed(self, folder: Path) -> bool:
        return (folder / self.file).exists()

    def disarm(self, folder: Path) -> None:
        (folder / self.file).unlink(missing_ok=True)


POINTS = (
    Point("before a file closes", "worker", "before", "frazil.write.file:DataFile.close"),
    Point("after a file closed", "worker", "after", "frazil.write.file:DataFile.close"),
    Point("before the journal entry", "driver", "before", "frazil.journal.journal:Journal.append"),
    Point("after the journal entry", "driver", "after", "frazil.journal.journal:Journal.append"),
    Point("before the commit", "driver", "before", "frazil.table.iceberg.table:IcebergTable.commit"),
    Point("inside the commit", "driver", "after", "frazil.table.iceberg.table:Guard.validate"),
    Point("after the commit before the reply", "driver", "after", "frazil.table.iceberg.table:IcebergTable.commit"),
    Point("before the commit", "driver", "before", "frazil.table.delta.table:DeltaLakeTable.commit"),
    Point("inside the commit", "driver", "before", "frazil.table.delta.table:DeltaLakeTable._send"),
    Point("after the commit before the reply", "driver", "after", "frazil.table.delta.table:DeltaLakeTable.commit"),
    Point("between plan and MERGE", "driver", "before", "frazil.table.delta.merge:Merger.merge", needs_merge=True),
    Point("after the MERGE", "driver", "after", "frazil.table.delta.merge:Merger.merge", needs_merge=True),
    Point("between the two tables", "driver", "before", "frazil.commit.coordinator:Coordinator._require_landed"),
    Point("before the entry that an epoch landed", "driver", "before", "frazil.engine.logbook:Logbook.landed"),
    Point("before the offset commit", "driver", "before", "frazil.source.kafka.plan:KafkaTopics.acknowledge"),
)


def points_of(place: str) -> Iterator[Point]:
    return (point for point in POINTS if point.place == place)


def watch(place: str) -> None:
    """Wraps the functions of all points of this place; a function may have two of them."""
    folder = Path(os.environ[FOLDER])
    for point in points_of(place):
        module, path = point.function.split(":")
        owner, name = path.split(".")
        home = getattr(import_module(module), owner)
        setattr(home, name, _watched(getattr(home, name), point, folder / point.file))


def _watched(function: Callable[..., Any], point: Point, armed: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    def passing(*arguments: Any, **named: Any) -> Any:
        if point.when == "before":
            die_if(armed)
        result = function(*arguments, **named)
        if point.when == "after":
            die_if(armed)
        return result

    return passing


def die_if(armed: Path) -> None:
    try:
        armed.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
