"""/_/subscriptions over HTTP, and what a spec declares."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.catalog.model import Scope
from gateway.config import Config
from gateway.http.api import subscriptions as api
from gateway.http.key_watch import KeyWatch, Watched
from gateway.http.request import Head
from gateway.relay import database
from gateway.relay.pull import CLAIM_BYTES_MAX, Pull
from gateway.relay.subscription_rows import SUBSCRIPTIONS_MAX, Declared, SubscriptionRows
from tests.http import raw
from tests.relay.conftest import Bench, until
from tests.relay.receivers import SECRET, Answer, WebReceiver
from tests.support.accounts import SPEC, Account, open_account, revoked
from tests.support.calls import new_client, new_event_id, new_id, refused
from tests.support.serving import Served, serving

URL = "https://hooks.example.com/in"
WEBHOOK = {"type": "webhook", "url": URL, "secret": SECRET}
DOCUMENT = {"filter": {"types": ["order"]}, "start": "beginning", "target": WEBHOOK}


async def test_one_is_made_shown_changed_listed_and_ended(client: httpx.AsyncClient) -> None:
    made = await client.put("/_/subscriptions/billing", json=DOCUMENT)
    assert made.status_code == 201, made.text
    shown = (await client.get("/_/subscriptions/billing")).json()
    assert shown == made.json()
    assert shown["target"] == {**WEBHOOK, "secret": "***"}
    assert {name: shown[name] for name in ("ok", "name", "filter", "start", "state", "declared", "why")} == {
        "ok": True,
        "name": "billing",
        "filter": {"types": ["order"]},
        "start": "beginning",
        "state": "active",
        "declared": False,
        "why": None,
    }
    again = await client.put("/_/subscriptions/billing", json={**DOCUMENT, "filter": {}})
    assert (again.status_code, again.json()["filter"]) == (200, {})
    listed = (await client.get("/_/subscriptions")).json()["subscriptions"]
    assert [each["name"] for each in listed] == ["billing"]
    assert (await client.delete("/_/subscriptions/billing")).json() == {"ok": True}
    refused(await client.get("/_/subscriptions/billing"), 404, "not_found")
    refused(await client.delete("/_/subscriptions/billing"), 404, "not_found")


async def test_what_was_shown_can_be_sent_back_and_keeps_its_secret(
    client: httpx.AsyncClient, pool: asyncpg.Pool
) -> None:
    await client.put("/_/subscriptions/billing", json=DOCUMENT)
    redis = {"type": "redis_stream", "url": "rediss://me:hush@redis.example.com/0", "stream": "x"}
    await client.put("/_/subscriptions/mirror", json={"target": redis})
    for name, hidden in (("billing", SECRET), ("mirror", "hush")):
        answer = await client.get(f"/_/subscriptions/{name}")
        assert hidden not in answer.text
        shown = {key: value for key, value in answer.json().items() if key in ("filter", "start", "target")}
        assert (await client.put(f"/_/subscriptions/{name}", json=shown)).status_code == 200
        document = await pool.fetchval("SELECT document FROM subscription WHERE name = $1", name)
        assert hidden in document.decode()
    assert "hush" not in (await client.get("/_/subscriptions")).text


async def test_a_secret_that_is_kept_is_the_one_that_another_request_has_just_given(
    client: httpx.AsyncClient, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer, write = SECRET[:6] + SECRET[:5:-1], SubscriptionRows.write
    await client.put("/_/subscriptions/billing", json=DOCUMENT)
    others = iter([{**DOCUMENT, "target": {**WEBHOOK, "secret": newer}}])

    async def late(self: SubscriptionRows, conn: Any, tenant: uuid.UUID, wanted: Any) -> Any:
        for document in others:
            assert (await client.put("/_/subscriptions/billing", json=document)).status_code == 200
        return await write(self, conn, tenant, wanted)

    monkeypatch.setattr(SubscriptionRows, "write", late)
    kept = {"target": {**WEBHOOK, "secret": "***"}, "filter": {}}
    assert (await client.put("/_/subscriptions/billing", json=kept)).status_code == 200
    found = await bench.subscriptions.found(bench.tenant, "billing")
    assert found is not None
    document = json.loads(found.document)
    assert (document["filter"], document["target"]["secret"]) == ({}, newer)


async def test_a_hidden_query_is_restored_only_behind_the_same_url(
    client: httpx.AsyncClient, pool: asyncpg.Pool
) -> None:
    def at(url: str) -> dict[str, Any]:
        return {**DOCUMENT, "target": {**WEBHOOK, "url": url}}

    refused(
        await client.put("/_/subscriptions/billing", json=at(f"{URL}?***")),
        422,
        "invalid_field",
        "target.url",
    )
    assert (await client.put("/_/subscriptions/billing", json=at(f"{URL}?token=hush"))).status_code == 201
    answer = await client.put("/_/subscriptions/billing", json=at("https://evil.example/in?***"))
    refused(answer, 422, "invalid_field", "target.url")
    assert (await client.put("/_/subscriptions/billing", json=at(f"{URL}?***"))).status_code == 200
    document = await pool.fetchval("SELECT document FROM subscription WHERE name = 'billing'")
    assert f"{URL}?token=hush" in document.decode()


@pytest.mark.parametrize(
    ("document", "code", "path"),
    [
        ({}, "missing_field", "target"),
        ({"target": {"type": "webhook", "url": URL}}, "missing_field", "target.secret"),
        ({"target": {}}, "missing_field", "target.type"),
        ({"target": {"type": "smoke"}}, "invalid_field", "target.type"),
        ({**DOCUMENT, "filtre": {}}, "unknown_field", "filtre"),
        ({**DOCUMENT, "filter": {"types": "order"}}, "invalid_field", "filter.types"),
        ({**DOCUMENT, "filter": {"types": ["Order"]}}, "invalid_field", "filter.types[0]"),
        ({**DOCUMENT, "target": {**WEBHOOK, "url": "ftp://example.com"}}, "invalid_field", "target.url"),
        ({**DOCUMENT, "target": {**WEBHOOK, "url": "https://a..b.example/x"}}, "invalid_field", "target.url"),
        ({**DOCUMENT, "target": {**WEBHOOK, "url": "http://127.0.0.1:99999"}}, "invalid_field", "target.url"),
        ({**DOCUMENT, "target": {**WEBHOOK, "secret": "nope!"}}, "invalid_field", "target.secret"),
        ({**DOCUMENT, "target": {**WEBHOOK, "secret": "***"}}, "invalid_field", "target.secret"),
        ({**DOCUMENT, "target": {**WEBHOOK, "retry_s": [-1]}}, "invalid_field", "target.retry_s[0]"),
        ({**DOCUMENT, "start": 5}, "invalid_field", "start"),
    ],
)
async def test_a_document_that_can_not_be_used_is_refused_with_its_place(
    client: httpx.AsyncClient, document: dict[str, Any], code: str, path: str
) -> None:
    refused(await client.put("/_/subscriptions/billing", json=document), 422, code, path)
    refused(await client.get("/_/subscriptions/billing"), 404, "not_found")


async def test_an_optional_field_that_is_null_counts_as_absent(client: httpx.AsyncClient) -> None:
    nulls = {"filter": None, "start": None, "target": {**WEBHOOK, "retry_s": None}}
    made = await client.put("/_/subscriptions/billing", json=nulls)
    assert made.status_code == 201, made.text
    shown = made.json()
    assert (shown["filter"], shown["start"], "retry_s" in shown["target"]) == ({}, "now", False)
    one, pull = "/_/subscriptions/work", {"type": "pull", "lease_s": None, "attempts_max": None}
    lists = {"types": None, "event_types": None}
    assert (await client.put(one, json={"filter": lists, "target": pull})).status_code == 201
    for path, body in (
        ("claim", {"limit": None, "lease_s": None, "wait": None}),
        ("ack", {"claim": new_id(), "ids": None}),
        ("ack", {"claim": None, "ids": []}),
        ("replay", {"event_id": None}),
    ):
        answer = await client.post(f"{one}/{path}", json=body)
        assert answer.status_code == 200, answer.text
    refused(await client.post(f"{one}/ack", json={"claim": None}), 422, "missing_field", "claim")
    refused(await client.post(f"{one}/skip", json={"event_id": None}), 422, "missing_field", "event_id")
    refused(await client.put(one, json={"filtre": None, "target": pull}), 422, "unknown_field", "filtre")
    other = {"target": {"type": "pull", "maxlen": None}}
    refused(await client.put(one, json=other), 422, "unknown_field", "target.maxlen")


async def test_a_start_that_is_no_position_is_refused(client: httpx.AsyncClient, bench: Bench) -> None:
    await bench.append([new_id()])
    position = (await client.get("/_/feed")).json()["position"]
    for wrong in ("42", position[:-2] + ("AA" if position[-2:] != "AA" else "BB")):
        told = await client.put("/_/subscriptions/billing", json={**DOCUMENT, "start": wrong})
        refused(told, 400, "invalid_position", "start")
    assert (
        await client.put("/_/subscriptions/billing", json={**DOCUMENT, "start": position})
    ).status_code == 201
    assert (await client.get("/_/subscriptions/billing")).json()["position"] == position


@pytest.mark.parametrize("url", ["http://hooks.example.com/", "https://127.0.0.1/", "https://10.0.0.1/"])
async def test_a_target_that_is_not_public_is_refused_unless_that_is_allowed(
    client: httpx.AsyncClient, config: Config, tenant: Account, url: str
) -> None:
    document = {**DOCUMENT, "target": {**WEBHOOK, "url": url}}
    assert (await client.put("/_/subscriptions/inside", json=document)).status_code == 201
    async with (
        serving(replace(config, allow_private_targets=False)) as strict,
        new_client(strict.url, tenant.admin) as careful,
    ):
        refused(
            await careful.put("/_/subscriptions/other", json=document), 422, "invalid_field", "target.url"
        )
        spec = {**SPEC, "subscriptions": {"inside": document}}
        told = await careful.put("/_/spec", json=spec)
        assert told.json()["faults"][0]["code"] == "unsafe_target"


async def test_scopes_names_bodies_and_methods(
    gateway: Served, tenant: Account, client: httpx.AsyncClient
) -> None:
    async with (
        new_client(gateway.url, tenant.write) as writer,
        new_client(gateway.url, tenant.read) as reader,
    ):
        for answer in (
            await writer.get("/_/subscriptions"),
            await writer.put("/_/subscriptions/billing", json=DOCUMENT),
            await writer.post("/_/subscriptions/billing/pause"),
            await reader.post("/_/subscriptions/billing/claim"),
        ):
            refused(answer, 403, "forbidden")
    refused(await client.put("/_/subscriptions/Billing", json=DOCUMENT), 422, "invalid_field", "name")
    refused(await client.get("/_/subscriptions/Billing"), 404, "not_found")
    refused(await client.put("/_/subscriptions/billing", json=[]), 422, "invalid_field")
    refused(
        await client.put("/_/subscriptions/billing", content=b"{}"),
        415,
        "unsupported_media_type",
        "Content-Type",
    )
    wrong = await client.put(
        "/_/subscriptions/billing", content=b"{", headers={"content-type": "application/json"}
    )
    refused(wrong, 400, "invalid_json")
    other = await client.post("/_/subscriptions/billing")
    refused(other, 405, "method_not_allowed")
    assert other.headers["allow"] == "GET, HEAD, PUT, DELETE, OPTIONS"


async def test_another_tenant_sees_nothing_of_it(
    gateway: Served, client: httpx.AsyncClient, pool: asyncpg.Pool
) -> None:
    await client.put("/_/subscriptions/billing", json=DOCUMENT)
    account = await open_account(pool)
    async with new_client(gateway.url, account.admin) as stranger:
        assert (await stranger.get("/_/subscriptions")).json()["subscriptions"] == []
        refused(await stranger.get("/_/subscriptions/billing"), 404, "not_found")
        refused(await stranger.post("/_/subscriptions/billing/claim"), 404, "not_found")
        refused(await stranger.delete("/_/subscriptions/billing"), 404, "not_found")


async def test_a_change_keeps_the_cursor_and_another_start_moves_it(
    bench: Bench, client: httpx.AsyncClient, receiver: WebReceiver
) -> None:
    target = {"type": "webhook", "url": receiver.url, "secret": SECRET}
    await client.put("/_/subscriptions/all", json={"start": "beginning", "target": target})
    async with bench.relaying():
        await bench.append([new_id()], 3)
        await until(lambda: len(receiver.deliveries) == 3)
        await until(lambda: _caught_up(bench, "all"))
        receiver.path = "/moved"
        moved = {**target, "url": receiver.url}
        await client.put("/_/subscriptions/all", json={"start": "beginning", "target": moved})
        await bench.append([new_id()])
        # A relay that delivered before the change may deliver it too: at least once, not from the beginning.
        await until(lambda: len({each.id for each in receiver.deliveries}) == 4)
        early = [each.id for each in receiver.deliveries[:3]]
        assert all(_times(receiver, each) == 1 for each in early)
        await client.put("/_/subscriptions/all", json={"start": "now", "target": moved})
        await client.put("/_/subscriptions/all", json={"start": "beginning", "target": moved})
        await until(lambda: all(_times(receiver, each) == 2 for each in early))


async def test_another_target_gets_what_waits_for_the_one_before(
    bench: Bench, client: httpx.AsyncClient, receiver: WebReceiver
) -> None:
    """From webhook to pull and back; a parked event stays parked, a claimed one goes out again."""
    one, webhook = "/_/subscriptions/all", {"type": "webhook", "url": receiver.url, "secret": SECRET}
    bad, waits = new_id(), new_id()
    receiver.answer = lambda each: Answer(500)
    await client.put(one, json={"start": "beginning", "target": {**webhook, "retry_s": []}})
    async with bench.relaying():
        await bench.append([bad])
        await until(lambda: _parked(client, 1))
        await client.put(one, json={"start": "beginning", "target": {**webhook, "retry_s": [3600]}})
        await bench.append([waits], 2)
        await until(lambda: _stands_so(bench, "all", retrying=1))
    await client.put(one, json={"start": "beginning", "target": {"type": "pull"}})
    claimed = (await client.post(f"{one}/claim")).json()
    assert [(each["key"], each["version"]) for each in claimed["events"]] == [(waits, 1), (waits, 2)]
    receiver.answer = lambda _: Answer()
    await client.put(one, json={"start": "beginning", "target": webhook})
    async with bench.relaying():
        await until(lambda: len(receiver.accepted) == 2)
    assert [each.event["version"] for each in receiver.accepted] == [1, 2]
    (parked,) = (await client.get(f"{one}/waiting")).json()["waiting"]
    assert (parked["key"], parked["state"]) == (bad, "parked")


async def test_a_change_that_names_no_start_keeps_the_one_before(
    bench: Bench, client: httpx.AsyncClient
) -> None:
    one, pull = "/_/subscriptions/work", {"type": "pull"}
    await client.put(one, json={"start": "beginning", "target": pull})
    await bench.append([new_id()])
    shown = (await client.put(one, json={"target": {**pull, "lease_s": 5}})).json()
    assert (shown["start"], shown["lag_events"]) == ("beginning", 1)
    assert len((await client.post(f"{one}/claim")).json()["events"]) == 1


async def test_of_many_who_make_the_same_one_at_once_one_makes_it(client: httpx.AsyncClient) -> None:
    puts = [client.put("/_/subscriptions/same", json={"target": {"type": "pull"}}) for _ in range(20)]
    answers = [each.status_code for each in await asyncio.gather(*puts)]
    assert sorted(answers) == [200] * 19 + [201]


async def test_who_makes_one_gets_it_though_others_end_it_meanwhile(client: httpx.AsyncClient) -> None:
    async def again(call: Callable[[], Awaitable[httpx.Response]]) -> list[int]:
        return [(await call()).status_code for _ in range(40)]

    one = "/_/subscriptions/same"
    puts = [again(lambda: client.put(one, json={"target": {"type": "pull"}})) for _ in range(4)]
    deletes = [again(lambda: client.delete(one)) for _ in range(4)]
    told = await asyncio.gather(*puts, *deletes)
    made = [status for each in told[:4] for status in each]
    ended = [status for each in told[4:] for status in each]
    assert {*made} == {200, 201}
    assert {*ended} <= {200, 404}
    left = (await client.get(one)).status_code == 200
    assert made.count(201) == ended.count(200) + left


async def test_a_put_takes_nothing_from_the_spec_that_declares_it_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.put("all", {"type": "pull"})
    write = SubscriptionRows.write

    async def late(self: SubscriptionRows, conn: Any, tenant: uuid.UUID, wanted: Any) -> Any:
        await bench.pool.execute("UPDATE subscription SET declared = true")
        return await write(self, conn, tenant, wanted)

    monkeypatch.setattr(SubscriptionRows, "write", late)
    document = {"start": "now", "target": {"type": "pull", "lease_s": 7}}
    assert await bench.subscriptions.put(bench.tenant, "all", document) == Declared()
    assert (await bench.stands("all"))["declared"]


async def test_another_start_drops_what_waited(bench: Bench, client: httpx.AsyncClient) -> None:
    one, pull = "/_/subscriptions/work", {"type": "pull"}
    await client.put(one, json={"start": "beginning", "target": pull})
    await bench.append([new_id()])
    assert len((await client.post(f"{one}/claim")).json()["events"]) == 1
    shown = (await client.put(one, json={"start": "now", "target": pull})).json()
    assert (shown["claimed"], shown["lag_events"]) == (0, 0)
    assert (await client.post(f"{one}/claim")).json()["events"] == []


async def _stands_so(bench: Bench, name: str, **wanted: object) -> bool:
    stands = await bench.stands(name)
    return all(stands[key] == value for key, value in wanted.items())


def _times(receiver: WebReceiver, event_id: str) -> int:
    return sum(each.id == event_id for each in receiver.deliveries)


async def _caught_up(bench: Bench, name: str) -> bool:
    return bool((await bench.stands(name))["lag_events"] == 0)


async def test_waiting_attempts_replay_skip_pause_and_resume(
    bench: Bench, client: httpx.AsyncClient, receiver: WebReceiver
) -> None:
    receiver.answer = lambda _: Answer(500, body=b"broken \xff")
    target = {"type": "webhook", "url": receiver.url, "secret": SECRET, "retry_s": []}
    one = "/_/subscriptions/all"
    await client.put(one, json={"start": "beginning", "target": target})
    async with bench.relaying():
        await bench.append([new_id(), new_id()])
        await until(lambda: _parked(client, 2))
        waiting = (await client.get(f"{one}/waiting?state=parked&limit=1")).json()["waiting"]
        event_id = waiting[0]["event_id"]
        (attempt,) = (await client.get(f"{one}/attempts?event_id={event_id}")).json()["attempts"]
        assert (attempt["status"], attempt["outcome"], attempt["response"]) == (500, "failed", "broken �")
        assert (await client.post(f"{one}/skip", json={"event_id": event_id})).json() == {"ok": True}
        refused(await client.post(f"{one}/skip", json={"event_id": event_id}), 404, "not_found")
        refused(await client.post(f"{one}/skip", json={"event_id": "x"}), 422, "invalid_field", "event_id")
        refused(await client.post(f"{one}/skip", json={}), 422, "missing_field", "event_id")
        receiver.answer = lambda _: Answer()
        assert (await client.post(f"{one}/replay")).json() == {"ok": True, "replayed": 1}
        await until(lambda: len(receiver.accepted) == 1)
    assert (await client.post(f"{one}/pause")).json()["state"] == "paused"
    assert (await client.post(f"{one}/resume")).json()["state"] == "active"
    for path in ("pause", "resume", "replay"):
        refused(await client.post(f"/_/subscriptions/none/{path}"), 404, "not_found")
    refused(await client.get(f"{one}/waiting?state=lost"), 422, "invalid_field", "state")
    refused(await client.get(f"{one}/attempts?limit=0"), 422, "invalid_field", "limit")


async def _parked(client: httpx.AsyncClient, count: int) -> bool:
    return bool((await client.get("/_/subscriptions/all")).json()["parked"] == count)


# ---- pull ----


async def pulled(client: httpx.AsyncClient) -> str:
    """The path of a new subscription to all events."""
    one = "/_/subscriptions/work"
    await client.put(one, json={"start": "beginning", "target": {"type": "pull"}})
    return one


async def test_consumers_that_wait_for_each_other_leave_connections_to_others(
    pool: asyncpg.Pool, client: httpx.AsyncClient
) -> None:
    one = await pulled(client)
    async with pool.acquire() as conn, conn.transaction():
        await conn.execute("SELECT FROM subscription FOR UPDATE")  # as a claim that looks at much
        waiting = [asyncio.ensure_future(client.post(f"{one}/claim")) for _ in range(20)]
        for _ in range(20):
            assert (await client.get(one)).status_code == 200
    assert [each.status_code for each in await asyncio.gather(*waiting)] == [200] * 20


async def test_claimed_events_are_of_one_consumer_until_they_are_acked_or_the_lease_is_over(
    bench: Bench, client: httpx.AsyncClient
) -> None:
    one, key, other = await pulled(client), new_id(), new_id()
    await bench.append([key], 3)
    first = (await client.post(f"{one}/claim", json={"limit": 2})).json()
    assert [each["version"] for each in first["events"]] == [1, 2]
    assert first["lease_s"] == 30
    feed = (await client.get("/_/feed")).json()["events"]
    assert first["events"] == feed[:2]
    await bench.append([other])
    second = (await client.post(f"{one}/claim")).json()
    assert [each["key"] for each in second["events"]] == [other]
    assert (await client.post(f"{one}/claim")).json()["events"] == []
    acked = await client.post(f"{one}/ack", json={"ids": [first["events"][0]["id"]]})
    assert acked.json() == {"ok": True, "aggregates": 1}
    await client.post(f"{one}/ack", json={"claim": first["claim"]})
    third = (await client.post(f"{one}/claim", json={"lease_s": 0.05})).json()
    assert [each["version"] for each in third["events"]] == [3]
    again = (await client.post(f"{one}/claim", json={"wait": 20})).json()
    assert [each["version"] for each in again["events"]] == [3]
    late = await client.post(f"{one}/ack", json={"claim": third["claim"]})
    assert late.json() == {"ok": True, "aggregates": 0}
    await client.post(f"{one}/ack", json={"claim": again["claim"]})
    await client.post(f"{one}/ack", json={"claim": second["claim"]})
    shown = (await client.get(one)).json()
    assert (shown["claimed"], shown["retrying"], shown["parked"], shown["lag_events"]) == (0, 0, 0, 0)


@dataclass
class Lasting:
    """A request that lasts: set once the gateway watches its key, and once it has done with it."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> Lasting:
    told, watching = Lasting(), KeyWatch.watching

    @contextmanager
    def tell(self: KeyWatch, head: Head) -> Iterator[Watched]:
        with watching(self, head) as watched:
            told.begun.set()
            yield watched
        told.over.set()

    monkeypatch.setattr(KeyWatch, "watching", tell)
    return told


async def test_a_claim_that_waits_ends_when_its_client_goes_and_takes_nothing_after_that(
    bench: Bench, client: httpx.AsyncClient, gateway: Served, tenant: Account, lasting: Lasting
) -> None:
    """It would hold what comes for the time of a lease, for no consumer."""
    one = await pulled(client)
    async with new_client(gateway.url, tenant.write) as consumer:
        waiting = asyncio.create_task(consumer.post(f"{one}/claim", json={"wait": 20}))
        await asyncio.wait_for(lasting.begun.wait(), 20)
        waiting.cancel()
        await asyncio.wait_for(lasting.over.wait(), 15)  # it would wait for 20
    await bench.append([new_id()])
    (claimed,) = (await client.post(f"{one}/claim", json={"wait": 20})).json()["events"]
    assert claimed["version"] == 1


@pytest.mark.parametrize("in_parts", [False, True], ids=["at once", "in parts"])
async def test_a_claim_is_answered_with_nothing_when_its_client_sends_no_more(
    client: httpx.AsyncClient, gateway: Served, tenant: Account, in_parts: bool
) -> None:
    """It may have gone, and may be there."""
    one, body = await pulled(client), b'{"wait":20}'
    headers, json_type = [(b"Transfer-Encoding", b"chunked")], (b"Content-Type", b"application/json")
    asked = raw.request("POST", f"{one}/claim", tenant.write, body)
    if in_parts:
        asked = raw.request("POST", f"{one}/claim", tenant.write, headers=[*headers, json_type])
        asked += b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with raw.connected(gateway.port) as connection:
        await connection.send(asked)
        connection.send_no_more()
        answer = await asyncio.wait_for(connection.answer(b"POST"), 10)
    assert answer is not None
    assert (answer.status, answer.json["events"]) == (200, [])


async def test_a_claim_that_waits_is_refused_when_its_key_is_revoked(
    client: httpx.AsyncClient, pool: asyncpg.Pool, gateway: Served, tenant: Account, lasting: Lasting
) -> None:
    one = await pulled(client)
    async with new_client(gateway.url, tenant.write) as consumer:
        waiting = asyncio.create_task(consumer.post(f"{one}/claim", json={"wait": 20}))
        await asyncio.wait_for(lasting.begun.wait(), 20)
        await revoked(pool, tenant, Scope.WRITE)
        refused(await asyncio.wait_for(waiting, 15), 401, "unauthorized")


async def test_what_is_claimed_again_and_again_is_parked(bench: Bench, client: httpx.AsyncClient) -> None:
    one = "/_/subscriptions/work"
    target = {"type": "pull", "lease_s": 0.02, "attempts_max": 2}
    await client.put(one, json={"start": "beginning", "target": target})
    await bench.append([new_id()])
    seen = 0

    async def is_parked() -> bool:
        nonlocal seen
        seen += len((await client.post(f"{one}/claim")).json()["events"])
        waiting = (await client.get(f"{one}/waiting")).json()["waiting"]
        return [(each["state"], each["attempts"]) for each in waiting] == [("parked", 2)]

    await until(is_parked)
    assert seen == 2
    assert (await client.post(f"{one}/replay")).json()["replayed"] == 1
    assert len((await client.post(f"{one}/claim")).json()["events"]) == 1


async def test_an_aggregate_whose_last_event_is_skipped_waits_no_more_and_continues_with_the_next(
    bench: Bench, client: httpx.AsyncClient
) -> None:
    one, key = "/_/subscriptions/work", new_id()
    target = {"type": "pull", "lease_s": 0.02, "attempts_max": 1}
    await client.put(one, json={"start": "beginning", "target": target})
    await bench.append([key])
    assert len((await client.post(f"{one}/claim")).json()["events"]) == 1
    waiting: list[dict[str, Any]] = []

    async def is_parked() -> bool:
        assert (await client.post(f"{one}/claim")).json()["events"] == []
        waiting[:] = (await client.get(f"{one}/waiting")).json()["waiting"]
        return [each["state"] for each in waiting] == ["parked"]

    await until(is_parked)
    skipped = await client.post(f"{one}/skip", json={"event_id": waiting[0]["event_id"]})
    assert skipped.status_code == 200
    assert (await client.post(f"{one}/claim")).json()["events"] == []
    assert (await client.get(f"{one}/waiting")).json()["waiting"] == []
    await bench.append([key])
    claimed = (await client.post(f"{one}/claim")).json()["events"]
    assert [each["version"] for each in claimed] == [2]


async def test_who_acks_a_part_of_each_claim_gets_on(
    bench: Bench, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    next_of_aggregate = database.next_of_aggregate

    async def counted(*args: Any) -> Any:
        found = await next_of_aggregate(*args)
        read.append(len(found))
        return found

    monkeypatch.setattr(database, "next_of_aggregate", counted)
    one = "/_/subscriptions/work"
    target = {"type": "pull", "lease_s": 0.05, "attempts_max": 3}
    await client.put(one, json={"start": "beginning", "target": target})
    await bench.append([new_id()], 12)
    acked: list[int] = []
    while len(acked) < 12:
        events = (await client.post(f"{one}/claim", json={"limit": 2, "wait": 20})).json()["events"]
        acked.append(events[0]["version"])
        await client.post(f"{one}/ack", json={"ids": [events[0]["id"]]})
    assert acked == list(range(1, 13))
    assert max(read) == 2


async def test_an_aggregate_that_is_out_holds_up_no_other_however_much_comes_behind_it(
    bench: Bench, client: httpx.AsyncClient
) -> None:
    one, hot, other = "/_/subscriptions/work", new_id(), new_id()
    await client.put(one, json={"start": "beginning", "target": {"type": "pull", "lease_s": 60}})
    await bench.append([hot], 500)
    await bench.append([other])
    for key in (hot, other):
        (event,) = (await client.post(f"{one}/claim", json={"limit": 1})).json()["events"]
        assert (event["key"], event["version"]) == (key, 1)


async def test_a_claim_is_bounded_in_bytes_at_first_and_again(
    bench: Bench, client: httpx.AsyncClient
) -> None:
    actor = {"actor": {"type": "user", "id": "global"}}
    keys = [new_id() for _ in range(7)]
    for key in [*keys, *keys[:1] * 5]:
        body = {"events": [{"type": "was_noted", "data": "x" * 100_000}] * 9, "metadata": actor}
        assert (await client.post(f"/order/{key}", json=body)).status_code == 201
    await bench.put("work", {"type": "pull", "lease_s": 0.05})
    seen: set[tuple[str, int]] = set()
    rounds = 0
    while len(seen) < 12 * 9:
        claimed = await client.post("/_/subscriptions/work/claim", json={"limit": 1000, "wait": 20})
        assert len(claimed.content) < 1.1 * CLAIM_BYTES_MAX
        told, rounds = claimed.json(), rounds + 1
        seen |= {(each["key"], each["version"]) for each in told["events"]}
        if rounds % 2 == 0:  # the others come again
            await client.post("/_/subscriptions/work/ack", json={"claim": told["claim"]})


async def test_a_pulled_one_whose_position_is_lost_says_so_and_is_disabled(
    bench: Bench, client: httpx.AsyncClient
) -> None:
    one = await pulled(client)
    await bench.append([new_id()], 3)
    claim = (await client.post(f"{one}/claim")).json()["claim"]
    await client.post(f"{one}/ack", json={"claim": claim})
    await bench.pool.execute("ALTER TABLE subscription DISABLE TRIGGER code_of_why")  # of earlier releases
    await bench.pool.execute("UPDATE subscription SET mark = '\\x01020304'")
    answer = await client.post(f"{one}/claim")
    assert (answer.status_code, answer.json()["events"]) == (200, [])
    stands = await bench.stands("work")
    assert (stands["state"], stands["why"][:22]) == ("disabled", "Its position is lost: ")
    assert await bench.pool.fetchval("SELECT why_code FROM subscription") == "position_lost"
    await client.post("/_/subscriptions/work/resume")
    assert await bench.pool.fetchval("SELECT why_code FROM subscription") is None


async def test_a_claim_that_can_not_be_read_is_refused(client: httpx.AsyncClient) -> None:
    one = "/_/subscriptions/work"
    await client.put(one, json={"target": {"type": "pull"}})
    await client.put("/_/subscriptions/billing", json=DOCUMENT)
    for body, path in (
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": "1"}, "limit"),
        ({"lease_s": 0}, "lease_s"),
        ({"wait": 21}, "wait"),
    ):
        refused(await client.post(f"{one}/claim", json=body), 422, "invalid_field", path)
    refused(await client.post(f"{one}/claim", json={"limt": 1}), 422, "unknown_field", "limt")
    refused(await client.post(f"{one}/ack", json={}), 422, "missing_field", "claim")
    refused(await client.post(f"{one}/ack", json={"ids": "x"}), 422, "invalid_field", "ids")
    refused(await client.post(f"{one}/ack", json={"ids": ["x"]}), 422, "invalid_field", "ids[0]")
    refused(await client.post(f"{one}/ack", json={"claim": 7}), 422, "invalid_field", "claim")
    refused(await client.post("/_/subscriptions/billing/claim"), 422, "invalid_field", "name")
    unknown = await client.post(f"{one}/ack", json={"ids": [new_event_id()], "claim": str(uuid.uuid4())})
    assert unknown.json()["aggregates"] == 0
    await client.post(f"{one}/pause")
    assert (await client.post(f"{one}/claim")).json() == {
        "ok": True,
        "claim": None,
        "lease_s": 30.0,
        "events": [],
    }


async def test_a_test_sends_one_marked_message_and_changes_nothing(
    bench: Bench, client: httpx.AsyncClient, receiver: WebReceiver
) -> None:
    one = "/_/subscriptions/all"
    await client.put(one, json={"target": {"type": "webhook", "url": receiver.url, "secret": SECRET}})
    await client.post(f"{one}/pause")
    before = (await client.get(one)).json()
    told = (await client.post(f"{one}/test")).json()
    (delivery,) = receiver.deliveries
    assert (told["outcome"], told["status"], told["response"], told["error"]) == (
        "confirmed", 200, "thanks", None,
    )  # fmt: skip
    assert delivery.id == told["event_id"] == delivery.event["id"]
    assert (delivery.event["type"], delivery.aggregate) == ("_test", ("_test", "global"))
    assert delivery.event["data"] == {"test": True, "subscription": "all"}
    assert delivery.event["position"] == before["position"]
    receiver.answer = lambda _: Answer(410, body=b"no")
    told = (await client.post(f"{one}/test", json={})).json()
    assert (told["outcome"], told["status"], told["response"]) == ("gone", 410, "no")
    assert (await client.get(one)).json() == before
    assert (await client.get(f"{one}/attempts")).json()["attempts"] == []


async def test_a_test_that_can_not_be_sent_says_why(
    client: httpx.AsyncClient, tenant: Account, gateway: Served, receiver: WebReceiver
) -> None:
    await client.put("/_/subscriptions/pulled", json={"target": {"type": "pull"}})
    refused(await client.post("/_/subscriptions/pulled/test"), 422, "invalid_field", "name")
    refused(await client.post("/_/subscriptions/none/test"), 404, "not_found")
    target = {"type": "webhook", "url": receiver.url, "secret": SECRET}
    await client.put("/_/subscriptions/all", json={"target": target})
    refused(await client.post("/_/subscriptions/all/test", json={"type": "x"}), 422, "unknown_field", "type")
    async with new_client(gateway.url, tenant.write) as writer:
        refused(await writer.post("/_/subscriptions/all/test"), 403, "forbidden")
    assert receiver.deliveries == []


async def test_one_test_of_a_subscription_goes_at_a_time(
    client: httpx.AsyncClient, receiver: WebReceiver
) -> None:
    answers = asyncio.Event()
    target = {"type": "webhook", "url": receiver.url, "secret": SECRET}
    await client.put("/_/subscriptions/all", json={"target": target})
    receiver.answer = lambda _: Answer(hang=not answers.is_set())
    first = asyncio.create_task(client.post("/_/subscriptions/all/test"))
    await until(lambda: len(receiver.deliveries) == 1)
    second = await client.post("/_/subscriptions/all/test")
    refused(second, 429, "rate_limited")
    assert second.headers["retry-after"] == "1"
    first.cancel()


# ---- declared by a spec ----


async def test_a_spec_declares_subscriptions_and_takes_them_back(
    bench: Bench, client: httpx.AsyncClient, receiver: WebReceiver
) -> None:
    target = {"type": "webhook", "url": receiver.url, "secret": SECRET}
    declared = {"start": "beginning", "target": target}
    await bench.append([new_id()])
    assert (await client.put("/_/spec", json={**SPEC, "subscriptions": {"all": declared}})).status_code == 200
    async with bench.relaying():
        await until(lambda: len(receiver.deliveries) == 1)
    shown = (await client.get("/_/subscriptions/all")).json()
    assert (shown["declared"], shown["target"]["secret"]) == (True, "***")
    spec = await client.get("/_/spec")
    assert SECRET not in spec.text
    refused(await client.put("/_/subscriptions/all", json=DOCUMENT), 409, "declared_by_spec", "name")
    refused(await client.delete("/_/subscriptions/all"), 409, "declared_by_spec", "name")
    sent_back = spec.json()["spec"]
    sent_back["subscriptions"]["more"] = {"target": {"type": "pull"}}
    assert (await client.put("/_/spec", json=sent_back)).status_code == 200
    listed = (await client.get("/_/subscriptions")).json()["subscriptions"]
    assert [(each["name"], each["lag_events"]) for each in listed] == [("all", 0), ("more", 0)]
    document = await bench.pool.fetchval("SELECT document FROM subscription WHERE name = 'all'")
    assert json.loads(document)["target"]["secret"] == SECRET
    assert (await client.put("/_/spec", json=SPEC)).status_code == 200
    refused(await client.get("/_/subscriptions/all"), 404, "not_found")


async def test_a_spec_that_changes_something_else_leaves_a_subscription_as_it_stands(
    bench: Bench, client: httpx.AsyncClient, receiver: WebReceiver
) -> None:
    target = {"type": "webhook", "url": receiver.url, "secret": SECRET}
    spec = {**SPEC, "subscriptions": {"all": {"target": target}}}
    assert (await client.put("/_/spec", json=spec)).status_code == 200
    await bench.stands("all")
    await bench.pool.execute("UPDATE subscription SET state = 'disabled', why = 'It answered 410 Gone.'")
    assert (await client.put("/_/spec", json={**spec, "singletons": ["a_robot"]})).status_code == 200
    stands = await bench.stands("all")
    assert (stands["state"], stands["why"]) == ("disabled", "It answered 410 Gone.")
    spec["subscriptions"]["all"] = {"target": {**target, "retry_s": [1]}}
    assert (await client.put("/_/spec", json=spec)).status_code == 200
    assert (await bench.stands("all"))["state"] == "active"


async def test_a_spec_whose_subscriptions_can_not_be_declared_is_refused(
    bench: Bench, client: httpx.AsyncClient
) -> None:
    await bench.append([new_id()])
    position = (await client.get("/_/feed")).json()["position"]
    wrong = position[:-2] + ("AA" if position[-2:] != "AA" else "BB")
    spec = {**SPEC, "subscriptions": {"all": {"start": wrong, "target": {"type": "pull"}}}}
    for document, pointer in (
        (spec, "/subscriptions/all/start"),
        ({"spec": spec}, "/spec/subscriptions/all/start"),
    ):
        told = refused(await client.put("/_/spec", json=document), 422, "invalid_spec", more=["faults"])
        assert [(each["code"], each["pointer"]) for each in told["faults"]] == [("invalid_value", pointer)]
    assert (await client.get("/_/spec")).json()["revision"] == 1
    assert (await client.get("/_/subscriptions")).json()["subscriptions"] == []
    spec["subscriptions"]["all"]["start"] = position
    assert (await client.put("/_/spec", json=spec)).status_code == 200
    assert (await client.get("/_/subscriptions/all")).json()["position"] == position


async def test_a_spec_with_more_subscriptions_than_a_tenant_may_have_is_refused(
    client: httpx.AsyncClient,
) -> None:
    await client.put("/_/subscriptions/mine", json={"target": {"type": "pull"}})
    many = {f"s{n}": {"target": {"type": "pull"}} for n in range(SUBSCRIPTIONS_MAX)}
    answer = await client.put("/_/spec", json={**SPEC, "subscriptions": many})
    told = refused(answer, 422, "invalid_spec", more=["faults"])
    assert [each["pointer"] for each in told["faults"]] == ["/subscriptions"]
    many["mine"] = many.pop("s0")
    assert (await client.put("/_/spec", json={**SPEC, "subscriptions": many})).status_code == 200
    listed = (await client.get("/_/subscriptions")).json()["subscriptions"]
    assert len(listed) == SUBSCRIPTIONS_MAX


async def test_a_gateway_relays_beside_its_work(
    config: Config, tenant: Account, receiver: WebReceiver
) -> None:
    target = {"type": "webhook", "url": receiver.url, "secret": SECRET}
    async with serving(replace(config, relay=True)) as served, new_client(served.url, tenant.admin) as client:
        await client.put("/_/subscriptions/all", json={"start": "beginning", "target": target})
        key = new_id()
        body = {"data": {}, "metadata": {"actor": {"type": "user", "id": "global"}}}
        for number in range(1, 4):
            assert (await client.post(f"/order/{key}/was_noted", json=body)).status_code == 201
            await until(lambda done=number: len(receiver.deliveries) == done)


async def test_claims_that_wait_take_few_connections_and_few_looks(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries of all tenants need the same connections."""
    monkeypatch.setattr(api, "_EACH_S", 0.05)  # together 20 looks a second
    one, handed, locked = await pulled(client), Pull._handed, Pull._locked
    looks = under_way = most = 0

    async def counted(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        return await handed(*args)

    async def held(*args: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await locked(*args)
        finally:
            under_way -= 1

    monkeypatch.setattr(Pull, "_handed", counted)
    monkeypatch.setattr(Pull, "_locked", held)
    claims = [client.post(f"{one}/claim", json={"wait": 3}) for _ in range(60)]
    answers = await asyncio.gather(*claims)
    assert all(each.json()["events"] == [] for each in answers)
    assert looks <= 20 * 3 + 2 * len(claims)
    assert most == 1
