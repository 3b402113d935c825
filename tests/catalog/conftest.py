from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from gateway.catalog import tenants
from gateway.catalog.model import Tenant


@pytest.fixture
async def conn(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    conn = await asyncpg.connect(postgres_url)
    yield conn
    await conn.close()


@pytest.fixture
async def pool(postgres_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=4) as pool:
        yield pool


@pytest.fixture
async def tenant(conn: asyncpg.Connection) -> Tenant:
    return await tenants.create(conn, "acme")
