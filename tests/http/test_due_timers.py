"""Timers that are due are found at once, however many of other tenants are due and wait."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from asyncpg.pgproto.pgproto import UUID as PgUUID

from gateway.config import Config
from gateway.log.postgres import open_pool
from gateway.reactions.database import statement
from gateway.reactions.firing import DUE_AT_ONCE, take_due
from tests.support.accounts import open_account

WAITING = 20_000
LOOKED_AT = 1_000
TOUCHED_MAX = 10 * LOOKED_AT
"""Rows of all steps of the plan together: those that are looked at first, in each of its steps."""
ADD = """
INSERT INTO schedule (id, tenant, seq, mark, due_at, emit, cancel_on, correlation_id, lease_until)
SELECT gen_random_uuid(), $1, 0, ''::bytea, now() + ($3::float8 + n) * interval '1 ms', '{}'::bytea,
    '[]'::bytea, gen_random_uuid(), now() + $4::float8 * interval '1 second'
FROM generate_series(1, $2::int) n
"""
LONG_AGO_MS, LATER_MS = -1e9, 1e9


@pytest.fixture
async def pool(own_config: Config) -> AsyncIterator[asyncpg.Pool]:
    """As a gateway has one."""
    pool = await open_pool(own_config.postgres_url, 1, 60)
    try:
        await pool.execute("DELETE FROM schedule")
        yield pool
    finally:
        await pool.close()


@pytest.fixture
async def tenants(pool: asyncpg.Pool) -> list[UUID]:
    return [UUID((await open_account(pool)).id) for _ in range(3)]


async def add(
    pool: asyncpg.Pool, tenant: UUID, count: int, due_ms: float = LONG_AGO_MS, leased_s: float | None = None
) -> None:
    await pool.execute(ADD, tenant, count, due_ms, leased_s)


async def take(pool: asyncpg.Pool, most: int, *not_now: UUID) -> list[UUID]:
    """Whose timers are taken."""
    rows = await take_due(pool, most, 60.0, [PgUUID(each.bytes) for each in not_now])
    return [UUID(bytes=row["tenant"].bytes) for row in rows]


async def test_those_of_tenants_that_wait_are_not_looked_at_one_by_one(
    pool: asyncpg.Pool, tenants: list[UUID]
) -> None:
    suspended, ours, other = tenants
    await add(pool, suspended, WAITING)
    await add(pool, ours, 2, due_ms=-1e6)
    await add(pool, ours, 1, due_ms=LATER_MS)
    await add(pool, other, 1, due_ms=-1e6, leased_s=60.0)
    arguments: list[Any] = [DUE_AT_ONCE, 60.0, [suspended]]
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        await connection.execute("SET LOCAL enable_bitmapscan = off")
        told = await connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {statement('due_schedules')}", *arguments
        )
        await connection.execute("UPDATE schedule SET lease_until = NULL WHERE tenant = $1", ours)
    assert _rows(json.loads(told)[0]["Plan"]) <= TOUCHED_MAX
    assert await take(pool, DUE_AT_ONCE, suspended) == [ours, ours]
    assert await take(pool, DUE_AT_ONCE, suspended) == []
    assert await take(pool, DUE_AT_ONCE) == [suspended] * DUE_AT_ONCE


async def test_the_first_that_are_due_are_taken_first_of_all_tenants(
    pool: asyncpg.Pool, tenants: list[UUID]
) -> None:
    waits, late, later = tenants
    await add(pool, waits, LOOKED_AT + 1)
    await add(pool, later, 2, due_ms=-1e6)
    await add(pool, late, 2, due_ms=-2e6)
    assert await take(pool, 3, waits) in ([late, late, later], [late, later, late], [later, late, late])
    assert await take(pool, 3, waits) == [later]


@pytest.mark.parametrize("waiting", [0, LOOKED_AT + 1])
async def test_two_gateways_take_different_ones_at_the_same_moment(
    pool: asyncpg.Pool, own_config: Config, tenants: list[UUID], waiting: int
) -> None:
    suspended, ours, _ = tenants
    await add(pool, suspended, waiting)
    await add(pool, ours, 2 * DUE_AT_ONCE, due_ms=-1e6)
    other = await open_pool(own_config.postgres_url, 1, 60)
    try:
        async with pool.acquire() as connection, connection.transaction():
            arguments: list[Any] = [DUE_AT_ONCE, 60.0, [suspended]]
            taken = await connection.fetch(statement("due_schedules"), *arguments)
            also = await other.fetch(statement("due_schedules"), *arguments)
    finally:
        await other.close()
    first, second = ({row["id"] for row in rows} for rows in (taken, also))
    assert (len(first), len(second), len(first | second)) == (DUE_AT_ONCE, DUE_AT_ONCE, 2 * DUE_AT_ONCE)


def _rows(node: dict[str, Any]) -> float:
    removed = sum(float(node.get(f"Rows Removed by {by}", 0)) for by in ("Filter", "Join Filter"))
    own = (float(node["Actual Rows"]) + removed) * float(node["Actual Loops"])
    return own + sum(map(_rows, node.get("Plans", ())))
