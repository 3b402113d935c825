"""Gateways that are watched: one a test, on a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from gateway.config import Config
from tests.support.accounts import Account, open_account
from tests.support.calls import new_client
from tests.support.ports import free_port
from tests.support.serving import Served, serving


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(postgres_url, min_size=0, max_size=2) as pool:
        yield pool


@pytest.fixture
async def account(database: asyncpg.Pool) -> Account:
    return await open_account(database)


@pytest.fixture
def config(postgres_url: str, redis_url: str) -> Config:
    return Config(redis_url=redis_url, postgres_url=postgres_url, ops_port=free_port())


@pytest.fixture
async def gateway(config: Config, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Served]:
    caplog.set_level("INFO")
    async with serving(config) as served:
        yield served


@pytest.fixture
async def client(gateway: Served, account: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, account.admin) as client:
        yield client


@pytest.fixture
async def operator(gateway: Served, config: Config) -> AsyncIterator[httpx.AsyncClient]:
    """Someone on the machine: asks the port that is for operators, without a key."""
    async with new_client(f"http://127.0.0.1:{config.ops_port}", None, ops=True) as client:
        yield client
