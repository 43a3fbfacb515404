"""The rows of a table in PostgreSQL beside those of anybody else, and their differences in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import psycopg

from tests.e2e.cdc.tables import Row, Rows, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN = 10


def postgres_rows(connection: psycopg.Connection, table: Table) -> list[Row]:
    return connection.execute(table.select).fetchall()


def iceberg_rows(spark: SparkSession, table: Table, name: str) -> list[Row]:
    """The rows as Spark reads them, with the types of PostgreSQL's driver."""
    columns = ", ".join(table.names)
    found = spark.sql(f"SELECT {columns} FROM {name}").toArrow().to_pylist()
    return [tuple(row[name] for name in table.names) for row in found]


def differences(table: Table, expected: Iterable[Row], found: Iterable[Row]) -> list[str]:
    """A line for every row that is missing, extra, doubled or different; none if both are the same."""
    expected, found = list(expected), list(found)
    doubled = [key for key, times in Counter(map(table.key, found)).items() if times > 1]
    wanted, there = _by_key(table, expected), _by_key(table, found)
    return [
        *(f"doubled   {key}" for key in doubled),
        *(f"missing   {key}" for key in wanted if key not in there),
        *(f"extra     {key}" for key in there if key not in wanted),
        *(
            f"different {key}: {_unlike(table, row, there[key])}"
            for key, row in wanted.items()
            if key in there and row != there[key]
        ),
    ]


def require_same(table: Table, expected: Iterable[Row], found: Iterable[Row]) -> None:
    """Fails with the first differences in words."""
    expected, found = list(expected), list(found)
    lines = differences(table, expected, found)
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    summary = f"{table.name}: {len(expected)} rows in PostgreSQL, {len(found)} found, {len(lines)} differences"
    assert not lines, "\n  ".join([summary, *lines[:_SHOWN], *more])


def _by_key(table: Table, rows: Iterable[Row]) -> Rows:
    return {table.key(row): row for row in rows}


def _unlike(table: Table, wanted: Row, there: Row) -> str:
    pairs = zip(table.names, wanted, there, strict=True)
    return ", ".join(f"{name} is {found!r}, not {right!r}" for name, right, found in pairs if found != right)
