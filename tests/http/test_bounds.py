"""429: what a key, an address and the gateway may have under way at a time."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import asyncpg
import httpx
import pytest
from prometheus_client import CollectorRegistry

from gateway import serve
from gateway.config import Config
from gateway.http.bounds import Bounded, Limited, Received
from gateway.http.request import Refused
from gateway.names import tokens
from gateway.setting_rows import KIB
from gateway.telemetry.metrics import Metrics
from tests.http import raw
from tests.http.every_route import OPENED, receiving
from tests.http.webhooks import declared
from tests.support.accounts import Account, open_account
from tests.support.calls import ACTOR, append, new_client, new_id, refused, until
from tests.support.serving import Served, serving
from tests.telemetry.scrape import scrape

TOKEN = "for-the-tests"
KEY_REQUESTS, REQUESTS = 2, 3


@pytest.fixture(scope="module")
async def bounded(own_config: Config) -> AsyncIterator[Served]:
    async with serving(
        replace(own_config, key_requests_max=KEY_REQUESTS, requests_max=REQUESTS, metrics_token=TOKEN)
    ) as served:
        yield served


@asynccontextmanager
async def following(client: httpx.AsyncClient) -> AsyncIterator[None]:
    """A request that lasts."""
    headers = {"accept": "text/event-stream"}
    async with client.stream("GET", "/order/global/events", headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        yield


@pytest.fixture
async def caller(bounded: Served, own_tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(bounded.url, own_tenant.write) as client:
        yield client


async def passes(client: httpx.AsyncClient) -> bool:
    return (await client.get("/order/global")).status_code == 200


# -- requests under way


async def test_a_key_has_so_many_requests_under_way_and_others_have_their_own(
    bounded: Served, caller: httpx.AsyncClient, own_tenant: Account
) -> None:
    async with new_client(bounded.url, own_tenant.read) as other:
        async with AsyncExitStack() as lasting:
            for _ in range(KEY_REQUESTS):
                await lasting.enter_async_context(following(caller))
            response = await caller.get("/order/global")
            told = refused(response, 429, "rate_limited")
            assert told["error"] == (
                "This key may have at most 2 requests under way at a time; try again in 1 s."
            )
            assert response.headers["retry-after"] == "1"
            assert await passes(other)
        await until(lambda: passes(caller))


async def test_all_keys_together_have_so_many(
    bounded: Served, caller: httpx.AsyncClient, own_tenant: Account
) -> None:
    async with (
        new_client(bounded.url, own_tenant.read) as reader,
        new_client(bounded.url, own_tenant.admin) as admin,
        following(caller),
        following(caller),
        following(reader),
    ):
        told = refused(await admin.get("/order/global"), 429, "rate_limited")
        assert told["error"].startswith("This gateway may have at most 3 requests under way at a time")
        assert (await admin.get("/_/health/live")).status_code == 200


async def test_appends_reads_and_bulk_are_refused_alike_and_nothing_is_written(
    caller: httpx.AsyncClient,
) -> None:
    key = new_id()
    async with following(caller), following(caller):
        refused(await append(caller, "order", key, "was_noted"), 429, "rate_limited")
        refused(await caller.get(f"/order/{key}/length"), 429, "rate_limited")
        refused(await caller.get("/_/spec"), 429, "rate_limited")
        response = await caller.post("/_/bulk", content=b"", headers={"content-type": "application/x-ndjson"})
        refused(response, 429, "rate_limited")
    await until(lambda: passes(caller))
    assert (await append(caller, "order", key, "was_noted")).json()["length"] == 1


async def test_key_route_and_scope_come_before_the_bound(bounded: Served, own_tenant: Account) -> None:
    async with new_client(bounded.url, own_tenant.read) as reader, following(reader), following(reader):
        refused(await reader.get("/_/nothing"), 404, "not_found")
        refused(await reader.delete("/order/global"), 405, "method_not_allowed")
        refused(await append(reader, "order", new_id(), "was_noted"), 403, "forbidden")
        refused(await reader.get("/order/no-id"), 429, "rate_limited")


async def test_what_is_answered_is_not_under_way_any_more(caller: httpx.AsyncClient, bounded: Served) -> None:
    """Whatever way a request took, and whatever became of it."""
    for _ in range(3 * REQUESTS):
        key = new_id()
        assert (await append(caller, "order", key, "was_noted")).status_code == 201
        assert (await append(caller, "order", key, "was_noted", previous_length=7)).status_code == 409
        refused(await append(caller, "order", key, "was_never"), 404, "unknown_event_type", "event_type")
        event = {"aggregate_type": "order", "key": key, "type": "was_noted", "data": 1}
        several = {"events": [event], "metadata": {"actor": ACTOR}}
        assert (await caller.post("/_/append", json=several)).status_code == 201
        event["previous_length"] = 7
        assert (await caller.post("/_/append", json=several)).status_code == 409
        assert (await caller.get(f"/order/{key}")).status_code == 200
        assert (await caller.get(f"/order/{key}")).status_code == 200
        assert (await caller.get(f"/order/{key}/length")).status_code == 200
        refused(await caller.get(f"/order/{new_id()}"), 404, "not_found")
        assert (await caller.get("/_/spec")).status_code == 200
        refused(await caller.get("/_/events/no-id"), 422, "invalid_field", "event_id")
    async with new_client(bounded.url, TOKEN) as operator:
        assert (await scrape(operator))("sluice_requests_under_way") == 0


async def test_refusals_are_counted_by_limit(bounded: Served, caller: httpx.AsyncClient) -> None:
    async with new_client(bounded.url, TOKEN) as operator:
        before = (await scrape(operator))("sluice_limited_total", limit="requests")
        async with following(caller), following(caller):
            for _ in range(5):
                refused(await caller.get("/order/global"), 429, "rate_limited")
            now = await scrape(operator)
            assert now("sluice_limited_total", limit="requests") == before + 5
            assert now("sluice_requests_under_way") == 2


@pytest.mark.parametrize(
    "ordinary",
    [
        lambda client: append(client, "order", new_id(), "was_noted"),
        lambda client: client.get("/order/global/length"),
        lambda client: client.get("/order/global/events"),
    ],
    ids=["append", "length", "events"],
)
async def test_a_refused_request_counts_once_whichever_way_it_would_have_taken(
    bounded: Served,
    caller: httpx.AsyncClient,
    ordinary: Callable[[httpx.AsyncClient], Awaitable[httpx.Response]],
) -> None:
    async with new_client(bounded.url, TOKEN) as operator, following(caller), following(caller):
        before = (await scrape(operator))("sluice_limited_total", limit="requests")
        for _ in range(3):
            refused(await ordinary(caller), 429, "rate_limited")
        assert (await scrape(operator))("sluice_limited_total", limit="requests") == before + 3


async def test_by_default_a_key_may_have_a_thousand_followers_and_go_on(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.get("/order/global/length") for _ in range(300)))
    assert {each.status_code for each in answers} == {200}
    assert Config(redis_url="redis://r", postgres_url="postgresql://p").key_requests_max >= 2_000


async def test_zero_is_no_bound(own_config: Config, own_tenant: Account) -> None:
    async with (
        serving(replace(own_config, key_requests_max=0, requests_max=0)) as served,
        new_client(served.url, own_tenant.read) as reader,
        AsyncExitStack() as lasting,
    ):
        for _ in range(20):
            await lasting.enter_async_context(following(reader))
        assert await passes(reader)


# -- connections


async def _turned_away(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await asyncio.wait_for(reader.read(), 40)
    finally:
        writer.close()


async def proven(port: int, key: str, held: AsyncExitStack) -> raw.Connection:
    """A connection on which a valid key has asked for something."""
    connection = await held.enter_async_context(raw.connected(port))
    answer = await connection.ask(raw.request("GET", "/order/global", key))
    assert answer is not None
    assert answer.status == 200
    return connection


async def test_one_address_has_so_many_connections_and_the_next_is_told_so_at_once(
    own_config: Config, own_tenant: Account
) -> None:
    async with serving(replace(own_config, address_connections_max=3, metrics_token=TOKEN)) as served:
        async with AsyncExitStack() as held:
            for _ in range(3):
                await proven(served.port, own_tenant.read, held)

            async def is_full() -> bool:
                try:
                    answer = await _turned_away(served.port)
                except ConnectionResetError:
                    return False
                return answer.startswith(b"HTTP/1.1 429 ")

            await until(is_full)
            answer = await _turned_away(served.port)
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b"retry-after: 1" in head
            assert b"connection: close" in head
            assert json.loads(body) == {
                "ok": False,
                "code": "rate_limited",
                "error": "One address may have at most 3 connections at a time; try again in 1 s.",
            }
            async with httpx.AsyncClient(base_url=served.url, trust_env=False) as client:
                refused(
                    await client.post("/order/global/was_noted", content=b"x" * 100_000), 429, "rate_limited"
                )

        async def is_open() -> bool:
            async with new_client(served.url, TOKEN) as operator:
                response = await operator.get("/_/metrics")
                return response.status_code == 200

        await until(is_open)
        async with new_client(served.url, TOKEN) as operator:
            now = await scrape(operator)
            assert now("sluice_limited_total", limit="connections") >= 3
            assert now("sluice_connections") >= 1


@pytest.mark.parametrize("bound", ["address_connections_max", "connections_max"])
@pytest.mark.parametrize("with_keys", [False, True])
async def test_a_connection_that_has_proven_no_key_gives_way_to_a_new_one(
    own_config: Config, own_tenant: Account, with_keys: bool, bound: str
) -> None:
    """Those of strangers, be they idle or wait for what becomes of an unknown key."""
    few = replace(own_config, unknown_keys_per_min=1, **{bound: 4})
    async with serving(few) as served, AsyncExitStack() as held:
        follower = await held.enter_async_context(new_client(served.url, own_tenant.write))
        await held.enter_async_context(following(follower))
        strangers = []
        for _ in range(20):
            strangers.append(await held.enter_async_context(raw.connected(served.port)))
            key = tokens.mint("a" * tokens.HANDLE_CHARS, secrets.token_bytes) if with_keys else None
            asking = raw.request("GET", "/order/global", key)
            await strangers[-1].send(asking if with_keys else asking[:-2])
        newcomer = await held.enter_async_context(new_client(served.url, own_tenant.read))
        assert await passes(newcomer)
        assert (await append(follower, "order", new_id(), "was_noted")).status_code == 201
        for stranger in strangers[:-3]:
            with suppress(ConnectionError):
                await stranger.rest()


async def test_connections_of_a_trusted_proxy_count_only_for_the_gateway(
    own_config: Config, own_tenant: Account
) -> None:
    proxies = (ip_network("127.0.0.0/8"),)
    few = replace(own_config, address_connections_max=1, connections_max=4, trusted_proxies=proxies)
    async with serving(few) as served, AsyncExitStack() as held:
        for _ in range(3):
            client = await held.enter_async_context(new_client(served.url, own_tenant.read))
            assert await passes(client)
            await held.enter_async_context(following(client))
        clients = [await held.enter_async_context(new_client(served.url, own_tenant.read)) for _ in range(2)]
        async with following(clients[0]):
            told = refused(await clients[1].get("/order/global"), 429, "rate_limited")
            assert told["error"].startswith("This gateway may have at most 4 connections at a time")


def test_connections_are_no_more_than_the_process_has_descriptors_for(own_config: Config) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    within = serve._within_descriptors(replace(own_config, connections_max=10**6))
    now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert now >= soft
    assert within.connections_max == now - serve._OWN_DESCRIPTORS
    assert serve._within_descriptors(replace(own_config, connections_max=10)).connections_max == 10
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- bodies that are being received


async def half_a_body(
    port: int, key: str, size: int, held: AsyncExitStack, path: str | None = None
) -> raw.Connection:
    connection = await held.enter_async_context(raw.connected(port))
    path = path or f"/order/{new_id()}/was_noted"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {size + 1}\r\n\r\n"
    )
    await connection.send(head.encode() + b" " * size)
    return connection


async def test_bodies_that_are_being_received_are_bounded_by_key(
    own_config: Config, own_tenant: Account
) -> None:
    size = 512 * KIB
    few = replace(own_config, key_bodies_bytes_max=4 * size, bodies_bytes_max=6 * size, metrics_token=TOKEN)
    async with serving(few) as served, new_client(served.url, TOKEN) as operator, AsyncExitStack() as held:

        async def received(count: int) -> None:
            async def there() -> bool:
                return (await scrape(operator))("sluice_bodies_bytes") >= count * size

            await until(there)

        for count in range(1, 5):
            await half_a_body(served.port, own_tenant.write, size, held)
            await received(count)
        last = await half_a_body(served.port, own_tenant.write, size, held)
        answer = await last.answer()
        assert answer is not None
        assert (answer.status, answer.code) == (429, "rate_limited")
        assert answer.json["error"].startswith(
            "This key may have at most 2097152 bytes of request bodies under way"
        )
        assert answer.headers["retry-after"] == "1"
        async with (
            new_client(served.url, own_tenant.write) as writer,
            new_client(served.url, own_tenant.admin) as other,
        ):
            assert (await append(writer, "order", new_id(), "was_noted")).status_code == 201
            large = "x" * 200 * KIB
            assert (await append(other, "order", new_id(), "was_noted", large)).status_code == 201
        assert (await scrape(operator))("sluice_limited_total", limit="bodies") == 1
        await held.aclose()

        async def none() -> bool:
            return (await scrape(operator))("sluice_bodies_bytes") == 0

        await until(none)


async def test_every_route_counts_the_body_that_it_receives(own_config: Config, own_tenant: Account) -> None:
    size = 64 * KIB
    few = replace(own_config, key_bodies_bytes_max=size)
    async with serving(few) as served:
        heard = 0
        for route in OPENED:
            if (
                route.method in ("GET", "DELETE") or route.path == "/_/bulk"
            ):  # which holds some lines at a time
                continue
            async with receiving(served.port, route, own_tenant.admin, 3 * size) as connection:
                if connection is not None:
                    heard += 1
                    await connection.send(b" " * 2 * size)
                    answer = await connection.answer(route.method.encode())
                    assert answer is not None, route
                    assert (answer.status, answer.code) == (429, "rate_limited"), route
        assert heard > 20


async def test_a_body_is_counted_until_its_request_waits_for_the_client_to_go() -> None:
    bodies = Bounded("bodies", "bytes", 20, None, Limited(Metrics(CollectorRegistry())))
    messages: list[Any] = [
        {"type": "http.request", "body": b"123456", "more_body": True},
        {"type": "http.request", "body": b"123456", "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    received, totals = Received(bodies, "key", receive), []
    while messages:
        await received.receive()
        totals.append(bodies.total)
    assert totals == [6, 12, 0]
    received.end()
    assert bodies.total == 0


@pytest.mark.parametrize("path", ["/unheard/global/was_noted", "/unheard", "/order/global/unheard"])
async def test_a_request_that_its_path_refuses_hears_of_a_body_that_is_not_received(
    own_config: Config, own_tenant: Account, path: str
) -> None:
    """It may repeat one that an earlier spec accepted: without its body there is no telling."""
    few = replace(own_config, key_bodies_bytes_max=64 * KIB, body_timeout_s=0.5)
    async with serving(few) as served, AsyncExitStack() as held:
        refused_for_size = await half_a_body(served.port, own_tenant.write, 512 * KIB, held, path)
        answer = await refused_for_size.answer()
        assert answer is not None
        assert (answer.status, answer.code) == (429, "rate_limited")
        assert answer.headers["retry-after"] == "1"
        too_slow = await half_a_body(served.port, own_tenant.write, 1 * KIB, held, path)
        answer = await too_slow.answer()
        assert answer is not None
        assert (answer.status, answer.code) == (408, "bad_request")


async def test_bodies_of_webhooks_count_by_their_address(own_config: Config, own_tenant: Account) -> None:
    bodies = Bounded("bodies", "bytes", 10, None, Limited(Metrics(CollectorRegistry())))
    parts = [{"type": "http.request", "body": b"123456", "more_body": True}] * 2

    async def receive() -> Any:
        return parts.pop()

    one, other = Received(bodies, "192.0.2.1", receive), Received(bodies, "192.0.2.2", receive)
    await one.receive()
    with pytest.raises(Refused):
        await one.receive()
    parts = [{"type": "http.request", "body": b"123456", "more_body": True}]
    await other.receive()
    assert bodies.total == 12
    one.end()
    one.end()
    other.end()
    assert bodies.total == 0


async def test_bodies_of_webhooks_behind_a_proxy_count_by_the_client_that_it_names(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    size, proxies = 256 * KIB, (ip_network("127.0.0.0/8"),)
    hooked = await open_account(own_outbox, declared(github={"provider": "github", "secrets": ["s"]}))
    few = replace(own_config, key_bodies_bytes_max=2 * size, trusted_proxies=proxies, metrics_token=TOKEN)
    async with serving(few) as served, new_client(served.url, TOKEN) as operator, AsyncExitStack() as held:

        async def delivered(address: str) -> raw.Connection:
            """Half of it."""
            connection = await held.enter_async_context(raw.connected(served.port))
            headers = [(b"X-Forwarded-For", address.encode()), (b"Content-Length", b"%d" % (size + 1))]
            head = raw.request("POST", f"/_/webhooks/{hooked.name}/github", headers=headers)
            await connection.send(head + b" " * size)
            return connection

        async def received(count: int) -> None:
            async def there() -> bool:
                return (await scrape(operator))("sluice_bodies_bytes") >= count * size

            await until(there)

        for count in (1, 2):
            await delivered("192.0.2.1")
            await received(count)
        refused_one = await delivered("192.0.2.1")
        answer = await refused_one.answer()
        assert answer is not None
        assert (answer.status, answer.code) == (429, "rate_limited")
        await delivered("192.0.2.2")
        await received(3)


# -- what is told of it


def test_a_limit_that_is_reached_over_and_over_is_told_of_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 100.0
    limited = Limited(Metrics(CollectorRegistry()), lambda: now)
    bound = Bounded("requests", "requests under way", 0, None, limited)
    with caplog.at_level(logging.WARNING):
        for _ in range(30):
            with pytest.raises(Refused):
                bound.begin("abcdefgh")
        now = 111.0
        with pytest.raises(Refused):
            bound.begin("another")
    lines = [vars(record) for record in caplog.records if record.msg == "limit_reached"]
    assert [(each["limit"], each["holder"], each["refused"]) for each in lines] == [
        ("requests", "abcdefgh", 1),
        ("requests", "another", 30),
    ]
