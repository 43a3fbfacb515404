"""The register: a table's own account of how far a writer has come, and who may go on.

Theory. Each writer has one register in each of its tables. It is replaced by compare-and-set, in the same
atomic commit as the data it speaks of, so that data and frontier can never disagree. It names the
**generation** and the random id of the coordinator that wrote it: whoever finds a newer generation, or its
own generation with another id, has been taken over and stops.

Equality is by value over generation, coordinator, epoch, batch and frontier. The snapshot it points at is
left out: it is decided only while the commit runs, and repeats what the other fields already say.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from typing import NewType

from frazil.errors import TableChanged
from frazil.protocol.positions import Frontier, Span

Epoch = NewType("Epoch", int)
Generation = NewType("Generation", int)
BatchId = NewType("BatchId", str)

NAMESPACE = uuid.UUID("6f1c8e0a-5d0b-5a55-9a37-0e2f7a4b9c11")
"""The fixed namespace of every batch id; changing it would make old epochs unrecognisable."""

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Register:
    """What the table says of one writer."""

    generation: Generation
    coordinator: str
    epoch: Epoch
    batch_id: BatchId
    frontier: Frontier
    table_uuid: str = field(default="", compare=False)
    anchor_uuid: str = field(default="", compare=False)
    """of the pipeline's main table: tells a side table's register when that one was recreated"""
    snapshot_id: int | None = field(default=None, compare=False)
    sequence_number: int = field(default=0, compare=False)

    def at(self, snapshot_id: int | None, sequence_number: int) -> Register:
        """The same register, pointing at the snapshot that carries it."""
        return replace(self, snapshot_id=snapshot_id, sequence_number=sequence_number)

    def overrides(self, other: Register) -> bool:
        """Whether finding this register means that the coordinator of `other` is fenced."""
        return self.generation > other.generation or (
            self.generation == other.generation and self.coordinator != other.coordinator
        )

    def succeeds(self, other: Register) -> bool:
        """Whether the same coordinator wrote this register after `other`."""
        same = (self.generation, self.coordinator) == (other.generation, other.coordinator)
        return same and self.epoch > other.epoch and self.frontier.covers(other.frontier)

    def encode(self) -> str:
        """Short keys: some catalogs copy table properties into small columns."""
        fields = {
            "v": _FORMAT,
            "g": self.generation,
            "c": self.coordinator,
            "e": self.epoch,
            "b": self.batch_id,
            "t": self.table_uuid,
            "a": self.anchor_uuid,
            "s": self.snapshot_id,
            "n": self.sequence_number,
            "f": self.frontier.encode(),
        }
        if self.frontier.resolved is not None:
            fields["r"] = self.frontier.resolved
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Register:
        try:
            fields = json.loads(text)
            if fields["v"] != _FORMAT:
                raise TableChanged(
                    f"the table's register has format {fields['v']}, this frazil reads {_FORMAT}",
                    "upgrade frazil to the version that wrote it",
                )
            return cls(
                generation=Generation(int(fields["g"])),
                coordinator=str(fields["c"]),
                epoch=Epoch(int(fields["e"])),
                batch_id=BatchId(str(fields["b"])),
                frontier=Frontier.decode(fields["f"], fields.get("r")),
                table_uuid=str(fields["t"]),
                anchor_uuid=str(fields["a"]),
                snapshot_id=None if fields["s"] is None else int(fields["s"]),
                sequence_number=int(fields["n"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TableChanged(
                f"the table's register cannot be read: {text[:200]!r} ({error!r})",
                "somebody edited the property by hand; restore it from the table's metadata history",
            ) from error


def batch_id(pipeline: str, table: str, span: Span, resolved: str | None = None) -> BatchId:
    """The same span, or resolved time, always has the same name, whoever lands it and however often it is tried."""
    return BatchId(str(uuid.uuid5(NAMESPACE, f"{pipeline}:{table}:{resolved or span.encode()}")))


def start_id(pipeline: str, table: str, generation: Generation, coordinator: str) -> BatchId:
    """The name of a start commit, which covers no span."""
    return BatchId(str(uuid.uuid5(NAMESPACE, f"{pipeline}:{table}:start:{generation}:{coordinator}")))
