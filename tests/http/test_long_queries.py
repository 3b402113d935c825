"""Paths and queries as long as a header may be: none holds up other requests, with a key or without."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from tests.http.lag import holds_up_no_other
from tests.http.raw import ask, request
from tests.http.webhooks import SOURCES, Hooks, open_hooks
from tests.support.accounts import Account
from tests.support.calls import envelope, new_client, new_id, refused
from tests.support.serving import Served

LONG = 60_000
MANY = b"&".join([b"b"] * (LONG // 2))
BODY = b"{}"


@pytest.fixture
async def hooks(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[Hooks]:
    async with new_client(gateway.url, None) as client:
        yield await open_hooks(
            outbox, client, {name: SOURCES[name] for name in ("meta", "messages", "twilio")}
        )


async def sent(gateway: Served, raw: bytes, *statuses: int) -> None:
    async def asking() -> None:
        answer = await ask(gateway.port, raw)
        assert answer is not None
        assert answer.status in statuses, answer

    await holds_up_no_other(asking)


async def test_a_handshake_with_many_parameters(gateway: Served, hooks: Hooks) -> None:
    asked = b"hub.mode=subscribe&hub.challenge=c&hub.verify_token=t&" + MANY
    await sent(gateway, request("GET", hooks.path("meta").encode() + b"?" + asked), 405)


async def test_a_signed_url_with_many_parameters(gateway: Served, hooks: Hooks) -> None:
    path = hooks.path("twilio").encode() + b"?" + MANY
    await sent(gateway, request("POST", path, body=BODY, headers=[(b"X-Twilio-Signature", b"AAAA")]), 401)


async def test_signatures_that_cover_parameters_of_many(gateway: Served, hooks: Hooks) -> None:
    """Anyone who knows the URL can send these: all of it is read before a signature is compared."""
    names = [b"a%d" % n for n in range(40)]
    covered = b'"@method" "@target-uri" "content-digest" '
    covered += b" ".join([b'"@query-param";name="%b"' % name for name in names])
    headers = [
        (b"Content-Digest", b"sha-256=:%b:" % base64.b64encode(hashlib.sha256(BODY).digest())),
        (b"Signature-Input", b'sig=(%b);created=%d;keyid="k"' % (covered, int(time.time()))),
        (b"Signature", b"sig=:AAAA:"),
    ]
    path = hooks.path("messages").encode()
    for query in (MANY, MANY[:3_000]):
        target = path + b"?" + b"&".join([*[name + b"=1" for name in names], query])
        await sent(gateway, request("POST", target, body=BODY, headers=headers), 401)


async def test_a_path_of_many_segments(gateway: Served, tenant: Account) -> None:
    for path in (b"/_/webhooks", b"/_", b""):
        segments = path + b"/%41" * (LONG // 4)
        await sent(gateway, request("GET", segments, tenant.admin), 404)


@pytest.mark.parametrize("pair", [b"&", b"=&"])
@pytest.mark.parametrize("path", [b"/_/feed", b"/order/%b", b"/_/schedules"])
async def test_a_query_of_nothing(gateway: Served, tenant: Account, pair: bytes, path: bytes) -> None:
    path = path.replace(b"%b", new_id().encode())
    query = pair * (LONG // len(pair))
    await sent(gateway, request("GET", path + b"?" + query, tenant.admin), 200, 404)


async def test_a_number_of_many_digits(client: httpx.AsyncClient) -> None:
    for digits in (20, 5_000):
        answer = await client.get(f"/order/global/children?after={'9' * digits}")
        refused(answer, 422, "invalid_field", "after")


async def test_a_ticket_among_many_parameters(gateway: Served) -> None:
    await sent(gateway, request("GET", b"/_/feed?ticket=slt_x&" + b"&" * LONG), 401)


@pytest.mark.parametrize("name", [b"Accept", b"Prefer", b"If-None-Match"])
async def test_a_header_of_many_parts(gateway: Served, tenant: Account, name: bytes) -> None:
    headers = [(name, b"," * LONG)]
    await sent(gateway, request("GET", "/_/feed", tenant.admin, headers=headers), 200)
    body, at = json.dumps(envelope()).encode(), f"/order/{new_id()}/was_noted"
    if name != b"If-None-Match":
        await sent(gateway, request("POST", at, tenant.admin, body=body, headers=headers), 201)


TINY = {
    "chunks": b"1\r\na\r\n",
    "chunks of 16 bytes": b"10\r\naaaaaaaaaaaaaaaa\r\n",
    "trailers": b"A: b\r\n",
}


@pytest.mark.parametrize("part", TINY.values(), ids=TINY)
async def test_a_body_of_many_parts(gateway: Served, part: bytes) -> None:
    head = b"POST /order HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    begins = b"1\r\na\r\n0\r\n" if part == TINY["trailers"] else b""
    await sent(gateway, head + begins + part * (1_000_000 // len(part)), 401, 400)


async def test_a_request_of_many_headers(gateway: Served) -> None:
    await sent(gateway, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 150_000, 431)


async def test_many_requests_in_a_row(gateway: Served) -> None:
    """On one connection, before the first is answered."""
    raw, count = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 8_000

    async def asking() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(raw * count + b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).count(b"HTTP/1.1 401") == count + 1
        writer.close()

    await holds_up_no_other(asking)
