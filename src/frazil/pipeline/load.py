"""From a TOML file to a pipeline spec; whatever is wrong with it is said in one message."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from frazil.errors import ConfigError, UnsupportedCatalog
from frazil.pipeline import secrets
from frazil.pipeline.atomic import require_atomic_swap
from frazil.pipeline.section import Section
from frazil.pipeline.spec import PipelineSection, PipelineSpec

Declared = TypeVar("Declared", bound=Section)


def load_pipeline(path: Path) -> PipelineSpec:
    """Reads, resolves `${ENV}`, validates."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}", f"frazil init {path} writes one") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return parse_pipeline(tree).at(path.parent)


def parse_pipeline(tree: Mapping[str, Any]) -> PipelineSpec:
    """Validates a pipeline given as nested mappings, and refuses a catalog that cannot keep the promise."""
    spec = parse_tree(PipelineSpec, tree)
    require_atomic_swap(spec.catalog, spec.table, spec.spark)
    return spec


def parse_tree(root: type[Declared], tree: Mapping[str, Any]) -> Declared:
    """Validates what somebody declared as nested mappings; whatever is wrong with it is said in one message."""
    resolved = secrets.resolve(dict(tree))
    try:
        return root.model_validate(resolved)
    except ValidationError as error:
        details = error.errors()
        lines = list(dict.fromkeys(line for detail in details for line in _explain(root, detail)))
        kind = UnsupportedCatalog if all(d["loc"] == ("catalog", "type") for d in details) else ConfigError
        raise kind("\n".join(lines)) from None


def parse_name(name: str) -> str:
    """A pipeline's name, checked as the file's would be."""
    try:
        return PipelineSection(name=name).name
    except ValidationError as error:
        raise ConfigError(f"pipeline.name: {name!r} is not allowed; expected {_cause(error.errors()[0])}") from None


def _explain(root: type[Section], detail: ErrorDetails) -> Iterator[str]:
    location = _written_path(detail["loc"])
    key = ".".join(location)
    given = detail["input"]
    match detail["type"]:
        case "extra_forbidden":
            yield f"{key}: unknown key{_nearest(root, location)}"
        case "missing":
            yield f"{key}: required, but missing"
        case "literal_error":
            yield _refused(key, given, detail.get("ctx", {}).get("expected", ""))
        case "union_tag_invalid":
            yield _refused(f"{key}.type", given["type"], detail.get("ctx", {}).get("expected_tags", ""))
        case "union_tag_not_found":
            yield f"{key}.type: required, but missing; allowed are 'kafka', 'files', 'generator'"
        case "model_type" | "model_attributes_type":
            yield f"{key}: {_shown(key, given)} is not allowed; expected a section [{key}] with keys of its own"
        case "value_error" if isinstance(given, dict):
            yield f"{key}: {_cause(detail)}" if key else _cause(detail)
        case "value_error":
            yield f"{key}: {_shown(key, given)} is not allowed; expected {_cause(detail)}"
        case _:
            yield f"{key}: {_shown(key, given)} is not allowed; {detail['msg'][:1].lower() + detail['msg'][1:]}"


def _refused(key: str, given: object, allowed: str) -> str:
    return f"{key}: {_shown(key, given)} is not allowed; allowed are {allowed}{_near(given, allowed)}"


def _written_path(location: tuple[int | str, ...]) -> list[str]:
    """Pydantic puts the name of the tried alternative into the path of a union; people do not write it."""
    parts = [str(part) for part in location]
    if parts[:1] == ["source"]:
        del parts[1:2]
    return parts[:2]


def _cause(detail: ErrorDetails) -> str:
    error = detail.get("ctx", {}).get("error")
    return str(error) if error else detail["msg"]


def _shown(key: str, value: object) -> str:
    return "the given value" if secrets.is_secret(key) else repr(secrets.masked(value))


def _near(given: object, allowed: str) -> str:
    known = [word.strip(" '") for word in allowed.replace(" or ", ",").split(",")]
    near = difflib.get_close_matches(str(given), known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _nearest(root: type[Section], location: list[str]) -> str:
    """Names the nearest known key of the same section, else the same key of another section."""
    wrong, section = location[-1], location[:-1]
    if wrong in _keys_at(root, section):
        return f"; it belongs to another {section[0]}.type"
    near = [".".join([*section, name]) for name in difflib.get_close_matches(wrong, _keys_at(root, section), 1)]
    near += [key for key in all_keys(root) if key.rsplit(".", 1)[-1] == wrong]
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known are {', '.join(sorted(_keys_at(root, section)))}"


def all_keys(root: type[Section] = PipelineSpec) -> list[str]:
    """Every key a pipeline file may have, as dotted paths."""
    return [f"{section}.{key}" for section in _sections(root) for key in _keys_at(root, [section])]


def _sections(root: type[Section]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in root.model_fields.items()}


def _keys_at(root: type[Section], section: list[str]) -> list[str]:
    if not section:
        return list(_sections(root))
    field = _sections(root).get(section[0])
    if field is None or len(section) > 1:
        return []
    names: dict[str, None] = {}
    for model in _models(field.annotation):
        for name, inner in model.model_fields.items():
            names[inner.alias or name] = None
    return list(names)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
