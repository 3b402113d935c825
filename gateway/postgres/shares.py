"""The connections of a pool, shared by tenants: the slow reads of one leave a connection for the others'."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from gateway.fair_turns import FairTurns


def turns_at(connections: int) -> FairTurns:
    """At so many connections, of which one tenant has all but one at most."""
    return FairTurns(connections, max(connections - 1, 1))


class Shares:
    """Of a pool, but for `spare` connections, which others take from the pool itself."""

    def __init__(self, pool: asyncpg.Pool, spare: int = 0) -> None:
        self.pool = pool
        self.turns = turns_at(pool.get_max_size() - spare)

    def of(self, tenant: bytes) -> Share:
        return Share(self.pool, self.turns, tenant)


class Share:
    """A tenant's, for statements on its behalf: in place of the pool."""

    __slots__ = ("_pool", "_tenant", "_turns")

    def __init__(self, pool: asyncpg.Pool, turns: FairTurns, tenant: bytes) -> None:
        self._pool = pool
        self._turns = turns
        self._tenant = tenant

    @asynccontextmanager
    async def acquire(self, *, timeout: float | None = None) -> AsyncIterator[Any]:  # noqa: ASYNC109 - as asyncpg's
        """Raises TimeoutError where the tenant's turn, or the connection, does not come."""
        async with asyncio.timeout(timeout):
            await self._turns.begin(self._tenant)
        try:
            async with self._pool.acquire(timeout=timeout) as connection:
                yield connection
        finally:
            self._turns.end(self._tenant)

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        async with self.acquire() as connection:
            return list(await connection.fetch(sql, *args))
