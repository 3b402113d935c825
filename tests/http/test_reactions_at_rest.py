"""Timers wait while their tenant is suspended, and are parked only by the newest spec."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import asyncpg
import pytest

from gateway.appends import Append
from gateway.catalog import tenants
from gateway.catalog.model import Deployed
from gateway.config import Config
from gateway.outcomes import NotCommitted, Outcome
from gateway.reactions import firing
from gateway.reactions.firing import Firing
from spec.model import Spec
from spec.parse import parse
from tests.http.test_reactions_taken_over import set_timer
from tests.http.test_schedules import DEADLINE_S, SHOP
from tests.support.accounts import open_account
from tests.support.calls import new_client, new_id
from tests.support.serving import serving, without_reactions

FAR, PAST = "2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z"


async def test_timers_of_a_suspended_tenant_wait_until_it_resumes(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    rests, works = [await open_account(own_outbox, SHOP) for _ in range(2)]
    async with (
        serving(own_config) as served,
        new_client(served.url, rests.admin) as resting,
        new_client(served.url, works.admin) as working,
        asyncio.timeout(DEADLINE_S),
    ):
        key, other = new_id(), new_id()
        timer = await set_timer(resting, key, FAR)
        await tenants.suspend(own_outbox, UUID(rests.id))
        while (await resting.get("/_/schedules")).status_code != 403:
            await asyncio.sleep(0.02)
        due = "UPDATE schedule SET due_at = now() - interval '1 hour' WHERE id = $1"
        await own_outbox.execute(due, UUID(timer))
        await set_timer(working, other, PAST)
        while await own_outbox.fetchval("SELECT count(*) FROM schedule WHERE state = 'fired'") == 0:
            await asyncio.sleep(0.02)
        assert await own_outbox.fetchval("SELECT state FROM schedule WHERE id = $1", UUID(timer)) == "pending"
        await tenants.suspend(own_outbox, UUID(rests.id), suspended=False)
        while await own_outbox.fetchval("SELECT state FROM schedule WHERE id = $1", UUID(timer)) != "fired":
            await asyncio.sleep(0.02)


async def test_a_timer_is_not_parked_by_a_spec_that_is_no_longer_deployed(
    own_config: Config, own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "AGAIN_S", 0.05)
    shop = await open_account(own_outbox, SHOP)
    async with without_reactions(own_config, shop.admin) as to:
        await set_timer(to, new_id(), PAST)
    newest = parse(SHOP)
    assert isinstance(newest, Spec)
    known = [Deployed(1, replace(newest, aggregate_types={}), b"")]
    taken: list[Append] = []

    async def refresh() -> None:
        known.append(Deployed(2, newest, b"")) if len(known) == 1 else None

    async def submit(append: Append) -> Outcome:
        taken.append(append)
        return NotCommitted("enough was seen")

    fires = Firing(own_outbox, lambda _: known[-1], submit, 10_000, frozenset, 1.0, refresh)
    async with asyncio.timeout(DEADLINE_S):
        while not taken:
            await fires.run_once()
            await asyncio.sleep(0.02)
    state = "SELECT state FROM schedule WHERE tenant = $1"
    assert await own_outbox.fetchval(state, UUID(shop.id)) == "pending"
    await fires.stop()
