"""The register of a writer, as Delta can hold it.

Theory. Delta keeps, for each application, one number: a `txn` action names both, and the last one counts. They are
part of the table's state, so they outlive the clean-up of the log, and they land in the same version as the files.

    frazil:<writer>                        the state: generation and epoch in one number that only rises
    frazil:<writer>/<slot>                 the state that the slot's register is of
    frazil:<writer>/<slot>.length, .<n>    that register as text: how many bytes, and then seven of them a number
    frazil:<writer>:<topic>:<partition>    the next offset, for people and other tools

A number that rises with every start fences inside the commit even where Delta takes a single `txn`, as in a MERGE:
an older coordinator's is not newer. There are two slots, and the one of the present state counts. Whatever comes
next goes into the other one: so the register of a MERGE can be written ahead, counts from the moment that the MERGE
lands, and takes nothing away if it never does. (The epoch's parity cannot choose the slot: empty epochs make no
commit, so the next one may be two further.)
"""

from __future__ import annotations

from collections.abc import Callable

from frazil.errors import TableChanged
from frazil.protocol.positions import Frontier
from frazil.protocol.register import Register

LookUp = Callable[[str], int | None]
"""The table's number of an application."""

_EPOCH_BITS = 40
_BYTES = 7
"""of eight, so that no number is negative"""


def app_id(writer: str) -> str:
    """The application under which every commit of the writer stands: two from one base always conflict."""
    return f"frazil:{writer}"


def state_number(register: Register) -> int:
    return register.generation << _EPOCH_BITS | register.epoch


def to_numbers(writer: str, register: Register, look_up: LookUp) -> dict[str, int]:
    """The whole register, by application."""
    return {
        app_id(writer): state_number(register),
        **_in_slot(_free_slot(writer, look_up), register),
        **_offsets(writer, register.frontier),
    }


def written_ahead(writer: str, before: Register, register: Register, look_up: LookUp) -> dict[str, int]:
    """The register in a slot where it counts once the state says so; all else as it was `before`."""
    return {
        app_id(writer): state_number(before),
        **_in_slot(_free_slot(writer, look_up), register),
        **_offsets(writer, before.frontier),
    }


def from_numbers(writer: str, look_up: LookUp) -> Register | None:
    """The register that counts; None if the writer has none."""
    if look_up(app_id(writer)) is None:
        return None
    slot = _slot(writer, _counting(writer, look_up))
    if look_up(slot) != look_up(app_id(writer)):
        raise TableChanged(
            f"the table has a number for {app_id(writer)}, and no register that goes with it",
            "somebody else writes under this name: give the pipeline another one",
        )
    length = look_up(f"{slot}.length") or 0
    pieces = []
    for n, at in enumerate(range(0, length, _BYTES)):
        number = look_up(f"{slot}.{n}") or 0
        pieces.append(number.to_bytes(min(_BYTES, length - at), "big"))
    return Register.decode(b"".join(pieces).decode())


def _in_slot(slot: str, register: Register) -> dict[str, int]:
    text = register.encode().encode()
    pieces = [text[at : at + _BYTES] for at in range(0, len(text), _BYTES)]
    numbers = {f"{slot}.{n}": int.from_bytes(piece, "big") for n, piece in enumerate(pieces)}
    return {slot: state_number(register), f"{slot}.length": len(text), **numbers}


def _offsets(writer: str, frontier: Frontier) -> dict[str, int]:
    return {
        f"{app_id(writer)}:{topic}:{partition}": position.offset
        for (topic, partition), position in frontier.positions.items()
    }


def _counting(writer: str, look_up: LookUp) -> int:
    return int(look_up(_slot(writer, 1)) == look_up(app_id(writer)))


def _free_slot(writer: str, look_up: LookUp) -> str:
    return _slot(writer, 1 - _counting(writer, look_up))


def _slot(writer: str, number: int) -> str:
    return f"{app_id(writer)}/{number}"
