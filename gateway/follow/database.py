"""Followers in Postgres: the statements, and connections for them."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import asyncpg

from gateway.postgres.shares import Share
from gateway.postgres.statements import statement_of
from gateway.relay.database import connection

__all__ = ["connection", "fetch", "statement"]

statement: Final = partial(statement_of, "follow")


async def fetch(pool: asyncpg.Pool | Share, name: str, *args: object) -> list[Any]:
    """The rows of one statement. Raises PostgresTrouble."""
    async with connection(pool) as conn:
        return list(await conn.fetch(statement(name), *args))
