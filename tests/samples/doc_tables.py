"""The tables of a page of the documentation, for tests that hold it to its word."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID


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


def shown(value: Any) -> str:
    """A value as the pages write it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex()
        case Decimal():
            return format(value, "f")
        case date() | datetime() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case _:
            return str(value)
