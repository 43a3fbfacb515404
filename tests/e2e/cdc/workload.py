"""A workload on the shop's tables: the same transactions for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import psycopg

from tests.e2e.cdc.tables import TABLES, Key, Row, Table

BIG = 5_000
"""rows of a big transaction"""


class RolledBack(Exception):
    """Ends a transaction that must leave no trace."""


class Keys:
    """The keys that a table has, to draw from and to take from."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._known: set[Key] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Key) -> bool:
        return key in self._known

    def add(self, key: Key) -> None:
        self._keys.append(key)
        self._known.add(key)

    def draw(self, dice: random.Random) -> Key:
        return dice.choice(self._keys)

    def take(self, dice: random.Random) -> Key:
        place = dice.randrange(len(self._keys))
        key = self._keys[place]
        self._keys[place] = self._keys[-1]
        self._keys.pop()
        self._known.discard(key)
        return key

    def copy(self) -> Keys:
        twin = Keys()
        twin._keys, twin._known = self._keys.copy(), self._known.copy()
        return twin


class Workload:
    """Draws transactions and carries them out."""

    def __init__(self, connection: psycopg.Connection, seed: int) -> None:
        self._connection = connection
        self._dice = random.Random(seed)
        self._live = {table.name: Keys() for table in TABLES}
        self.transactions = 0

    def fill(self, rows: int) -> None:
        """Gives every table this many rows, each in one transaction."""
        for table in TABLES:
            self._transaction(lambda table=table: self._insert(table, rows))

    def run(self, transactions: int) -> None:
        """Small transactions of every kind."""
        for _ in range(transactions):
            self.step()

    def step(self) -> None:
        """One small transaction: a few changes of any table, now and then all in vain."""
        in_vain = self._dice.random() < 0.05
        kept = {name: keys.copy() for name, keys in self._live.items()} if in_vain else self._live

        def change() -> None:
            for _ in range(self._dice.randint(1, 12)):
                self._change(self._dice.choice(TABLES))
            if in_vain:
                raise RolledBack

        try:
            self._transaction(change)
        except RolledBack:
            self._live = kept

    def insert_many(self, table: Table) -> None:
        """A big transaction of new rows."""
        self._transaction(lambda: self._insert(table, BIG))

    def change_many(self, table: Table) -> None:
        """A big transaction that changes rows everywhere in the table, some of them twice, and deletes others."""

        def change() -> None:
            self._delete(table, min(BIG // 5, len(self._live[table.name]) // 3))
            for _ in range(2):
                self._update(table, BIG // 2)

        self._transaction(change)

    def _transaction(self, work: Callable[[], Any]) -> None:
        with self._connection.transaction():
            work()
        self.transactions += 1

    def _change(self, table: Table) -> None:
        if len(self._live[table.name]) < 10:
            self._insert(table, 10)
        changes = [self._insert, self._update, self._delete, self._rename, self._replace, self._revise, self._visit]
        self._dice.choices(changes, weights=[30, 40, 12, 6, 4, 4, 4])[0](table)

    def _insert(self, table: Table, count: int = 1) -> None:
        self._write(table, [self._new_key(table) for _ in range(count)])

    def _update(self, table: Table, count: int = 1) -> None:
        for _ in range(count):
            self._set(table, self._live[table.name].draw(self._dice))

    def _delete(self, table: Table, count: int = 1) -> None:
        self._erase(table, [self._live[table.name].take(self._dice) for _ in range(count)])

    def _rename(self, table: Table) -> None:
        """The row gets another key."""
        old, new = self._live[table.name].take(self._dice), self._new_key(table)
        columns = ", ".join(f"{name} = %s" for name in table.key_names)
        self._connection.execute(f"UPDATE {table.name} SET {columns} WHERE {_is_key(table)}", [*new, *old])
        self._live[table.name].add(new)

    def _replace(self, table: Table) -> None:
        """The row is deleted, and another takes its key."""
        key = self._live[table.name].take(self._dice)
        self._erase(table, [key])
        self._write(table, [key])

    def _revise(self, table: Table) -> None:
        """The same row is changed again and again."""
        key = self._live[table.name].draw(self._dice)
        for _ in range(3):
            self._set(table, key)

    def _visit(self, table: Table) -> None:
        """A row that comes and goes within its transaction."""
        key = self._new_key(table)
        self._connection.execute(_insertion(table), self._row(table, key))
        self._erase(table, [key])

    def _write(self, table: Table, keys: list[Key]) -> None:
        distinct = list(dict.fromkeys(keys))
        with self._connection.cursor() as cursor:
            cursor.executemany(_insertion(table), [self._row(table, key) for key in distinct])
        for key in distinct:
            self._live[table.name].add(key)

    def _erase(self, table: Table, keys: list[Key]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(f"DELETE FROM {table.name} WHERE {_is_key(table)}", keys)

    def _set(self, table: Table, key: Key) -> None:
        chosen = self._dice.sample(table.others, self._dice.randint(1, len(table.others)))
        values = [column.draw(self._dice) for column in chosen]
        columns = ", ".join(f"{column.name} = %s" for column in chosen)
        self._connection.execute(f"UPDATE {table.name} SET {columns} WHERE {_is_key(table)}", [*values, *key])

    def _row(self, table: Table, key: Key) -> Row:
        return key + table.draw_others(self._dice)

    def _new_key(self, table: Table) -> Key:
        while (key := table.draw_key(self._dice)) in self._live[table.name]:
            pass
        return key


def _insertion(table: Table) -> str:
    return f"INSERT INTO {table.name} VALUES ({', '.join(['%s'] * len(table.columns))})"


def _is_key(table: Table) -> str:
    return " AND ".join(f"{name} = %s" for name in table.key_names)
