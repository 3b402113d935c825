"""Clients that read: pages, states, lengths, single events at random gateways; and one that follows live.

What they record is checked later against the history that was committed in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

import msgspec

from tests.faults.client import Client, EventBody
from tests.faults.gateway_at import GatewayAt
from tests.faults.history import Observation, Operation, Seen, StreamName, Verdict, now
from tests.faults.wire import Answer

READ_S = 6.0
PAGE_EVENTS_MAX = 60
FOLLOW_S = (0.5, 2.5)
RECENT = 150
"""Operations among which a reader looks for one in doubt."""


class Page(msgspec.Struct):
    """The body of GET …/events."""

    events: list[EventBody]
    length: int


class Single(msgspec.Struct):
    """The body of GET …/events/{version} and of GET /_/events/{id}."""

    event: EventBody


class StateMetadata(msgspec.Struct):
    length: int


class StateData(msgspec.Struct):
    """What the handler of tests/faults/spec.py makes of the events."""

    count: int = 0
    last: str | None = None


class State(msgspec.Struct):
    """The body of GET /{type}/{id}."""

    data: StateData
    metadata: StateMetadata


class Length(msgspec.Struct):
    length: int


class Streams(Protocol):
    """Where there is something to read."""

    @property
    def hot(self) -> Sequence[tuple[str, str]]: ...

    @property
    def many(self) -> Sequence[tuple[str, str]]: ...


class Reader:
    """Reads one thing after the other, each at another gateway."""

    def __init__(
        self, client: Client, places: Streams, acknowledged: Sequence[Operation], stopping: asyncio.Event
    ) -> None:
        self.client = client
        self._places = places
        self._acknowledged = acknowledged
        self._stopping = stopping

    async def run(self) -> None:
        rng = self.client.rng
        kinds = (self._page, self._newest, self._state, self._length, self._one, self._by_id)
        while not self._stopping.is_set():
            await rng.choice(kinds)(self._some(), self.client.pick())
            await asyncio.sleep(rng.uniform(0.002, 0.03))

    def _some(self) -> StreamName:
        """Where something is in doubt, often: that is what may be shown too early. Else anywhere."""
        rng = self.client.rng
        if rng.random() < 0.6:
            recent = self.client.history.operations[-RECENT:]
            doubted = [each for each in recent if each.key is not None and each.verdict is Verdict.UNKNOWN]
            if doubted:
                tried = rng.choice(doubted)
                return StreamName(tried.tenant, tried.aggregate_type, tried.key or "")
        place = rng.choice(self._places.hot if rng.random() < 0.7 else self._places.many)
        return StreamName(rng.randrange(len(self.client.cluster.tenants)), *place)

    # -- one read each

    async def _page(self, stream: StreamName, gateway: GatewayAt) -> None:
        rng = self.client.rng
        known = self.client.known.get(stream, 0)
        first, limit = max(1, known - rng.randint(0, 40)), rng.randint(1, PAGE_EVENTS_MAX)
        strong = "&consistency=strong" if rng.random() < 0.1 else ""
        asked = now()
        answer = await self._get(stream, gateway, f"/events?from={first}&limit={limit}{strong}")
        if answer is None:
            return
        length, events = self._events(answer)
        highest = min(first + limit - 1, length)
        self._note("page", stream, gateway, asked, length, events, first, highest, strong=bool(strong))

    async def _newest(self, stream: StreamName, gateway: GatewayAt) -> None:
        limit = self.client.rng.randint(1, PAGE_EVENTS_MAX)
        asked = now()
        answer = await self._get(stream, gateway, f"/events?order=desc&limit={limit}")
        if answer is not None:
            length, events = self._events(answer)
            lowest = max(length - limit + 1, 1)
            self._note("newest", stream, gateway, asked, length, events, lowest, length)

    async def _state(self, stream: StreamName, gateway: GatewayAt) -> None:
        strong = self.client.rng.random() < 0.1
        asked = now()
        answer = await self._get(stream, gateway, "?consistency=strong" if strong else "")
        if answer is None:
            return
        if answer.status == 404:
            self._note("state", stream, gateway, asked, 0, strong=strong)
            return
        told = msgspec.json.decode(answer.body, type=State)
        folded = (told.data.count, told.data.last)
        self._note("state", stream, gateway, asked, told.metadata.length, folded=folded, strong=strong)

    async def _length(self, stream: StreamName, gateway: GatewayAt) -> None:
        asked = now()
        answer = await self._get(stream, gateway, "/length")
        if answer is not None:
            told = msgspec.json.decode(answer.body, type=Length)
            self._note("length", stream, gateway, asked, told.length)

    async def _one(self, stream: StreamName, gateway: GatewayAt) -> None:
        """A version that is known to be there."""
        known = self.client.known.get(stream, 0)
        if known == 0:
            await self._length(stream, gateway)
            return
        version = self.client.rng.randint(max(1, known - 5), known)
        asked = now()
        answer = await self._get(stream, gateway, f"/events/{version}")
        if answer is None:
            return
        if answer.status == 404:
            # Shorter than we know: how old what it shows is, the check finds out.
            self._note("version", stream, gateway, asked, version - 1)
            return
        seen = msgspec.json.decode(answer.body, type=Single).event.seen
        self._note("version", stream, gateway, asked, None, (seen,), version, version)

    async def _by_id(self, stream: StreamName, gateway: GatewayAt) -> None:
        """An event that was acknowledged: it is there, at once and from then on."""
        if not self._acknowledged:
            return
        done = self.client.rng.choice(self._acknowledged)
        receipt = done.receipts[0] if done.receipts else None
        if receipt is None:
            return
        asked = now()
        where = StreamName(done.tenant, done.aggregate_type, receipt.key)
        answer = await self._ask(done.tenant, gateway, f"/_/events/{receipt.event_ids[0]}")
        if answer is None:
            return
        if answer.status == 404:
            self._note("by id", where, gateway, asked, None, (), receipt.first_version, receipt.first_version)
            return
        seen = msgspec.json.decode(answer.body, type=Single).event.seen
        self._note(
            "by id", where, gateway, asked, None, (seen,), receipt.first_version, receipt.first_version
        )

    # -- asking and noting

    async def _get(self, stream: StreamName, gateway: GatewayAt, rest: str) -> Answer | None:
        return await self._ask(stream.tenant, gateway, f"/{stream.aggregate_type}/{stream.key}{rest}")

    async def _ask(self, tenant: int, gateway: GatewayAt, target: str) -> Answer | None:
        """200 or 404; None when it can't be had now, which is counted."""
        client = self.client
        answer = await client.caller.call(
            gateway.port, "GET", target, [client.authorization(tenant)], timeout_s=READ_S
        )
        if isinstance(answer, Answer):
            if answer.status in (200, 404):
                return answer
            client.history.reads_refused[str(answer.status)] += 1
            if answer.status != 503:
                client.history.odd.append(f"GET {target}: {answer.status} {answer.body[:200]!r}")
        else:
            client.history.reads_refused["no answer"] += 1
        return None

    def _events(self, answer: Answer) -> tuple[int, tuple[Seen, ...]]:
        if answer.status == 404:
            return 0, ()
        told = msgspec.json.decode(answer.body, type=Page)
        return told.length, tuple(each.seen for each in told.events)

    def _note(
        self,
        what: str,
        stream: StreamName,
        gateway: GatewayAt,
        asked: float,
        length: int | None,
        events: tuple[Seen, ...] = (),
        lowest: int = 1,
        highest: int = 0,
        *,
        folded: tuple[int, str | None] | None = None,
        strong: bool = False,
    ) -> None:
        client = self.client
        if length:
            client.learn(stream, length)
        client.history.observations.append(
            Observation(
                what,
                gateway.number,
                asked,
                now(),
                stream,
                length,
                events,
                lowest,
                highest,
                folded,
                strong,
            )
        )


class Follower:
    """Follows a hot stream by server-sent events, from a gateway to the next, without a gap."""

    def __init__(self, client: Client, places: Streams, stopping: asyncio.Event) -> None:
        self.client = client
        self._places = places
        self._stopping = stopping

    async def run(self) -> None:
        client, rng = self.client, self.client.rng
        tenant = rng.randrange(len(client.cluster.tenants))
        stream = StreamName(tenant, *rng.choice(self._places.hot))
        last = 0
        while not self._stopping.is_set():
            gateway, asked, seen = client.pick(), now(), list[Seen]()
            with contextlib.suppress(OSError, EOFError, TimeoutError, ValueError):
                async with asyncio.timeout(rng.uniform(*FOLLOW_S)):
                    await self._follow(stream, gateway, last, seen)
            if seen:
                client.history.observations.append(
                    Observation(
                        "follow", gateway.number, asked, now(), stream, None, tuple(seen),
                        last + 1, last + len(seen),
                    )
                )  # fmt: skip
                last += len(seen)
            await asyncio.sleep(rng.uniform(0.05, 0.3))

    async def _follow(self, stream: StreamName, gateway: GatewayAt, last: int, seen: list[Seen]) -> None:
        """Until the connection ends. Raises EOFError, OSError, ValueError."""
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        name, text = self.client.authorization(stream.tenant)
        lines = [
            f"GET /{stream.aggregate_type}/{stream.key}/events HTTP/1.1", "Host: sluice", f"{name}: {text}",
            "Accept: text/event-stream", f"Last-Event-ID: {last}", "", "",
        ]  # fmt: skip
        try:
            writer.write("\r\n".join(lines).encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                return
            while line := await reader.readline():
                if line.startswith(b"data:"):
                    seen.append(msgspec.json.decode(line[5:], type=EventBody).seen)
        finally:
            writer.transport.abort()
