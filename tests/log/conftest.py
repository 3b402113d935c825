"""Gateways for the tests of the append protocol: each a whole Log with tasks and connections of its own.

`place` is the servers that all tests share; `breakable` is a pair that tests may flush, pause and kill, and a
module whose tests do so makes it its `place`. The databases are emptied between tests, and become another
instance, so that its keys in Redis are of no other; making one again each time takes longer than most tests.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis

from gateway.catalog.migrate import migrate
from gateway.log.log import Log
from gateway.log.redis.servers import connect
from tests.support.databases import execute
from tests.support.drive import Gateway, Place, open_gateway
from tests.support.servers import Servers, open_folder, servers_in

OpenLog = Callable[..., Awaitable[Log]]

_DATABASE = "log"
PARTITIONS = 8


@pytest.fixture(scope="session")
async def shared_database(servers: Servers) -> str:
    return await _prepare(servers)


@pytest.fixture
async def place(servers: Servers, shared_database: str) -> AsyncIterator[Place]:
    yield Place(shared_database, servers.redis_url)
    await _empty(servers)


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


@pytest.fixture
async def redis(place: Place) -> AsyncIterator[Redis]:
    client = connect(place.redis_url, 2, 8)
    yield client
    await client.aclose()


@pytest.fixture(scope="session")
async def breakable_servers() -> AsyncIterator[Servers]:
    with open_folder() as folder:
        pair = servers_in(folder)
        with contextlib.closing(pair):
            await pair.start()
            await _prepare(pair)
            yield pair


@pytest.fixture
async def breakable(breakable_servers: Servers) -> AsyncIterator[Place]:
    """Started again if the test before has left them dead."""
    await breakable_servers.start()
    yield Place(breakable_servers.database_url(_DATABASE), breakable_servers.redis_url)
    await breakable_servers.start()
    await _empty(breakable_servers)


async def _prepare(servers: Servers) -> str:
    """Makes the database; its URL."""
    url = servers.database_url(_DATABASE)
    await execute(servers.database_url("postgres"), f"CREATE DATABASE {_DATABASE}")
    await migrate(url, PARTITIONS)
    await execute(url, "CREATE SCHEMA pristine; CREATE TABLE pristine.partition_log AS TABLE partition_log")
    return url


async def _empty(servers: Servers) -> None:
    await execute(
        servers.database_url(_DATABASE),
        f"""
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = '{_DATABASE}' AND pid <> pg_backend_pid();
        TRUNCATE outbox, append_identity, event_tag, unique_claim, quarantined_append, partition_mark,
            partition_trail;
        DELETE FROM partition_log;
        INSERT INTO partition_log TABLE pristine.partition_log;
        UPDATE instance SET id = '{uuid.uuid4()}';
        """,
    )
