"""One PostgreSQL and one Connect for all tests of change feeds, and a shop of its own for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cdc.feed import Shop
from tests.services.connect import Connect
from tests.services.postgres import Postgres, find_programs

if TYPE_CHECKING:
    from frazil.demo.broker import Broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    try:
        find_programs()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with Postgres() as running:
        yield running


@pytest.fixture(scope="session")
def connect(broker: Broker) -> Iterator[Connect]:
    with Connect(broker.bootstrap) as running:
        yield running


@pytest.fixture
def open_shop(postgres: Postgres, connect: Connect, broker: Broker) -> Iterator[Callable[[int], Shop]]:
    """`open_shop(seed)` makes a shop with empty tables that nobody follows yet."""
    shops: list[Shop] = []

    def make(seed: int) -> Shop:
        shops.append(Shop(postgres, connect, broker.bootstrap, seed))
        return shops[-1]

    yield make
    for shop in shops:
        shop.close()
