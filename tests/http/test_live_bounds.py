"""429: how many followers a key has, and of how many different filters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import httpx
import pytest

from gateway.config import Config
from tests.support.accounts import Account
from tests.support.calls import new_client, refused, until
from tests.support.serving import Served, serving

FEED = "/_/feed?after=now"


@pytest.fixture(scope="module")
async def bounded(own_config: Config) -> AsyncIterator[Served]:
    async with serving(replace(own_config, key_followers_max=4, key_filters_max=2, filters_max=3)) as served:
        yield served


@pytest.fixture
async def reader(bounded: Served, own_tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(bounded.url, own_tenant.read) as client:
        yield client


@asynccontextmanager
async def following(client: httpx.AsyncClient, path: str) -> AsyncIterator[None]:
    async with client.stream("GET", path, headers={"accept": "text/event-stream"}) as response:
        assert response.status_code == 200, await response.aread()
        yield


async def refused_at(client: httpx.AsyncClient, path: str) -> str:
    response = await client.get(path, headers={"accept": "text/event-stream"})
    assert response.headers["retry-after"] == "1"
    return str(refused(response, 429, "rate_limited")["error"])


async def may_follow(client: httpx.AsyncClient, path: str) -> bool:
    async with client.stream("GET", path, headers={"accept": "text/event-stream"}) as response:
        return response.status_code == 200


async def test_a_key_has_so_many_followers_of_feed_and_aggregates(
    bounded: Served, reader: httpx.AsyncClient, own_tenant: Account
) -> None:
    async with AsyncExitStack() as lasting:
        for path in (FEED, FEED, "/order/global/events", "/order/global/events"):
            await lasting.enter_async_context(following(reader, path))
        for path in (FEED, "/order/global/events"):
            told = await refused_at(reader, path)
            assert told == "This key may have at most 4 live followers at a time; try again in 1 s."
        refused(await reader.get(f"{FEED}&wait=5"), 429, "rate_limited")
        assert (await reader.get("/_/feed")).status_code == 200
        assert (await reader.get("/order/global")).status_code == 200
        async with new_client(bounded.url, own_tenant.write) as other, following(other, FEED):
            pass
    await until(lambda: may_follow(reader, FEED))


async def test_a_key_has_so_many_different_filters(bounded: Served, reader: httpx.AsyncClient) -> None:
    async with following(reader, f"{FEED}&types=order,ticket"):
        async with following(reader, f"{FEED}&types=order"):
            told = await refused_at(reader, f"{FEED}&types=ticket")
            assert told.startswith("This key may have at most 2 different filters of live feeds at a time")
            async with following(reader, f"{FEED}&types=ticket,order,ticket"):
                pass
        await until(lambda: may_follow(reader, f"{FEED}&types=ticket"))


async def test_all_keys_together_have_so_many_filters(
    bounded: Served, reader: httpx.AsyncClient, own_tenant: Account
) -> None:
    async with new_client(bounded.url, own_tenant.write) as other:
        async with (
            following(reader, FEED),
            following(reader, f"{FEED}&types=order"),
            following(other, f"{FEED}&types=order"),
        ):
            told = await refused_at(other, f"{FEED}&types=ticket")
            assert told.startswith("This gateway may have at most 3 different filters")
        await until(lambda: may_follow(other, f"{FEED}&types=ticket"))


async def test_names_that_are_not_declared_make_no_filter_of_their_own(
    bounded: Served, reader: httpx.AsyncClient
) -> None:
    async with (
        following(reader, f"{FEED}&include_undeclared=true&types=order,zz1"),
        following(reader, f"{FEED}&include_undeclared=true&types=zz2,order,zz2"),
        following(reader, f"{FEED}&types=order"),
        following(reader, f"{FEED}&include_undeclared=true&types=zz3"),
    ):
        pass
