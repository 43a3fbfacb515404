"""The versions of a Delta table, as its log tells them.

A version's parent is the one before it, but for a RESTORE: that one goes on from the version it brought back. So
the history of the head is a line that may leave versions out, as in any table that was rolled back.

The log's files are read here one by one: delta-rs tells a table's history too, but numbers it from the version that
was loaded, while what it tells begins at the newest (measured with 1.6.6).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from frazil.protocol.commit import Standing
from frazil.protocol.register import Register
from frazil.protocol.summary import PREFIX, Kin, Merged
from frazil.table.delta.place import Place

REGISTER = PREFIX + "register"
"""Where a commit's own account keeps the register that landed with it."""

PLAN = PREFIX + "plan"
"""In a version without files: that the register of the MERGE behind it is written ahead, and of which batch."""
PLANNED_IN = PREFIX + "planned-in"
"""In a MERGE: the version that its register was written ahead in."""

Action = Mapping[str, Any]
FileKey = tuple[str, str]

_UNKNOWN = -1
"""The version that a RESTORE went back to, where nobody can tell any more."""


@dataclass(frozen=True)
class Version:
    """One version, by whomever."""

    number: int
    info: Mapping[str, Any]
    """what its writer says of it"""
    adds: list[Action] = field(default_factory=list)
    removes: list[Action] = field(default_factory=list)

    @property
    def timestamp_ms(self) -> int:
        return int(self.info.get("timestamp") or 0)

    @property
    def operation(self) -> str:
        return str(self.info.get("operation") or "")

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.info.get("operationParameters") or {}

    @cached_property
    def facts(self) -> dict[str, str]:
        """What a commit of frazil says of itself; delta-spark lets a MERGE say so in one text only.

        A compaction that delta-spark makes by itself behind a MERGE has the same text, and is no commit of ours.
        """
        told: Mapping[str, Any] = self.info
        if self.operation == "MERGE":
            told = _parsed(self.info.get("userMetadata"))
        facts = {key: str(value) for key, value in told.items() if key.startswith(PREFIX)}
        if PLANNED_IN in facts:
            facts |= {**self._merged().facts(), PREFIX + "files.data": str(len(self.adds))}
        return facts

    def _merged(self) -> Merged:
        """By Delta's own count."""
        metrics = self.info.get("operationMetrics") or {}
        return Merged(
            *(int(metrics.get(f"numTargetRows{what}") or 0) for what in ("Inserted", "Updated", "Deleted"))
        )

    @property
    def planned_in(self) -> int | None:
        """Of a MERGE of frazil's: the version that it was planned in."""
        text = self.facts.get(PLANNED_IN)
        return None if text is None else int(text)

    @property
    def merged(self) -> Merged | None:
        """Of a MERGE of frazil's: what became of the rows."""
        return Merged.parse(self.facts)

    @property
    def register(self) -> Register | None:
        text = self.facts.get(REGISTER)
        return None if text is None else Register.decode(text).at(self.number, self.number)

    def is_by(self, writer: str) -> bool:
        return self.facts.get(PREFIX + "writer") == writer


class Log:
    """A table's past from one version back, newest first, as far as its log goes back."""

    def __init__(self, place: Place, head: int) -> None:
        self.place = place
        self.head = head
        self._io = place.io()
        self._known: list[Version] = []

    def versions(self) -> Iterator[Version]:
        for back in range(self.head + 1):
            if back == len(self._known):
                version = self._read(self.head - back)
                if version is None:
                    return
                self._known.append(version)
            yield self._known[back]

    def find(self, number: int) -> Version | None:
        for version in self.versions():
            if version.number <= number:
                return version if version.number == number else None
        return None

    def line(self) -> Iterator[Version]:
        """The head and its ancestors."""
        wanted: int | None = None
        for version in self.versions():
            if wanted is None or version.number == wanted:
                yield version
                wanted = self.parent(version)
                if wanted is None:
                    return

    def parent(self, version: Version) -> int | None:
        """The version that this one went on from."""
        if version.operation == "RESTORE":
            return self._restored(version)
        return version.number - 1 if version.number else None

    def kin(self) -> Iterator[Kin]:
        return (self._kin(version) for version in self.line() if not self._is_misplaced(version))

    def kin_from(self, number: int | None) -> Iterator[Kin]:
        """A version that the head may not descend from, and those before it; of a MERGE, before it was planned."""
        wanted = number
        for version in self.versions():
            if wanted is not None and version.number == wanted:
                yield self._kin(version)
                wanted = version.planned_in or self.parent(version)

    def standing(self, register: Register) -> Standing:
        if register.snapshot_id is None:
            return Standing.ANCESTOR
        for version in self.line():
            if version.number == register.snapshot_id:
                return Standing.ROLLED_BACK if self._is_misplaced(version) else Standing.ANCESTOR
            is_before = version.number < register.snapshot_id
            if is_before or (self.parent(version) or 0) < register.snapshot_id <= version.number - 1:
                # A RESTORE went back behind it, whether or not the log still has what was restored.
                return Standing.ROLLED_BACK
        return Standing.EXPIRED

    def is_misplaced(self, register: Register) -> bool:
        """Whether the register landed with a MERGE on a table that was rolled back since it was planned."""
        landing = None if register.snapshot_id is None else self.find(register.snapshot_id)
        return landing is not None and self._is_misplaced(landing)

    def _is_misplaced(self, version: Version) -> bool:
        """Whether a MERGE landed on a table that was rolled back since it was planned: rows before it are gone.

        A MERGE begins with whatever version is the newest then, and nothing in it can refuse that.
        """
        if version.planned_in is None:
            return False
        for each in self.versions():
            if each.number <= version.planned_in:
                return False
            if each.number < version.number and each.operation == "RESTORE":
                return True
        return False

    def _read(self, number: int) -> Version | None:
        """None if the log no longer has it."""
        try:
            with self._io.new_input(log_file(self.place.uri, number)).open() as stream:
                actions = [json.loads(line) for line in stream.read().splitlines() if line]
        except FileNotFoundError:
            return None
        info: Action = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        adds = [action["add"] for action in actions if "add" in action]
        return Version(number, info, adds, [action["remove"] for action in actions if "remove" in action])

    def _kin(self, version: Version) -> Kin:
        return Kin(version.number, self.parent(version), version.facts.get)

    def _restored(self, version: Version) -> int:
        """By number, or else by what it did: as of which time a table was restored, everybody reckons differently.

        Versions that change no file cannot be told apart by that, and need not be.
        """
        number = version.parameters.get("version")
        if number is not None:
            return int(number)
        gone, back = _keys(version.removes), _keys(version.adds)
        added: set[FileKey] = set()
        removed: set[FileKey] = set()
        for each in self.versions():
            if each.number >= version.number:
                continue
            if (added, removed) == (gone, back):
                return each.number
            came, went = _keys(each.adds), _keys(each.removes)
            added, removed = (added - went) | (came - removed), (removed - came) | (went - added)
        return _UNKNOWN


def log_file(uri: str, version: int) -> str:
    """Where the log keeps a version."""
    return f"{uri}/_delta_log/{version:020d}.json"


def _parsed(text: object) -> Mapping[str, Any]:
    try:
        told = json.loads(str(text))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _keys(actions: Sequence[Action]) -> set[FileKey]:
    """A file, and which of its rows are deleted, are one thing to Delta."""
    return {(unquote(each["path"]), json.dumps(each.get("deletionVector"), sort_keys=True)) for each in actions}
