"""Reactions in Postgres: the statements."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import asyncpg

from gateway.postgres.statements import statement_of
from gateway.relay.database import connection

__all__ = ["connection", "fetch", "statement"]

statement: Final = partial(statement_of, "reactions")


async def fetch(pool: asyncpg.Pool, name: str, *args: object) -> list[Any]:
    """The rows of one statement. Raises PostgresTrouble."""
    async with connection(pool) as conn:
        return list(await conn.fetch(statement(name), *args))
