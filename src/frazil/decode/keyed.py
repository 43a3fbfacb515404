"""What cannot be about changes, refused before the first record is read."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from pyiceberg.schema import Schema

from frazil.changes import BEFORE, OP, ORDER, UPDATED, WEIGHT, ChangePlan
from frazil.errors import ConfigError
from frazil.pipeline.keys import WHOLE_ROW, keyed

_OF_CHANGES = (OP, ORDER, BEFORE)


def require_possible_changes(schema: Schema, changes: ChangePlan, catch_all: str | None, on_error: str) -> None:
    """Refuses keys and names that no change can have."""
    if changes.whole or changes.keys:
        _require_keys(schema, (WHOLE_ROW,) if changes.whole else changes.keys, catch_all)
    for name in changes.before:
        _require_column(schema, name, "the partitioning")
        if name == catch_all:
            raise ConfigError(
                f"{name} keeps what is not declared (decode.catch_all), and a row cannot be found by it",
                "partition by another column",
            )
    of_changes = (*_OF_CHANGES, *([UPDATED] if changes.timed else []), *([WEIGHT] if changes.whole else []))
    taken = [each.name for each in schema.fields if each.name.lower() in of_changes]
    if taken:
        raise ConfigError(
            f"decode.schema declares {', '.join(taken)}, which changes have as a column of their own",
            "rename the column",
        )
    _require_op_column(schema, changes)
    if changes.key_format == "text" and len(changes.keys) > 1:
        raise ConfigError(
            f'changes.key_format = "text" holds one key column, and there are {len(changes.keys)}: '
            f"{', '.join(changes.keys)}",
            'use key_format = "json"',
        )
    if changes.unknown_op == "dead-letter" and on_error != "dead-letter":
        raise ConfigError(
            f'changes.unknown_op = "dead-letter" needs a table for them, and decode.on_error = "{on_error}"',
            'set decode.on_error = "dead-letter"',
        )


def _require_keys(schema: Schema, keys: Sequence[str], catch_all: str | None) -> None:
    keyed(schema, keys)
    if catch_all in keys:
        raise ConfigError(
            f"table.keys: {catch_all} keeps what is not declared (decode.catch_all) and cannot be a key",
            "name another column",
        )


def _require_column(schema: Schema, name: str, where: str) -> None:
    known = [each.name for each in schema.fields]
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ConfigError(f"{where}: {name} is not a column of decode.schema", hint)


def _require_op_column(schema: Schema, changes: ChangePlan) -> None:
    if changes.envelope != "op-column":
        if changes.op_column is not None:
            raise ConfigError(
                f'changes.op_column has no meaning with decode.envelope = "{changes.envelope}"',
                'remove it, or set envelope = "op-column"',
            )
        return
    names = ("__op",) if changes.op_column is None else (changes.op_column,)
    taken = [each.name for each in schema.fields if each.name in names]
    if taken:
        raise ConfigError(
            f"{taken[0]} says what happens to a row (changes.op_column), and is declared as a column of it",
            "take it out of decode.schema: it is never kept",
        )
