"""The status of subscriptions: the events that each has yet to deliver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.relay.database import connection, seconds, statement

COUNTED_MAX: Final = 10_000
"""Lag is counted up to here: further behind, a reader needs no exact figure."""

LOOKED_AT_MAX: Final = 200_000
"""Events of a partition, others' too, that are looked at for the lag of one subscription: of one that was
paused long ago it would be all since, at every reading."""

LOOKED_AT_IN_ALL: Final = 400_000
"""The same for all subscriptions of a reading together: those that are behind share it in equal parts. Some
hundred ms of Postgres."""

AT_ONCE: Final = 200
"""Subscriptions whose lag one statement reads: as many as a tenant has."""

GAUGED_MAX: Final = 200
"""Subscriptions, of all tenants, whose lag gauges look at: those with most events ahead of their cursors."""

GAUGED_LOOKED_AT: Final = 100_000
"""Events that are looked at for a gauge: each relay does it every few seconds."""


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


@dataclass(frozen=True, slots=True)
class OfKind:
    """How the subscriptions of a kind stand, those of all tenants: the greatest lag of an active one, and
    how much waits."""

    kind: str
    lag_events: int = 0
    lag_s: float = 0.0
    retrying: int = 0
    parked: int = 0
    disabled: int = 0


async def standing(pool: asyncpg.Pool, tenant: UUID | None = None) -> list[Standing]:
    """Of one tenant, or of all, by tenant and name. Raises PostgresTrouble."""
    async with connection(pool) as conn:
        return await standings_of(conn, tenant)


async def standings_of(conn: Any, tenant: UUID | None, name: str | None = None) -> list[Standing]:
    """The same, by a connection that one has; of one subscription if a name is given."""
    rows = await conn.fetch(statement("standing"), tenant, name)
    lags = await _lags(conn, [row["id"] for row in rows if row["behind"]], LOOKED_AT_IN_ALL)
    return [_standing(row, lags.get(row["id"])) for row in rows]


async def standing_by_kind(pool: asyncpg.Pool) -> list[OfKind]:
    """Of every kind that there is, by few statements of bounded work. Raises PostgresTrouble."""
    async with connection(pool) as conn:
        rows = await conn.fetch(statement("standing_by_kind"))
        furthest = [row["id"] for row in await conn.fetch(statement("furthest_behind"), GAUGED_MAX)]
        lags = [*(await _lags(conn, furthest, GAUGED_LOOKED_AT)).values()]
    return [
        OfKind(
            kind=row["kind"],
            lag_events=max([lag["lag_events"] for lag in lags if lag["kind"] == row["kind"]], default=0),
            lag_s=max([_age_s(lag) for lag in lags if lag["kind"] == row["kind"]], default=0.0),
            retrying=row["retrying"],
            parked=row["parked"],
            disabled=row["disabled"],
        )
        for row in rows
    ]


async def _lags(conn: Any, ids: Sequence[int], looked_at_in_all: int) -> dict[int, Any]:
    """By id: rows of lag_events, oldest and now. `looked_at_in_all` is shared by all of them; where there are
    more than a tenant has, by so many at a time."""
    lags: dict[int, Any] = {}
    for at in range(0, len(ids), AT_ONCE):
        some = ids[at : at + AT_ONCE]
        each = min(LOOKED_AT_MAX, looked_at_in_all // len(some))
        rows = await conn.fetch(statement("lag"), some, min(COUNTED_MAX, each), each)
        lags.update({row["id"]: row for row in rows})
    return lags


def _standing(row: Any, lag: Any | None) -> Standing:
    return Standing(
        tenant=row["tenant_name"],
        name=row["name"],
        kind=row["kind"],
        declared=row["declared"],
        state=row["state"],
        why=row["why"],
        lag_events=0 if lag is None else lag["lag_events"],
        lag_s=0.0 if lag is None else _age_s(lag),
        retrying=row["retrying"],
        claimed=row["claimed"],
        parked=row["parked"],
        failing_since=seconds(row["failing_since"]),
        confirmed_at=seconds(row["confirmed_at"]),
        owner=row["owner"] if row["leased"] else None,
    )


def _age_s(lag: Any) -> float:
    oldest = lag["oldest"]
    return 0.0 if oldest is None else max(float((lag["now"] - oldest).total_seconds()), 0.0)
