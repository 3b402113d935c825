"""Timers wait while their tenant is suspended, and are parked only by the newest spec; one that is
deleted gets no more events."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import ModuleType
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from gateway.appends import Append
from gateway.catalog import tenants
from gateway.catalog.model import Deployed
from gateway.config import Config
from gateway.outcomes import NotCommitted, Outcome
from gateway.reactions import coordinator, firing
from gateway.reactions.coordinator import Coordinator
from gateway.reactions.firing import Firing
from spec.model import Spec
from spec.parse import parse
from tests.http.test_reactions_taken_over import set_timer
from tests.http.test_sagas import SHOP as CHECKOUT_SHOP
from tests.http.test_schedules import DEADLINE_S, SHOP, ended
from tests.support.accounts import open_account
from tests.support.calls import appended, new_client, new_id
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


async def test_timers_of_the_others_are_set_when_a_tenant_is_deleted(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    """A spec that is deployed afterwards has all tenants declared once more."""
    going, stays, comes = [await open_account(own_outbox, SHOP) for _ in range(3)]
    async with (
        serving(own_config) as served,
        new_client(served.url, stays.admin) as client,
        asyncio.timeout(DEADLINE_S),
    ):
        await tenants.delete(own_outbox, UUID(going.id))
        while (await tenants.standing(own_outbox, UUID(going.id))).status != "deleted":
            await asyncio.sleep(0.02)
        changed = {**SHOP, "singletons": ["till"]}
        async with new_client(served.url, comes.admin) as other:
            assert (await other.put("/_/spec", json=changed)).status_code == 200
        key = new_id()
        await appended(client, "order", key, "was_placed")
        assert (await ended(client, key, None))["trigger"]["type"] == "was_placed"


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


@pytest.mark.parametrize(
    ("module", "of", "act"),
    [(firing, Firing, "_one"), (coordinator, Coordinator, "_append")],
    ids=["timer", "saga"],
)
async def test_what_is_made_before_its_tenant_is_deleted_is_not_committed_afterwards(
    own_config: Config,
    own_outbox: asyncpg.Pool,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    of: type,
    act: str,
) -> None:
    """The event of a timer, or of a step, is made, and held until nothing of the tenant is left."""
    made, gone, done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    making, acting = vars(module)["making"], vars(of)[act]

    async def held(*args: Any, **options: Any) -> Any:
        append = await making(*args, **options)
        made.set()
        await gone.wait()
        return append

    async def acted(*args: Any) -> Any:
        try:
            return await acting(*args)
        finally:
            done.set()

    monkeypatch.setattr(module, "making", held)
    monkeypatch.setattr(of, act, acted)
    monkeypatch.setattr(coordinator, "APPEND_S", 0.0)
    account = await open_account(own_outbox, SHOP if of is Firing else CHECKOUT_SHOP)
    going = UUID(account.id)
    async with serving(own_config) as served, new_client(served.url, account.admin) as client:
        if of is Firing:
            await set_timer(client, new_id(), PAST)
        else:
            await appended(client, "cart", new_id(), "checkout_started", {"sku": new_id()})
        async with asyncio.timeout(DEADLINE_S):
            await made.wait()
            await tenants.delete(own_outbox, going)
            while (await tenants.standing(own_outbox, going)).status != "deleted":
                await asyncio.sleep(0.02)
            gone.set()
            await done.wait()
    left = "SELECT count(*) FROM outbox WHERE tenant = $1 AND aggregate_type <> ''"
    assert await own_outbox.fetchval(left, going) == 0
