"""Timers that events could not set: counted beside the place behind those events, and told."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg

from gateway.config import Config
from gateway.operations.doctor import diagnose
from gateway.operations.place import open_place
from gateway.reactions.retention import forget
from tests.http.test_schedules import DEADLINE_S, SHOP
from tests.support.accounts import Account, open_account
from tests.support.calls import appended, new_id
from tests.support.serving import serving, without_reactions

COUNT = "SELECT not_set, not_set_last, seq FROM reacting WHERE tenant = $1"


async def counted(outbox: asyncpg.Pool, account: Account, behind: int = 0) -> Any:
    """Once something was looked at behind a place."""
    async with asyncio.timeout(DEADLINE_S):
        while (row := await outbox.fetchrow(COUNT, UUID(account.id)))["seq"] <= behind:
            await asyncio.sleep(0.02)
    return row


async def found(config: Config) -> str:
    async with open_place(config.postgres_url, config.redis_url, 2.0) as place:
        findings = (await diagnose(place, 600.0, 1)).findings
    (finding,) = [each for each in findings if each.name == "timers not set"]
    return finding.found


async def test_the_doctor_tells_which_timers_events_could_not_set(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    shop = await open_account(own_outbox, SHOP)
    async with without_reactions(own_config, shop.admin) as to:
        for due_at in ("tomorrow", "2030-01-01T00:00:00Z", "never"):
            last = await appended(to, "order", new_id(), "was_promised", {"due_at": due_at})
    async with serving(own_config):
        row = await counted(own_outbox, shop)
    why = "implications[0].schedule.at: This is not a time in RFC 3339 or in Unix seconds."
    why = f"{last['event_id']}, {why}"
    assert (row["not_set"], row["not_set_last"]) == (2, f"order.was_promised {why}")
    assert await found(own_config) == f"2, the last one by order.was_promised {why}"
    # From the beginning once more, as when Postgres lost the event of the place: all are counted again.
    await own_outbox.execute("UPDATE reacting SET mark = 'gone'")
    async with without_reactions(own_config, shop.admin) as to:
        await appended(to, "order", new_id(), "was_promised", {"due_at": "soon"})
    async with serving(own_config):
        assert (await counted(own_outbox, shop, row["seq"]))["not_set"] == 3
    await forget(own_outbox, 3600.0)
    assert (await counted(own_outbox, shop))["not_set"] == 3
    await forget(own_outbox, 0.0)
    assert (await counted(own_outbox, shop))["not_set"] == 0
    assert await found(own_config) == "0"
