"""Whether this database is where it was when a relay last delivered from it.

A copy carries the subscriptions and the cursors of the original, so a relay there would send to the
customers' own endpoints. Postgres says which cluster and which database it is, and on which timeline: a copy
by pg_dump, or of a database within a server, is another database; a restore to a point in time is on another
timeline, and its server says which point. A fail-over to a standby changes only the timeline, and is no
reason to stop.

What can't be told: a copy of a machine's disk, and a restore to the very end of the archive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import asyncpg
from asyncpg.pgproto.pgproto import UUID

from gateway.relay.database import connection, fetch, statement

WATCH_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Home:
    """`system_id` is the cluster's; `restored_to` names the recovery targets that its server was given."""

    system_id: int
    database_oid: int
    timeline: int
    restored_to: str = ""


def differs(recorded: Home, found: Home) -> str | None:
    """Why the database is not where it was, as a sentence; None where it is."""
    if found.system_id != recorded.system_id:
        return "the database was restored or copied into another Postgres server"
    if found.database_oid != recorded.database_oid:
        return "the database was restored or copied into another database of its server"
    if found.timeline != recorded.timeline and found.restored_to:
        return f"the server was restored to a point in time ({found.restored_to})"
    return None


async def not_adopted(pool: asyncpg.Pool) -> str | None:
    """Why this database must not be delivered from, None if it may be. The first time, and after a fail-over,
    its home is recorded. Raises PostgresTrouble."""
    recorded, found = await homes(pool)
    if found is None:  # a standby, from which nothing is delivered anyway
        return None
    if recorded is None:
        await fetch(pool, "record_home", found.system_id, found.database_oid, found.timeline)
        return None
    why = differs(recorded, found)
    if why is None and found.timeline != recorded.timeline:
        await fetch(pool, "record_timeline", recorded.timeline, found.timeline)
    return why


async def homes(pool: asyncpg.Pool) -> tuple[Home | None, Home | None]:
    """What was recorded, and what is found now; None where a server is a standby. Raises PostgresTrouble."""
    (row,) = await fetch(pool, "home")
    recorded = None
    if row["recorded_system_id"] is not None:
        recorded = Home(row["recorded_system_id"], row["recorded_oid"], row["recorded_timeline"])
    if row["timeline"] is None:
        return recorded, None
    return recorded, Home(row["system_id"], row["oid"], row["timeline"], row["restored_to"])


async def adopt(pool: asyncpg.Pool, found: Home, who: str, new_id: UUID | None) -> None:
    """Deliver from here. With `new_id`, it is an instance of its own. Raises PostgresTrouble."""
    async with connection(pool) as conn, conn.transaction():
        place = (found.system_id, found.database_oid, found.timeline)
        await conn.execute(statement("adopt_home"), *place, who)
        if new_id is not None:
            await conn.execute(statement("rename_instance"), new_id)


async def others_connected(pool: asyncpg.Pool) -> int:
    """Connections of gateways, relays and other commands. Raises PostgresTrouble."""
    async with connection(pool) as conn:
        return int(await conn.fetchval(statement("connected")))
