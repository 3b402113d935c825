"""The visit of an operator on call: each thing that needs a person is found from the overview in two clicks,
and dealt with."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from gateway.catalog.migrate import migrate
from gateway.config import Config
from tests.console.conftest import signed_in
from tests.console.night import SPEC, all_broken, break_something
from tests.console.test_pages import findings
from tests.relay.receivers import Answer, WebReceiver, web_receiver
from tests.support.accounts import Account, open_account
from tests.support.calls import appended, new_client, until
from tests.support.servers import Servers, open_folder, servers_in
from tests.support.serving import Served, serving

AGAIN_MS = 11_000
"""More than an overview that is open waits before it is read again."""


@dataclass(frozen=True)
class Night:
    """A gateway on servers that may be broken; a tenant of it; what its subscription delivers to."""

    servers: Servers
    served: Served
    account: Account
    client: httpx.AsyncClient
    pool: asyncpg.Pool
    receiver: WebReceiver
    page: Page

    async def get(self, path: str, **query: str | int) -> Any:
        return (await self.client.get(path, params=query)).json()

    async def followed(self, link: str) -> None:
        """From the overview, by the first click."""
        await self.page.goto(f"{self.served.url}/_/console/overview")
        await self.page.get_by_role("link", name=link).click()

    async def says_nothing_of(self, link: str) -> None:
        await self.page.goto(f"{self.served.url}/_/console/overview")
        await expect(self.page.get_by_role("link", name=link)).to_have_count(0)


@pytest.fixture
async def night(browser: Browser) -> AsyncIterator[Night]:
    async with contextlib.AsyncExitStack() as ending:
        servers = servers_in(ending.enter_context(open_folder()))
        ending.callback(servers.close)
        await servers.start()
        await migrate(servers.postgres_url, 2)
        pool = await ending.enter_async_context(
            asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=2)
        )
        account = await open_account(pool, SPEC)
        config = Config(redis_url=servers.redis_url, postgres_url=servers.postgres_url)
        config = replace(
            config,
            console=True,
            allow_private_targets=True,
            redis_timeout_s=0.3,
            direct_after_s=1,
            redis_recovery_s=0.5,
        )
        served = await ending.enter_async_context(serving(config))
        client = await ending.enter_async_context(new_client(served.url, account.admin))
        receiver = await ending.enter_async_context(web_receiver())
        context = await ending.enter_async_context(await browser.new_context())
        page = await signed_in(context, served, account.admin)
        yield Night(servers, served, account, client, pool, receiver, page)


async def test_all_that_needs_an_operator_is_two_clicks_from_the_overview(night: Night) -> None:
    page = night.page
    cart, sku = await break_something(night.client, night.receiver, night.account)
    await until(partial(all_broken, night.client))
    night.servers.redis.kill()

    # Redis is away: the overview says so, and what that means.
    async def direct() -> bool:
        return bool((await night.get("/_/health/ready")).get("mode") == "direct")

    await until(direct)
    await night.followed("Redis does not answer this gateway.")
    await expect(page.get_by_text("Appends go on through Postgres")).to_be_visible()
    await expect(page.get_by_text("2 partitions bypass Redis", exact=False).first).to_be_visible()

    # A webhook in quarantine: replayed once the spec takes it.
    await night.followed("1 delivery of bank is in quarantine.")
    await page.get_by_role("button", name="Replay", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("amount")
    mended = {**SPEC, "webhooks": {"bank": {**SPEC["webhooks"]["bank"], "data": {"amount": "$.body.sum"}}}}
    assert (await night.client.put("/_/spec", json=mended)).status_code == 200
    await page.get_by_role("button", name="Replay", exact=True).click()
    await expect(page.get_by_role("status")).to_contain_text("is the event")
    await night.says_nothing_of("bank")

    # A parked delivery: replayed once the receiver is well.
    night.receiver.answer = lambda _: Answer(200)
    await night.followed("Subscription shipping has 1 parked.")
    await page.get_by_role("button", name="Replay", exact=True).click()

    async def delivered() -> bool:
        return bool(night.receiver.accepted and not (await night.get("/_/subscriptions/shipping"))["parked"])

    await until(delivered)
    await night.says_nothing_of("shipping")

    # A parked timer: run once its rule holds.
    await appended(night.client, "cart", cart, "was_aged", {"old": True})
    await night.followed("1 timer is parked.")
    await page.get_by_role("button", name="Run now").click()

    async def fired() -> bool:
        return bool((await night.get("/_/schedules", state="fired"))["items"])

    await until(fired)
    await night.says_nothing_of("parked")

    # A stuck saga: compensated once nothing is jammed.
    await appended(night.client, "inventory", sku, "was_freed")
    await night.followed("1 saga is stuck.")
    await page.get_by_role("button", name="Retry").click()

    async def compensated() -> bool:
        return bool((await night.get("/_/sagas", state="compensated"))["items"])

    await until(compensated)
    await night.says_nothing_of("stuck")

    # A projection that rebuilds: how far it is, until it serves.
    tenant = UUID(night.account.id)
    held = "UPDATE followed SET owner = 'another', lease_until = now() + interval '1 hour' WHERE tenant = $1"
    await night.pool.execute(held, tenant)
    changed = {"carts": {"on": {"cart.checkout_started": {"key": "$.data.sku", "do": []}}}}
    assert (await night.client.put("/_/spec", json={**mended, "projections": changed})).status_code == 200
    await night.followed("carts")
    await expect(page.get_by_text('"eta_s"')).to_be_visible()
    await page.goto(f"{night.served.url}/_/console/overview")
    await expect(page.get_by_role("progressbar", name="carts is built")).to_be_visible()
    await night.pool.execute("UPDATE followed SET owner = NULL, lease_until = NULL WHERE tenant = $1", tenant)

    async def rebuilt() -> bool:
        return (await night.get("/_/projections"))["projections"][0]["build"] is None

    await until(rebuilt)
    await night.says_nothing_of("carts")

    # Redis is back: nothing is left to do.
    await night.servers.redis.start()

    async def returned() -> bool:
        return bool((await night.get("/_/health/ready")).get("mode") == "redis")

    await until(returned)
    await page.goto(f"{night.served.url}/_/console/overview")
    await expect(page.get_by_text("Nothing.", exact=True)).to_be_visible()

    # Postgres is away, and is back: an overview that is open says so by itself.
    await page.clock.install()
    await page.goto(f"{night.served.url}/_/console/overview")
    night.servers.postgres.kill()

    async def says(place: str, text: str) -> bool:
        await page.clock.fast_forward(AGAIN_MS)
        return text in await page.locator(place).inner_text()

    await until(partial(says, "h1", "Postgres does not answer"))
    await expect(page.get_by_text("It last answered this gateway at")).to_be_visible()
    await expect(page.get_by_role("heading", name="Rates, all tenants")).to_be_visible()
    assert await findings(page) == []
    await night.servers.start()
    await until(partial(says, "h1", "Overview of"))

    # The gateway is away: what is shown is marked as old.
    await page.context.set_offline(True)
    await until(partial(says, "#stale", "The gateway does not answer since"))
    await page.context.set_offline(False)
    await page.clock.fast_forward(AGAIN_MS)
    await expect(page.locator("#stale")).to_be_empty()
