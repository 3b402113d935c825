"""Reactions in Postgres: the statements, and what can't be read there."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import asyncpg

from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Share
from gateway.postgres.statements import statement_of
from gateway.relay.database import connection

__all__ = ["Unreadable", "connection", "fetch", "statement"]

statement: Final = partial(statement_of, "reactions")


class Unreadable(PostgresTrouble):
    """Mostly, a newer release deployed this revision of a spec: what its events lead to, this process can't
    know."""


async def fetch(pool: asyncpg.Pool | Share, name: str, *args: object) -> list[Any]:
    """The rows of one statement. Raises PostgresTrouble."""
    async with connection(pool) as conn:
        return list(await conn.fetch(statement(name), *args))
