"""429: requests of a key, and unknown keys from an address."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from ipaddress import ip_network
from types import SimpleNamespace

import asyncpg
import httpx
import pytest

from gateway.catalog.catalog import Catalog
from gateway.catalog.model import CatalogUnavailable
from gateway.config import Config
from gateway.http.addresses import Addresses
from gateway.http.authentication import RateLimits
from gateway.http.bounds import LOOK_UPS_OF_ONE
from gateway.http.request import Head
from gateway.names import tokens
from tests.support.accounts import Account, open_account
from tests.support.calls import (
    append,
    bulk,
    bulk_line,
    envelope,
    length_of,
    new_client,
    new_id,
    refused,
    until,
)
from tests.support.serving import Served, serving
from tests.telemetry.scrape import scrape

PER_S, BURST = 1, 3
UNKNOWN_PER_MIN = 6
TOKEN = "for-the-tests"


@pytest.fixture(scope="module")
async def limits(own_config: Config) -> Config:
    return replace(
        own_config,
        rate_limit_per_s=PER_S,
        rate_limit_burst=BURST,
        unknown_keys_per_min=UNKNOWN_PER_MIN,
        trusted_proxies=(ip_network("127.0.0.0/8"),),
        metrics_token=TOKEN,
    )


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def clock() -> Clock:
    """What `limited` counts seconds by."""
    return Clock()


@pytest.fixture(scope="module")
async def limited(limits: Config, clock: Clock) -> AsyncIterator[Served]:
    async with AsyncExitStack() as serving_it:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gateway.edge.RateLimits", partial(RateLimits, clock=clock))
            patch.setattr("gateway.http.authentication.HELD_BACK_S", 0.0)
            served = await serving_it.enter_async_context(serving(limits))
        yield served


@pytest.fixture
async def caller(limited: Served, own_tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    """With an unused admin key."""
    async with new_client(limited.url, own_tenant.admin) as client:
        yield client


async def spend(client: httpx.AsyncClient) -> None:
    """All that the key may send at once."""
    for _ in range(BURST):
        assert (await client.get("/order/global")).status_code == 200


# -- requests of a key


async def test_a_key_that_sends_too_much_is_told_when_it_may_go_on(
    caller: httpx.AsyncClient, clock: Clock
) -> None:
    await spend(caller)
    response = await caller.get("/order/global")
    told = refused(response, 429, "rate_limited")
    assert told["error"] == "This key may send 1 request per second; try again in 1 s."
    assert response.headers["retry-after"] == "1"
    clock.now += 0.99
    refused(await caller.get("/order/global"), 429, "rate_limited")
    clock.now += 0.01
    assert (await caller.get("/order/global")).status_code == 200
    refused(await caller.get("/order/global"), 429, "rate_limited")


async def test_the_clock_is_the_machines(limits: Config, own_tenant: Account) -> None:
    async with serving(replace(limits)) as served, new_client(served.url, own_tenant.admin) as caller:

        async def answers(status: int) -> bool:
            return (await caller.get("/order/global")).status_code == status

        await until(lambda: answers(429))
        await until(lambda: answers(200))


async def test_what_is_refused_is_not_written_and_does_not_count(
    caller: httpx.AsyncClient, clock: Clock
) -> None:
    key = new_id()
    for _ in range(BURST):
        assert (await append(caller, "order", key, "was_noted")).status_code == 201
    for _ in range(20):
        refused(await append(caller, "order", key, "was_noted"), 429, "rate_limited")
    clock.now += 1
    assert await length_of(caller, key) == BURST


async def test_each_refusal_counts_once(caller: httpx.AsyncClient, limited: Served) -> None:
    await spend(caller)
    async with new_client(limited.url, TOKEN) as operator:
        before = (await scrape(operator))("sluice_limited_total", limit="rate")
        refused(await append(caller, "order", new_id(), "was_noted"), 429, "rate_limited")
        refused(await caller.get("/order/global/length"), 429, "rate_limited")
        refused(await caller.get("/_/spec"), 429, "rate_limited")
        assert (await scrape(operator))("sluice_limited_total", limit="rate") == before + 3


async def test_every_key_counts_for_itself(
    caller: httpx.AsyncClient, limited: Served, own_tenant: Account
) -> None:
    await spend(caller)
    refused(await caller.get("/order/global"), 429, "rate_limited")
    async with new_client(limited.url, own_tenant.read) as other:
        await spend(other)


async def test_every_gateway_counts_for_itself(
    caller: httpx.AsyncClient, limits: Config, own_tenant: Account
) -> None:
    await spend(caller)
    refused(await caller.get("/order/global"), 429, "rate_limited")
    async with serving(replace(limits)) as second, new_client(second.url, own_tenant.admin) as there:
        await spend(there)


async def test_key_route_method_and_scope_come_before_the_limit(
    caller: httpx.AsyncClient, limited: Served, own_tenant: Account
) -> None:
    await spend(caller)
    refused(await caller.get("/order/a/b/c/d"), 404, "not_found")
    refused(await caller.get("/_/nothing"), 404, "not_found")
    refused(await caller.delete("/order/global"), 405, "method_not_allowed")
    refused(await caller.delete("/_/spec"), 405, "method_not_allowed")
    async with new_client(limited.url, own_tenant.read) as reader:
        await spend(reader)
        refused(await append(reader, "order", new_id(), "was_noted"), 403, "forbidden")
        refused(await reader.put("/_/spec", json={}), 403, "forbidden")
        refused(await reader.get("/order/global", headers={"authorization": "Bearer x"}), 401, "unauthorized")


async def test_the_limit_comes_before_all_that_is_looked_at_later(caller: httpx.AsyncClient) -> None:
    await spend(caller)
    for path in ("/order/global/_x", "/nothing/global/was_noted", "/order/no-id/was_noted"):
        refused(await caller.post(path, json=envelope()), 429, "rate_limited")
    refused(await caller.post("/order/global/was_noted", content=b"no JSON"), 429, "rate_limited")
    refused(await caller.get("/order/no-id"), 429, "rate_limited")
    refused(await caller.get("/_/events/no-id"), 429, "rate_limited")


async def test_paths_of_the_system_count_and_health_does_not(caller: httpx.AsyncClient) -> None:
    for path in ("/_/spec", "/_/ids/humane", "/_/openapi.json"):
        assert (await caller.get(path)).status_code == 200
    refused(await caller.get("/_/spec"), 429, "rate_limited")
    refused(await caller.post("/_/bulk", content=b""), 429, "rate_limited")
    for _ in range(10):
        assert (await caller.get("/_/health/live")).status_code == 200


async def test_a_bulk_request_is_one_request(caller: httpx.AsyncClient) -> None:
    key = new_id()
    answers = await bulk(caller, *[bulk_line(key)] * 50)
    assert [each["status"] for each in answers] == [201] * 50
    assert await length_of(caller, key) == 50


async def test_without_the_setting_there_is_no_limit(client: httpx.AsyncClient) -> None:
    for _ in range(10):
        answers = await asyncio.gather(*(client.get("/order/global/length") for _ in range(30)))
        assert {each.status_code for each in answers} == {200}


# -- unknown keys from an address


def unknown_key(handle: str = "AAAAAAAA") -> str:
    """What a key of the tenant with this handle looks like, checksum and all."""
    return tokens.mint(handle, secrets.token_bytes)


async def ask(served: Served, key: str, address: str) -> httpx.Response:
    async with new_client(served.url, key) as client:
        return await client.get("/order/global", headers={"x-forwarded-for": address})


async def use_up(served: Served, address: str) -> None:
    for _ in range(UNKNOWN_PER_MIN):
        refused(await ask(served, unknown_key(), address), 401, "unauthorized")


async def test_too_many_unknown_keys_from_an_address_are_not_looked_up(limited: Served, clock: Clock) -> None:
    await use_up(limited, "192.0.2.1")
    response = await ask(limited, unknown_key(), "192.0.2.1")
    told = refused(response, 429, "rate_limited")
    assert told["error"].startswith("Too many different unknown keys came from 192.0.2.1; try again in ")
    assert response.headers["retry-after"] == "10"
    clock.now += 10
    refused(await ask(limited, unknown_key(), "192.0.2.1"), 401, "unauthorized")
    refused(await ask(limited, unknown_key(), "192.0.2.1"), 429, "rate_limited")
    refused(await ask(limited, unknown_key(), "192.0.2.2"), 401, "unauthorized")


async def test_beyond_the_limit_each_answer_is_held_back_and_no_other_client_waits(
    limited: Served, own_tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await ask(limited, own_tenant.read, "192.0.2.10")).status_code == 200
    await use_up(limited, "192.0.2.10")
    held, over = list[float](), asyncio.Event()

    async def sleep(seconds: float) -> None:
        held.append(seconds)
        await over.wait()

    monkeypatch.setattr("gateway.http.authentication.HELD_BACK_S", 1.0)
    monkeypatch.setattr("gateway.http.authentication.asyncio", SimpleNamespace(sleep=sleep))
    tries = [asyncio.create_task(ask(limited, unknown_key(), "192.0.2.10")) for _ in range(5)]

    async def are_held() -> bool:
        return len(held) == len(tries)

    await until(are_held)
    assert (await ask(limited, own_tenant.read, "192.0.2.10")).status_code == 200
    assert not any(each.done() for each in tries)
    over.set()
    for response in await asyncio.gather(*tries):
        refused(response, 429, "rate_limited")
    assert held == [1.0] * len(tries)


async def test_a_client_that_continues_with_one_revoked_key_is_told_so_every_time(limited: Served) -> None:
    key = unknown_key()
    for _ in range(3 * UNKNOWN_PER_MIN):
        refused(await ask(limited, key, "192.0.2.3"), 401, "unauthorized")
    for _ in range(3 * UNKNOWN_PER_MIN):
        refused(await ask(limited, "no key at all", "192.0.2.3"), 401, "unauthorized")


async def test_while_postgres_does_not_answer_no_key_counts_as_unknown(
    limited: Served, own_tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_catalog: Catalog, _token: str) -> None:
        raise CatalogUnavailable("Postgres does not answer")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Catalog, "authenticate", away)
        for _ in range(UNKNOWN_PER_MIN + 1):
            refused(await ask(limited, own_tenant.read, "192.0.2.12"), 503, "unavailable")
    assert (await ask(limited, own_tenant.read, "192.0.2.12")).status_code == 200


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/order/_query", "unavailable"),
        ("/_/feed/query", "unavailable"),
        ("/_/tickets", "unavailable"),
        ("/_/keys/x/rotate", "unavailable"),
        ("/order/global/was_placed", "not_committed"),
        ("/_/append", "not_committed"),
    ],
)
async def test_while_postgres_does_not_answer_only_what_appends_is_told_of_an_event(
    limited: Served, monkeypatch: pytest.MonkeyPatch, path: str, code: str
) -> None:
    async def away(_catalog: Catalog, _token: str) -> None:
        raise CatalogUnavailable("Postgres does not answer")

    monkeypatch.setattr(Catalog, "authenticate", away)
    async with new_client(limited.url, unknown_key()) as client:
        refused(await client.post(path, json={}), 503, code)


async def test_known_keys_do_not_count(
    limited: Served, own_tenant: Account, own_outbox: asyncpg.Pool
) -> None:
    for _ in range(UNKNOWN_PER_MIN):
        account = await open_account(own_outbox, spec=None)
        refused(await ask(limited, account.read, "192.0.2.4"), 404, "unknown_aggregate_type", "type")
    await use_up(limited, "192.0.2.4")


async def test_a_key_that_the_gateway_knows_passes_whatever_others_at_its_address_do(
    limited: Served, own_tenant: Account
) -> None:
    assert (await ask(limited, own_tenant.read, "192.0.2.5")).status_code == 200
    await use_up(limited, "192.0.2.5")
    assert (await ask(limited, own_tenant.read, "192.0.2.5")).status_code == 200


async def test_a_key_that_the_gateway_has_not_seen_passes_too(limited: Served, own_tenant: Account) -> None:
    """It names a tenant that there is; made-up keys do not, and take nothing from it."""
    assert (await ask(limited, own_tenant.read, "192.0.2.6")).status_code == 200  # now it knows the tenant
    await use_up(limited, "192.0.2.7")
    refused(await ask(limited, unknown_key(), "192.0.2.7"), 429, "rate_limited")
    assert (await ask(limited, own_tenant.write, "192.0.2.7")).status_code == 200


async def test_unknown_keys_of_a_tenant_that_there_is_are_limited_too(
    limited: Served, own_tenant: Account
) -> None:
    assert (await ask(limited, own_tenant.read, "192.0.2.6")).status_code == 200  # now the gateway knows it
    handle = own_tenant.admin.split("_")[1]
    for _ in range(UNKNOWN_PER_MIN):
        refused(await ask(limited, unknown_key(handle), "192.0.2.8"), 401, "unauthorized")
    refused(await ask(limited, unknown_key(handle), "192.0.2.8"), 429, "rate_limited")
    refused(await ask(limited, own_tenant.write, "192.0.2.8"), 429, "rate_limited")
    assert (await ask(limited, own_tenant.write, "192.0.2.9")).status_code == 200


async def test_without_a_trusted_proxy_a_client_can_not_choose_its_address(own_config: Config) -> None:
    async with serving(replace(own_config, unknown_keys_per_min=UNKNOWN_PER_MIN)) as served:
        told = [
            (await ask(served, unknown_key(), f"192.0.2.{last}")).json()
            for last in range(UNKNOWN_PER_MIN + 2)
        ]
        limited = [each for each in told if each["code"] == "rate_limited"]
        assert limited
        assert all("from 127.0.0.1;" in each["error"] for each in limited)


async def test_without_a_limit_as_many_unknown_keys_as_one_likes_are_looked_up(own_config: Config) -> None:
    async with serving(replace(own_config, unknown_keys_per_min=0)) as served:
        for _ in range(2 * UNKNOWN_PER_MIN):
            refused(await ask(served, unknown_key(), "192.0.2.1"), 401, "unauthorized")


async def test_so_many_look_ups_are_under_way_and_the_rest_is_refused_at_once(
    own_config: Config, own_outbox: asyncpg.Pool, own_tenant: Account
) -> None:
    """While Postgres takes its time. The gateway continues for the keys that it knows."""
    async with serving(replace(own_config, unknown_keys_per_min=0)) as served:
        assert (await ask(served, own_tenant.read, "192.0.2.1")).status_code == 200
        async with new_client(served.url, None) as client, own_outbox.acquire() as conn:

            async def asked(key: str) -> httpx.Response:
                return await client.get("/order/global", headers={"authorization": f"Bearer {key}"})

            async with conn.transaction():
                await conn.execute("LOCK TABLE api_key IN ACCESS EXCLUSIVE MODE")
                waiting = [asyncio.create_task(asked(unknown_key())) for _ in range(95)]
                refused_at_once = [each.result() for each in await _first(waiting, 95 - LOOK_UPS_OF_ONE)]
                for response in refused_at_once:
                    told = refused(response, 429, "rate_limited")
                    assert told["error"].startswith(
                        "One address may have at most 64 unknown keys looked up at a time"
                    )
                assert (await asked(own_tenant.read)).status_code == 200
                new = asyncio.create_task(asked(own_tenant.write))
            told = [each.status_code for each in await asyncio.gather(*waiting)]
            assert (told.count(401), told.count(429)) == (LOOK_UPS_OF_ONE, 95 - LOOK_UPS_OF_ONE)
            assert (await new).status_code == 200


async def _first(tasks: list[asyncio.Task[httpx.Response]], count: int) -> list[asyncio.Task[httpx.Response]]:
    """Those that are done once so many are."""
    while sum(each.done() for each in tasks) < count:
        await asyncio.wait([each for each in tasks if not each.done()], return_when=asyncio.FIRST_COMPLETED)
    return [each for each in tasks if each.done()]


# -- whose address


def head(peer: str | None, *forwarded: str) -> Head:
    client = None if peer is None else (peer, 50_000)
    headers = [(b"x-forwarded-for", each.encode("latin-1")) for each in forwarded]
    return Head({"client": client, "headers": headers})


TRUSTED = Addresses([ip_network("10.0.0.0/8"), ip_network("fd00::/8")])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", (), "192.0.2.1"),
        ("192.0.2.1", ("198.51.100.1",), "192.0.2.1"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("",), "10.0.0.1"),
        ("10.0.0.1", ("198.51.100.1",), "198.51.100.1"),
        ("10.0.0.1", ("203.0.113.9, 198.51.100.1",), "198.51.100.1"),
        ("10.0.0.1", ("203.0.113.9,198.51.100.1, 10.9.9.9",), "198.51.100.1"),
        ("10.0.0.1", ("203.0.113.9", "198.51.100.1"), "198.51.100.1"),
        ("10.0.0.1", ("10.0.0.2, 10.0.0.3",), "10.0.0.2"),
        ("10.0.0.1", ("198.51.100.1, unknown",), None),
        ("10.0.0.1", ("\xff",), None),
        ("10.0.0.1", ("1," * 10_000 + "198.51.100.1",), "198.51.100.1"),
        ("10.0.0.1", (", ".join(["198.51.100.1"] + ["10.0.0.2"] * 10),), None),
        (None, ("198.51.100.1",), None),
        ("2001:db8:1:2:3:4:5:6", (), "2001:db8:1:2::/64"),
        ("fd00::1", ("2001:db8:1:2::9",), "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", (), "192.0.2.1"),
    ],
)
def test_an_address_is_the_one_that_reached_the_outermost_trusted_proxy(
    peer: str | None, forwarded: tuple[str, ...], client: str | None
) -> None:
    assert TRUSTED.client(head(peer, *forwarded)) == client
