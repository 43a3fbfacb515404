"""The tables of a made-up shop: what they are in PostgreSQL, in a pipeline file and in Debezium's events."""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

Key = tuple[Any, ...]
Row = tuple[Any, ...]
Rows = dict[Key, Row]

_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Kind:
    """A type: in PostgreSQL, in frazil's schema, and how its values are made and read."""

    postgres: str
    frazil: str
    make: Callable[[random.Random], Any]
    of_event: Callable[[Any], Any] = lambda value: value
    """from what Debezium writes to what PostgreSQL's driver reads"""
    read: str = "{}"
    """the expression that reads a column from PostgreSQL in a form that tables have too"""
    epoch_unit: str | None = None


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind
    nullable: bool = True

    def draw(self, dice: random.Random) -> Any:
        return None if self.nullable and dice.random() < 0.2 else self.kind.make(dice)


@dataclass(frozen=True)
class Table:
    """A table; the first columns are its key."""

    name: str
    keys: tuple[Column, ...]
    others: tuple[Column, ...]
    full_identity: bool = False
    """whether the feed says what a row was before, and so knows large values that an update left alone"""

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.keys + self.others

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.keys)

    @property
    def ddl(self) -> str:
        """What a pipeline file calls `decode.schema`."""
        return ", ".join(
            f"{column.name} {column.kind.frazil}{'' if column.nullable else ' NOT NULL'}" for column in self.columns
        )

    @property
    def epoch_units(self) -> dict[str, str]:
        """What a pipeline file calls `decode.epoch_unit`."""
        return {column.name: unit for column in self.columns if (unit := column.kind.epoch_unit)}

    @property
    def create(self) -> str:
        columns = [
            f"{column.name} {column.kind.postgres}{'' if column.nullable else ' NOT NULL'}"
            for column in self.columns
        ]
        create = f"CREATE TABLE {self.name} ({', '.join(columns)}, PRIMARY KEY ({', '.join(self.key_names)}))"
        return f"{create}; ALTER TABLE {self.name} REPLICA IDENTITY FULL" if self.full_identity else create

    @property
    def select(self) -> str:
        return f"SELECT {', '.join(c.kind.read.format(c.name) for c in self.columns)} FROM {self.name}"

    def key(self, row: Row) -> Key:
        return row[: len(self.keys)]

    def draw_key(self, dice: random.Random) -> Key:
        return tuple(column.kind.make(dice) for column in self.keys)

    def draw_others(self, dice: random.Random) -> Row:
        return tuple(column.draw(dice) for column in self.others)


def _text(dice: random.Random, longest: int = 30) -> str:
    return "".join(dice.choices(string.ascii_letters + " 'äß😀\"\\\n", k=dice.randint(0, longest)))


def _long_text(dice: random.Random) -> str:
    """Now and then too large to stay in its row, so that the feed leaves it out unless it is told all of a row."""
    return _text(dice, 12_000 if dice.random() < 0.02 else 60)


def _moment(dice: random.Random) -> datetime:
    return datetime(1999, 12, 31) + timedelta(microseconds=dice.randrange(10**15))


def _document(dice: random.Random) -> Jsonb:
    return Jsonb({_text(dice, 5): dice.choice([None, 1, 2.5, True, _text(dice), [], {"a": [1]}]) for _ in range(3)})


def _number(dice: random.Random) -> int:
    # Beyond 2^53 a reader that takes numbers for doubles would be found out.
    return dice.randrange(-(2**63), 2**63) if dice.random() < 0.2 else dice.randrange(10**7)


BIGINT = Kind("bigint", "BIGINT", _number)
TEXT = Kind("text", "STRING", _text)
LONG_TEXT = Kind("text", "STRING", _long_text)
REGION = Kind("text", "STRING", lambda dice: dice.choice(["nord", "süd", 'a"b', "", "x|y", "\\"]))
UUID_ = Kind("uuid", "UUID", lambda dice: str(UUID(int=dice.getrandbits(128))), read="{}::text")
NUMERIC = Kind(
    "numeric(12,2)",
    "DECIMAL(12,2)",
    lambda dice: Decimal(dice.randrange(-(10**12) + 1, 10**12)).scaleb(-2),
    lambda unscaled: Decimal(int.from_bytes(base64.b64decode(unscaled), signed=True)).scaleb(-2),
)
TIMESTAMPTZ = Kind(
    "timestamptz", "TIMESTAMP", lambda dice: _moment(dice).replace(tzinfo=UTC), datetime.fromisoformat
)
TIMESTAMP = Kind(
    "timestamp", "TIMESTAMP_NTZ", _moment, lambda us: _EPOCH + timedelta(microseconds=us), epoch_unit="us"
)
DATE = Kind(
    "date",
    "DATE",
    lambda dice: date(1900, 1, 1) + timedelta(days=dice.randrange(60_000)),
    lambda days: (_EPOCH + timedelta(days=days)).date(),
)
BOOLEAN = Kind("boolean", "BOOLEAN", lambda dice: dice.random() < 0.5)
JSONB = Kind("jsonb", "STRING", _document, read="{}::text")
BYTEA = Kind("bytea", "BINARY", lambda dice: dice.randbytes(dice.randrange(20)), base64.b64decode)

CUSTOMERS = Table(
    "customers",
    (Column("id", BIGINT, nullable=False),),
    (
        Column("name", TEXT, nullable=False),
        Column("balance", NUMERIC),
        Column("vip", BOOLEAN),
        Column("born", DATE),
        Column("joined_at", TIMESTAMPTZ),
        Column("notes", JSONB),
    ),
)
ORDERS = Table(
    "orders",
    (Column("region", REGION, nullable=False), Column("number", BIGINT, nullable=False)),
    (
        Column("customer", UUID_),
        Column("amount", NUMERIC, nullable=False),
        Column("placed_at", TIMESTAMP),
        Column("signature", BYTEA),
        Column("paid", BOOLEAN, nullable=False),
    ),
)
SESSIONS = Table(
    "sessions",
    (Column("id", UUID_, nullable=False),),
    (Column("agent", LONG_TEXT), Column("seen_at", TIMESTAMPTZ, nullable=False), Column("state", JSONB)),
    full_identity=True,
)
TABLES = (CUSTOMERS, ORDERS, SESSIONS)
