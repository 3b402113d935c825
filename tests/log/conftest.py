"""Gateways for the tests of the append protocol: each a whole Log with tasks and connections of its own.

`place` is the servers that all tests share, with a database of the test's own; `breakable` is a pair that
tests may flush, pause and kill, and a module whose tests do so makes it its `place`.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from gateway.catalog.migrate import migrate
from gateway.log.log import Log
from tests.conftest import PARTITIONS
from tests.log.drive import Gateway, Place, open_gateway
from tests.servers import Servers, open_folder, servers_in

OpenLog = Callable[..., Awaitable[Log]]

_numbers = itertools.count(1)
_TEMPLATE = "template_log"


@pytest.fixture
def place(postgres_url: str, redis_url: str) -> Place:
    return Place(postgres_url, redis_url)


@pytest.fixture
async def open_log(place: Place) -> AsyncIterator[OpenLog]:
    """Opens a gateway's log at the test's place, with other limits by name; all are stopped at the end."""
    gateways: list[Gateway] = []

    async def open_one(**limits: float) -> Log:
        gateways.append(await open_gateway(place, **limits))
        return gateways[-1].log

    yield open_one
    for each in gateways:
        await each.close()


@pytest.fixture
async def log(open_log: OpenLog) -> Log:
    return await open_log()


@pytest.fixture(scope="session")
async def breakable_servers() -> AsyncIterator[Servers]:
    with open_folder() as folder:
        pair = servers_in(folder)
        with contextlib.closing(pair):
            await pair.start()
            await _execute(pair, f"CREATE DATABASE {_TEMPLATE}")
            await migrate(pair.database_url(_TEMPLATE), PARTITIONS)
            yield pair


@pytest.fixture
async def breakable(breakable_servers: Servers) -> AsyncIterator[Place]:
    """Started again if the test before has left them dead."""
    servers = breakable_servers
    await servers.start()
    name = f"breakable_{next(_numbers)}"
    await _execute(servers, f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY")
    place = Place(servers.database_url(name), servers.redis_url)
    await place.execute("UPDATE instance SET id = $1", uuid.uuid4())
    yield place
    await servers.start()
    await _execute(servers, f"DROP DATABASE {name} WITH (FORCE)")


async def _execute(servers: Servers, statement: str) -> None:
    connection = await asyncpg.connect(servers.database_url("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
