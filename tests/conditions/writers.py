"""Clients of the campaign: they append with and without conditions, race, and read the feed, each request at
a gateway that is alive, repeated until it is answered."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from tests.conditions.checker import FREED, NAMED, PUT, TYPE, Event, Item, Page, Request, Row, Told
from tests.outgoing.stand import Gateway

ACTOR = {"type": "user", "id": "a0000000-0000-4000-a000-000000000001"}
SETTLE_S = 60.0
KEYS, VALUES = 16, 10
NAMES = ("ada", "bob", "eve")
RACERS = 64
SPEC: dict[str, Any] = {
    "aggregate_types": {
        TYPE: {
            "events": {
                PUT: {"schema": {}, "tags": ["red:$.data.red", "blue:$.data.blue"]},
                NAMED: {
                    "schema": {},
                    "tags": ["red:$.data.red", "blue:$.data.blue"],
                    "claims": {"name": {"value": "$.data.name"}},
                },
                FREED: {
                    "schema": {},
                    "tags": ["red:$.data.red", "blue:$.data.blue"],
                    "releases": ["name"],
                },
            }
        }
    },
    "agent_types": ["user"],
}


@dataclass(slots=True)
class Clients:
    client: httpx.AsyncClient
    gateways: list[Gateway]
    chance: random.Random
    told: list[Told] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    lengths: list[tuple[str, int, int]] = field(default_factory=list)
    races: int = 0
    ended: bool = False
    _keys: list[str] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)
    """Lengths of aggregates that clients were told."""

    def __post_init__(self) -> None:
        self._keys = [str(uuid4()) for _ in range(KEYS)]

    # -- what they do

    async def write(self) -> None:
        """Appends, one of several kinds after the other, until the end."""
        while not self.ended:
            kind = self.chance.random()
            if kind < 0.2:
                await self._plain()
            elif kind < 0.75:
                await self._append(self._request())
            elif kind < 0.9:
                await self._bulk([self._request() for _ in range(self.chance.randrange(1, 5))])
            else:
                await self.query()

    async def race(self) -> None:
        """All on one boundary that none has seen, with one decision, at all gateways."""
        tag = str(uuid4())
        items, after = (Item(tags=(f"red:{tag}",)),), self.heard[-1] if self.heard else None
        racers = []
        for n in range(RACERS):
            event = self._event(PUT, self._keys[n % KEYS])
            event.data["red"] = tag
            racers.append(self._filled([event], items, after))
        await asyncio.gather(*(self._append(each, n) for n, each in enumerate(racers)))
        self.races += 1

    async def race_on(self) -> None:
        while not self.ended:
            await self.race()
            await asyncio.sleep(0.3)

    async def follow(self) -> None:
        """The whole feed, page by page, at whatever gateway is alive."""
        after: str | None = None
        while not self.ended:
            page, events = await self._page((), after)
            if page is None or not events:
                await asyncio.sleep(0.02)
                continue
            after = page.position
            seen, url = events[-1], f"/{TYPE}/{events[-1]['key']}/length"
            answer = await self._sent("GET", url)
            if answer is not None and answer.status_code == 200:
                self.lengths.append((seen["key"], seen["version"], answer.json()["length"]))

    async def query(self) -> None:
        """What a decision reads; it is judged behind it later."""
        await self._page(self._items(), self._after())

    async def feed(self) -> list[Row]:
        """All of it, in the end."""
        rows: list[Row] = []
        after: str | None = None
        while True:
            page, events = await self._page((), after)
            assert page is not None, "the feed can't be read"
            for each in events:
                rows.append(
                    Row(*(each[name] for name in ("position", "id", "key", "type", "version", "data")))
                )
            after = page.position
            if page.caught_up:
                return rows

    # -- requests

    def _after(self) -> str | None:
        heard = self.heard
        if not heard:
            return None
        back = 1 if self.chance.random() < 0.7 else self.chance.randrange(1, 150)
        return heard[-min(back, len(heard))]

    def _items(self) -> tuple[Item, ...]:
        red, blue, key = (self.chance.randrange(VALUES) for _ in range(3))
        every: list[Callable[[], Item]] = [
            lambda: Item(tags=(f"red:{red}",)),
            lambda: Item(tags=(f"red:{red}", f"blue:{blue}")),
            lambda: Item((f"{TYPE}.{PUT}", f"{TYPE}.{NAMED}"), (f"blue:{blue}",)),
            lambda: Item(tags=(f"{TYPE}:{self._keys[key]}",)),
            lambda: Item((f"{TYPE}.{FREED}",)),
            lambda: Item((f"{TYPE}.{PUT}",), (f"{TYPE}:{self._keys[key]}", f"red:{red}")),
        ]
        return tuple(make() for make in self.chance.sample(every, self.chance.choice((1, 1, 2))))

    def _event(self, event_type: str, key: str) -> Event:
        data = {each: str(self.chance.randrange(VALUES)) for each in ("red", "blue")}
        data |= {"name": self.chance.choice(NAMES)} if event_type == NAMED else {}
        return Event(key, event_type, data)

    def _request(self) -> Request:
        """Of several aggregates, perhaps; with lengths, claims and a condition, perhaps."""
        chance, events, asked = self.chance, [], set[str]()
        for _ in range(chance.choice((1, 2, 2, 3, 6))):
            event = self._event(chance.choice((PUT, PUT, PUT, NAMED, FREED)), chance.choice(self._keys))
            if event.key not in asked and chance.random() < 0.15:
                event = Event(event.key, event.type, event.data, self._known.get(event.key, 0))
            asked.add(event.key)
            events.append(event)
        if chance.random() < 0.2:
            return self._filled(events, (), None)
        if chance.random() < 0.1:  # of a boundary that none has seen, over all that there is
            return self._filled(events, (Item(tags=(f"blue:{uuid4()}",)), Item(tags=("red:-",))), None)
        return self._filled(events, self._items(), None if chance.random() < 0.03 else self._after())

    def _filled(self, events: list[Event], items: tuple[Item, ...], after: str | None) -> Request:
        id = str(uuid4())
        for n, each in enumerate(events):
            each.data.update(request=id, n=n)
        return Request(id, tuple(events), items, after, len(self.heard), self.chance.random() < 0.1)

    async def _plain(self) -> None:
        """An event of one aggregate, by its own address."""
        request = self._filled([self._event(PUT, self.chance.choice(self._keys))], (), None)
        (event,) = request.events
        body = json.dumps({"data": event.data, "metadata": {"actor": ACTOR}}).encode()
        await self._settled([request], f"/{TYPE}/{event.key}/{event.type}", lambda _: body)

    async def _append(self, request: Request, at: int | None = None) -> None:
        body = json.dumps(_body(request)).encode()
        await self._settled([request], "/_/append", lambda _: body, at)

    async def _bulk(self, requests: list[Request]) -> None:
        lines = {each.id: json.dumps(_body(each) | {"idempotency_key": each.id}) for each in requests}

        def body(left: list[Request]) -> bytes:
            return "".join([lines[each.id] + "\n" for each in left]).encode()

        await self._settled(requests, "/_/bulk", body)

    async def _settled(
        self,
        left: list[Request],
        path: str,
        body: Callable[[list[Request]], bytes],
        at: int | None = None,
    ) -> None:
        """Sends what has no answer yet, until all have one. `at`: the gateway of the first attempt."""
        doubtful, deadline = False, time.monotonic() + SETTLE_S
        while left and time.monotonic() < deadline:
            bulk = path == "/_/bulk"
            headers = {"content-type": "application/x-ndjson" if bulk else "application/json"}
            if not bulk:
                headers |= {"idempotency-key": left[0].id}
                headers |= {"prefer": "return=minimal"} if left[0].minimal else {}
            answer = await self._sent("POST", path, headers, body(left), None if doubtful else at)
            if answer is not None and bulk and answer.status_code == 200:
                answers = [json.loads(line) for line in answer.content.splitlines()]
                statuses = [(each.pop("status"), each) for each in answers]
            elif answer is not None:
                statuses = [(answer.status_code, answer.json())] * len(left)
            else:
                statuses = [(503, {})] * len(left)
            again = []
            for request, (status, told) in zip(left, statuses, strict=True):
                if status in (503, 504):
                    again.append(request)
                else:
                    self._hear(Told(request, status, told, doubtful))
            left, doubtful = again, doubtful or bool(again)
            await asyncio.sleep(self.chance.uniform(0, 0.05) if left else 0)
        self.told += [Told(each, None, doubtful=True) for each in left]

    def _hear(self, told: Told) -> None:
        self.told.append(told)
        if "position" in told.body:
            self.heard.append(told.body["position"])
        if told.status == 201:
            for each in told.body.get("events") or [told.body]:
                self._known[each["key"]] = max(each["length"], self._known.get(each["key"], 0))
        elif told.body.get("code") == "version_conflict":
            event = told.request.events[int(told.body["path"][len("events[") :].partition("]")[0])]
            self._known[event.key] = max(told.body["length"], self._known.get(event.key, 0))

    async def _page(
        self, items: tuple[Item, ...], after: str | None
    ) -> tuple[Page | None, list[dict[str, Any]]]:
        heard, params = len(self.heard), {} if after is None else {"after": after}
        body = json.dumps({"items": [_item(each) for each in items]}).encode() if items else None
        method, path = ("POST", "/_/feed/query") if items else ("GET", "/_/feed")
        answer = await self._sent(method, path, {"content-type": "application/json"}, body, params=params)
        if answer is None or answer.status_code in (503, 504):
            return None, []
        told = answer.json()
        assert answer.status_code == 200, told
        ids = tuple([each["id"] for each in told["events"]])
        page = Page(items, after, ids, told["position"], told["caught_up"], heard)
        if ids:
            self.pages.append(page)
            self.heard.append(page.position)
        return page, told["events"]

    async def _sent(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        at: int | None = None,
        params: dict[str, str] | None = None,
    ) -> httpx.Response | None:
        living = [each for each in self.gateways if each.serves]
        if not living:
            return None
        gateway = self.chance.choice(living) if at is None else living[at % len(living)]
        with suppress(httpx.TransportError):
            return await self.client.request(
                method, gateway.url + path, headers=headers, content=body, params=params
            )
        return None


def _item(item: Item) -> dict[str, Any]:
    return {name: list(each) for name, each in (("types", item.types), ("tags", item.tags)) if each}


def _body(request: Request) -> dict[str, Any]:
    events = []
    for each in request.events:
        asked = {} if each.previous_length is None else {"previous_length": each.previous_length}
        events.append(
            {"aggregate_type": TYPE, "key": each.key, "type": each.type, "data": each.data, **asked}
        )
    body: dict[str, Any] = {"events": events, "metadata": {"actor": ACTOR}}
    if request.items:
        after = {} if request.after is None else {"after": request.after}
        query = {"items": [_item(each) for each in request.items]}
        body["condition"] = {"fail_if_events_match": query, **after}
    return body
