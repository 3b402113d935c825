"""What is closed for appends at every gateway of a tenant while a deployment looks at what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from gateway.catalog.database import change, statement
from gateway.catalog.model import REPORT_S, STALE_S

CLOSING_S = 60.0  # a deployer that died leaves a removal closed that long
READER_GONE_S = STALE_S + REPORT_S + 1  # a gateway silent for longer honours no key any more
LOOK_AGAIN_S = 0.1  # between looks whether all gateways have followed; they report once a second


async def close(conn: Any, tenant_id: UUID, document: bytes) -> None:
    """What the document does not declare, at every gateway."""
    async with change(conn) as (_, clock):
        await conn.execute(statement("open_closing"), tenant_id, document, CLOSING_S)
    await _until_followed(conn, clock)


async def followed(conn: Any) -> None:
    """Returns when every gateway serves by the catalog as it is now."""
    await _until_followed(conn, await conn.fetchval("SELECT revision FROM catalog_clock"))


async def _until_followed(conn: Any, clock: int) -> None:
    while await conn.fetchval(statement("count_behind"), clock, READER_GONE_S):  # noqa: ASYNC110 - processes
        await asyncio.sleep(LOOK_AGAIN_S)


@asynccontextmanager
async def open_afterwards(conn: Any, tenant_id: UUID) -> AsyncIterator[None]:
    """Nothing that was closed within it stays closed, however it ends: a request may be cancelled."""
    try:
        yield
    finally:
        if await conn.fetchval("SELECT EXISTS (SELECT FROM spec_closing WHERE tenant = $1)", tenant_id):
            async with change(conn):
                await conn.execute("DELETE FROM spec_closing WHERE tenant = $1", tenant_id)
