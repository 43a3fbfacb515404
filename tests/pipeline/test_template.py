"""The file that `frazil init` writes: it works as it is, and shows everything there is."""

from __future__ import annotations

import re
import tomllib

import pytest

from frazil.pipeline import FilesSource, GeneratorSource, KafkaSource, PipelineSpec, parse_pipeline
from frazil.pipeline.load import all_keys
from frazil.pipeline.schema import parse_schema
from frazil.pipeline.template import pipeline_template

OF_DELTA = ("path", "storage", "unsafe_rename")
_COMMENTED = re.compile(r"^# (?=\[|[a-z_]+(\.\"[^\"]+\")? = )", re.MULTILINE)


def written_keys(text: str) -> list[str]:
    """Every key of the file, in use or commented out, as a dotted path."""
    keys, section = [], ""
    for line in text.splitlines():
        if found := re.match(r"(?:# )?\[(\w+)\]", line):
            section = found[1]
        elif found := re.match(r"(?:# )?([a-z_]+)(?:\.\"[^\"]+\")? = ", line):
            keys.append(f"{section}.{found[1]}")
    return keys


def test_it_is_a_pipeline_as_it_is() -> None:
    """CFG-06, CFG-39."""
    pipeline = parse_pipeline(tomllib.loads(pipeline_template("orders")))
    assert pipeline.pipeline.name == "orders"
    assert pipeline.table.name == "shop.orders"
    assert isinstance(pipeline.source, KafkaSource)
    assert pipeline.source.topics == ["orders"]
    parse_schema(pipeline.decode.schema_ or "")


@pytest.mark.parametrize("name", ["a", "shop.orders-2_b", "0", "7eleven", "x" * 100])
def test_it_is_one_under_any_name(name: str) -> None:
    pipeline = parse_pipeline(tomllib.loads(pipeline_template(name)))
    assert pipeline.pipeline.name == name
    assert isinstance(pipeline.source, KafkaSource)
    assert pipeline.source.topics == [name]


def test_it_mentions_every_key_once() -> None:
    """All but those of other sources and of other table formats, which its comments name."""
    shown = written_keys(pipeline_template("orders"))
    others = {*GeneratorSource.model_fields, *FilesSource.model_fields} - set(KafkaSource.model_fields)
    elsewhere = {*(f"source.{name}" for name in others), *(f"table.{name}" for name in OF_DELTA)}
    known = [key for key in all_keys() if key not in elsewhere]
    assert sorted(shown) == sorted(known)


def test_every_line_that_is_commented_out_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "s3cr3t-value")
    text = _COMMENTED.sub("", pipeline_template("orders"))
    tree = tomllib.loads(text)
    assert sum(len(section) for section in tree.values()) == len(written_keys(text))
    pipeline = parse_pipeline(tree)
    assert pipeline.transform is not None
    assert pipeline.catalog.prop == {"some.catalog.property": "s3cr3t-value"}


def test_what_is_commented_out_shows_the_default_where_there_is_one() -> None:
    text = pipeline_template("orders")
    plain = parse_pipeline(tomllib.loads(text))
    everything = tomllib.loads(_COMMENTED.sub("", text).replace("${SOME_SECRET}", "x"))
    for section, key in (path.split(".") for path in written_keys(text)):
        field = "schema_" if key == "schema" else key
        default = getattr(getattr(plain, section), field, None)
        if default in (None, {}, []):
            continue
        parsed = parse_pipeline({**tomllib.loads(text), section: everything[section]})
        assert getattr(getattr(parsed, section), field) == default, f"{section}.{key}"


def test_every_key_is_explained() -> None:
    for line in pipeline_template("orders").splitlines():
        if " = " in line or line.startswith(("[", "# [")):
            explanation = line.rpartition("  # ")[2] if " = " in line else line.rpartition("# ")[2]
            assert len(explanation.strip()) > 5, line


def test_every_section_is_there() -> None:
    sections = re.findall(r"^(?:# )?\[(\w+)\]", pipeline_template("orders"), re.MULTILINE)
    assert sections == [field.alias or name for name, field in PipelineSpec.model_fields.items()]
