"""GET /_/feed while events are committed: server-sent events, and requests that wait."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.config import Config
from gateway.http.api import feed
from gateway.http.server.exchange import Exchange
from gateway.relay import channel, live
from gateway.relay.outbox import Entry
from tests.http.conftest import LIVES
from tests.http.raw import ask, connected, request
from tests.http.test_aliases import PUBLIC, WAIT
from tests.http.test_feed import fed, fed_whole
from tests.http.test_follow import SSE, Message, messages, rest_of, take
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import appended, batch, bulk, bulk_line, new_client, new_id, noted, refused, until
from tests.support.serving import Served, serving

DEADLINE_S = 40.0


@asynccontextmanager
async def followed(
    client: httpx.AsyncClient, query: str = "", **headers: str
) -> AsyncIterator[AsyncIterator[Message]]:
    """The messages of a follower of the feed."""
    async with asyncio.timeout(DEADLINE_S):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with client.stream("GET", f"/_/feed{query}", headers={**SSE, **named}) as response:
            assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")
            yield messages(response)


async def test_a_follower_gets_what_there_is_and_then_what_comes(client: httpx.AsyncClient) -> None:
    await noted(client, new_id(), 3)
    async with followed(client) as stream:
        seen = await take(stream, 3)
        for n in range(4):
            await appended(client, "order", new_id(), "was_noted", n)
            seen += await take(stream, 1)
        await noted(client, new_id(), 2)
        seen += await take(stream, 2)
    events = await fed_whole(client)
    assert [message.event for message in seen] == events
    assert [message.id for message in seen] == [event["position"] for event in events]


async def test_http_1_0_gets_the_messages_as_they_are(
    gateway: Served, client: httpx.AsyncClient, tenant: Account
) -> None:
    data = request("GET", "/_/feed", tenant.read, headers=[(b"Accept", b"text/event-stream")])
    async with connected(gateway.port) as connection:
        await connection.send(data.replace(b"HTTP/1.1", b"HTTP/1.0"))
        while (line := await connection.line()) != b"\r\n":
            assert not line.startswith(b"transfer-encoding"), line
        for n in range(3):
            receipt = await appended(client, "order", "global", "was_noted", n)
            message = [await connection.line() for _ in range(3)]
            assert (message[0][:4], message[1][:6], message[2]) == (b"id: ", b"data: ", b"\n")
            assert json.loads(message[1][6:])["id"] == receipt["event_id"]


async def test_last_event_id_resumes_behind_it(client: httpx.AsyncClient) -> None:
    await noted(client, new_id(), 5)
    events = await fed_whole(client)
    ids = [event["position"] for event in events]
    for query, headers, expected in (
        ("", {"last_event_id": ids[2]}, ids[3]),
        (f"?after={ids[1]}", {}, ids[2]),
        (f"?after={ids[0]}", {"last_event_id": ids[3]}, ids[4]),
        ("?after=beginning", {}, ids[0]),
    ):
        async with followed(client, query, **headers) as stream:
            assert (await anext(stream)).id == expected
    for query, headers in (("", {"last_event_id": ids[4]}), ("?after=now", {})):
        async with followed(client, query, **headers) as stream:
            receipt = await appended(client, "order", "global", "was_noted")
            assert (await anext(stream)).event["id"] == receipt["event_id"]


async def test_white_space_around_a_last_event_id_is_none_of_it(
    client: httpx.AsyncClient, gateway: Served, tenant: Account
) -> None:
    """A client library would correct it before it is sent (RFC 9110 section 5.5)."""
    await appended(client, "order", "global", "was_noted")
    position = (await fed(client))["position"].encode()
    for path, value, status in (
        ("/_/feed", b"\t" + position + b" \t", 200),
        ("/_/feed", b" \t", 400),
        ("/order/global/events", b" 0 \t", 200),
        ("/order/global/events", b" \t", 422),
    ):
        headers = [(b"Accept", b"text/event-stream"), (b"Last-Event-ID", value)]
        answer = await ask(gateway.port, request("HEAD", path, tenant.read, headers=headers))
        assert answer is not None
        assert answer.status == status, (path, value)


@pytest.mark.parametrize("value", ["x", "0", "", "beginning", "\u0663", "A" * 20])
async def test_a_last_event_id_that_is_no_position_is_refused(client: httpx.AsyncClient, value: str) -> None:
    headers = [(b"accept", b"text/event-stream"), (b"last-event-id", value.encode())]
    refused(await client.get("/_/feed", headers=headers), 400, "invalid_position", "Last-Event-ID")


async def test_a_last_event_id_comes_once(client: httpx.AsyncClient) -> None:
    known = (await client.get("/_/feed?after=now")).json()["position"]
    headers = [("accept", "text/event-stream"), ("last-event-id", known), ("last-event-id", known)]
    async with client.stream("GET", "/_/feed", headers=headers) as answer:
        assert answer.is_error
        await answer.aread()
        refused(answer, 400, "invalid_position", "Last-Event-ID")


async def test_a_filtered_follower_gets_what_it_asked_for(
    client: httpx.AsyncClient, neighbour: httpx.AsyncClient
) -> None:
    await appended(client, "ticket", "ABC123XYZ", "was_opened", {"n": 0})
    async with (
        followed(client, "?types=ticket") as tickets,
        followed(client, "?event_types=was_noted,was_changed") as changes,
        followed(neighbour) as others,
    ):
        seen = await take(tickets, 1)
        for n in range(1, 5):
            await appended(client, "order", new_id(), "was_noted", {"n": n})
            await appended(client, "order", new_id(), "was_cleared", {"n": n})
            await appended(client, "ticket", "ABC123XYZ", "was_opened", {"n": n})
            await appended(client, "config", "global", "was_changed", {"n": n})
            await appended(neighbour, "ticket", "ABC123XYZ", "was_opened", {"n": -n})
        seen += await take(tickets, 4)
        assert [message.event["data"]["n"] for message in seen] == [0, 1, 2, 3, 4]
        assert {message.event["aggregate_type"] for message in seen} == {"ticket"}
        assert [message.event["data"]["n"] for message in await take(changes, 8)] == [1, 1, 2, 2, 3, 3, 4, 4]
        assert [message.event["data"]["n"] for message in await take(others, 4)] == [-1, -2, -3, -4]


async def test_a_quiet_stream_says_that_it_is_there_and_how_far_it_is(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http.api.feed._HEARTBEAT_S", 0.1)
    async with (
        asyncio.timeout(DEADLINE_S),
        client.stream("GET", "/_/feed?types=ticket&after=now", headers=SSE) as response,
    ):
        lines = response.aiter_lines()
        assert await anext(lines) == ": still here"
        await noted(client, new_id(), 3)
        end = (await fed(client, "?after=now"))["position"]
        while f"id: {end}" != await anext(lines):
            pass
    assert (await fed(client, f"?after={end}"))["events"] == []


async def test_what_another_gateway_commits_is_announced(
    client: httpx.AsyncClient, second_gateway: Served, tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POLL_S", 1000.0)  # no follower looks
    async with new_client(second_gateway.url, tenant.write) as other, followed(client) as stream:
        for n in range(20):
            await appended(other, "order", new_id(), "was_noted", n)
            assert (await anext(stream)).event["data"] == n
            await appended(client, "order", new_id(), "was_noted", -n)
            assert (await anext(stream)).event["data"] == -n


async def test_what_no_gateway_announces_is_found(
    client: httpx.AsyncClient, second_gateway: Served, tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.log.redis.announcements.Announcements._heed", lambda *_: None)
    async with new_client(second_gateway.url, tenant.write) as other, followed(client) as stream:
        for n in range(3):
            await appended(other, "order", new_id(), "was_noted", n)
            assert (await anext(stream)).event["data"] == n


@pytest.mark.parametrize(("kept", "pending"), [(None, None), (2000, None), (None, 3)])
async def test_followers_see_every_event_once_and_in_order(
    client: httpx.AsyncClient,
    second_gateway: Served,
    tenant: Account,
    monkeypatch: pytest.MonkeyPatch,
    kept: int | None,
    pending: int | None,
) -> None:
    """Also where a channel keeps next to nothing, so that all fall behind it again and again, or a tail takes
    over nothing."""
    if pending is not None:
        monkeypatch.setattr(live, "PENDING_BYTES_MAX", pending)
    if kept is not None:
        monkeypatch.setattr(live, "KEPT_BYTES", kept)
    writers, rounds = 8, 12

    async def follow(after_s: float, query: str, count: int) -> list[Any]:
        await asyncio.sleep(after_s)
        async with followed(client, query) as stream:
            return [message.event for message in await take(stream, count)]

    async def write(client: httpx.AsyncClient, n: int) -> None:
        for _ in range(rounds):
            events = batch(("was_noted", n), ("was_cleared", {"n": n}))
            response = await client.post(f"/order/{new_id()}", json=events)
            assert response.status_code == 201, response.text
            await appended(client, "ticket", "ABC123XYZ", "was_opened", {"n": n})

    total = writers * rounds
    followers = [
        asyncio.create_task(follow(0.05 * n, query, count))
        for n in range(4)
        for query, count in (("", 3 * total), ("?types=ticket", total), ("?event_types=was_noted", total))
    ]
    async with new_client(second_gateway.url, tenant.write) as other:
        await asyncio.gather(*(write(client if n % 2 else other, n) for n in range(writers)))
    events = await fed_whole(client)
    assert len(events) == 3 * total
    for n, seen in enumerate(await asyncio.gather(*followers)):
        passing = (
            lambda event: True,
            lambda event: event["aggregate_type"] == "ticket",
            lambda event: event["type"] == "was_noted",
        )[n % 3]
        assert seen == [event for event in events if passing(event)]


async def test_a_follower_that_reads_slowly_misses_nothing(client: httpx.AsyncClient) -> None:
    text = "x" * 100_000
    async with followed(client, accept_encoding="identity") as stream:
        for _ in range(12):
            await client.post(f"/order/{new_id()}", json=batch(*[("was_noted", text)] * 9))
        seen = [(await anext(stream)).id for _ in range(108)]
    assert seen == [event["position"] for event in await fed_whole(client)]


async def test_a_follower_that_keeps_up_is_handed_what_is_new_without_a_task(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = 0
    handed = channel.Following.handed

    async def counted(self: channel.Following[bytes], *arguments: Any) -> Any:
        nonlocal woken
        place = await handed(self, *arguments)
        woken += 1
        return place

    monkeypatch.setattr(channel.Following, "handed", counted)
    async with followed(client) as stream:
        for n in range(30):
            await appended(client, "order", "global", "was_noted", n)
            assert (await anext(stream)).event["data"] == n
    assert woken < 10


async def test_rounds_are_longer_while_commits_carry_a_crowd_of_appends(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[tuple[int, bool]] = []

    def noted_down(told: int, crowd: bool) -> float:
        rounds.append((told, crowd))
        return round_s(told, crowd)

    round_s = live.round_s
    monkeypatch.setattr(live, "round_s", noted_down)
    async with followed(client) as stream:
        for _ in range(20):
            await appended(client, "order", "global", "was_noted")
            await anext(stream)
        assert (1, False) in rounds
        assert (1, True) not in rounds
        await bulk(client, *[bulk_line(new_id()) for _ in range(1000)])
        await take(stream, 1000)
    assert (1, True) in rounds
    assert round_s(100, crowd=True) > 2 * round_s(100, crowd=False)


async def test_a_follower_that_breaks_off_takes_nothing_from_the_others(client: httpx.AsyncClient) -> None:
    """More of them than are told at once, some of whom go at each event."""
    async with AsyncExitStack() as others, followed(client) as stream:
        going = [await others.enter_async_context(AsyncExitStack()) for _ in range(10)]
        streams = [await each.enter_async_context(followed(client)) for each in going]
        for n, gone in enumerate(going):
            await appended(client, "order", "global", "was_noted", n)
            for each in (stream, *streams[n:]):
                assert (await anext(each)).event["data"] == n
            appending = asyncio.create_task(appended(client, "order", "global", "was_noted", -n))
            await gone.aclose()
            await appending
            for each in (stream, *streams[n + 1 :]):
                assert (await anext(each)).event["data"] == -n


def failures(caplog: pytest.LogCaptureFixture) -> int:
    return [record.msg for record in caplog.records].count("live_failed")


@pytest.mark.bug
async def test_a_fault_in_telling_one_follower_is_logged_and_none_of_the_others(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at_once, faults = Exchange._send_at_once, iter([RuntimeError("a bug")])

    def failing(self: Exchange, body: bytes) -> bool:
        for fault in faults:
            raise fault
        return at_once(self, body)

    monkeypatch.setattr(Exchange, "_send_at_once", failing)
    async with followed(client) as one, followed(client) as another:
        for n in range(3):
            await appended(client, "order", "global", "was_noted", n)
            for each in (one, another):
                assert (await anext(each)).event["data"] == n
    assert failures(caplog) == 1


async def test_an_event_is_made_into_a_message_once_for_all_at_its_commit(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not by a follower, in the midst of a round."""
    made: list[int] = []
    telling = False

    def counted(p: int, entry: Entry) -> bytes:
        assert not telling
        made.append(entry.place.seq)
        return message(p, entry)

    def told(self: channel.Following[bytes], chunk: channel.Chunk[bytes]) -> None:
        nonlocal telling
        telling = True
        tell(self, chunk)
        telling = False

    message, tell = feed.message_of, channel.Following.tell
    monkeypatch.setattr(feed, "message_of", counted)
    monkeypatch.setattr(channel.Following, "tell", told)
    async with AsyncExitStack() as following:
        streams = [
            await following.enter_async_context(
                followed(client, "?after=now", accept_encoding=("gzip", "identity")[n % 2])
            )
            for n in range(6)
        ]
        await until_followers(6)
        for n in range(10):
            await appended(client, "order", "global", "was_noted", n)
            assert [(await anext(each)).event["data"] for each in streams] == [n] * 6
    assert made[6:] == sorted(set(made[6:]))  # each may have found the first in Postgres
    assert len(made) <= 10 + 6


@pytest.mark.bug
async def test_a_fault_in_making_a_message_is_logged_and_sends_its_followers_to_postgres(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    message, faults = feed.message_of, iter([RuntimeError("a bug")])

    def failing(p: int, entry: Entry) -> bytes:
        for fault in faults:
            raise fault
        return message(p, entry)

    monkeypatch.setattr(live, "POLL_S", 1000.0)
    async with followed(client) as one, followed(client) as another:
        await appended(client, "order", "global", "was_noted", 0)
        for each in (one, another):
            assert (await anext(each)).event["data"] == 0
    monkeypatch.setattr(feed, "message_of", failing)
    async with followed(client, "?after=now") as one, followed(client, "?after=now") as another:
        await until_followers(2)
        for n in range(1, 4):
            await appended(client, "order", "global", "was_noted", n)
            for each in (one, another):
                assert (await anext(each)).event["data"] == n
    assert next(faults, None) is None
    assert failures(caplog) == 1


async def test_those_who_wait_and_those_who_follow_are_told_of_the_same(client: httpx.AsyncClient) -> None:
    async with followed(client, "?after=now") as stream:
        waiting = asyncio.create_task(fed(client, "?after=now&wait=8"))
        await until_followers(2)
        await appended(client, "order", "global", "was_noted", "both")
        assert (await waiting)["events"] == [(await anext(stream)).event]


async def test_a_follower_that_has_gone_is_served_no_more(client: httpx.AsyncClient) -> None:
    async with followed(client) as stream:
        await appended(client, "order", "global", "was_noted")
        await anext(stream)
        assert live_followers() == 1
    await until_followers(0)


def live_followers() -> int:
    """In all gateways of this process."""
    return sum(each.count for each in LIVES)


async def until_followers(count: int) -> None:
    async def there() -> bool:
        return live_followers() == count

    await until(there)


# ---- waiting ----


async def test_a_request_waits_for_the_first_event(client: httpx.AsyncClient) -> None:
    position = (await fed(client))["position"]
    waiting = asyncio.create_task(fed(client, f"?after={position}&wait=8"))
    await until_followers(1)
    receipt = await appended(client, "order", "global", "was_noted")
    page = await waiting
    assert [event["id"] for event in page["events"]] == [receipt["event_id"]]
    assert (page["position"], page["caught_up"]) == (page["events"][0]["position"], True)
    assert (await fed(client, f"?after={page['position']}"))["events"] == []


async def test_what_does_not_pass_ends_no_wait(client: httpx.AsyncClient) -> None:
    waiting = asyncio.create_task(fed(client, "?types=ticket&wait=8"))
    await until_followers(1)
    await noted(client, new_id(), 2)
    await appended(client, "ticket", new_id(), "was_opened", {"n": 1})
    (event,) = (await waiting)["events"]
    assert event["data"] == {"n": 1}
    begun = time.monotonic()
    page = await fed(client, "?types=config&wait=1")
    assert time.monotonic() - begun >= 1
    assert (page["events"], page["caught_up"]) == ([], True)
    assert page["position"] == (await fed(client))["position"]


async def test_a_wait_keeps_to_its_limit(client: httpx.AsyncClient) -> None:
    waiting = asyncio.create_task(fed(client, "?limit=2&wait=8"))
    await until_followers(1)
    await noted(client, new_id(), 5)
    page = await waiting
    assert (len(page["events"]), page["caught_up"]) == (2, False)
    assert page["position"] == page["events"][1]["position"]
    assert len((await fed(client, f"?after={page['position']}&wait=8"))["events"]) == 3


async def test_no_request_waits_where_there_is_something_to_read(client: httpx.AsyncClient) -> None:
    await noted(client, new_id(), 1)
    begun = time.monotonic()
    assert len((await fed(client, "?wait=60"))["events"]) == 1
    assert (await client.head("/_/feed?after=now&wait=60")).status_code == 200
    response = await client.get("/_/feed?wait=60&after=now", headers={"accept": "application/x-ndjson"})
    assert response.content == b""
    assert time.monotonic() - begun < 40


@pytest.mark.parametrize("value", ["-1", "61", "x", "1.5", ""])
async def test_a_wait_is_seconds_up_to_a_minute(client: httpx.AsyncClient, value: str) -> None:
    refused(await client.get(f"/_/feed?wait={value}"), 422, "invalid_field", "wait")


async def test_a_follower_is_let_go_when_the_gateway_stops(own_config: Config, own_tenant: Account) -> None:
    async with asyncio.timeout(DEADLINE_S):
        async with serving(replace(own_config)) as served:
            client = new_client(served.url, own_tenant.write)
            stream = client.stream("GET", "/_/feed", headers=SSE)
            response = await stream.__aenter__()
            await appended(client, "order", "global", "was_noted")
            lines = response.aiter_lines()
            assert (await anext(lines)).startswith("id: ")
            ended = asyncio.create_task(rest_of(lines))
            waiting = asyncio.create_task(fed(client, "?after=now&wait=60"))
            await until_followers(2)
        assert (await ended)[1:] == [""]
        assert (await waiting)["events"] == []
        await client.aclose()


async def test_a_follower_may_name_types_that_are_declared_later(client: httpx.AsyncClient) -> None:
    later = {
        **SPEC,
        "aggregate_types": {**SPEC["aggregate_types"], "parcel": {"events": {"was_sent": {"schema": True}}}},
    }
    async with (
        followed(client, "?include_undeclared=true&types=parcel") as parcels,
        followed(client, "?include_undeclared=true&types=order,parcel,never") as both,
        followed(client, "?include_undeclared=true&event_types=was_sent,was_noted") as events,
    ):
        assert (await appended(client, "order", new_id(), "was_noted"))["length"] == 1
        for stream in (both, events):
            assert (await anext(stream)).event["type"] == "was_noted"
        assert (await client.put("/_/spec", json=later)).status_code == 200
        for _ in range(3):
            sent = await appended(client, "parcel", new_id(), "was_sent")
            for stream in (parcels, both, events):
                assert (await anext(stream)).event["id"] == sent["event_id"]
            other = await appended(client, "order", new_id(), "was_noted")
            for stream in (both, events):
                assert (await anext(stream)).event["id"] == other["event_id"]


async def test_the_systems_own_events_are_followed_by_a_request_that_names_them(
    gateway: Served, second_gateway: Served, outbox: asyncpg.Pool
) -> None:
    """Also those that another gateway commits, which are read from Postgres."""
    account = await open_account(outbox, PUBLIC)
    async with (
        new_client(gateway.url, account.admin) as here,
        new_client(second_gateway.url, account.admin) as there,
        followed(here, "?types=_names") as names,
        followed(here) as orders,
    ):
        for client in (there, here, there):
            receipt = await appended(client, "order", new_id(), "was_placed", headers=WAIT)
            assert receipt["key"] in (await anext(names)).data
            assert (await anext(orders)).event["id"] == receipt["event_id"]


@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_who_reads_slowly_holds_a_page_at_most(
    gateway: Served, client: httpx.AsyncClient, tenant: Account, monkeypatch: pytest.MonkeyPatch, coding: str
) -> None:
    parts: list[int] = []
    send_part = Exchange._send_part

    async def noted_part(self: Exchange, body: bytes) -> None:
        parts.append(len(body))
        await send_part(self, body)

    monkeypatch.setattr(Exchange, "_send_part", noted_part)
    headers = [(b"Accept", b"text/event-stream"), (b"Accept-Encoding", coding.encode())]
    noise = random.Random(1)
    async with connected(gateway.port) as slow:
        await slow.send(request("GET", "/_/feed?after=now", tenant.read, headers=headers))
        await slow.line()
        slow.read_no_more()
        for _ in range(40):
            body = batch(*[("was_noted", noise.randbytes(50_000).hex())] * 9)
            assert (await client.post(f"/order/{new_id()}", json=body)).status_code == 201
        slow.read_again()
        came = 0
        while came < 8_000_000:
            came += len(await slow.some())
    assert max(parts) < 3_000_000


async def test_a_follower_with_a_request_in_line_behind_it_ends_when_its_client_is_gone(
    gateway: Served,
    client: httpx.AsyncClient,
    tenant: Account,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    following = 0
    sse = feed.Feed._sse

    async def counted(*given: Any) -> None:
        nonlocal following
        following += 1
        try:
            await sse(*given)
        finally:
            following -= 1

    monkeypatch.setattr(feed.Feed, "_sse", counted)
    asked = request("GET", "/_/feed", tenant.read, headers=[(b"Accept", b"text/event-stream")])

    async def gone() -> bool:
        await noted(client, new_id(), 1)  # nothing is read meanwhile: it is found out at a write
        return following == 0

    async with connected(gateway.port) as connection:
        await connection.send(asked + asked)
        assert b"200" in await connection.line()
        assert following == 1
    await until(gone)
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []
