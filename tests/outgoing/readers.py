"""Readers of a campaign: followers of the feed by `gateway.client`, and receivers of webhooks.

Owns: how each continues when a gateway dies, and what it was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

from gateway.client import AsyncClient, Event, FeedOptions, Patience, PositionFile, Unavailable
from gateway.relay.position import decode
from tests.outgoing.checker import Arrival, Seen, Wanted
from tests.outgoing.stand import Gateway, Stand
from tests.relay.receivers import SECRET, Answer, Delivery, web_receiver

FAILING = 0.2
"""So much of what arrives is refused, at random."""
RETRY_S = [0.2] * 50
PAGES = (2, 100, 1000)
"""Events: fewer than one batch brings, and more."""
PAGE_PAUSES_S = (0.0, 0.05)
"""Who asks again at once finds nothing, and waits; else there is something to read."""
LEAVES_AFTER = 200


class Follower:
    """`seen` is all that it processed, in order."""

    def __init__(self, name: str, wanted: Wanted, stand: Stand, saved: PositionFile, seed: int) -> None:
        self.name = name
        self.wanted = wanted
        self.seen: list[Seen] = []
        self.restarts = 0
        """How often it began again where it was, at any gateway."""
        self._stand = stand
        self._saved = saved
        self._rng = random.Random(f"{seed}/{name}")

    # -- four ways to follow; each until it is cancelled

    async def stay(self) -> None:
        """By server-sent events of one gateway: its client connects again, as often as that one dies."""
        await self._follow(self._stand.gateway(self._rng))

    async def leave(self) -> None:
        """The same, but it goes now and then and comes back to where its position was kept."""
        while True:
            await self._follow(self._stand.gateway(self._rng), self._rng.randrange(1, LEAVES_AFTER))
            self.restarts += 1

    async def move(self) -> None:
        """By server-sent events of a gateway that lives; when it dies, from the saved position at another."""
        while True:
            gateway = await self._stand.living(self._rng)
            async with asyncio.TaskGroup() as here:
                following = here.create_task(self._follow(gateway))
                died = here.create_task(gateway.died.wait())
                await asyncio.wait((following, died), return_when=asyncio.FIRST_COMPLETED)
                following.cancel()
                died.cancel()
            self.restarts += 1

    async def poll(self) -> None:
        """By requests that wait, each of a gateway that lives, in pages of any size."""
        async with contextlib.AsyncExitStack() as closing:
            clients = {}
            for gateway in self._stand.gateways:
                client = AsyncClient(gateway.url, self._stand.tenant.read, patience=Patience(give_up_s=0))
                clients[gateway] = await closing.enter_async_context(client)
            position = self._saved.load()
            while True:
                limit, client = self._rng.choice(PAGES), clients[self._stand.gateway(self._rng)]
                try:
                    page = await client.feed(limit=limit, wait_s=5, after=position, **self._options())
                except Unavailable:
                    self.restarts += 1
                else:
                    self._see(page.events)
                    position = page.position
                await asyncio.sleep(self._rng.choice(PAGE_PAUSES_S))

    async def _follow(self, gateway: Gateway, most: float = inf) -> None:
        async with (
            AsyncClient(gateway.url, self._stand.tenant.read) as client,
            contextlib.aclosing(client.follow(self._saved, **self._options())) as events,
        ):
            async for event in events:
                if most <= 0:
                    return  # this one is not processed: it comes again
                self._see([event])
                most -= 1

    def _options(self) -> FeedOptions:
        return {"types": self.wanted.types, "event_types": self.wanted.event_types}

    def _see(self, events: Sequence[Event]) -> None:
        for event in events:
            position = decode(event.position or "")
            assert position is not None, event
            self.seen.append(Seen(position.at(0).seq, event.id))


@asynccontextmanager
async def followers(stand: Stand, folder: Path, seed: int) -> AsyncIterator[list[Follower]]:
    """At work inside."""
    made: list[Follower] = []

    def follower(name: str, **wanted: frozenset[str]) -> Follower:
        made.append(Follower(name, Wanted(**wanted), stand, PositionFile(folder / f"{name}.position"), seed))
        return made[-1]

    async with asyncio.TaskGroup() as following:
        tasks = [
            following.create_task(follower("everything").move()),
            following.create_task(follower("tickets", types=frozenset({"ticket"})).stay()),
            following.create_task(follower("notes", event_types=frozenset({"was_noted"})).poll()),
            following.create_task(follower("clearings", event_types=frozenset({"was_cleared"})).leave()),
        ]
        yield made
        for task in tasks:
            task.cancel()


class Receiver:
    """`arrivals` is all that came, in order."""

    def __init__(self, name: str, wanted: Wanted, seed: int) -> None:
        self.name = name
        self.wanted = wanted
        self.arrivals: list[Arrival] = []
        self.accepted: set[str] = set()
        self._rng = random.Random(f"{seed}/{name}")

    def answer(self, delivery: Delivery) -> Answer:
        """Refuses so many, however good they are."""
        accepted = self._rng.random() >= FAILING
        event_id = json.loads(delivery.body)["id"]
        signed = _signed(delivery.body, delivery.headers)
        self.arrivals.append(Arrival(delivery.id, event_id, delivery.body, accepted, signed))
        if accepted:
            self.accepted.add(event_id)
        return Answer() if accepted else Answer(self._rng.choice((500, 503)))


def _signed(body: bytes, headers: Mapping[str, str]) -> bool:
    try:
        Webhook(SECRET).verify(body, dict(headers))
    except WebhookVerificationError:
        return False
    return True


@asynccontextmanager
async def receivers(stand: Stand, seed: int) -> AsyncIterator[list[Receiver]]:
    """Each with a subscription that sends there from the beginning."""
    made = [
        Receiver("webhook of everything", Wanted(), seed),
        Receiver("webhook of clearings", Wanted(event_types=frozenset({"was_cleared"})), seed),
    ]
    async with contextlib.AsyncExitStack() as closing:
        headers = {"Authorization": f"Bearer {stand.tenant.admin}"}
        client = await closing.enter_async_context(
            httpx.AsyncClient(base_url=stand.gateways[0].url, headers=headers)
        )
        for number, receiver in enumerate(made):
            server = await closing.enter_async_context(web_receiver())
            server.answer = receiver.answer
            wanted = receiver.wanted
            named = {"types": sorted(wanted.types), "event_types": sorted(wanted.event_types)}
            document = {
                "filter": {name: value for name, value in named.items() if value},
                "start": "beginning",
                "target": {"type": "webhook", "url": server.url, "secret": SECRET, "retry_s": RETRY_S},
            }
            answer = await client.put(f"/_/subscriptions/number{number}", json=document)
            assert answer.is_success, answer.text
        yield made
