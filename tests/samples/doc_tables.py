"""The tables of a page of the documentation, for tests that hold it to its word."""

from __future__ import annotations


def tables_of(page: str) -> dict[str, list[list[str]]]:
    """The rows of all tables by the heading of their first column."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in page.splitlines():
        if line.startswith("|---"):
            continue
        cells = [cell.strip() for cell in line[2:-2].split(" | ")] if line.startswith("| ") else []
        if not cells:
            heading = ""
        elif not heading:
            heading = cells[0]
        else:
            found.setdefault(heading, []).append(cells)
    return found
