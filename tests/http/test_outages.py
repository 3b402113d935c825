"""What is answered while a server is away: never a guess, and never anything but 503 and 504."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.catalog.migrate import migrate
from gateway.config import Config
from gateway.tasks import ended
from tests.support.accounts import open_account
from tests.support.calls import (
    ACTOR,
    append,
    batch,
    bulk,
    bulk_line,
    envelope,
    new_client,
    new_event_id,
    new_id,
    refused,
    until,
)
from tests.support.servers import Servers, open_folder, servers_in
from tests.support.serving import serving

READ_DEADLINE_S = 1.5
BEAT_S = 0.05


@dataclass(frozen=True)
class Stand:
    servers: Servers
    client: httpx.AsyncClient


@pytest.fixture(scope="module")
async def breakable() -> AsyncIterator[Servers]:
    with open_folder() as folder:
        pair = servers_in(folder)
        with contextlib.closing(pair):
            await pair.start()
            await migrate(pair.postgres_url, 2)
            yield pair


@pytest.fixture
async def stand(breakable: Servers) -> AsyncIterator[Stand]:
    """A gateway that waits a moment for an append, on servers that may be broken."""
    await breakable.start()
    async with asyncpg.create_pool(breakable.postgres_url, min_size=1, max_size=2) as pool:
        account = await open_account(pool)
    config = Config(
        redis_url=breakable.redis_url,
        postgres_url=breakable.postgres_url,
        append_deadline_s=1.5,
        read_deadline_s=READ_DEADLINE_S,
        redis_timeout_s=0.3,
        direct_after_s=3,
        shutdown_grace_s=2,
    )
    async with serving(config) as served, new_client(served.url, account.admin) as client:
        await until(lambda: is_in(client, "redis"))
        yield Stand(breakable, client)
        breakable.postgres.resume()
        breakable.redis.resume()


async def is_in(client: httpx.AsyncClient, mode: str) -> bool:
    response = await client.get("/_/health/ready")
    return response.status_code == 200 and response.json()["mode"] == mode


@contextlib.asynccontextmanager
async def stood_still_s() -> AsyncIterator[list[float]]:
    """For how long this process waited for the machine: so much later is what it does meanwhile."""
    found: list[float] = []

    async def beat() -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(BEAT_S)
            found.append(time.monotonic() - begun - BEAT_S)

    task = asyncio.create_task(beat())
    try:
        yield found
    finally:
        await ended([task])


def one_event_each(key: str) -> list[tuple[str, dict[str, Any]]]:
    """Path and body of each form of an append, with one event."""
    of_several = {"aggregate_type": "order", "key": key, "type": "was_noted", "data": 1}
    return [
        (f"/order/{key}/was_noted", envelope(1)),
        (f"/order/{key}", batch(("was_noted", 1))),
        ("/_/append", {"events": [of_several], "metadata": {"actor": ACTOR}}),
    ]


async def written(client: httpx.AsyncClient, key: str, event_type: str, data: object) -> dict[str, Any]:
    """Its receipt; sent again while the machine is too busy for it."""
    event_id, receipts = new_event_id(), []

    async def accepted() -> bool:
        response = await append(client, "order", key, event_type, data, event_id=event_id)
        if response.status_code == 201:
            receipts.append(response.json())
        return bool(receipts)

    await until(accepted)
    return dict(receipts[0])


async def test_while_postgres_is_silent_no_spec_is_deployed_and_that_is_said(stand: Stand) -> None:
    document = (await stand.client.get("/_/spec")).json()["spec"]
    stand.servers.postgres.pause()
    response = await stand.client.put("/_/spec", json={**document, "singletons": ["dashboards"]})
    refused(response, 503, "unavailable")
    assert response.headers["retry-after"]


async def test_while_postgres_is_silent_a_read_that_needs_it_is_refused_in_time(stand: Stand) -> None:
    """The deadline covers the wait for a connection, the statement, and what it takes to give it up."""
    key, client = new_id(), stand.client
    receipt = await written(client, key, "was_noted", 0)
    paths = [
        f"/order/{key}?consistency=strong",
        f"/order/{key}?at=1705312900",
        *(f"/order/{new_id()}" for _ in range(3)),
        f"/order/{key}/events?consistency=strong",
        f"/_/events/{receipt['event_id']}",
        "/_/feed?limit=1",
        "/_/health/ready",
    ]
    stand.servers.postgres.pause()

    async def is_noticed() -> bool:
        return not await is_in(client, "redis")

    await until(is_noticed)

    async def took_s(path: str) -> float:
        began = time.monotonic()
        refused(await client.get(path), 503, "unavailable")
        return time.monotonic() - began

    for _ in range(2):
        async with stood_still_s() as stood_still:
            took = await asyncio.gather(*(took_s(path) for path in paths))
        most_s = READ_DEADLINE_S + 1 + sum(stood_still)
        late = {path: s for path, s in zip(paths, took, strict=True) if s > most_s}
        assert late == {}


async def test_while_postgres_is_silent_an_append_is_unknown_and_a_retry_settles_it(stand: Stand) -> None:
    key, client = new_id(), stand.client
    headers = {"idempotency-key": "the-key"}
    await written(client, key, "was_noted", 0)
    stand.servers.postgres.pause()
    keyless = await append(client, "order", key, "was_noted", 1)
    told = refused(keyless, 504, "outcome_unknown", more=("event_id",))
    assert told["event_id"]
    chosen = new_event_id()
    response = await append(client, "order", key, "was_noted", 2, event_id=chosen)
    assert response.status_code in (503, 504)
    if response.status_code == 504:
        assert response.json()["event_id"] == chosen
    assert (await append(client, "order", key, "was_noted", 3, headers)).status_code in (503, 504)
    refused(await client.get("/_/health/ready"), 503, "unavailable")
    assert (await client.get("/_/health/live")).status_code == 200
    stand.servers.postgres.resume()

    async def accepted() -> bool:
        return (await append(client, "order", key, "was_noted", 3, headers)).status_code == 201

    await until(accepted)
    retried = await append(client, "order", key, "was_noted", 1, event_id=told["event_id"])
    assert retried.status_code in (201, 422)
    events = (await client.get(f"/order/{key}/events")).json()["events"]
    data = [event["data"] for event in events]
    assert sorted(set(data)) == sorted(data), "nothing twice"
    assert {0, 1, 3} <= set(data)


async def test_while_postgres_is_down_reads_that_need_it_are_unavailable(stand: Stand) -> None:
    key, client = new_id(), stand.client
    receipt = await written(client, key, "was_placed", {"a": 1})
    stand.servers.postgres.kill()
    for path in (
        f"/order/{key}?consistency=strong",
        f"/_/events/{receipt['event_id']}",
        f"/order/{new_id()}",
    ):
        response = await client.get(path)
        refused(response, 503, "unavailable")
    response = await append(client, "order", key, "was_noted")
    assert (response.status_code, response.json()["code"]) in (
        (503, "not_committed"),
        (504, "outcome_unknown"),
    )
    await stand.servers.postgres.start()

    async def accepted() -> bool:
        return (await append(client, "order", key, "was_noted")).status_code == 201

    await until(accepted)


async def test_for_a_moment_without_redis_nothing_is_committed_and_reads_go_on(stand: Stand) -> None:
    key, client = new_id(), stand.client
    await written(client, key, "was_placed", {"a": 1})
    stand.servers.redis.kill()
    response = await append(client, "order", key, "was_noted")
    assert (response.status_code, response.json()["code"]) in (
        (503, "not_committed"),
        (504, "outcome_unknown"),
    )
    assert (await client.get(f"/order/{key}")).json()["data"] == {"a": 1}
    assert len((await client.get(f"/order/{key}/events")).json()["events"]) == 1


async def test_while_redis_is_away_appends_and_reads_go_on_through_postgres(stand: Stand) -> None:
    key, client = new_id(), stand.client
    await written(client, key, "was_placed", {"a": 1})
    stand.servers.redis.kill()
    await until(lambda: is_in(client, "direct"))
    for n in range(3):
        headers = {"idempotency-key": f"k{n}"}
        first = await append(client, "order", key, "was_noted", n, headers, previous_length=1 + n)
        again = await append(client, "order", key, "was_noted", n, headers, previous_length=1 + n)
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json() == first.json()
        stale = await append(client, "order", key, "was_noted", n, previous_length=1 + n)
        refused(stale, 409, "version_conflict", more=("length", "missed", "missed_next"))
        assert len(stale.json()["missed"]) == 1
        assert (await client.get(f"/order/{key}/length")).json()["length"] == 2 + n
    assert {each["status"] for each in await bulk(client, bulk_line(key, 1), bulk_line(new_id(), 2))} == {201}
    for path, body in one_event_each(new_id()):
        headers = {"idempotency-key": new_id()}
        told = await client.post(path, json=body, headers=headers)
        assert told.status_code == 201, told.text
        found = await client.get("/_/receipts", params={"idempotency_key": headers["idempotency-key"]})
        assert found.content == told.content
    await stand.servers.redis.start()
    await until(lambda: is_in(client, "redis"))
    await written(client, key, "was_noted", 9)
    state = await client.get(f"/order/{key}")
    assert state.json()["metadata"]["length"] == 6


async def test_after_a_line_that_is_not_settled_later_lines_of_its_aggregate_are_not_committed(
    stand: Stand,
) -> None:
    key, other, client = new_id(), new_id(), stand.client
    await written(client, key, "was_noted", 0)
    stand.servers.postgres.pause()
    told = await bulk(
        client,
        bulk_line(key, 1),
        bulk_line(key, 2),
        bulk_line(other, 1),
        bulk_line("nope"),
        bulk_line(key, 3),
        *[bulk_line(key, 4)] * 1_000,
    )
    stand.servers.postgres.resume()
    assert [each["line"] for each in told] == list(range(1, 1_006))
    assert told[0]["status"] in (503, 504)
    assert [(told[n]["status"], told[n]["code"]) for n in (1, *range(4, 1_005))] == [
        (503, "not_committed")
    ] * 1_002
    assert told[2]["status"] in (503, 504)
    assert told[3]["code"] == "invalid_identifier"

    async def settled() -> bool:
        return (await append(client, "order", key, "was_noted", 9)).status_code == 201

    await until(settled)
    data = [event["data"] for event in (await client.get(f"/order/{key}/events")).json()["events"]]
    assert not {2, 3, 4} & set(data)
