"""Registries of an instance of the test's own, each on a log and a catalog of its own, as a gateway has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from uuid import UUID

import asyncpg
import pytest

from gateway.catalog import specs, tenants
from tests.aliases.drive import SPEC, Registry, open_registry
from tests.support.drive import Place

OpenRegistry = Callable[..., Awaitable[Registry]]


@pytest.fixture
def place(postgres_url: str, redis_url: str) -> Place:
    return Place(postgres_url, redis_url)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=4) as pool:
        yield pool


@pytest.fixture
async def tenant(database: asyncpg.Pool) -> UUID:
    """One that numbers its orders and tickets."""
    created = await tenants.create(database, "main")
    await specs.deploy(database, created.id, json.dumps(SPEC).encode(), {})
    return created.id


@pytest.fixture
async def open_one(place: Place, tenant: UUID) -> AsyncIterator[OpenRegistry]:
    """Opens a gateway's registry that knows of the tenant; `assigning` where it gives names by itself."""
    async with AsyncExitStack() as closing:

        async def open_one(*, assigning: bool = True) -> Registry:
            return await closing.enter_async_context(open_registry(place, assigning=assigning))

        yield open_one


@pytest.fixture
async def registry(open_one: OpenRegistry) -> Registry:
    return await open_one()
