"""The pages agree with the code and with each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from frazil import errors
from frazil.errors import TerminalError
from frazil.protocol.positions import EMPTY_SPAN, Frontier, Range, Span
from frazil.protocol.register import BatchId, Epoch, Generation, Register
from frazil.protocol.summary import EpochSummary

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
TERMINAL = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, TerminalError)]
_LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]+))?\)")


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def anchors(path: Path) -> set[str]:
    """As a Markdown viewer makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", text(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("error", TERMINAL, ids=lambda error: error.__name__)
def test_every_terminal_error_says_what_to_do(error: type[TerminalError]) -> None:
    if error is not TerminalError:
        assert f"\n## {error.__name__}\n" in text(ROOT / "docs" / "TROUBLESHOOTING.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(text(page)):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def test_the_architecture_names_every_key_of_a_summary() -> None:
    register = Register(Generation(1), "c", Epoch(1), BatchId("b"), Frontier())
    lost = Span({("t", 0): Range(0, 1)})
    written = EpochSummary(
        "orders", "append", register, EMPTY_SPAN, skipped=lost, read=lost, rewound_from=Frontier(), given_up=lost
    ).properties()
    page = text(ROOT / "docs" / "ARCHITECTURE.md")
    assert [key for key in written if f"`{key}`" not in page] == []
