"""Writes the tables of docs/PIPELINE.md from the spec itself.

    .venv/bin/python docs/pipeline_reference.py

Key, type, default and meaning come from pipeline/spec.py and the line under each of its fields. What stands
outside the two marks is written by hand and stays. tests/pipeline/test_reference.py fails when the file lags.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from frazil.pipeline.section import PassThrough, Section
from frazil.pipeline.sources import FilesSource, GeneratorSource, KafkaSource
from frazil.pipeline.spec import PipelineSpec
from frazil.pipeline.values import Duration, FieldList, Size

PAGE = Path(__file__).with_name("PIPELINE.md")
BEGIN = "<!-- tables: written by docs/pipeline_reference.py -->"
END = "<!-- end of tables -->"

_WORDS: dict[Any, str] = {str: "text", bool: "true or false", int: "whole number", datetime: "time"}
_SPECIAL = {Duration: "duration", Size: "size", PassThrough: "settings", FieldList: "fields"}
_BY_VALIDATOR = {get_args(kind)[1]: word for kind, word in _SPECIAL.items()}
_PLURALS = {"text": "texts", "whole number": "whole numbers"}
_SECONDS = {86400: "d", 3600: "h", 60: "m", 1: "s"}
_BYTES = {2**30: "GB", 2**20: "MB", 2**10: "KB"}


def tables() -> str:
    """One table for each section of a pipeline file."""
    return "\n\n".join(_section(title, model) for title, model in _sections())


def page_with(text: str, tables: str) -> str:
    """The page with what stands between its marks replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def _sections() -> Iterator[tuple[str, type[Section]]]:
    for name, field in PipelineSpec.model_fields.items():
        optional = "" if field.is_required() else ", optional"
        if name == "source":
            yield '`[source]` with `type = "kafka"`', KafkaSource
            yield '`[source]` with `type = "files"`', FilesSource
            yield '`[source]` with `type = "generator"`', GeneratorSource
        else:
            yield f"`[{field.alias or name}]`{optional}", next(m for m in _models(field.annotation))


def _models(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _section(title: str, model: type[Section]) -> str:
    rows = [_row(field.alias or name, field) for name, field in model.model_fields.items()]
    head = ["| key | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([f"### {title}", "", model.__doc__ or "", "", *head, *rows])


def _row(key: str, field: FieldInfo) -> str:
    # Pydantic keeps what Annotated said beside the annotation, so that both are put together again.
    annotation = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    kind = _kind(annotation)
    cells = [f"`{key}`", kind, _default(field, kind), _plain(field.description or "")]
    return f"| {' | '.join(cells)} |"


def _kind(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _annotated(inner[0], inner[1:])
    if origin is Literal:
        return " or ".join(f"`{json.dumps(value)}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(each) for each in inner if each is not type(None))
    if origin is list:
        return f"list of {_plural(_kind(inner[0]))}"
    if origin is dict:
        return f"table of {_plural(_kind(inner[1]))}"
    return _WORDS[annotation]


def _annotated(annotation: Any, remarks: tuple[Any, ...]) -> str:
    for remark in remarks:
        if isinstance(remark, BeforeValidator):
            return _BY_VALIDATOR[remark]
    least = next((str(r.ge) for r in remarks if isinstance(r, Ge)), None)
    most = next((str(r.le) for r in remarks if isinstance(r, Le)), None)
    bounds = f", {least} to {most}" if least and most else f", {least} or more" if least else ""
    return _kind(annotation) + bounds


def _plural(kind: str) -> str:
    first, _, rest = kind.partition(" of ")
    return f"{first}s of {rest}" if rest else _PLURALS.get(kind, kind)


def _default(field: FieldInfo, kind: str) -> str:
    if field.is_required():
        return "required"
    if field.default in (None, {}):
        return ""
    return f"`{_written(field.default, kind)}`"


def _written(value: Any, kind: str) -> str:
    """As people would write it in the file."""
    if kind.startswith("duration") and not isinstance(value, str):
        return json.dumps(_in_units(value, _SECONDS))
    if kind == "size":
        return json.dumps(_in_units(value, _BYTES))
    if type(value) is int:
        return f"{value:_}"
    return json.dumps(value)


def _in_units(value: float, units: dict[int, str]) -> str:
    size = next(size for size in units if value >= size and value % size == 0)
    return f"{value / size:.0f}{units[size]}"


def _plain(text: str) -> str:
    """Text that Markdown leaves alone inside a table."""
    return text.replace("<", "&lt;").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
