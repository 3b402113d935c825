"""What an idle gateway asks of Redis and Postgres, as every further one does: counted, whatever the
machine."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import asyncpg
import pytest

from gateway.config import Config
from gateway.log.redis.servers import Server
from tests.support.accounts import open_account
from tests.support.serving import serving

WITHIN_S: Final = 60
PARTITIONS: Final = "SELECT p, epoch, mode"
"""Begins the look at all partitions, which is made twice a second, as long as a gateway runs."""
LOOKS: Final = 8
STATEMENTS_A_LOOK: Final = 8
CALLS_A_LOOK: Final = 4


class Counted:
    """Statements in one database, and calls of Redis about one instance, by whatever runs in this process."""

    def __init__(self, database: str, instance: bytes) -> None:
        self.database, self.instance = database, instance
        self.statements: Counter[str] = Counter()
        self.calls = 0
        self.look = asyncio.Event()

    async def looks(self, count: int) -> None:
        """Returns behind so many looks at the partitions."""
        async with asyncio.timeout(WITHIN_S):
            for _ in range(count):
                self.look.clear()
                await self.look.wait()


@pytest.fixture
async def counted(own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch) -> Counted:
    row = await own_outbox.fetchrow("SELECT current_database() AS database, id FROM instance")
    found = Counted(row["database"], row["id"].hex.encode())
    execute, send = asyncpg.Connection._do_execute, Server.send

    async def counting(connection: Any, query: str, *args: Any, **more: Any) -> Any:
        if connection._params.database == found.database:
            found.statements[query[:60]] += 1
            if query.startswith(PARTITIONS):
                found.look.set()
        return await execute(connection, query, *args, **more)

    async def sending(server: Server, packed: bytes, *args: Any, **more: Any) -> Any:
        found.calls += found.instance in packed
        return await send(server, packed, *args, **more)

    monkeypatch.setattr(asyncpg.Connection, "_do_execute", counting)
    monkeypatch.setattr(Server, "send", sending)
    return found


async def test_an_idle_gateway_asks_little(
    own_config: Config, own_outbox: asyncpg.Pool, counted: Counted
) -> None:
    await open_account(own_outbox)
    async with serving(own_config):
        # Behind its start, and once each partition was looked at for what leaves Redis.
        await counted.looks(2 * LOOKS)
        counted.statements.clear()
        counted.calls = 0
        await counted.looks(LOOKS)
        assert counted.statements.total() <= STATEMENTS_A_LOOK * LOOKS, counted.statements
        assert 0 < counted.calls <= CALLS_A_LOOK * LOOKS
