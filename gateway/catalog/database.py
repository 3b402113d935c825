"""The seam to Postgres: connections, the catalog's clock, statements in files of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final

from gateway.catalog.model import CatalogError, CatalogUnavailable
from gateway.postgres import connecting
from gateway.postgres.connection_errors import UNANSWERED, mapped_to
from gateway.postgres.statements import statement_of
from gateway.server_urls import redacted

statement: Final = partial(statement_of, "catalog")

CONNECT_TIMEOUT_S = 10.0  # a person waits at the other end; a sleeping serverless Postgres wakes within it

answering: Final[Callable[[], AbstractContextManager[None]]] = partial(
    mapped_to, CatalogUnavailable, "Postgres does not answer: "
)
"""Within it, whatever Postgres fails with becomes CatalogUnavailable."""

Database = Any
"""A pool or a connection of asyncpg (which brings no types)."""


async def connect(postgres_url: str) -> Any:
    """A connection of its own. Raises CatalogError with a sentence that names the place, not the password."""
    try:
        return await connecting.connect(
            postgres_url,
            timeout=CONNECT_TIMEOUT_S,
            server_settings={"application_name": "sluice", "search_path": "public"},
        )
    except TimeoutError:
        reason = f"no answer within {CONNECT_TIMEOUT_S:g} s"
    except UNANSWERED as error:
        reason = str(error)
    raise CatalogError(f"Postgres at {redacted(postgres_url)} can't be used: {reason}")


@asynccontextmanager
async def connection(database: Database) -> AsyncIterator[Any]:
    """The connection itself, or one of the pool for as long as it is needed."""
    if hasattr(database, "acquire"):
        async with database.acquire() as acquired:
            yield acquired
    else:
        yield database


@asynccontextmanager
async def change(database: Database) -> AsyncIterator[tuple[Any, int]]:
    """A transaction that changes the catalog, and the clock's revision to write beside each change.

    The clock's row is locked from here to the commit: changes happen one after the other, so what one has
    read still holds when it writes, and gateways see them in the order of the clock. Keep it short.
    """
    async with connection(database) as conn, conn.transaction():
        revision = await conn.fetchval("UPDATE catalog_clock SET revision = revision + 1 RETURNING revision")
        if revision is None:
            raise CatalogError(
                "the catalog's clock is missing: this database was not made by `sluice migrate`"
            )
        yield conn, revision
