"""GET /{type}/{id}/events as NDJSON, and as server-sent events that follow live."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.config import Config
from tests.support.accounts import Account
from tests.support.calls import JSON, append, appended, events_of, new_client, new_id, noted, refused, told_in
from tests.support.serving import Served, child_serving, serving

ND = {"accept": "application/x-ndjson"}
SSE = {"accept": "text/event-stream"}
DEADLINE_S = 40.0


async def test_ndjson_is_every_event_a_line(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 7, {"a": [1, None]})
    response = await client.get(f"/order/{key}/events", headers=ND)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/x-ndjson")
    assert response.headers["cache-control"] == "no-cache, private"
    assert told_in(response.content) == await events_of(client, "order", key)


async def test_ndjson_goes_to_the_end_of_a_long_stream(client: httpx.AsyncClient) -> None:
    key = new_id()
    for _ in range(2):
        await noted(client, key, 900)
    for query, expected in (
        ("", range(1, 1801)),
        ("?from=1700", range(1700, 1801)),
        ("?from=1801", range(0)),
        ("?limit=3", range(1, 4)),
        ("?from=400&limit=1000", range(400, 1400)),
        ("?order=desc", range(1800, 0, -1)),
        ("?order=desc&from=1200&limit=700", range(1200, 500, -1)),
        ("?consistency=strong&limit=600", range(1, 601)),
        ("?min_length=1800&order=desc&limit=1", range(1800, 1799, -1)),
    ):
        response = await client.get(f"/order/{key}/events{query}", headers=ND)
        assert [event["version"] for event in told_in(response.content)] == list(expected), query


async def test_streams_go_to_the_end_of_large_events(client: httpx.AsyncClient) -> None:
    key = new_id()
    for _ in range(9):
        await appended(client, "order", key, "was_noted", {"text": "x" * 200_000})
    for query, expected in (("", range(1, 10)), ("?order=desc", range(9, 0, -1)), ("?limit=8", range(1, 9))):
        response = await client.get(f"/order/{key}/events{query}", headers=ND)
        assert [event["version"] for event in told_in(response.content)] == list(expected), query
    versions: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        async with client.stream("GET", f"/order/{key}/events", headers=SSE) as response:
            async for line in response.aiter_lines():
                if line.startswith("id: "):
                    versions.append(int(line[4:]))
                if versions[-1:] == [9]:
                    break
    assert versions == list(range(1, 10))


async def test_accept_is_read_as_a_list_of_media_types(client: httpx.AsyncClient) -> None:
    await appended(client, "order", "global", "was_noted")
    for accept in ("application/x-ndjson", "APPLICATION/X-NDJSON; q=1", "text/html, application/x-ndjson"):
        response = await client.get("/order/global/events", headers={"accept": accept})
        assert response.headers["content-type"] == "application/x-ndjson"
    for accept in (
        "*/*",
        "application/json",
        "text/html",
        "",
        "application/x-ndjson;q=0",
        "application/x-ndjson; q=0.1, application/json;q=0.9",
        "application/json, text/event-stream;v=1;Q=0.5",
    ):
        response = await client.get("/order/global/events", headers={"accept": accept})
        assert response.headers["content-type"] == "application/json"


async def test_never_written_is_a_404_and_a_singleton_an_empty_stream(client: httpx.AsyncClient) -> None:
    for headers in (ND, SSE):
        refused(await client.get(f"/order/{new_id()}/events", headers=headers), 404, "not_found")
        refused(await client.get("/order/nope/events", headers=headers), 422, "invalid_identifier", "key")
    response = await client.get("/order/global/events", headers=ND)
    assert (response.status_code, response.content) == (200, b"")


async def test_line_breaks_between_tokens_become_blanks(client: httpx.AsyncClient) -> None:
    key, data = new_id(), b'{\n"a":\r\n1,\t"b": "\\n \\r"\r}'
    sent = b'{"data":%b,"metadata":{"actor":{"type":"user","id":"global"},"extra":{\n}}}' % data
    await client.post(f"/order/{key}/was_noted", content=sent, headers=JSON)
    response = await client.get(f"/order/{key}/events", headers=ND)
    assert response.content.count(b"\n") == 1
    assert b'"data":' + data.replace(b"\n", b" ").replace(b"\r", b" ") in response.content
    assert told_in(response.content) == await events_of(client, "order", key)
    async with followed(client, key) as events:
        raw = await anext(events)
    assert raw.data.encode() == response.content[:-1]


@dataclass(frozen=True)
class Message:
    id: str
    data: str

    @property
    def event(self) -> Any:
        return json.loads(self.data)


@asynccontextmanager
async def followed(
    client: httpx.AsyncClient, key: str, query: str = "", **headers: str
) -> AsyncIterator[AsyncIterator[Message]]:
    """The messages of a follower; the last of them is the end of the stream."""
    async with asyncio.timeout(DEADLINE_S):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with client.stream("GET", f"/order/{key}/events{query}", headers={**SSE, **named}) as response:
            assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")
            assert response.headers["cache-control"] == "no-cache, private"
            yield messages(response)


async def messages(response: httpx.Response) -> AsyncIterator[Message]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line == "":
            if fields:
                yield Message(**fields)
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            assert name not in fields
            fields[name] = value


async def take(stream: AsyncIterator[Message], count: int) -> list[Message]:
    return [await anext(stream) for _ in range(count)]


async def test_a_follower_gets_what_there_is_and_then_what_comes(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 3)
    async with followed(client, key) as stream:
        seen = await take(stream, 3)
        for n in range(4, 7):
            await appended(client, "order", key, "was_placed", {"n": n})
            seen += await take(stream, 1)
    assert [message.id for message in seen] == ["1", "2", "3", "4", "5", "6"]
    assert [message.event for message in seen] == await events_of(client, "order", key)


async def test_last_event_id_resumes_behind_it(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 5)
    for query, headers, first in (
        ("", {"last_event_id": "3"}, "4"),
        ("", {"last_event_id": "0"}, "1"),
        ("?from=2", {}, "2"),
        ("?from=1", {"last_event_id": "4"}, "5"),
    ):
        async with followed(client, key, query, **headers) as stream:
            assert (await anext(stream)).id == first
    async with followed(client, key, last_event_id="5") as stream:
        await appended(client, "order", key, "was_noted")
        assert (await anext(stream)).id == "6"


@pytest.mark.parametrize("value", ["x", "-1", "", "1.5", "9" * 20, "6-0", "\u0663"])
async def test_a_last_event_id_that_is_no_version_is_refused(client: httpx.AsyncClient, value: str) -> None:
    headers = [(b"accept", b"text/event-stream"), (b"last-event-id", value.encode())]
    response = await client.get("/order/global/events", headers=headers)
    refused(response, 422, "invalid_field", "Last-Event-ID")


async def test_last_event_id_sent_twice_is_refused(client: httpx.AsyncClient) -> None:
    twice = [("accept", "text/event-stream"), ("last-event-id", "1"), ("last-event-id", "2")]
    response = await client.get("/order/global/events", headers=twice)
    refused(response, 422, "invalid_field", "Last-Event-ID")


@pytest.mark.parametrize("value", [str(2**53), "9" * 16, str(2**63 - 1)])
async def test_a_follower_may_be_far_ahead(client: httpx.AsyncClient, value: str) -> None:
    async with followed(client, "global", last_event_id=value):
        pass


@pytest.mark.parametrize(
    ("query", "name"), [("?from=0", "from"), ("?order=desc", "order"), ("?min_length=x", "min_length")]
)
async def test_a_parameter_that_a_follower_cannot_have_is_refused(
    client: httpx.AsyncClient, query: str, name: str
) -> None:
    response = await client.get(f"/order/global/events{query}", headers=SSE)
    refused(response, 422, "invalid_field", name)


async def test_an_empty_singleton_can_be_followed(client: httpx.AsyncClient) -> None:
    async with followed(client, "global") as stream:
        await appended(client, "order", "global", "was_noted", 1)
        message = await anext(stream)
    assert (message.id, message.event["data"]) == ("1", 1)


async def test_what_another_gateway_appends_is_followed_too(
    client: httpx.AsyncClient, second_gateway: Served, tenant: Account
) -> None:
    key = new_id()
    await noted(client, key, 1)
    async with new_client(second_gateway.url, tenant.write) as other, followed(client, key) as stream:
        await take(stream, 1)
        for n in range(2, 5):
            await appended(other, "order", key, "was_noted", n)
            message = await anext(stream)
            assert (message.id, message.event["data"]) == (str(n), n)


async def test_followers_see_every_event_once_and_in_order(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 1)

    async def follow() -> list[str]:
        async with followed(client, key) as stream:
            return [message.id for message in await take(stream, 201)]

    followers = [asyncio.create_task(follow()) for _ in range(5)]
    for _ in range(10):
        await asyncio.gather(*(append(client, "order", key, "was_noted", n) for n in range(20)))
    for seen in await asyncio.gather(*followers):
        assert seen == [str(version) for version in range(1, 202)]


async def test_a_long_history_is_followed_from_its_start(client: httpx.AsyncClient) -> None:
    key = new_id()
    for _ in range(2):
        await noted(client, key, 800)
    async with followed(client, key) as stream:
        seen = await take(stream, 1600)
        await appended(client, "order", key, "was_noted")
        seen += await take(stream, 1)
    assert [message.id for message in seen] == [str(version) for version in range(1, 1602)]


async def test_followers_are_let_go_when_the_gateway_stops(own_config: Config, own_tenant: Account) -> None:
    async with asyncio.timeout(DEADLINE_S):
        async with serving(own_config) as served:
            client = new_client(served.url, own_tenant.write)
            stream = client.stream("GET", "/order/global/events", headers=SSE)
            response = await stream.__aenter__()
            await appended(client, "order", "global", "was_noted")
            lines = response.aiter_lines()
            assert await anext(lines) == "id: 1"
            ended = asyncio.create_task(rest_of(lines))
        assert (await ended)[1:] == [""]
        await client.aclose()


async def test_a_follower_resumes_without_a_gap_after_its_gateway_was_killed(
    own_config: Config, own_tenant: Account, second_own_gateway: Served, tmp_path: Path
) -> None:
    """Another gateway continues appending all the while."""
    key, seen = new_id(), list[Message]()
    async with new_client(second_own_gateway.url, own_tenant.write) as writer:

        async def write(count: int) -> None:
            for _ in range(count):
                await appended(writer, "order", key, "was_noted")

        await write(1)
        for life in range(3):
            async with (
                child_serving(own_config.postgres_url, own_config.redis_url, tmp_path) as child,
                new_client(child.served.url, own_tenant.read) as client,
            ):
                last = {"last_event_id": seen[-1].id} if seen else {}
                writing = asyncio.create_task(write(20))
                async with followed(client, key, **last) as stream:
                    seen += await take(stream, 10)
                    child.process.kill()
                    with contextlib.suppress(httpx.TransportError, StopAsyncIteration):
                        while True:
                            seen += await take(stream, 1)
                await writing
            assert len(seen) >= 10 * (life + 1)
        async with (
            new_client(second_own_gateway.url, own_tenant.read) as client,
            followed(client, key, last_event_id=seen[-1].id) as stream,
        ):
            await write(1)
            while len(seen) < 62:
                seen += await take(stream, 1)
        assert [message.id for message in seen] == [str(version) for version in range(1, 63)]
        assert [message.event for message in seen] == await events_of(writer, "order", key)


@pytest.fixture
async def second_own_gateway(own_config: Config) -> AsyncIterator[Served]:
    async with serving(own_config) as served:
        yield served


async def rest_of(lines: AsyncIterator[str]) -> list[str]:
    """Raises unless the answer ends in order."""
    return [line async for line in lines]
