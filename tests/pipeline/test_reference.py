"""docs/PIPELINE.md says of every key what the spec says of it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from frazil.pipeline.load import all_keys
from frazil.pipeline.section import Section
from frazil.pipeline.sources import GeneratorSource, KafkaSource
from frazil.pipeline.spec import PipelineSpec

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "PIPELINE.md").read_text(encoding="utf-8")
_SECTION = re.compile(r"^### `\[(\w+)\]`.*?(?=^### |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.*?) ?\| (.+) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pipeline_reference", DOCS / "pipeline_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def described(model: type[Section]) -> set[tuple[str, str]]:
    return {(field.alias or name, field.description or "") for name, field in model.model_fields.items()}


def test_the_page_is_what_the_script_would_write(reference: ModuleType) -> None:
    remedy = "run: .venv/bin/python docs/pipeline_reference.py"
    assert reference.page_with(PAGE, reference.tables()) == PAGE, remedy


def test_every_key_of_the_spec_stands_in_its_section() -> None:
    shown = {f"{part[1]}.{row[0]}" for part in _SECTION.finditer(PAGE) for row in _ROW.findall(part[0])}
    assert shown == set(all_keys())


def test_every_key_has_its_description() -> None:
    rows = {(key, meaning.replace("&lt;", "<").replace("\\|", "|")) for key, _, _, meaning in _ROW.findall(PAGE)}
    models = [KafkaSource, GeneratorSource]
    for field in PipelineSpec.model_fields.values():
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
        models += [m for m in candidates if isinstance(m, type) and issubclass(m, Section)]
    assert rows == set().union(*map(described, models))


def test_what_the_script_writes_is_stable(reference: ModuleType) -> None:
    assert reference.page_with(reference.page_with(PAGE, "x"), reference.tables()) == PAGE
