"""A backup taken while gateways run is whole; one that lacks what was acknowledged since is noticed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import asyncpg
import httpx
import pytest
from redis.asyncio import Redis

from gateway.app import gateway
from gateway.config import Config
from tests.deploy.shipped import ROOT, Shipped
from tests.support.accounts import Account, open_account
from tests.support.calls import append, appended, events_of, length_of, new_client, new_id, refused, until
from tests.support.serving import serving


@pytest.fixture
async def tenant(shipped: Shipped) -> Account:
    async with asyncpg.create_pool(shipped.owner_url, min_size=1, max_size=1) as pool:
        await pool.execute("UPDATE instance SET id = $1", uuid.uuid4())
        return await open_account(pool)


def run(shipped: Shipped, program: str, *words: str | Path) -> None:
    binary = shipped.postgres.server.binaries.postgres.with_name(program)
    environ = {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)}
    done = subprocess.run([binary, *words], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
async def restored_url(shipped: Shipped) -> AsyncIterator[str]:
    """Of an empty database for a copy, as a gateway connects to it."""
    admin = await asyncpg.connect(shipped.postgres.url("postgres"))
    await admin.execute("CREATE DATABASE restored OWNER sluice_owner TEMPLATE template0")
    yield shipped.postgres.url("restored", "sluice_gateway")
    await admin.execute("DROP DATABASE restored WITH (FORCE)")
    await admin.close()


async def sluice(shipped: Shipped, *words: str) -> int | None:
    """The status of a command on the copy, with the settings of its owner."""
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "SLUICE_REDIS_URL": shipped.redis_url,
        "SLUICE_POSTGRES_URL": shipped.postgres.url("restored", "sluice_owner"),
    }
    command = (sys.executable, "-m", "gateway", *words)
    process = await asyncio.create_subprocess_exec(*command, env=environ, cwd=ROOT)
    return await process.wait()


@asynccontextmanager
async def unready(config: Config, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """Of a gateway whose readiness is not awaited."""
    async with gateway(config, asyncio.Event()) as edge:
        transport = httpx.ASGITransport(edge.application)  # type: ignore[arg-type]
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client:
            yield client


async def test_a_restored_copy_that_lacks_what_was_acknowledged_is_noticed(
    shipped: Shipped, tenant: Account, tmp_path: Path, restored_url: str
) -> None:
    key, dump = new_id(), tmp_path / "sluice.dump"
    config = Config(redis_url=shipped.redis_url, postgres_url=shipped.gateway_url)
    async with serving(config) as served, new_client(served.url, tenant.admin) as client:
        await appended(client, "order", key, "was_noted", {"n": 1})
        run(shipped, "pg_dump", "--format=custom", "--file", dump, shipped.owner_url)
        await appended(client, "order", key, "was_noted", {"n": 2})
    run(shipped, "pg_restore", "--dbname", shipped.postgres.url("restored", "sluice_owner"), dump)

    async with unready(replace(config, postgres_url=restored_url), tenant.admin) as client:

        async def noticed() -> bool:
            response = await client.get("/_/health/ready")
            return response.status_code == 503 and "committed" in response.json()["error"]

        await until(noticed)
        refused(await append(client, "order", key, "was_noted"), 503, "not_committed")
        assert await length_of(client, key) == 1, "what it holds can be read"
        assert await sluice(shipped, "repair") == 0

        async def mended() -> bool:
            return (await client.get("/_/health/ready")).status_code == 200

        await until(mended)
        (first, second) = await events_of(client, "order", key)
        assert (first["data"], second["data"]) == ({"n": 1}, {"n": 2}), "from Redis' journal"
        assert (await appended(client, "order", key, "was_noted", {"n": 3}))["length"] == 3


async def test_a_restored_copy_continues_with_a_redis_that_knows_nothing_of_it(
    shipped: Shipped, tenant: Account, tmp_path: Path, restored_url: str
) -> None:
    """Elsewhere, after a fire: the copy is all there is, and there is no telling what it lacks."""
    key, dump = new_id(), tmp_path / "sluice.dump"
    config = Config(redis_url=shipped.redis_url, postgres_url=shipped.gateway_url)
    async with serving(config) as served, new_client(served.url, tenant.admin) as client:
        await appended(client, "order", key, "was_noted", {"n": 1})
        run(shipped, "pg_dump", "--format=custom", "--file", dump, shipped.owner_url)
    run(shipped, "pg_restore", "--dbname", shipped.postgres.url("restored", "sluice_owner"), dump)
    async with Redis.from_url(shipped.admin_url) as admin:
        await admin.flushall()
    elsewhere = replace(config, postgres_url=restored_url)
    async with serving(elsewhere) as served, new_client(served.url, tenant.admin) as client:
        assert (await appended(client, "order", key, "was_noted", {"n": 2}))["length"] == 2
