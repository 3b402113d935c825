"""Where a tenant's timers and sagas begin: behind what was committed before its spec declared any."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import asyncpg

from gateway.catalog import specs
from gateway.config import Config
from tests.http.test_schedules import DEADLINE_S, SHOP, ended
from tests.support.accounts import Account, open_account
from tests.support.calls import appended, new_client, new_id
from tests.support.serving import serving, without_reactions

COUNT = "SELECT count(*) FROM schedule WHERE tenant = $1"
PLAIN: dict[str, Any] = {
    "aggregate_types": {"order": {"events": {"was_placed": {"schema": {}}}}},
    "agent_types": ["user"],
}


async def deploy(outbox: asyncpg.Pool, account: Account, spec: dict[str, Any]) -> None:
    outcome = await specs.deploy(outbox, UUID(account.id), json.dumps(spec).encode(), {})
    assert isinstance(outcome, specs.Accepted), outcome


async def place(outbox: asyncpg.Pool, account: Account) -> tuple[int, bytes] | None:
    row = await outbox.fetchrow("SELECT seq, mark FROM reacting WHERE tenant = $1", UUID(account.id))
    return None if row is None else (row["seq"], row["mark"])


async def head(outbox: asyncpg.Pool) -> tuple[int, bytes]:
    row = await outbox.fetchrow(
        "SELECT seq, substr(digest, 1, 4) AS mark FROM outbox ORDER BY seq DESC LIMIT 1"
    )
    return row["seq"], row["mark"]


async def test_a_tenant_without_events_begins_at_the_beginning(own_outbox: asyncpg.Pool) -> None:
    """The first test here: of those that follow, partitions have events of other tenants."""
    shop = await open_account(own_outbox, SHOP)
    assert await place(own_outbox, shop) == (0, bytes(4))


async def test_the_first_timers_of_a_tenant_do_not_wait_for_its_history(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    shop = await open_account(own_outbox, PLAIN)
    async with without_reactions(own_config, shop.admin) as to:
        for _ in range(3):
            await appended(to, "order", new_id(), "was_placed", {})
    assert await place(own_outbox, shop) is None
    before = await head(own_outbox)
    await deploy(own_outbox, shop, SHOP)
    assert await place(own_outbox, shop) == before
    async with serving(own_config) as served, new_client(served.url, shop.admin) as to:
        key = new_id()
        await appended(to, "order", key, "was_placed", {})
        await ended(to, key, "fired")
    assert await own_outbox.fetchval(COUNT, UUID(shop.id)) == 1


async def test_a_later_deployment_moves_no_place(own_config: Config, own_outbox: asyncpg.Pool) -> None:
    shop = await open_account(own_outbox, SHOP)
    began = await place(own_outbox, shop)
    async with without_reactions(own_config, shop.admin) as to:
        await appended(to, "order", new_id(), "was_placed", {})
    for spec in (PLAIN, {**SHOP, "target_types": ["order"]}):
        await deploy(own_outbox, shop, spec)
        assert await place(own_outbox, shop) == began


async def test_timers_that_an_earlier_release_deployed_are_found_from_the_beginning(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    """It left the place to the gateways, of which none has declared it yet."""
    shop = await open_account(own_outbox, SHOP)
    async with without_reactions(own_config, shop.admin) as to:
        await appended(to, "order", new_id(), "was_placed", {})
    await own_outbox.execute("DELETE FROM reacting")
    await deploy(own_outbox, shop, {**SHOP, "target_types": ["order"]})
    assert await place(own_outbox, shop) is None
    async with serving(own_config), asyncio.timeout(DEADLINE_S):
        while not await own_outbox.fetchval(COUNT, UUID(shop.id)):
            await asyncio.sleep(0.02)
