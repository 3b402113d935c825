"""Keys, scopes, and tenants that know nothing of each other."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import httpx
import pytest

from gateway.catalog import keys
from gateway.catalog.model import Scope
from gateway.catalog.tenants import named
from gateway.errors import Refusal
from gateway.http.key_watch import Watched
from tests.http.raw import connected, request
from tests.support.accounts import Account, open_account, revoked
from tests.support.calls import (
    append,
    appended,
    bulk,
    bulk_line,
    envelope,
    events_of,
    length_of,
    lines,
    new_client,
    new_event_id,
    new_id,
    refused,
    until,
)
from tests.support.drive import STALL_S
from tests.support.serving import Served

WITHIN_S = 5 + STALL_S
"""What is promised, and by how much a busy machine may be late."""
WRONG = [
    "",
    "Bearer",
    "Bearer nonsense",
    "Bearer sl_abc_def_ghi",
    "Basic dXNlcjpwYXNz",
    "Token {key}",
    "{key}",
    "Bearer {key}x",
    "Bearer x{key}",
    "Bearer {key} {key}",
    "Bearer {key},Bearer {key}",
    "Bearer \xff\xfe",
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_missing_or_unknown_key_is_401(
    stranger: httpx.AsyncClient, tenant: Account, wrong: str
) -> None:
    value = wrong.format(key=tenant.admin).encode("latin-1")
    headers = {b"authorization": value} if value else {}
    for method, path in (("GET", "/order/global"), ("POST", "/order/global/was_noted"), ("GET", "/_/spec")):
        refused(await stranger.request(method, path, headers=headers), 401, "unauthorized")


async def test_401_comes_before_the_route_is_looked_at(stranger: httpx.AsyncClient) -> None:
    for path in ("/", "/a/b/c/d/e", "/_/nothing", "/_/spec/x", "/_"):
        refused(await stranger.get(path), 401, "unauthorized")
    refused(await stranger.delete("/order/global"), 401, "unauthorized")


async def test_the_scheme_is_read_in_any_case(stranger: httpx.AsyncClient, tenant: Account) -> None:
    for value in (f"bearer {tenant.read}", f"BEARER {tenant.read}", f"Bearer  {tenant.read}"):
        response = await stranger.get("/order/global", headers={"authorization": value})
        assert response.status_code == 200


async def test_two_different_authorization_headers_are_a_400(
    stranger: httpx.AsyncClient, tenant: Account
) -> None:
    two = [("authorization", f"Bearer {tenant.read}"), ("authorization", f"Bearer {tenant.write}")]
    refused(await stranger.get("/order/global", headers=two), 400, "bad_request")
    refused(await stranger.get("/_/spec", headers=two), 400, "bad_request")
    same = [("authorization", f"Bearer {tenant.read}")] * 2
    assert (await stranger.get("/order/global", headers=same)).status_code == 200


async def test_health_needs_no_key(stranger: httpx.AsyncClient) -> None:
    for path in ("/_/health/live", "/_/health/ready"):
        response = await stranger.get(path)
        assert (response.status_code, response.json()["ok"]) == (200, True)


async def test_a_read_key_reads_and_does_no_more(reader: httpx.AsyncClient) -> None:
    for path in ("/order/global", "/order/global/length", "/order/global/events", "/_/spec", "/_/ids/humane"):
        assert (await reader.get(path)).status_code == 200, path
    assert (await reader.post("/_/ids/check", json={"ids": []})).status_code == 200
    for path in ("/order/global/was_noted", "/order/global", "/order"):
        refused(await reader.post(path, json=envelope()), 403, "forbidden")
    ndjson = {"content-type": "application/x-ndjson"}
    refused(await reader.post("/_/bulk", content=b"", headers=ndjson), 403, "forbidden")
    refused(await reader.put("/_/spec", json={}), 403, "forbidden")


async def test_a_write_key_reads_and_writes_and_does_no_more(writer: httpx.AsyncClient) -> None:
    await appended(writer, "order", "global", "was_noted")
    assert (await writer.get("/order/global")).status_code == 200
    assert (await writer.get("/_/spec")).status_code == 200
    assert (await bulk(writer, bulk_line("global")))[0]["status"] == 201
    refused(await writer.put("/_/spec", json={}), 403, "forbidden")


async def test_an_admin_key_does_all_of_it(client: httpx.AsyncClient) -> None:
    await appended(client, "order", "global", "was_noted")
    spec = (await client.get("/_/spec")).json()["spec"]
    assert (await client.put("/_/spec", json=spec)).status_code == 200


async def test_a_revoked_key_is_refused_within_five_seconds(
    gateway: Served, outbox: asyncpg.Pool, tenant: Account
) -> None:
    async with new_client(gateway.url, tenant.read) as client:
        assert (await client.get("/order/global")).status_code == 200
        await revoked(outbox, tenant, Scope.READ)

        async def is_refused() -> bool:
            return (await client.get("/order/global")).status_code == 401

        await until(is_refused, WITHIN_S)


STREAMS = ["/order/global/events", "/_/feed", "/_/feed?types=order"]
SSE = {"accept": "text/event-stream"}


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once the gateway has told a request under way that its key has ended."""
    told, end = asyncio.Event(), Watched.end

    def tell(self: Watched, refusal: Refusal) -> None:
        end(self, refusal)
        told.set()

    monkeypatch.setattr(Watched, "end", tell)
    return told


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_ends_within_five_seconds_of_the_revocation_of_its_key(
    gateway: Served, client: httpx.AsyncClient, outbox: asyncpg.Pool, tenant: Account, path: str
) -> None:
    await appended(client, "order", "global", "was_noted")
    async with (
        new_client(gateway.url, tenant.read) as reader,
        reader.stream("GET", path, headers=SSE) as revoked_soon,
        client.stream("GET", path, headers=SSE) as other,
    ):
        lines, others = revoked_soon.aiter_lines(), other.aiter_lines()
        for each in (lines, others):
            assert (await anext(each)).startswith("id: ")
        await revoked(outbox, tenant, Scope.READ)
        async with asyncio.timeout(WITHIN_S):
            assert [line async for line in lines if line.startswith("id: ")] == []
        refused(await reader.get(path, headers=SSE), 401, "unauthorized")
        await appended(client, "order", "global", "was_noted")
        assert (await anext(line async for line in others if line.startswith("id: "))) != ""


@pytest.mark.parametrize("path", STREAMS[:2])
async def test_a_stream_ends_when_its_key_expires(
    gateway: Served, client: httpx.AsyncClient, outbox: asyncpg.Pool, tenant: Account, path: str
) -> None:
    await appended(client, "order", "global", "was_noted")
    minted = await keys.create(
        outbox, await named(outbox, tenant.name), Scope.READ, expires_in=timedelta(seconds=2)
    )
    async with (
        new_client(gateway.url, minted.text) as reader,
        reader.stream("GET", path, headers=SSE) as response,
    ):
        async with asyncio.timeout(2 + WITHIN_S):
            assert len([line async for line in response.aiter_lines() if line.startswith("id: ")]) == 1
        refused(await reader.get(path, headers=SSE), 401, "unauthorized")


@pytest.mark.parametrize("path", STREAMS[:2])
async def test_a_stream_continues_while_its_key_is_replaced(
    gateway: Served, client: httpx.AsyncClient, outbox: asyncpg.Pool, tenant: Account, path: str
) -> None:
    await appended(client, "order", "global", "was_noted")
    async with (
        new_client(gateway.url, tenant.read) as reader,
        new_client(gateway.url, tenant.write) as writer,
        reader.stream("GET", path, headers=SSE) as response,
    ):
        ids = (line async for line in response.aiter_lines() if line.startswith("id: "))
        await anext(ids)
        mine = [each for each in await keys.every(outbox) if each.tenant == tenant.name]
        old = next(each.handle for each in mine if each.scope is Scope.READ)
        await keys.rotate(outbox, old, grace=timedelta(hours=1))
        await revoked(outbox, tenant, Scope.WRITE)

        async def is_refused() -> bool:
            return (await writer.get("/order/global")).status_code == 401

        await until(is_refused, WITHIN_S)
        for _ in range(2):
            await appended(client, "order", "global", "was_noted")
            await anext(ids)


async def test_a_request_that_waits_for_the_feed_is_refused_when_its_key_is_revoked(
    gateway: Served, client: httpx.AsyncClient, outbox: asyncpg.Pool, tenant: Account
) -> None:
    await appended(client, "order", "global", "was_noted")
    async with new_client(gateway.url, tenant.read) as reader:
        end = (await reader.get("/_/feed")).json()["position"]
        waiting = asyncio.create_task(reader.get(f"/_/feed?after={end}&wait=60"))
        await client.get("/_/feed")
        await revoked(outbox, tenant, Scope.READ)
        async with asyncio.timeout(WITHIN_S):
            refused(await waiting, 401, "unauthorized")


@pytest.mark.parametrize("path", STREAMS[:2])
async def test_ndjson_breaks_off_when_its_key_is_revoked(
    gateway: Served,
    client: httpx.AsyncClient,
    outbox: asyncpg.Pool,
    tenant: Account,
    ended: asyncio.Event,
    path: str,
) -> None:
    """Rather than end as if it were whole."""
    text = "x" * 8_000
    for _ in range(15):
        await bulk(client, *[bulk_line("global", text) for _ in range(100)])
    async with connected(gateway.port, receive_bytes=4096) as connection:
        accept = [(b"Accept", b"application/x-ndjson")]
        await connection.send(request("GET", path, tenant.read, headers=accept))
        assert await connection.line() == b"HTTP/1.1 200 OK\r\n"
        connection.read_no_more()
        await revoked(outbox, tenant, Scope.READ)
        await asyncio.wait_for(ended.wait(), WITHIN_S)
        connection.read_again()
        seen = await connection.rest()
    assert not seen.endswith(b"0\r\n\r\n")
    assert 0 < seen.count(text.encode()) < 1500


async def test_no_line_of_a_bulk_is_appended_after_its_key_is_revoked(
    gateway: Served, client: httpx.AsyncClient, outbox: asyncpg.Pool, tenant: Account, ended: asyncio.Event
) -> None:
    key = new_id()
    head = request(
        "POST",
        "/_/bulk",
        tenant.write,
        headers=[(b"Content-Type", b"application/x-ndjson"), (b"Transfer-Encoding", b"chunked")],
    )
    line = lines(bulk_line(key))
    chunk = b"%x\r\n%b\r\n" % (len(line), line)
    async with connected(gateway.port) as connection:
        await connection.send(head + chunk)
        while not (told := await connection.line()).startswith(b"{"):
            assert told != b""
        assert b'"status":201' in told
        await revoked(outbox, tenant, Scope.WRITE)
        await asyncio.wait_for(ended.wait(), WITHIN_S)
        await connection.send(chunk * 3)
        rest = await connection.line() + await connection.line() + await connection.line()
        assert b'{"line":2,"status":401,"ok":false,"code":"unauthorized"' in rest
    assert await length_of(client, key) == 1


async def test_a_tenant_without_a_spec_has_no_types(gateway: Served, outbox: asyncpg.Pool) -> None:
    account = await open_account(outbox, spec=None)
    async with new_client(gateway.url, account.admin) as client:
        answer = await append(client, "order", new_id(), "was_noted")
        told = refused(answer, 404, "unknown_aggregate_type", "type")
        assert told["error"].startswith("No spec is deployed yet")
        read = refused(await client.get("/order/global"), 404, "unknown_aggregate_type", "type")
        assert read["error"] == told["error"]
        refused(await client.get("/_/spec"), 404, "not_found")


async def test_tenants_with_the_same_keys_have_streams_of_their_own(
    client: httpx.AsyncClient, neighbour: httpx.AsyncClient
) -> None:
    key = new_id()
    mine = await appended(client, "order", key, "was_placed", {"whose": "mine"})
    refused(await neighbour.get(f"/order/{key}"), 404, "not_found")
    refused(await neighbour.get(f"/order/{key}/events"), 404, "not_found")
    assert await length_of(neighbour, key) == 0
    theirs = await appended(neighbour, "order", key, "was_placed", {"whose": "theirs"}, previous_length=0)
    assert mine["length"] == theirs["length"] == 1
    for who, name in ((client, "mine"), (neighbour, "theirs")):
        assert (await who.get(f"/order/{key}")).json()["data"] == {"whose": name}
        assert [event["data"] for event in await events_of(who, "order", key)] == [{"whose": name}]


async def test_an_event_of_another_tenant_is_not_found_by_its_id(
    client: httpx.AsyncClient, neighbour: httpx.AsyncClient
) -> None:
    receipt = await appended(client, "order", new_id(), "was_noted")
    theirs = await neighbour.get(f"/_/events/{receipt['event_id']}")
    nobodys = await neighbour.get(f"/_/events/{new_event_id()}")
    refused(theirs, 404, "not_found")
    assert theirs.text.replace(receipt["event_id"], "") == nobodys.text.replace(
        nobodys.request.url.path.rsplit("/", 1)[1], ""
    )


async def test_idempotency_keys_and_event_ids_are_each_tenants_own(
    client: httpx.AsyncClient, neighbour: httpx.AsyncClient
) -> None:
    key, event_id, headers = new_id(), new_event_id(), {"idempotency-key": "the-same"}
    for who, data in ((client, 1), (neighbour, 2)):
        response = await append(who, "order", key, "was_noted", data, headers, event_id=event_id)
        assert response.status_code == 201
        assert "idempotency-replayed" not in response.headers
        assert (await who.get(f"/_/events/{event_id}")).json()["event"]["data"] == data


async def test_specs_are_each_tenants_own(
    client: httpx.AsyncClient, gateway: Served, outbox: asyncpg.Pool
) -> None:
    other = await open_account(
        outbox,
        {"aggregate_types": {"cart": {"events": {"was_filled": {"schema": True}}}}, "agent_types": ["user"]},
    )
    async with new_client(gateway.url, other.admin) as stranger:
        await appended(stranger, "cart", new_id(), "was_filled")
        refused(await append(stranger, "order", new_id(), "was_noted"), 404, "unknown_aggregate_type", "type")
        refused(await stranger.get("/order/stripe_webhook"), 404, "unknown_aggregate_type", "type")
        refused(await stranger.get("/cart/stripe_webhook"), 422, "invalid_identifier", "key")
    refused(await client.get("/cart/global"), 404, "unknown_aggregate_type", "type")


async def test_a_tenant_named_in_path_or_body_changes_nothing(
    client: httpx.AsyncClient, neighbour: httpx.AsyncClient, tenant: Account
) -> None:
    key = new_id()
    headers = {"x-tenant": tenant.id, "tenant": tenant.name}
    await appended(neighbour, "order", key, "was_placed", {"tenant": tenant.id}, headers)
    assert await length_of(client, key) == 0
    body = {**envelope(), "tenant": tenant.id}
    refused(await neighbour.post(f"/order/{key}/was_noted", json=body), 422, "unknown_field", "tenant")
    sent = lines(bulk_line(key, tenant=tenant.id))
    answer = await neighbour.post("/_/bulk", content=sent, headers={"content-type": "application/x-ndjson"})
    assert answer.json()["code"] == "unknown_field"
    assert await length_of(client, key) == 0
