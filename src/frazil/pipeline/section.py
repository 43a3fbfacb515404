"""What every section of a pipeline file has in common."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from frazil.pipeline.secrets import MASK, is_secret


class Section(BaseModel):
    """A table of the pipeline file; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Without the values of secrets: whoever prints a section does not think of them."""
        return ((name, _discreet(value)) for name, value in super().__repr_args__())


def _discreet(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {key: MASK if is_secret(key) else inner for key, inner in value.items()}


def _flatten(value: object) -> object:
    """`a.b = 1` and `"a.b" = 1` mean the same where keys pass through to another library."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, str] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            nested = _flatten(inner)
            assert isinstance(nested, dict)
            flat.update({f"{key}.{k}": v for k, v in nested.items()})
        elif not isinstance(inner, str | int | float):
            raise ValueError(f'{key} must be a text, a number or a boolean; write a list as one text: "a,b"')
        else:
            flat[key] = str(inner).lower() if isinstance(inner, bool) else str(inner)
    return flat


PassThrough = Annotated[dict[str, str], BeforeValidator(_flatten)]
"""Settings of another library, under its own names."""


def last_part(path: str) -> str:
    """A folder's own name, as far as it can name a table."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", path.rstrip("/").rsplit("/", 1)[-1]).strip("-")
