"""GET /_/feed as server-sent events in gzip, for clients that accept it."""

from __future__ import annotations

import asyncio
import gzip
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import httpx
import pytest

from gateway.client import Actor, AsyncClient
from gateway.client.http1 import Response
from gateway.config import Config
from gateway.http.api import content_encoding
from gateway.relay import gzipped
from tests.http.test_feed import fed_whole
from tests.http.test_feed_live import DEADLINE_S, followed, until_followers
from tests.http.test_follow import SSE, take
from tests.support.accounts import Account
from tests.support.calls import appended, batch, new_client, new_id, noted
from tests.support.serving import Served, serving

GZIP, PLAIN = "gzip", "identity"


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (None, None),
        ("", None),
        ("gzip", "gzip"),
        ("deflate, GZIP;q=0.5, br", "gzip"),
        ("x-gzip", "gzip"),
        ("*", "gzip"),
        ("*;q=0.1, identity;q=0", "gzip"),
        ("gzip;q=0.5, identity;q=0.5", "gzip"),
        ("br, deflate", None),
        ("identity", None),
        ("gzip;q=0", None),
        ("*, gzip; q=0.000", None),
        ("*;q=0", None),
        ("gzip;q=0.5, identity", None),
    ],
)
async def test_a_client_that_accepts_gzip_gets_it(
    client: httpx.AsyncClient, accepted: str | None, coding: str | None
) -> None:
    del client.headers["accept-encoding"]
    headers = SSE if accepted is None else {**SSE, "accept-encoding": accepted}
    response = await client.head("/_/feed", headers=headers)
    assert (response.headers.get("content-encoding"), response.content) == (coding, b"")
    assert response.headers["vary"] == "authorization, Accept-Encoding"
    async with client.stream("GET", "/_/feed", headers=headers) as response:
        assert (response.headers.get("content-encoding"), response.headers["vary"]) == (
            coding,
            "authorization, Accept-Encoding",
        )


async def test_other_forms_and_a_gateway_that_is_told_not_to_compress_nothing(
    client: httpx.AsyncClient, own_config: Config, own_tenant: Account
) -> None:
    await appended(client, "order", "global", "was_noted")
    for accept in ("application/json", "application/x-ndjson", "application/cloudevents-batch+json"):
        response = await client.get("/_/feed", headers={"accept": accept, "accept-encoding": GZIP})
        assert "content-encoding" not in response.headers
    async with (
        serving(replace(own_config, feed_gzip=False)) as served,
        new_client(served.url, own_tenant.write) as other,
    ):
        assert "content-encoding" not in (await other.head("/_/feed", headers=SSE)).headers


async def test_each_event_comes_at_once_in_either_coding(client: httpx.AsyncClient) -> None:
    await noted(client, new_id(), 3)
    async with (
        followed(client, accept_encoding=GZIP) as compressed,
        followed(client, accept_encoding=PLAIN) as plain,
    ):
        assert await take(compressed, 3) == await take(plain, 3)
        for _ in range(20):
            receipt = await appended(client, "order", new_id(), "was_noted")
            message = await anext(compressed)
            assert (message, message.event["id"]) == (await anext(plain), receipt["event_id"])


async def test_the_python_client_is_sent_gzip_by_default(
    gateway: Served, tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    codings = []
    headers_complete = Response.on_headers_complete

    def seen(response: Response) -> None:
        codings.append(response.headers.get("content-encoding"))
        headers_complete(response)

    monkeypatch.setattr(Response, "on_headers_complete", seen)
    async with AsyncClient(gateway.url, tenant.write) as sluice, asyncio.timeout(DEADLINE_S):
        following = sluice.follow()
        for n in range(10):
            await sluice.append("order", new_id(), "was_noted", n, actor=Actor("user", "global"))
            assert (await anext(following)).data == n
        await following.aclose()
    assert [coding for coding in codings if coding] == ["gzip"]


async def test_a_round_is_compressed_once_for_all(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, alone = [], []

    def counted(plain: bytes) -> bytes:
        rounds.append(plain)
        return deflated(plain)

    def counted_for_one(plain: bytes) -> bytes:
        alone.append(plain)
        return deflated(plain)

    deflated = gzipped.deflated
    monkeypatch.setattr(gzipped, "deflated", counted)
    monkeypatch.setattr(content_encoding, "deflated", counted_for_one)
    async with AsyncExitStack() as following:
        streams = [await following.enter_async_context(followed(client, "?after=now")) for _ in range(6)]
        await until_followers(6)
        for n in range(10):
            await appended(client, "order", "global", "was_noted", n)
            assert [(await anext(each)).event["data"] for each in streams] == [n] * 6
    assert len(rounds) + len(alone) <= 10 + 6  # a follower may have found the first in Postgres


@asynccontextmanager
async def raw(client: httpx.AsyncClient, query: str, coding: str) -> AsyncIterator[asyncio.Task[bytes]]:
    """All that comes to a follower, as it is sent."""
    async with (
        asyncio.timeout(DEADLINE_S),
        client.stream("GET", f"/_/feed{query}", headers={**SSE, "accept-encoding": coding}) as response,
    ):
        yield asyncio.create_task(_whole(response))


async def _whole(response: httpx.Response) -> bytes:
    return b"".join([part async for part in response.aiter_raw()])


async def test_a_stream_that_ends_is_whole_to_strict_decoders(
    own_config: Config, own_tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it began, and whatever stood between the events that all were sent."""
    monkeypatch.setattr("gateway.http.api.feed._HEARTBEAT_S", 0.2)
    async with AsyncExitStack() as following:
        async with serving(own_config) as served:
            client = await following.enter_async_context(new_client(served.url, own_tenant.write))
            await noted(client, new_id(), 700)
            kinds = [("", GZIP), ("?after=now", GZIP), ("?after=now", PLAIN), ("", PLAIN)]
            ended = []
            for n in range(8):
                ended.append(await following.enter_async_context(raw(client, *kinds[n % 4])))
                await until_followers(n + 1)
                key = new_id()
                for _ in range(5):
                    await appended(client, "order", key, "was_noted", n)
                if n in (3, 7):
                    await two_signs_of_life(client)
            positions = [event["position"] for event in await fed_whole(client)]
            assert len(positions) == 740
        came = [await each for each in ended]
    plain = [gzip.decompress(each) if n % 4 < 2 else each for n, each in enumerate(came)]
    for each in (*plain[::4], *plain[3::4]):
        assert of_events(each) == positions
    for n, each in enumerate(plain):
        assert of_events(each) == positions[-len(of_events(each)) :], n


async def two_signs_of_life(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/_/feed?after=now", headers=SSE) as response:
        lines = response.aiter_lines()
        for _ in range(2):
            while await anext(lines) != ": still here":
                pass


def of_events(stream: bytes) -> list[str]:
    """The positions of its events, not of its comments."""
    blocks = [each.split(b"\n") for each in stream.split(b"\n\n") if b"\ndata: " in each]
    return [lines[0].removeprefix(b"id: ").decode() for lines in blocks]


async def test_a_slow_reader_misses_nothing_of_what_hardly_shrinks(client: httpx.AsyncClient) -> None:
    async with followed(client, accept_encoding=GZIP) as stream:
        for _ in range(12):
            events = [("was_noted", secrets.token_hex(40_000)) for _ in range(9)]
            await client.post(f"/order/{new_id()}", json=batch(*events))
        seen = [(await anext(stream)).id for _ in range(108)]
    assert seen == [event["position"] for event in await fed_whole(client)]
