"""One gateway for all tests of the HTTP contract, a tenant for each of them.

`client` has the tenant's admin key, `reader` and `writer` the lesser ones, `stranger` none. `outbox` is the
database. Tests that stop servers or change settings start gateways of their own (serving.py).
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import httpx
import pytest

from gateway.config import Config
from tests.edge.accounts import Account, open_account
from tests.edge.calls import new_client
from tests.edge.serving import Child, Served, child_serving, serving
from tests.servers import Servers

DATABASE = "edge"


@pytest.fixture(scope="session")
async def config(servers: Servers, template: str) -> Config:
    """Settings of a gateway on the database that these tests share."""
    connection = await asyncpg.connect(servers.database_url("postgres"))
    try:
        await connection.execute(f"CREATE DATABASE {DATABASE} TEMPLATE {template} STRATEGY FILE_COPY")
    finally:
        await connection.close()
    config = Config(redis_url=servers.redis_url, postgres_url=servers.database_url(DATABASE))
    connection = await asyncpg.connect(config.postgres_url)
    try:
        await connection.execute("UPDATE instance SET id = $1", uuid.uuid4())
    finally:
        await connection.close()
    return config


@pytest.fixture(scope="session")
async def outbox(config: Config) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(config.postgres_url, min_size=1, max_size=4) as pool:
        yield pool


@pytest.fixture(scope="session")
async def gateway(config: Config) -> AsyncIterator[Served]:
    async with serving(config) as served:
        yield served


@pytest.fixture(scope="session")
async def second_gateway(config: Config, gateway: Served) -> AsyncIterator[Served]:
    """Another one of the same instance."""
    async with serving(replace(config)) as served:
        yield served


@pytest.fixture(scope="session")
async def child(config: Config, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Child]:
    """Another one, as a process of its own."""
    folder: Path = tmp_path_factory.mktemp("child")
    async with child_serving(config.postgres_url, config.redis_url, folder) as started:
        yield started


@pytest.fixture
async def tenant(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox)


@pytest.fixture
async def client(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.admin) as client:
        yield client


@pytest.fixture
async def writer(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.write) as client:
        yield client


@pytest.fixture
async def reader(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.read) as client:
        yield client


@pytest.fixture
async def stranger(gateway: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, None) as client:
        yield client


@pytest.fixture
async def neighbour(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    """With the admin key of another tenant that declares the same."""
    account = await open_account(outbox)
    async with new_client(gateway.url, account.admin) as client:
        yield client
