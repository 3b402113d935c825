"""What one tenant, or an unknown key, does to a gateway. Each attack prepares, then works for some seconds.

An attack may be refused in any way that the contract knows: it only must not reach the neighbours. What
it fails at is passed over; a gateway that ends is noticed by the victim.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from gateway.config import Config
from gateway.names import tokens
from tests.neighbours.stand import Stand
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import ACTOR

Attacking = Callable[[], Awaitable[None]]
"""One round; repeated until the time is over. A round that is cut off closes what it opened."""

NOTE: Final = {"actor": ACTOR}
FOLDED_ITEMS, FOLDED_REMOVALS = 2_000, 500
SCHEMA_CONSTS, SCHEMA_ITEMS = 1_000, 15_000
PAGE_EVENTS, PAGE_EVENT_BYTES = 100, 250_000
FILTERS, FILTERED_EVENTS, FILTERED_BYTES = 1_000, 400, 2_000
UNKNOWN_CONNECTIONS, UNKNOWN_S = 4_000, 4.0
TOO_MANY_CONNECTIONS = Config.address_connections_max + 200
KEY = "a0000000-0000-4000-a000-000000000002"
SPEC_TYPES = 4_000
BODIES, BODY_BYTES = 300, 900_000
IDLE = 4_000
SPECS_AT_ONCE = 12


@dataclass(frozen=True, slots=True)
class Attack:
    """`prepare` fills what it needs, unmeasured, and yields one round."""

    name: str
    does: str
    prepare: Callable[[Stand], contextlib.AbstractAsyncContextManager[Attacking]]
    beside_the_victim: bool = False
    """Whether it comes from the victim's address."""


# -- how requests are sent: raw, so that a client costs little of the machine that it shares


def head(method: str, target: str, key: str, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"{method} {target} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n{lines}\r\n".encode()


def request(method: str, target: str, key: str, body: bytes = b"", kind: str = "application/json") -> bytes:
    """A whole one, over which the gateway closes the connection."""
    sized = {"content_type": kind, "content_length": str(len(body))} if body else {}
    return head(method, target, key, connection="close", **sized) + body


@asynccontextmanager
async def connected(stand: Stand) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def sent(stand: Stand, raw: bytes) -> int:
    """The status of the answer, which is read and thrown away; 0 where none came."""
    with contextlib.suppress(OSError):
        async with connected(stand) as (reader, writer):
            writer.write(raw)
            start = await reader.readline()
            while await reader.read(1024 * 1024):
                pass
            return int(start.split(b" ")[1]) if start else 0
    return 0


async def filled(stand: Stand, key: str, lines: Iterator[dict[str, Any]]) -> None:
    """Appends by bulk. Fails where that is refused as a whole: the attack would be another."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    assert await sent(stand, request("POST", "/_/bulk", key, body, "application/x-ndjson")) == 200


def line(key: str, event_type: str, data: object) -> dict[str, Any]:
    return {"aggregate_type": "order", "key": key, "type": event_type, "data": data, "metadata": NOTE}


async def opened(
    stand: Stand, ending: contextlib.AsyncExitStack, raw: bytes, count: int
) -> list[asyncio.StreamReader]:
    """So many connections that send this and read nothing."""
    readers = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            reader, writer = await ending.enter_async_context(connected(stand))
            writer.write(raw)
            readers.append(reader)
    return readers


# -- the attacks


@asynccontextmanager
async def fold(stand: Stand) -> AsyncIterator[Attacking]:
    account, key = await stand.attacker(), str(uuid4())

    def lines() -> Iterator[dict[str, Any]]:
        for n in range(FOLDED_ITEMS):
            yield line(key, "had_item_added", {"sku": f"sku-{n}"})
        for _ in range(FOLDED_REMOVALS):
            yield line(key, "had_item_removed", {"sku": "none"})

    await filled(stand, account.write, lines())

    async def attack() -> None:
        asking = request("GET", f"/order/{key}?synchronous=true", account.read)
        await asyncio.gather(*(sent(stand, asking) for _ in range(2)))

    yield attack


@asynccontextmanager
async def schema(stand: Stand) -> AsyncIterator[Attacking]:
    spec = json.loads(json.dumps(SPEC))
    consts = [{"const": n} for n in range(SCHEMA_CONSTS)]
    spec["aggregate_types"]["order"]["events"]["was_weighed"] = {
        "schema": {"properties": {"all": {"items": {"anyOf": consts}}}},
        "handler": [],
    }
    account = await stand.attacker(spec)
    event = {"data": {"all": [SCHEMA_CONSTS - 1] * SCHEMA_ITEMS}, "metadata": NOTE}
    body = json.dumps(event, separators=(",", ":")).encode()

    async def attack() -> None:
        await sent(stand, request("POST", f"/order/{uuid4()}/was_weighed", account.write, body))

    yield attack


async def _with_pages(stand: Stand) -> tuple[Account, bytes]:
    """A tenant with a large stream, and a request for all of it."""
    account, key = await stand.attacker(), str(uuid4())
    events = [line(key, "was_noted", {"text": "x" * PAGE_EVENT_BYTES})] * PAGE_EVENTS
    await filled(stand, account.write, iter(events))
    return account, request("GET", f"/order/{key}/events?limit=1000", account.read)


@asynccontextmanager
async def pages(stand: Stand) -> AsyncIterator[Attacking]:
    _, asking = await _with_pages(stand)

    async def attack() -> None:
        await asyncio.gather(*(sent(stand, asking) for _ in range(4)))

    yield attack


@asynccontextmanager
async def unread(stand: Stand) -> AsyncIterator[Attacking]:
    _, asking = await _with_pages(stand)
    async with contextlib.AsyncExitStack() as ending:

        async def attack() -> None:
            await opened(stand, ending, asking, 4)
            await asyncio.sleep(0.5)

        yield attack


def _filters(*, begun: bool) -> Callable[[Stand], contextlib.AbstractAsyncContextManager[Attacking]]:
    """`begun`: all follow before the first event comes."""

    @asynccontextmanager
    async def filters(stand: Stand) -> AsyncIterator[Attacking]:
        account, key = await stand.attacker(), str(uuid4())
        events = [line(key, "was_noted", {"text": "x" * FILTERED_BYTES})] * FILTERED_EVENTS
        readers = []
        async with contextlib.AsyncExitStack() as ending:
            for n in range(FILTERS):
                target = f"/_/feed?types=order,zz{n}&include_undeclared=true&after=now"
                raw = head("GET", target, account.read, accept="text/event-stream")
                readers += await opened(stand, ending, raw, 1)
            for reader in readers if begun else ():
                await reader.readuntil(b"\r\n\r\n")

            async def attack() -> None:
                await filled(stand, account.write, iter(events))

            yield attack

    return filters


def _trying_keys(count: int) -> Callable[[Stand], contextlib.AbstractAsyncContextManager[Attacking]]:
    """On so many connections."""

    @asynccontextmanager
    async def unknown_keys(stand: Stand) -> AsyncIterator[Attacking]:
        async def one(until: float) -> None:
            async with connected(stand) as (reader, writer):
                while time.monotonic() < until:
                    text = tokens.mint("a" * tokens.HANDLE_CHARS, secrets.token_bytes)
                    writer.write(head("GET", f"/order/{KEY}", text))
                    told = await reader.readuntil(b"\r\n\r\n")
                    length = next(
                        each for each in told.lower().split(b"\r\n") if each.startswith(b"content-length:")
                    )
                    await reader.readexactly(int(length[15:]))

        async def passed_over(until: float) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await one(until)

        async def attack() -> None:
            until = time.monotonic() + UNKNOWN_S
            await asyncio.gather(*(passed_over(until) for _ in range(count)))

        yield attack

    return unknown_keys


@asynccontextmanager
async def openapi(stand: Stand) -> AsyncIterator[Attacking]:
    events = {"was_noted": {"schema": True, "handler": []}}
    types = {f"type{n}": {"events": events} for n in range(SPEC_TYPES)}
    big = {"aggregate_types": types, "agent_types": [], "target_types": [], "singletons": []}
    account = await open_account(stand.pool, None)
    # Refused is fine: then there is no document to ask for.
    await sent(stand, request("PUT", "/_/spec", account.admin, json.dumps(big).encode()))

    async def attack() -> None:
        await sent(stand, request("GET", "/_/openapi.json", account.read))

    yield attack


@asynccontextmanager
async def half_bodies(stand: Stand) -> AsyncIterator[Attacking]:
    account = await stand.attacker()
    begun = head(
        "POST", "/order/global/was_noted", account.write, content_type="application/json",
        content_length=str(BODY_BYTES + 1),
    ) + b" " * BODY_BYTES  # fmt: skip
    async with contextlib.AsyncExitStack() as ending:
        held = iter([BODIES])

        async def attack() -> None:
            await opened(stand, ending, begun, next(held, 0))
            await asyncio.sleep(0.5)

        yield attack


@asynccontextmanager
async def connections(stand: Stand) -> AsyncIterator[Attacking]:
    async with contextlib.AsyncExitStack() as ending:
        held = iter([IDLE])

        async def attack() -> None:
            await opened(stand, ending, b"GET / HTTP/1.1\r\nhost: x\r\n", next(held, 0))
            await asyncio.sleep(0.5)

        yield attack


@asynccontextmanager
async def spec_storm(stand: Stand) -> AsyncIterator[Attacking]:
    accounts = [await stand.attacker() for _ in range(SPECS_AT_ONCE)]
    numbers = iter(range(10**9))

    def changed() -> bytes:
        spec = {**SPEC, "singletons": [f"changed_{next(numbers)}"]}
        return json.dumps(spec).encode()

    async def attack() -> None:
        await asyncio.gather(
            *(sent(stand, request("PUT", "/_/spec", each.admin, changed())) for each in accounts)
        )

    yield attack


ATTACKS: Final = (
    Attack("fold", f"{FOLDED_ITEMS} items, {FOLDED_REMOVALS} removals that find none; two reads of it", fold),
    Attack("schema", f"{SCHEMA_ITEMS} values against anyOf of {SCHEMA_CONSTS}", schema),
    Attack("pages", "four requests at once for all events of 25 MB", pages),
    Attack("unread", "eight such requests a second whose answers nobody reads", unread),
    Attack(
        "filters",
        f"{FILTERS} followers with different filters, and bulk requests",
        _filters(begun=True),
    ),
    Attack(
        "beginners",
        f"{FILTERS} followers that begin while bulk requests come",
        _filters(begun=False),
    ),
    Attack(
        "unknown-keys",
        f"{UNKNOWN_CONNECTIONS} connections that try unknown keys",
        _trying_keys(UNKNOWN_CONNECTIONS),
    ),
    Attack(
        "nat",
        f"{TOO_MANY_CONNECTIONS} such connections from the victim's own address",
        _trying_keys(TOO_MANY_CONNECTIONS),
        beside_the_victim=True,
    ),
    Attack("openapi", f"a spec of {SPEC_TYPES} types, its document again and again", openapi),
    Attack("half-bodies", f"{BODIES} bodies of {BODY_BYTES} bytes that never end", half_bodies),
    Attack("connections", f"{IDLE} connections with half a header", connections),
    Attack("spec-storm", f"{SPECS_AT_ONCE} deployments at once", spec_storm),
)
