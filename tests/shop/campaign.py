"""A shop: programs in Python, Node and a page are killed at every step; workers buy while gateways die."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from playwright.async_api import async_playwright, expect

from gateway.client import AsyncClient
from tests.shop.checker import Cart, harms
from tests.shop.checkout import check_out, key_of
from tests.shop.lives import KILLS, NODE, PYTHON, Alive, Kill, Told, page, process
from tests.shop.stage import Stage
from tests.support.calls import new_client

KILL_EVERY_S = 1.5
OF_THE_SHOP = ["customer", "item", "order"]


@dataclass
class Campaign:
    on: Stage
    seed: int
    carts: list[Cart] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    # -- a program that is killed

    async def lives(self, language: str, live: Alive, kills: list[Kill]) -> None:
        """For each kill a cart of its own; it is paid before the last life, where it was placed by then."""
        item = await self.on.stock(2 * len(kills))  # so that a program that reserves again finds some
        for kill in kills:
            cart = self._cart(f"{language}-{'-'.join(kill)}".replace(" ", "_"), item)
            assert await self.on.pay(cart.order, f"{cart.name}-early") == {
                "ok": True, "quarantined": True, "event_id": None,
            }  # fmt: skip
            cart.lives.append(await live(self.on, cart.name, item, kill))
            if "place" in cart.lives[0]:
                await self._paid(cart, cart.lives[0]["place"]["aliases"][0])
            cart.lives.append(await live(self.on, cart.name, item, None))
            if not cart.paid:
                await self._paid(cart, cart.lives[1]["place"]["aliases"][0])
            self.done[f"killed in {language}"] += 1

    async def in_a_page(self, chromium: str, origin: str, kills: list[Kill]) -> None:
        """With a key that is narrowed and expires; the page shows what happens to its order as it happens."""
        narrow = {"scope": "write", "only": OF_THE_SHOP, "expires_in": "1h"}
        key = (await self.on.client.post("/_/keys", json=narrow)).raise_for_status().json()["key"]
        async with async_playwright() as playwright:
            arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
            browser = await playwright.chromium.launch(executable_path=chromium, args=arguments)
            await self.lives("a page", page(browser, origin, key), kills)
            cart = self._cart("a-page-that-looks", await self.on.stock(1))
            shown = await browser.new_page()
            receipts: Told = {}

            async def at(step: str, receipt: Told | None) -> None:
                if receipt is not None:
                    receipts[step] = receipt

            await shown.expose_function("at", at)
            await shown.goto(origin)
            await shown.wait_for_function("window.ready")
            shop = {"url": self.on.gateway.url, "key": key}
            arguments_of = [shop, cart.name, cart.item]
            await shown.evaluate("([shop, cart, item]) => buy(shop, cart, item)", arguments_of)
            cart.lives.append(receipts)
            path = f"/order/{cart.order}/events"
            async with new_client(self.on.gateway.url, self.on.account.read) as reader:
                ticket = (await reader.post("/_/tickets", json={"path": path})).raise_for_status().json()
            await shown.evaluate("show", f"{self.on.gateway.url}{path}?ticket={ticket['ticket']}")
            items = shown.locator("#events li")
            await expect(items).to_have_text(["was_placed", "was_confirmed"])
            await self._paid(cart, receipts["place"]["aliases"][0])
            await expect(items).to_have_text(["was_placed", "was_confirmed", "was_paid"])
            self.done["shown in a page"] += 1
            await browser.close()

    # -- many workers

    async def rush(self, workers: int, carts: int, gateways_die: bool) -> None:
        """Half of the carts more than there is, of three items. Each cart is bought twice, at once or not."""
        items = [await self.on.stock(max(1, carts * 2 // 9)) for _ in range(3)]
        chance = random.Random(self.seed)
        waiting = [self._cart(f"rush-{self.seed}-{n}", chance.choice(items)) for n in range(carts)]
        turns = [cart for cart in waiting for _ in range(2)]
        chance.shuffle(turns)
        async with (
            AsyncClient(self.on.gateway.url, self.on.account.write) as sluice,
            self._killing(gateways_die),
        ):

            async def work() -> None:
                while turns:
                    await self._bought(sluice, turns.pop())

            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(work())

    async def _bought(self, sluice: AsyncClient, cart: Cart) -> None:
        receipts: Told = {}

        async def at(step: str, receipt: Told | None) -> None:
            if receipt is not None:
                receipts[step] = receipt

        cart.ordered = await check_out(sluice, cart.name, cart.item, at)
        cart.lives.append(receipts)
        if cart.ordered and not cart.paid:
            await self._paid(cart, receipts["place"]["aliases"][0])
        elif not cart.ordered:
            self.strangers.append(cart.order)
            await self.on.pay(cart.order, f"{cart.name}-stranger")
        self.done["ordered" if cart.ordered else "sold out"] += 1

    @asynccontextmanager
    async def _killing(self, gateways_die: bool) -> AsyncIterator[None]:
        async def kill() -> None:
            while True:
                await asyncio.sleep(KILL_EVERY_S)
                await self.on.gateway.kill()
                await self.on.gateway.start()

        killing = asyncio.create_task(kill()) if gateways_die else None
        yield
        if killing is not None:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
            assert self.on.gateway.process is not None
            await self.on.gateway.kill()
            await self.on.gateway.start()

    # -- both

    def _cart(self, name: str, item: str) -> Cart:
        cart = Cart(name, key_of("customer", name), key_of("order", name), item)
        self.carts.append(cart)
        return cart

    async def _paid(self, cart: Cart, alias: str) -> None:
        """Stripe says so twice, by the name that the customer was told, and sends a type of no event."""
        cart.paid, delivery = True, f"evt_{uuid4().hex}"
        first = await self.on.pay(f"@{alias}", delivery)
        again = await self.on.pay(f"@{alias}", delivery)
        assert first["event_id"] == again["event_id"] is not None, (first, again)
        assert again["duplicate"]
        ignored = await self.on.pay(alias, f"{delivery}-other", "customer.created")
        assert ignored == {"ok": True, "ignored": True, "event_id": None}, ignored

    async def harms(self) -> list[str]:
        """By the feed; what `sluice audit` finds is another question."""
        events, after = [], None
        while True:
            query = {"limit": 1000, **({} if after is None else {"after": after})}
            found = (await self.on.client.get("/_/feed", params=query)).raise_for_status().json()
            events.extend(found["events"])
            after = found["position"]
            if found["caught_up"]:
                break
        return harms(events, self.carts, self.strangers)


async def programs(campaign: Campaign, kills: list[Kill] = KILLS) -> None:
    await campaign.lives("Python", process(PYTHON), kills)
    if NODE is not None:
        await campaign.lives("Node", process(NODE), kills)
