"""Connections that tenants share: the slow statements of one leave another's a connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest

from gateway.follow.reading import Reading
from gateway.log.postgres import Reads
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from gateway.relay.outbox import Filter, Outbox
from gateway.relay.position import START
from gateway.relay.pull import Pull

GREEDY, OTHER = (bytes([n]) * 16 for n in (1, 2))
CONNECTIONS = 4
NOTHING: Any = None


class Pool:
    """In place of asyncpg's: statements on its connections are never answered. `busy` counts the connections
    that are taken."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(CONNECTIONS)
        self.busy = 0

    def get_max_size(self) -> int:
        return CONNECTIONS

    def acquire(self, *, timeout: float) -> Acquired:
        return Acquired(self)

    async def take(self) -> Connection:
        await self._free.acquire()
        self.busy += 1
        return Connection()

    async def release(self, _connection: Connection) -> None:
        self.busy -= 1
        self._free.release()


class Acquired:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._pool.take().__await__()

    async def __aenter__(self) -> Connection:
        self._connection = await self._pool.take()
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._pool.release(self._connection)


class Connection:
    async def fetch(self, *_args: object, timeout: float = 0.0) -> Any:
        return await asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield


@pytest.fixture
def pool() -> Pool:
    return Pool()


def page_of_feed(pool: Pool) -> Callable[[bytes, int], Awaitable[Any]]:
    outbox = Outbox(Reads(Shares(cast(asyncpg.Pool, pool), spare=1), 60), 16, NOTHING)
    return lambda tenant, _: outbox.page(Filter(tenant), START, 10)


def rows(pool: Pool) -> Callable[[bytes, int], Awaitable[Any]]:
    reading = Reading(cast(asyncpg.Pool, pool))
    return lambda tenant, _: reading.serving(tenant, "list", "order")


def claim(pool: Pool) -> Callable[[bytes, int], Awaitable[Any]]:
    pull = Pull(cast(asyncpg.Pool, pool), NOTHING, NOTHING, NOTHING)

    async def claimed(tenant: bytes, number: int) -> None:
        async with pull._turn(UUID(bytes=tenant), str(number)) as connection:
            await connection.fetch()

    return claimed


@pytest.mark.parametrize("reads", [page_of_feed, rows, claim])
async def test_however_many_reads_of_one_tenant_wait_anothers_begins(
    pool: Pool, reads: Callable[[Pool], Callable[[bytes, int], Awaitable[Any]]]
) -> None:
    read = reads(pool)
    tasks = [asyncio.ensure_future(read(GREEDY, number)) for number in range(10)]
    await _turns()
    of_one = pool.busy
    assert 0 < of_one < CONNECTIONS
    tasks.append(asyncio.ensure_future(read(OTHER, 0)))
    await _turns()
    assert pool.busy == of_one + 1
    await _ended(tasks)
    assert pool.busy == 0


async def test_a_share_is_a_pool_and_what_does_not_come_in_time_is_trouble(pool: Pool) -> None:
    shares = Shares(cast(asyncpg.Pool, pool))
    ending, held = asyncio.Event(), []

    async def hold(tenant: bytes) -> None:
        async with shares.of(tenant).acquire(timeout=60) as connection:
            held.append(connection)
            await ending.wait()

    tasks = [asyncio.ensure_future(hold(GREEDY)) for _ in range(CONNECTIONS)]
    await _turns()
    assert len(held) == CONNECTIONS - 1
    with pytest.raises(TimeoutError):
        async with shares.of(GREEDY).acquire(timeout=0.01):
            pass
    tasks.append(asyncio.ensure_future(hold(OTHER)))
    await _turns()
    assert len(held) == CONNECTIONS
    ending.set()
    await asyncio.gather(*tasks)
    assert len(held) == CONNECTIONS + 1
    assert pool.busy == 0


async def test_a_read_whose_turn_does_not_come_in_time_is_trouble(pool: Pool) -> None:
    shares = Shares(cast(asyncpg.Pool, pool), spare=1)
    outbox, late = Outbox(Reads(shares, 60), 16, NOTHING), Reads(shares, 0.01)
    tasks = [asyncio.ensure_future(outbox.page(Filter(GREEDY), START, 10)) for _ in range(CONNECTIONS)]
    await _turns()
    with pytest.raises(PostgresTrouble, match="outbox_end: other reads took all connections"):
        await late.of(GREEDY).fetch("outbox_end", 0)
    await _ended(tasks)


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def _ended(tasks: list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await _turns()
