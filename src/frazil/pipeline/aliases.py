"""Keys under the names that other tools have for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def without_aliases(section: dict[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """The section with each alias, written flat or nested, replaced by the key it stands for."""
    flat = dict(section)
    for alias, key in aliases.items():
        first, _, rest = alias.partition(".")
        nested = _at_path(flat.get(first), rest)
        if alias in flat:
            value = flat.pop(alias)
        elif nested is not None:
            value = nested
            del flat[first]
        else:
            continue
        if key in flat:
            raise ValueError(f"{alias} and {key} are the same: keep one of them")
        flat[key] = value
    return flat


def _at_path(value: object, path: str) -> object:
    """What a nested table holds under a dotted path, if it holds nothing else."""
    for part in path.split("."):
        if not isinstance(value, dict) or set(value) != {part}:
            return None
        value = value[part]
    return value
