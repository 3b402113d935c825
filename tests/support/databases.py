"""Databases that belong to one test, one module or one campaign, and are dropped at its end."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from tests.support.servers import Servers

_numbers = itertools.count(1)


@asynccontextmanager
async def cloned(servers: Servers, template: str) -> AsyncIterator[str]:
    """The URL of a clone of a migrated database, which is another instance: its keys in Redis are its own."""
    async with _made(servers, f" TEMPLATE {template} STRATEGY FILE_COPY") as url:
        await execute(url, "UPDATE instance SET id = $1", uuid.uuid4())
        yield url


@asynccontextmanager
async def empty(servers: Servers) -> AsyncIterator[str]:
    """The URL of a database with nothing in it."""
    async with _made(servers) as url:
        yield url


@asynccontextmanager
async def _made(servers: Servers, like: str = "") -> AsyncIterator[str]:
    name = f"test_{next(_numbers)}"
    await execute(servers.database_url("postgres"), f"CREATE DATABASE {name}{like}")
    try:
        yield servers.database_url(name)
    finally:
        await execute(servers.database_url("postgres"), f"DROP DATABASE {name} WITH (FORCE)")


async def execute(url: str, statement: str, *args: object) -> None:
    """On a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement, *args)
    finally:
        await connection.close()
