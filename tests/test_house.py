"""The house stays in shape: small files, plain names, and rooms that know their place."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "frazil"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
LINES_MAX = 450
VAGUE = {"utils", "util", "common", "helpers", "helper", "manager", "misc", "base", "core", "stuff"}
IMPURE = {"time", "random", "secrets", "os", "io", "socket", "threading", "pathlib", "subprocess", "datetime"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> set[str]:
    """Every module that is imported, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found


def sentences(path: Path) -> Iterator[list[str]]:
    """The tests of a module, and of each of its classes."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Module | ast.ClassDef):
            functions = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            yield [each for each in functions if each.startswith("test_")]


def test_a_file_that_outgrows_its_page_becomes_a_folder() -> None:
    lengths = {name(path): path.read_text(encoding="utf-8").count("\n") for path in MODULES}
    assert {path: lines for path, lines in lengths.items() if lines > LINES_MAX} == {}


def test_no_file_or_folder_has_a_name_that_says_nothing() -> None:
    assert [name(path) for path in MODULES if VAGUE & {path.stem, path.parent.name}] == []


def test_every_module_opens_with_what_it_is_about() -> None:
    assert [name(path) for path in MODULES if not ast.get_docstring(tree(path))] == []


def test_imports_are_absolute() -> None:
    assert [name(path) for path in MODULES if any(each.startswith(".") for each in imports(path))] == []


def test_what_the_linter_is_told_to_overlook_has_its_reason_beside_it() -> None:
    reason = re.compile(r"# noqa: [A-Z]+\d+(, [A-Z]+\d+)*  # \w")
    bare = [
        f"{name(path)}:{number}"
        for path in MODULES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "# noqa" in line and not reason.search(line)
    ]
    assert bare == []


def test_the_protocol_is_pure() -> None:
    """The standard library, the error tree and itself; no clock, no randomness, no input or output."""
    for path in (SOURCE / "protocol").rglob("*.py"):
        ours = {each for each in imports(path) if each.split(".")[0] == "frazil"}
        assert all(each.startswith(("frazil.protocol", "frazil.errors")) for each in ours), name(path)
        others = {each.split(".")[0] for each in imports(path) - ours}
        assert others <= sys.stdlib_module_names - IMPURE, name(path)


def test_every_room_has_its_layer() -> None:
    """import-linter knows only the rooms it is told of."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = " ".join(contracts["contracts"][0]["layers"])
    known = {room.removeprefix("frazil.") for room in re.split(r"[ |:]+", layers)}
    rooms = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__", "__main__"} == known


def test_tests_are_sentences() -> None:
    short = [each for path in TESTS for tests in sentences(path) for each in tests if len(each.split("_")) < 4]
    assert short == []


def test_no_test_hides_another_of_the_same_name() -> None:
    hidden = [name(path) for path in TESTS for tests in sentences(path) if len(tests) != len(set(tests))]
    assert hidden == []
