"""How subscriptions stand: what each has left to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.relay.database import connection, seconds, statement

COUNTED_MAX: Final = 10_000
"""Lag is counted up to here: whoever is further behind needs no exact figure."""

LOOKED_AT_MAX: Final = 200_000
"""Events of a partition, others' too, that are looked at for the lag of one subscription: of one that was
paused long ago it would be all since, at every reading."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a subscription stands. `lag_events` counts the events of its filter that are not confirmed yet: to
    be sent, tried again, handed out, or behind one of these; `lag_s` is the age of the oldest. What is
    parked, and behind it, is in neither. Times are Unix seconds."""

    tenant: str
    name: str
    kind: str
    declared: bool
    state: str
    why: str | None
    lag_events: int
    lag_s: float
    retrying: int
    claimed: int
    parked: int
    failing_since: float | None
    confirmed_at: float | None
    owner: str | None


async def standing(pool: asyncpg.Pool, tenant: UUID | None = None) -> list[Standing]:
    """Of one tenant, or of all, by tenant and name. Raises PostgresTrouble."""
    async with connection(pool) as conn:
        return await standings_of(conn, tenant)


async def standings_of(conn: Any, tenant: UUID | None) -> list[Standing]:
    """The same, by a connection that one has."""
    rows = await conn.fetch(statement("standing"), tenant, COUNTED_MAX, LOOKED_AT_MAX)
    return [_standing(row) for row in rows]


def _standing(row: Any) -> Standing:
    oldest = row["oldest"]
    return Standing(
        tenant=row["tenant_name"],
        name=row["name"],
        kind=row["kind"],
        declared=row["declared"],
        state=row["state"],
        why=row["why"],
        lag_events=row["lag_events"],
        lag_s=0.0 if oldest is None else max((row["now"] - oldest).total_seconds(), 0.0),
        retrying=row["retrying"],
        claimed=row["claimed"],
        parked=row["parked"],
        failing_since=seconds(row["failing_since"]),
        confirmed_at=seconds(row["confirmed_at"]),
        owner=row["owner"] if row["leased"] else None,
    )
