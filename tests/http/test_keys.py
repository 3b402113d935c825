"""Keys over HTTP: made, narrowed, listed, ended; tickets for one stream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.catalog import keys
from gateway.http import late_bodies
from tests.http.raw import connected, request
from tests.support.accounts import Account
from tests.support.calls import (
    ACTOR,
    append,
    appended,
    batch,
    bulk_line,
    envelope,
    lines,
    new_client,
    new_event_id,
    new_id,
    refused,
    until,
)
from tests.support.serving import Served

SSE = {"accept": "text/event-stream"}


async def made(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/_/keys", json=body)
    assert answer.status_code == 201, answer.text
    told = dict(answer.json())
    assert answer.headers["location"] == f"/_/keys/{told['handle']}"
    return told


async def test_a_key_makes_keys_of_at_most_its_own_scope(
    client: httpx.AsyncClient, gateway: Served, tenant: Account
) -> None:
    told = await made(client, scope="write", name="for the shop", expires_in="1h")
    assert (told["scope"], told["only"], told["name"]) == ("write", None, "for the shop")
    assert told["expires_at"].endswith("Z")
    async with new_client(gateway.url, told["key"]) as writer:
        await appended(writer, "order", "global", "was_noted")
        refused(await writer.post("/_/keys", json={"scope": "admin"}), 403, "forbidden", "scope")
        reading = await made(writer, scope="read")
        assert reading["expires_at"] == told["expires_at"]
        refused(await writer.get("/_/keys"), 403, "forbidden")
        refused(await writer.delete(f"/_/keys/{reading['handle']}"), 403, "forbidden")
    listed = {each["handle"]: each for each in (await client.get("/_/keys")).json()["keys"]}
    assert listed[reading["handle"]]["made_by"] == told["handle"]
    assert listed[told["handle"]]["status"] == "live"
    assert told["key"] not in json.dumps(listed)


async def test_a_key_that_is_ended_ends_those_that_it_made(
    client: httpx.AsyncClient, gateway: Served, neighbour: httpx.AsyncClient
) -> None:
    first = await made(client, scope="write")
    async with new_client(gateway.url, first["key"]) as writer:
        second = await made(writer, scope="read")
    refused(await neighbour.delete(f"/_/keys/{first['handle']}"), 404, "not_found")
    assert (await client.delete(f"/_/keys/{first['handle']}")).json() == {"ok": True}
    for key in (first, second):
        async with new_client(gateway.url, key["key"]) as ended:
            refused(await ended.get("/_/tenant"), 401, "unauthorized")
    refused(await client.delete("/_/keys/nothere"), 404, "not_found")


async def test_a_key_that_has_just_been_ended_elsewhere_leaves_none_behind(
    client: httpx.AsyncClient, gateway: Served, outbox: asyncpg.Pool
) -> None:
    leaked, other = await made(client, scope="admin"), await made(client, scope="read")
    async with new_client(gateway.url, leaked["key"]) as thief:
        await made(thief, scope="read")  # this gateway knows the key, and follows once a second
        await keys.revoke(outbox, leaked["handle"])
        refused(await thief.post("/_/keys", json={"scope": "admin"}), 401, "unauthorized")
        refused(await thief.post(f"/_/keys/{other['handle']}/rotate"), 401, "unauthorized")
    listed = (await client.get("/_/keys")).json()["keys"]
    assert [each for each in listed if each["made_by"] == leaked["handle"] and each["status"] == "live"] == []


async def test_a_key_is_rotated_and_both_work_until_the_old_one_ends(
    client: httpx.AsyncClient, gateway: Served, neighbour: httpx.AsyncClient
) -> None:
    old = await made(client, scope="write", name="shop", only=["order"])
    path = f"/_/keys/{old['handle']}/rotate"
    refused(await neighbour.post(path), 404, "not_found")
    refused(await client.post(path, json={"grace": "soon"}), 422, "invalid_field", "grace")
    answer = await client.post(path)
    assert answer.status_code == 201, answer.text
    new = answer.json()
    assert answer.headers["location"] == f"/_/keys/{new['handle']}"
    assert [new[name] for name in ("scope", "name", "only", "rotated_from")] == [
        "write", "shop", ["order"], old["handle"],
    ]  # fmt: skip
    for key in (old, new):
        async with new_client(gateway.url, key["key"]) as writer:
            await appended(writer, "order", "global", "was_noted")
    refused(await client.post(path), 422, "invalid_field", "handle")
    assert (await client.delete(f"/_/keys/{old['handle']}")).json() == {"ok": True}
    async with new_client(gateway.url, new["key"]) as writer:
        await appended(writer, "order", "global", "was_noted")
    refused(await client.post(path), 422, "invalid_field", "handle")


async def test_a_successor_reaches_no_further_than_the_key_that_makes_it(
    client: httpx.AsyncClient, gateway: Served
) -> None:
    old = await made(client, scope="read")
    caller = await made(client, scope="admin")
    async with new_client(gateway.url, caller["key"]) as second:
        refused(await second.post(f"/_/keys/{caller['handle']}/rotate"), 403, "forbidden", "handle")
        new = (await second.post(f"/_/keys/{old['handle']}/rotate", json={"grace": "1h"})).json()
    listed = {each["handle"]: each for each in (await client.get("/_/keys")).json()["keys"]}
    assert listed[new["handle"]]["made_by"] == caller["handle"]
    assert listed[old["handle"]]["expires_at"] is not None
    await client.delete(f"/_/keys/{caller['handle']}")
    async with new_client(gateway.url, new["key"]) as reader:
        refused(await reader.get("/_/tenant"), 401, "unauthorized")


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({}, "missing_field", "scope"),
        ({"scope": "root"}, "invalid_field", "scope"),
        ({"scope": "operator"}, "invalid_field", "scope"),
        ({"scope": "read", "expires_in": 0}, "invalid_field", "expires_in"),
        ({"scope": "read", "expires_in": "soon"}, "invalid_field", "expires_in"),
        ({"scope": "read", "expires_in": True}, "invalid_field", "expires_in"),
        ({"scope": "read", "name": "x" * 101}, "invalid_field", "name"),
        ({"scope": "read", "only": []}, "invalid_field", "only"),
        ({"scope": "read", "only": ["order", "Order"]}, "invalid_field", "only[1]"),
        ({"scope": "read", "only": ["ordr"]}, "unknown_aggregate_type", "only[0]"),
        ({"scope": "read", "only": ["order.was_notd"]}, "unknown_event_type", "only[0]"),
        ({"scope": "read", "only": ["order", "order/settngs"]}, "invalid_identifier", "only[1]"),
        ({"scope": "admin", "only": ["order"]}, "invalid_field", "only"),
        ({"scope": "read", "lifetime": 5}, "unknown_field", "lifetime"),
    ],
)
async def test_what_can_be_no_key_is_refused(
    client: httpx.AsyncClient, body: dict[str, Any], code: str, path: str
) -> None:
    refused(await client.post("/_/keys", json=body), 422, code, path)


async def test_a_key_of_seconds_ends_by_itself(client: httpx.AsyncClient, gateway: Served) -> None:
    told = await made(client, scope="read", expires_in=1)
    async with new_client(gateway.url, told["key"]) as reader:

        async def ended() -> bool:
            return (await reader.get("/_/tenant")).status_code == 401

        await until(ended)


async def test_a_key_for_a_type_reads_and_writes_that_type(
    client: httpx.AsyncClient, gateway: Served
) -> None:
    await appended(client, "config", "global", "was_changed")
    told = await made(client, scope="write", only=["order"])
    async with new_client(gateway.url, told["key"]) as narrow:
        await appended(narrow, "order", "global", "was_noted")
        minted = await narrow.post("/order", json=batch(("was_noted", {})))
        assert minted.status_code == 201
        for path in ("/order/global", "/order/global/length", "/order/global/events/1"):
            assert (await narrow.get(path)).status_code == 200
        for path in (
            "/config?content=x", "/config/global", "/config/global/length", "/config/global/events",
            "/_/spec", "/_/receipts?idempotency_key=x", "/_/openapi.json",
        ):  # fmt: skip
            refused(await narrow.get(path), 403, "forbidden")
        refused(await append(narrow, "config", "global", "was_changed"), 403, "forbidden")
        bulk = await narrow.post(
            "/_/bulk",
            content=lines(bulk_line("global")),
            headers={"content-type": "application/x-ndjson"},
        )
        refused(bulk, 403, "forbidden")
        feed = (await narrow.get("/_/feed")).json()["events"]
        assert {each["aggregate_type"] for each in feed} == {"order"}
        refused(await narrow.get("/_/feed?types=config"), 403, "forbidden")
        refused(await narrow.get("/_/feed?types=_names"), 403, "forbidden")
        other = (await client.get("/_/feed?types=config")).json()["events"][0]["id"]
        refused(await narrow.get(f"/_/events/{other}"), 404, "not_found")
        assert (await narrow.get(f"/_/events/{feed[0]['id']}")).status_code == 200


async def test_a_key_for_one_aggregate_and_for_one_event_type(
    client: httpx.AsyncClient, gateway: Served
) -> None:
    mine, other = new_id(), new_id()
    for key in (mine, other):
        await appended(client, "order", key, "was_noted")
    only = [f"order/{mine.upper()}", "ticket.was_opened"]
    told = await made(client, scope="write", only=only)
    assert told["only"] == [f"order/{mine}", "ticket.was_opened"]
    async with new_client(gateway.url, told["key"]) as narrow:
        assert (await append(narrow, "order", mine.upper(), "was_named", {})).status_code == 201
        refused(await append(narrow, "order", other, "was_noted"), 403, "forbidden")
        refused(await narrow.get(f"/order/{other}"), 403, "forbidden")
        refused(await narrow.post("/order", json=batch(("was_noted", {}))), 403, "forbidden")
        ticket = new_id()
        await appended(narrow, "ticket", ticket, "was_opened")
        conflict = await append(narrow, "ticket", ticket, "was_opened", previous_length=0)
        refused(conflict, 409, "version_conflict", more=["length"])
        refused(await narrow.get(f"/ticket/{ticket}"), 403, "forbidden")
        shown = (await narrow.get("/_/feed")).json()["events"]
        assert [(each["aggregate_type"], each["key"]) for each in shown] == [
            ("order", mine),
            ("order", mine),
            ("ticket", ticket),
        ]
        newest = (await narrow.get("/_/feed?order=desc&limit=1")).json()["events"]
        assert [each["key"] for each in newest] == [ticket]
        inner = await made(narrow, scope="read")
        assert inner["only"] == told["only"]
        wider = await narrow.post("/_/keys", json={"scope": "read", "only": ["ticket"]})
        refused(wider, 403, "forbidden", "only[0]")
        async with narrow.stream("GET", "/_/feed?after=now", headers=SSE) as stream:
            await appended(client, "order", other, "was_noted")
            receipt = await appended(client, "order", mine, "was_noted")
            assert await first_id(stream) == receipt["event_id"]


async def test_a_narrowed_key_learns_nothing_of_what_it_may_not_read(
    client: httpx.AsyncClient, gateway: Served
) -> None:
    mine = new_id()
    await appended(client, "order", mine, "was_noted")
    told = await made(client, scope="read", only=[f"order/{mine}", "ticket"])
    async with new_client(gateway.url, told["key"]) as narrow:
        others = [f"/{kind}/{key}" for kind in ("config", "nowhere") for key in (mine, "bad", "@bd-k86gaq")]
        for path in (*others, "/order/@bd-k86gaq", "/order/@bd-k86gaq/length", "/config/bad/events"):
            refused(await narrow.get(path), 403, "forbidden")
        assert (await narrow.get(f"/order/{mine}")).status_code == 200
        refused(await narrow.get("/order/bad"), 422, "invalid_identifier", "key")
        refused(await narrow.get("/ticket/@bd-k86gaq"), 404, "unknown_alias", "key")


async def test_a_narrowed_key_hears_no_receipt_by_an_identity_that_it_guesses(
    client: httpx.AsyncClient, gateway: Served
) -> None:
    event_id, mine = new_event_id(), new_id()
    told = await made(client, scope="write", only=[f"order/{mine}"])
    body: dict[str, Any] = {"data": "others", "metadata": {"actor": ACTOR, "event_id": event_id}}
    headers = {"idempotency-key": "import-1"}
    answer = await client.post(f"/order/{new_id()}/was_noted", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    async with new_client(gateway.url, told["key"]) as narrow:
        path = f"/order/{mine}/was_noted"
        for sent, more, by in ((envelope("x"), headers, "idempotency_key"), (body, {}, "event_id")):
            answer = await narrow.post(path, json=sent, headers=more)
            refusal = refused(answer, 422, "idempotency_mismatch", None, ("by",))
            assert refusal["by"] == by
            assert "receipt" not in refusal["error"]


async def first_id(stream: httpx.Response) -> str:
    async with asyncio.timeout(20):
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                return str(json.loads(line.removeprefix("data: "))["id"])
    raise AssertionError("the stream ended")


async def ticket(client: httpx.AsyncClient, path: str) -> str:
    answer = await client.post("/_/tickets", json={"path": path})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["ticket"])


async def test_a_ticket_opens_its_stream_once(client: httpx.AsyncClient, stranger: httpx.AsyncClient) -> None:
    key = new_id()
    receipt = await appended(client, "order", key, "was_noted")
    text = await ticket(client, f"/order/{key}/events")
    refused(await stranger.get(f"/order/{key}?ticket={text}", headers=SSE), 401, "unauthorized")
    text = await ticket(client, f"/order/{key}/events")
    async with stranger.stream("GET", f"/order/{key}/events?ticket={text}", headers=SSE) as stream:
        assert stream.status_code == 200
        assert await first_id(stream) == receipt["event_id"]
    refused(await stranger.get(f"/order/{key}/events?ticket={text}", headers=SSE), 401, "unauthorized")
    text = await ticket(client, "/_/feed?types=order")
    refused(await stranger.get(f"/_/feed?ticket={text}", headers=SSE), 401, "unauthorized")
    text = await ticket(client, "/_/feed?types=order")
    async with stranger.stream("GET", f"/_/feed?types=order&ticket={text}", headers=SSE) as stream:
        assert await first_id(stream) == receipt["event_id"]
    text = await ticket(client, "/_/feed")
    async with stranger.stream("GET", f"/_/feed?ticket={text}") as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        assert await first_id(stream) == receipt["event_id"]
    text = await ticket(client, "/_/feed")
    refused(await stranger.get(f"/_/receipts?ticket={text}"), 401, "unauthorized")
    refused(await stranger.get("/_/feed?ticket=slt_none", headers=SSE), 401, "unauthorized")


async def test_a_ticket_ends_after_a_minute_and_its_stream_with_its_key(
    client: httpx.AsyncClient, gateway: Served, stranger: httpx.AsyncClient, outbox: asyncpg.Pool
) -> None:
    told = await made(client, scope="read", only=["order"])
    async with new_client(gateway.url, told["key"]) as narrow:
        late, text = await ticket(narrow, "/_/feed"), await ticket(narrow, "/_/feed")
    receipt = await appended(client, "order", "global", "was_noted")
    async with stranger.stream("GET", f"/_/feed?ticket={text}", headers=SSE) as stream:
        shown = stream.aiter_lines()
        async with asyncio.timeout(20):
            while receipt["event_id"] not in await anext(shown):
                pass
        await outbox.execute("UPDATE ticket SET expires_at = now() WHERE key = $1", told["handle"])
        refused(await stranger.get(f"/_/feed?ticket={late}", headers=SSE), 401, "unauthorized")
        assert (await client.delete(f"/_/keys/{told['handle']}")).status_code == 200
        async with asyncio.timeout(20):
            async for _ in shown:
                pass


@pytest.mark.parametrize("path", ["/order/global", "order", "/_/spec", "/nowhere/a/b/c", "/_/feed x", "", 5])
async def test_a_ticket_is_for_a_stream(client: httpx.AsyncClient, path: object) -> None:
    refused(await client.post("/_/tickets", json={"path": path}), 422, "invalid_field", "path")


async def test_a_ticket_is_refused_as_its_stream_would_be(client: httpx.AsyncClient, gateway: Served) -> None:
    """The page of an EventSource is not told why its stream is refused."""
    keys = [await made(client, scope="read", only=only) for only in (["order"], [f"order/{new_id()}"])]
    for text, paths in (
        (client.headers["authorization"].removeprefix("Bearer "),
            ["/ordr/global/events", "/order/nothing/events", "/_/feed?typs=a", "/order/global/events?a=1",
             "/order/global/events?from=x", "/_/feed?types=ordr", "/_/feed?after=x", "/_/feed?order=desc",
             "/_/projections/some", "/_/projections/some/global", "/ordr"]),
        (keys[0]["key"], ["/config/global/events", "/_/projections/some"]),
        (keys[1]["key"], [f"/order/{new_id()}/events", "/config/global/events"]),
    ):  # fmt: skip
        async with new_client(gateway.url, text) as holder:
            for path in paths:
                answer = await holder.post("/_/tickets", json={"path": path})
                itself = await holder.get(path, headers=SSE)
                assert (answer.status_code, answer.json()) == (itself.status_code, itself.json())
                assert answer.status_code in (400, 403, 404, 422)
            await ticket(holder, "/_/feed?types=order")
    await ticket(client, f"/order/{new_id()}/events")  # which may have its first event by then
    await ticket(client, "/order/@VNO-1/events")


async def test_a_ticket_names_its_path(client: httpx.AsyncClient) -> None:
    refused(await client.post("/_/tickets", json={}), 422, "missing_field", "path")
    refused(await client.post("/_/tickets", json=envelope()), 422, "unknown_field", "data")


async def test_keys_are_listed_in_pages(client: httpx.AsyncClient) -> None:
    whole = (await client.get("/_/keys")).json()
    handles = [each["handle"] for each in whole["keys"]] + [(await made(client, scope="read"))["handle"]]
    assert whole["next"] is None
    paged, after = [], ""
    while after is not None:
        page = (await client.get(f"/_/keys?limit=2{after and f'&after={after}'}")).json()
        paged += [each["handle"] for each in page["keys"]]
        after = page["next"]
    assert paged == handles
    for query in ("limit=0", "limit=1001"):
        refused(await client.get(f"/_/keys?{query}"), 422, "invalid_field", "limit")
    assert (await client.get("/_/keys?after=nothere")).json()["keys"] == []


async def test_keys_of_keys_are_bounded_for_a_tenant(
    client: httpx.AsyncClient, gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a thousand keys makes a thousand."""
    living = len((await client.get("/_/keys")).json()["keys"])
    monkeypatch.setattr(keys, "LIVING_MAX", living + 2)
    first = await made(client, scope="read")
    async with new_client(gateway.url, first["key"]) as reader:
        second = await made(reader, scope="read")
        refused(await reader.post("/_/keys", json={"scope": "read"}), 429, "rate_limited")
    refused(await client.post(f"/_/keys/{second['handle']}/rotate"), 429, "rate_limited")
    await client.delete(f"/_/keys/{second['handle']}")
    await made(client, scope="read")


async def test_keys_that_ended_are_forgotten(
    client: httpx.AsyncClient, outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "ENDED_KEPT", 2)
    monkeypatch.setattr(keys, "FORGOTTEN_AT_ONCE", 1)
    old = await made(client, scope="read")
    successor = (await client.post(f"/_/keys/{old['handle']}/rotate", json={"grace": "1s"})).json()
    ended = [old, successor, await made(client, scope="read"), await made(client, scope="read")]
    for each in ended:
        await client.delete(f"/_/keys/{each['handle']}")
    for n, each in enumerate(ended[:-1]):  # an hour passes, but not for the last
        await outbox.execute(
            "UPDATE api_key SET revoked_at = now() - interval '1 hour' + $2 * interval '1 second'"
            " WHERE handle = $1",
            each["handle"], n,
        )  # fmt: skip
    for n in range(3):
        await made(client, scope="read")
        there = {each["handle"] for each in (await client.get("/_/keys")).json()["keys"]}
        kept = ended[min(n + 1, 2) :]
        assert [each["handle"] in there for each in ended] == [each in kept for each in ended]
    monkeypatch.setattr(keys, "ENDED_MAX", 2)
    refused(await client.post("/_/keys", json={"scope": "read"}), 429, "rate_limited")


async def test_a_key_that_ends_before_the_body_that_it_sends_slowly_opens_nothing(
    client: httpx.AsyncClient, gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_bodies, "LATE_S", 0.0)
    leaked, key = await made(client, scope="write"), new_id()
    sent = request("POST", f"/order/{key}/was_noted", leaked["key"], json.dumps(envelope(1)).encode())
    async with connected(gateway.port) as slow:
        async with new_client(gateway.url, leaked["key"]) as thief:
            await appended(thief, "order", new_id(), "was_noted")
        await slow.send(sent[:-2])
        assert (await client.delete(f"/_/keys/{leaked['handle']}")).status_code == 200
        await slow.send(sent[-2:])
        answer = await slow.answer(b"POST")
        assert answer is not None
        assert (answer.status, answer.code) == (401, "unauthorized")
    assert (await client.get(f"/order/{key}/length")).json()["length"] == 0
