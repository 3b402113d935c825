"""What a tenant that is suspended or deleted, and a key that has ended, still open: nothing, on any route."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.catalog import source_ids, tenants
from gateway.catalog.model import Scope
from gateway.errors import Refusal
from gateway.http import late_bodies
from gateway.http.api import live_rows, rows, sources
from gateway.http.key_watch import Watched
from gateway.http.routes import SYSTEM_ROUTES
from tests.http.every_route import DECLARED, OPENED, path_of, receiving, sent_to
from tests.support.accounts import Account, open_account, revoked
from tests.support.calls import appended, length_of, new_client, refused, until
from tests.support.drive import STALL_S
from tests.support.serving import Served

WITHIN_S: Final = 5 + STALL_S
SSE: Final = {"accept": "text/event-stream"}
End = Callable[[asyncpg.Pool, Account], Awaitable[None]]


async def suspended(pool: asyncpg.Pool, account: Account) -> None:
    await tenants.suspend(pool, UUID(account.id))


async def deleted(pool: asyncpg.Pool, account: Account) -> None:
    await tenants.delete(pool, UUID(account.id))


async def ended(pool: asyncpg.Pool, account: Account) -> None:
    await revoked(pool, account, Scope.ADMIN)


ENDS: Final[list[tuple[End, int, str]]] = [
    (suspended, 403, "tenant_suspended"),
    (deleted, 401, "unauthorized"),
    (ended, 401, "unauthorized"),
]
each_end = pytest.mark.parametrize(("end", "status", "code"), ENDS, ids=["suspended", "deleted", "ended"])


@pytest.fixture
async def tenant(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, DECLARED)


@pytest.fixture(autouse=True)
async def begun(client: httpx.AsyncClient, tenant: Account) -> None:
    """The tenant has an event, and all its read models and subscriptions stand."""

    async def is_served() -> bool:
        return (await client.get("/_/spec")).status_code == 200

    async def stands() -> bool:
        paths = ("/order", "/_/projections/totals/global", "/_/subscriptions/pulled")
        return all([(await client.get(each)).status_code == 200 for each in paths])

    await until(is_served)
    await appended(client, "order", "global", "was_noted", 1)
    await until(stands)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once the gateway has told a request under way that its key has ended."""
    event, end = asyncio.Event(), Watched.end

    def tell(self: Watched, refusal: Refusal) -> None:
        end(self, refusal)
        event.set()

    monkeypatch.setattr(Watched, "end", tell)
    return event


async def until_known(client: httpx.AsyncClient, status: int) -> None:
    async def is_known() -> bool:
        return (await client.get("/_/tenant")).status_code == status

    await until(is_known, WITHIN_S)


@each_end
async def test_no_route_is_open(
    client: httpx.AsyncClient, outbox: asyncpg.Pool, tenant: Account, end: End, status: int, code: str
) -> None:
    await end(outbox, tenant)
    await until_known(client, status)
    for route in OPENED:
        answer = await client.request(route.method, path_of(route), **sent_to(route))
        assert (answer.status_code, answer.json()["code"]) == (status, code), route
        if route.method == "GET":
            assert (await client.head(path_of(route))).status_code == status, route
    if end is suspended:
        await tenants.suspend(outbox, UUID(tenant.id), suspended=False)
        await until_known(client, 200)
        assert await length_of(client, "global") == 1
        assert (await client.get("/_/spec")).json()["revision"] == 1


async def test_routes_of_operators_are_closed_to_a_suspended_tenant_too(
    client: httpx.AsyncClient, outbox: asyncpg.Pool, tenant: Account
) -> None:
    await suspended(outbox, tenant)
    await until_known(client, 403)
    for route in SYSTEM_ROUTES:
        if route.scope is Scope.OPERATOR:
            answer = await client.request(route.method, path_of(route), **sent_to(route))
            refused(answer, 403, "forbidden")


@each_end
async def test_every_stream_that_is_open_ends(
    gateway: Served,
    client: httpx.AsyncClient,
    outbox: asyncpg.Pool,
    tenant: Account,
    end: End,
    status: int,
    code: str,
) -> None:
    paths = [path_of(route) for route in OPENED if route.streams]
    assert len(paths) > 4

    async def ticket(path: str) -> dict[str, str]:
        return {"ticket": (await client.post("/_/tickets", json={"path": path})).json()["ticket"]}

    async with new_client(gateway.url, None) as browser, AsyncExitStack() as opened:
        streams = []
        for path in paths:
            by_key = client.stream("GET", path, headers=SSE)
            by_ticket = browser.stream("GET", path, params=await ticket(path))
            for stream in (by_key, by_ticket):
                response = await opened.enter_async_context(stream)
                assert response.status_code == 200, path
                lines = response.aiter_lines()
                assert (await anext(lines)).startswith("id: "), path
                streams.append(lines)
        left = await ticket(paths[0])
        await end(outbox, tenant)
        async with asyncio.timeout(WITHIN_S):
            for lines in streams:
                async for _ in lines:
                    pass
        refused(await browser.get(paths[0], params=left), status, code)


@each_end
async def test_every_request_that_waits_is_refused(
    client: httpx.AsyncClient,
    outbox: asyncpg.Pool,
    tenant: Account,
    monkeypatch: pytest.MonkeyPatch,
    end: End,
    status: int,
    code: str,
) -> None:
    position = (await client.get("/_/feed")).json()["position"]
    claimed = await client.post("/_/subscriptions/pulled/claim", json={})
    assert claimed.status_code == 200, claimed.text

    async def far_behind(*_: object) -> None:
        """So are the read models."""

    monkeypatch.setattr(rows.RowReader, "_covering", far_behind)
    waits, watch = asyncio.Semaphore(0), Watched.__init__

    def counted(self: Watched, wake: Callable[[], None]) -> None:
        watch(self, wake)
        waits.release()

    monkeypatch.setattr(Watched, "__init__", counted)
    after: dict[str, Any] = {"after": position, "wait": 30}
    asked: list[tuple[str, str, Any, Any]] = [
        ("POST", "/_/subscriptions/pulled/claim", {"wait": 20}, None),
        ("QUERY", "/order", after, None),
    ]
    for route in OPENED:
        if route.method == "GET" and "wait" in route.query:
            asked.append(("GET", path_of(route), None, after))
    waiting = [
        asyncio.create_task(client.request(method, path, json=body, params=params))
        for method, path, body, params in asked
    ]
    assert len(waiting) > 5
    for _ in waiting:
        await asyncio.wait_for(waits.acquire(), WITHIN_S)
    await end(outbox, tenant)
    async with asyncio.timeout(WITHIN_S):
        for answer in await asyncio.gather(*waiting):
            refused(answer, status, code)


@each_end
async def test_no_body_that_comes_slowly_is_acted_on(
    gateway: Served,
    client: httpx.AsyncClient,
    outbox: asyncpg.Pool,
    tenant: Account,
    monkeypatch: pytest.MonkeyPatch,
    end: End,
    status: int,
    code: str,
) -> None:
    monkeypatch.setattr(late_bodies, "LATE_S", 0.0)
    body, asked = b'{"no": "such field"}', []
    async with AsyncExitStack() as opened:
        for route in OPENED:
            if route.method in ("GET", "DELETE") or route.path == "/_/bulk":  # of a bulk, each line is judged
                continue
            found = await opened.enter_async_context(receiving(gateway.port, route, tenant.admin, len(body)))
            if found is not None:
                asked.append((route, found))
                await found.send(body[:5])
        assert len(asked) > 20
        await end(outbox, tenant)
        await until_known(client, status)
        for route, connection in asked:
            await connection.send(body[5:])
            answer = await connection.answer(route.method.encode())
            assert answer is not None, route
            assert (answer.status, answer.code) == (status, code), route


async def test_an_export_breaks_off_when_its_key_ends(
    client: httpx.AsyncClient,
    outbox: asyncpg.Pool,
    tenant: Account,
    monkeypatch: pytest.MonkeyPatch,
    told: asyncio.Event,
) -> None:
    """Rather than end as if it were whole."""
    for n in range(3):
        mapping = {"aggregate_type": "order", "key": "global"}
        assert (await client.put(f"/_/sources/shop/order/{n}", json=mapping)).status_code == 200
    monkeypatch.setattr(sources, "_PAGE", 1)
    export = source_ids.export

    async def held(*args: Any) -> Any:
        """A page behind the first comes once the key has ended."""
        if args[3] != (0, ""):
            await ended(outbox, tenant)
            await told.wait()
        return await export(*args)

    monkeypatch.setattr(source_ids, "export", held)
    lines = []
    with pytest.raises(httpx.RemoteProtocolError):
        async with client.stream("GET", "/_/sources/shop/export") as response:
            async for line in response.aiter_lines():
                lines.append(line)
    assert len(lines) == 1


async def test_of_a_live_list_no_more_rows_come_once_its_key_has_ended(
    client: httpx.AsyncClient,
    outbox: asyncpg.Pool,
    tenant: Account,
    monkeypatch: pytest.MonkeyPatch,
    told: asyncio.Event,
) -> None:
    """However many there are: a client that reads slowly would have them for an hour."""
    for key in ("stripe_webhook", "main_webhook"):
        receipt = await appended(client, "order", key, "was_noted", 1)
    covering = {"after": receipt["position"], "wait": 30}
    assert len((await client.get("/order", params=covering)).json()["items"]) == 3
    monkeypatch.setattr(live_rows, "_ROWS_AT_ONCE", 1)
    read = live_rows.LiveRows._page

    async def held(*args: Any) -> Any:
        """The second page comes once the key has ended."""
        if args[2].cursor is not None:
            await ended(outbox, tenant)
            await told.wait()
        return await read(*args)

    monkeypatch.setattr(live_rows.LiveRows, "_page", held)
    async with asyncio.timeout(WITHIN_S), client.stream("GET", "/order", headers=SSE) as response:
        seen = [line async for line in response.aiter_lines() if line.startswith("data: ")]
    assert len(seen) == 1
