"""Tickets: each opens one stream, once, within a minute, for a browser that can't send a key with it.

The ticket itself is told once; its SHA-256 is all that is kept.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Final

from gateway.catalog.database import Database, connection, statement
from gateway.catalog.model import CatalogError

TICKET_S: Final = 60
TICKETS_MAX: Final = 1_000
"""Of one key that wait to be used: a page takes one a stream."""

_PREFIX: Final = "slt_"
_ENDED_AT_ONCE: Final = 1_000


class TooManyTickets(CatalogError):
    """A key has made all the tickets that it may."""


async def create(database: Database, handle: str, path: str) -> str:
    """A ticket for the key with this handle. Raises TooManyTickets."""
    text = _PREFIX + secrets.token_urlsafe(24)
    async with connection(database) as conn, conn.transaction():
        await conn.execute(statement("end_tickets"), _ENDED_AT_ONCE)
        row = await conn.fetchval(
            statement("create_ticket"), _digest(text), handle, path, TICKET_S, TICKETS_MAX
        )
    if row is None:
        raise TooManyTickets(f"this key has {TICKETS_MAX} tickets that wait to be used")
    return text


async def redeem(database: Database, text: str) -> Any | None:
    """Ends the ticket. Its `path`, and its living key as `find_keys` has it; None where it is used up or
    expired, or never was one."""
    if not text.startswith(_PREFIX):
        return None
    async with connection(database) as conn:
        return await conn.fetchrow(statement("redeem_ticket"), _digest(text))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
