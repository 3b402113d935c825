"""Reads that go from the parser to Redis without a task: none is answered otherwise than the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.config import Config
from gateway.http.api.reads import Reads
from gateway.http.api.states import States
from gateway.http.fast_path.reads import FastReads
from gateway.log.read import cold
from gateway.log.read.ranges import Range
from gateway.log.read.reader import Reader
from tests.http.raw import Answer, ask, connected, request
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import append, appended, new_client, new_id, noted, refused
from tests.support.serving import Served, serving

WAIT = {"prefer": "wait"}


class Taken:
    """What the express said to each read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.said: list[bool] = []
        self.declines = False
        take = FastReads.take

        def told(*args: object) -> bool:
            self.said.append(not self.declines and take(*args))  # type: ignore[arg-type]
            return self.said[-1]

        patch.setattr(FastReads, "take", told)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    return Taken(monkeypatch)


@pytest.fixture(autouse=True)
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that stood still for a second would take no express until it has looked at Postgres again."""
    monkeypatch.setattr("gateway.log.watch.TRUST_S", 60.0)


async def same_both_ways(taken: Taken, served: Served, asked: bytes) -> Answer:
    """The answer of the express, which is the application's to the byte."""
    taken.declines = True
    usual = await ask(served.port, asked)
    taken.declines = False
    express = await ask(served.port, asked)
    assert taken.said[-2:] == [False, True], asked
    assert usual is not None
    assert express is not None
    assert (express, list(express.headers)) == (usual, list(usual.headers))
    return express


CORRELATED = (b"X-Correlation-Id", b"0190a0b0-0000-7000-8000-000000000000")


async def test_each_read_is_answered_as_the_application_does(
    gateway: Served, client: httpx.AsyncClient, tenant: Account, taken: Taken
) -> None:
    key = new_id()
    await appended(client, "order", key, "was_placed", {"total": 5})
    await appended(client, "order", key, "was_named", {"name": "Zoë"})
    etag = (await client.get(f"/order/{key}")).headers["etag"]
    statuses = []
    for path in (f"/order/{key}", f"/order/{key.upper()}", f"/order/{key}/length", f"/order/{key}/events"):
        for headers in ([], [(b"If-None-Match", etag.encode())], [(b"If-None-Match", b"*")]):
            asked = request("GET", path, tenant.read, headers=[*headers, CORRELATED])
            statuses.append((await same_both_ways(taken, gateway, asked)).status)
    assert statuses == [200, 304, 304] * 2 + [200] * 6


async def test_an_alias_is_answered_as_the_application_does(
    gateway: Served, outbox: asyncpg.Pool, taken: Taken
) -> None:
    tenant = await open_account(outbox, {**SPEC, "public_ids": {"key": "VNO", "types": ["order"]}})
    async with new_client(gateway.url, tenant.admin) as client:
        key = (await append(client, "order", new_id(), "was_placed", headers=WAIT)).json()["key"]
        await client.get("/order/@VNO-1")
    for path in ("/order/@VNO-1", "/order/@VNO-1/length", "/order/@VNO-1/events"):
        answer = await same_both_ways(taken, gateway, request("GET", path, tenant.read, headers=[CORRELATED]))
        assert answer.headers["content-location"] == f"/order/{key}"


async def test_what_is_not_ordinary_is_left_to_the_application(
    gateway: Served, client: httpx.AsyncClient, tenant: Account, taken: Taken
) -> None:
    key = new_id()
    await noted(client, key, 2)
    await client.get(f"/order/{key}")
    taken.said.clear()
    ndjson = [(b"Accept", b"application/x-ndjson")]
    for asked, status in (
        (request("GET", f"/order/{key}?at_length=1", tenant.read), 200),
        (request("GET", f"/order/{key}/events", tenant.read, headers=ndjson), 200),
        (request("GET", f"/order/{key}/events/1", tenant.read), 200),
        (request("GET", f"/order/{key}", tenant.read, b"{}"), 200),
        (request("GET", f"/order/{key}"), 401),
        (request("GET", f"/nope/{key}", tenant.read), 404),
        (request("GET", "/order/nope", tenant.read), 422),
    ):
        answer = await ask(gateway.port, asked)
        assert (answer is not None and answer.status) == status, asked
    assert not any(taken.said)
    never = await ask(gateway.port, request("GET", f"/order/{new_id()}", tenant.read))
    assert (never is not None and never.status) == 404
    assert (await client.head(f"/order/{key}")).headers["etag"] == '"2.r1"'


async def test_what_redis_does_not_tell_is_answered_in_its_turn(
    gateway: Served, client: httpx.AsyncClient, tenant: Account, taken: Taken
) -> None:
    """Taken, given up, begun again: before the next ones of its connection."""
    key = new_id()
    await noted(client, key, 3)
    await client.get(f"/order/{key}")
    paths = [
        f"/order/{new_id()}/events",
        f"/order/{key}",
        f"/order/{key}/length",
        f"/order/{new_id()}/length",
    ]
    async with connected(gateway.port) as connection:
        await connection.send(b"".join(request("GET", path, tenant.admin) for path in paths))
        told = [await connection.answer() for _ in paths]
        again = await connection.ask(request("GET", paths[1], tenant.admin))
    assert taken.said[-2:] == [True, True], "the first in line, and the last"
    assert [each.status for each in (*told, again) if each is not None] == [404, 200, 200, 200, 200]
    assert told[0] is not None
    assert told[0].code == "not_found"
    assert told[3] is not None
    assert told[3].json["length"] == 0


async def test_a_read_sees_what_another_gateway_appended(
    second_gateway: Served, client: httpx.AsyncClient, tenant: Account, taken: Taken
) -> None:
    key = new_id()
    async with new_client(second_gateway.url, tenant.admin) as other:
        for n in range(1, 8):
            await appended(other if n % 2 else client, "order", key, "was_placed", {f"f{n}": n})
            told = (await client.get(f"/order/{key}")).json()
            assert (told["metadata"]["length"], len(told["data"])) == (n, n)
            assert len((await client.get(f"/order/{key}/events")).json()["events"]) == n
    assert taken.said[-2:] == [True, True]


@pytest.mark.parametrize("where", ["following", "length_answer"])
@pytest.mark.bug
async def test_a_bug_on_its_own_way_is_logged_and_the_application_answers(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    key = new_id()
    await noted(client, key, 1)
    await client.get(f"/order/{key}")

    def broken(*_args: object, **_named: object) -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(f"gateway.http.fast_path.reads.{where}", broken)
    assert (await client.get(f"/order/{key}")).json()["metadata"]["length"] == 1
    assert (await client.get(f"/order/{key}/length")).json()["length"] == 1
    assert "fast_path_failed" in [record.msg for record in caplog.records]


@pytest.mark.bug
async def test_a_bug_after_a_read_was_handed_over_is_logged_and_answered_once(
    gateway: Served, tenant: Account, client: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    key = new_id()
    await noted(client, key, 1)
    await client.get(f"/order/{key}")
    look = Reader.look

    def failing(self: Reader, *args: Any) -> None:
        look(self, *args)
        raise RuntimeError("a bug")

    async with connected(gateway.port) as connection:
        with monkeypatch.context() as patch:
            patch.setattr(Reader, "look", failing)
            first = await connection.ask(request("GET", f"/order/{key}/length", tenant.admin))
        second = await connection.ask(request("GET", f"/order/{key}/events", tenant.admin))
    assert first is not None and second is not None
    assert (first.status, first.json["length"]) == (200, 1)
    assert [event["version"] for event in second.json["events"]] == [1]
    assert [record.msg for record in caplog.records].count("fast_path_failed") == 1


@pytest.mark.bug
async def test_a_bug_in_a_read_ends_no_first_read_of_another(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = new_id()
    await noted(client, key, 1)
    await client.get(f"/order/{key}")
    ended = []
    monkeypatch.setattr(States, "end_first", lambda _self, *_args, **_named: ended.append(1))

    def broken(*_args: object) -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Reader, "look", broken)
    assert (await client.get(f"/order/{key}")).json()["metadata"]["length"] == 1
    assert ended == []


OF_METADATA = {
    "was_placed": {"schema": {}, "handler": [{"set": {"target": "by", "value": "$.metadata.actor.id"}}]},
    "was_named": {
        "revision": 2,
        "schema": {},
        "upcast": {"1": [{"set": {"target": "at", "value": "$.metadata.timestamp"}}]},
    },
    "was_tested": {
        "schema": {},
        "handler": [
            {"conditional": {"if": {"exists": "$.metadata.extra"}, "then": [{"increment": {"target": "n"}}]}}
        ],
    },
}


@pytest.mark.parametrize("event_type", [None, *OF_METADATA])
async def test_a_state_that_redis_is_not_asked_for_is_the_same(
    gateway: Served,
    second_gateway: Served,
    outbox: asyncpg.Pool,
    taken: Taken,
    event_type: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where its handlers look at metadata, which the narrow form of an event lacks."""
    monkeypatch.setattr(cold, "_MISSES", 0)
    monkeypatch.setattr(cold, "_LOOK_EVERY", 1000)
    narrow = []
    ask_for = cold.ColdReads.ask

    def noted(self: cold.ColdReads, wanted: Range, *more: Any) -> None:
        narrow.append(wanted.narrow)
        ask_for(self, wanted, *more)

    monkeypatch.setattr(cold.ColdReads, "ask", noted)
    events = {"was_made": {"schema": {}}}
    events |= {} if event_type is None else {event_type: OF_METADATA[event_type]}
    spec = {**SPEC, "aggregate_types": {"thing": {"events": events}}}
    tenant = await open_account(outbox, spec)
    async with new_client(gateway.url, tenant.admin) as client:
        key = new_id()
        for each in events:
            answer = await append(client, "thing", key, each, data={"a": 1})
            assert answer.status_code == 201
        usual = await client.get(f"/thing/{key}?synchronous=true")
    async with new_client(second_gateway.url, tenant.admin) as other:  # which has nothing kept
        await other.get(f"/thing/{key}/length")
        express = await other.get(f"/thing/{key}")
    assert taken.said[-1]
    assert express.content == usual.content
    (asked,) = narrow
    assert asked.apart == ({event_type} if event_type else set())
    assert asked.metadata == (set() if event_type in (None, "was_named") else {event_type})


async def test_a_state_is_not_folded_for_a_304(
    client: httpx.AsyncClient, second_gateway: Served, tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = new_id()
    await noted(client, key, 3)
    etag = (await client.get(f"/order/{key}")).headers["etag"]

    def folded(*_args: object) -> object:
        raise RuntimeError("folded for nothing")

    for way in ("fold", "merged", "merged_joined"):
        monkeypatch.setattr(f"gateway.aggregates.folder.{way}", folded)
    async with new_client(second_gateway.url, tenant.admin) as other:  # which has nothing kept
        for asked in (etag, "*"):
            answer = await other.get(f"/order/{key}", headers={"if-none-match": asked})
            assert (answer.status_code, answer.headers["etag"]) == (304, etag)


async def test_many_who_ask_for_a_state_for_the_first_time_fold_it_once(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = new_id()
    await noted(client, key, 500)
    read = []
    seen = States.seen

    def counted(self: States, *args: object, **named: object) -> object:
        read.append(len(args[2].events))  # type: ignore[attr-defined]
        return seen(self, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(States, "seen", counted)
    answers = await asyncio.gather(*(client.get(f"/order/{key}") for _ in range(20)))
    assert {each.json()["metadata"]["length"] for each in answers} == {500}
    assert sum(read) == 500


@pytest.fixture
async def limited(config: Config) -> AsyncIterator[Served]:
    async with serving(replace(config, rate_limit_per_s=1, rate_limit_burst=5)) as served:
        yield served


async def test_a_read_that_is_given_up_counts_once(limited: Served, tenant: Account, taken: Taken) -> None:
    async with new_client(limited.url, tenant.admin) as client:
        for _ in range(5):
            refused(await client.get(f"/order/{new_id()}/events"), 404, "not_found")
        refused(await client.get("/order/global"), 429, "rate_limited")
    assert taken.said.count(True) >= 4


@pytest.mark.bug
async def test_a_bug_that_both_ways_meet_is_told_by_the_application(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.get("/order/global")

    def broken(*_args: object, **_more: object) -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Reads, "subject", broken)
    answer = await client.get("/order/global")
    refused(answer, 503, "unavailable")
    assert answer.headers["x-correlation-id"]


async def test_a_first_page_grows_to_its_end_and_no_further(
    second_gateway: Served, client: httpx.AsyncClient, tenant: Account
) -> None:
    key = new_id()
    async with new_client(second_gateway.url, tenant.admin) as other:
        for length in (1, 2, 60, 99, 100, 101, 230):
            now = (await client.get(f"/order/{key}/length")).json()["length"]
            await noted(other, key, length - now)
            told = (await client.get(f"/order/{key}/events")).json()
            assert told == (await client.get(f"/order/{key}/events?consistency=strong")).json()
            shown = min(length, 100)
            assert [each["version"] for each in told["events"]] == list(range(1, shown + 1))
            assert (told["length"], told["next"]) == (length, 101 if length > 100 else None)
            assert (await client.get(f"/order/{key}/events")).json() == told
