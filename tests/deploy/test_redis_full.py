"""A Redis that is full though nothing in it can be evicted is done without; docs/operations.md says so."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest
from redis.asyncio import Redis

from gateway.config import Config
from tests.deploy.shipped import Shipped
from tests.support.accounts import Account, open_account
from tests.support.calls import appended, length_of, new_client, new_id, until
from tests.support.serving import serving


@pytest.fixture
async def tenant(shipped: Shipped) -> Account:
    async with asyncpg.create_pool(shipped.owner_url, min_size=1, max_size=1) as pool:
        await pool.execute("UPDATE instance SET id = $1", uuid.uuid4())
        return await open_account(pool)


@pytest.fixture
async def client(shipped: Shipped, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    config = Config(redis_url=shipped.redis_url, postgres_url=shipped.gateway_url, append_deadline_s=4)
    async with serving(config) as served, new_client(served.url, tenant.admin) as client:
        yield client


@pytest.fixture
async def admin(shipped: Shipped) -> AsyncIterator[Redis]:
    async with Redis.from_url(shipped.admin_url) as client:
        before = (await client.config_get("maxmemory"))["maxmemory"]
        yield client
        await client.config_set("maxmemory", before)
        await client.delete("not_ours")


@pytest.mark.parametrize("remedy", ["more memory", "emptied"])
async def test_appends_and_reads_go_on_without_a_redis_that_is_full(
    client: httpx.AsyncClient, admin: Redis, remedy: str
) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted")
    used = (await admin.info("memory"))["used_memory"]
    await admin.set("not_ours", "x" * 20_000_000)
    await admin.config_set("maxmemory", used + 10_000_000)

    await appended(client, "order", key, "was_noted")
    assert await length_of(client, key) == 2

    async def mode() -> str | None:
        return (await client.get("/_/health/ready")).json().get("mode")

    async def direct() -> bool:
        return await mode() == "direct"

    await until(direct)
    if remedy == "emptied":
        await admin.flushall()
    else:
        await admin.config_set("maxmemory", used + 100_000_000)

    async def back() -> bool:
        return await mode() != "direct" and (await client.get("/_/health/ready")).status_code == 200

    await until(back)
    await appended(client, "order", key, "was_noted")
    assert await length_of(client, key) == 3
