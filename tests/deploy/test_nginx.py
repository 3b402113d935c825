"""nginx with deploy/nginx.conf, in front of real gateways and of servers that note down what arrives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import ssl
import warnings
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.config import Config
from gateway.names import tokens
from tests.deploy.front import FloodLimits, Nginx, localized, with_flood_limits
from tests.deploy.shipped import Shipped, server_of
from tests.support.accounts import Account, open_account
from tests.support.calls import (
    append,
    appended,
    bulk,
    bulk_line,
    envelope,
    is_refusal,
    length_of,
    lines,
    new_client,
    new_id,
    refused,
    until,
)
from tests.support.certificates import certificate
from tests.support.ports import free_port
from tests.support.servers import open_folder
from tests.support.serving import Served, serving

DEADLINE_S = 40.0

StartNginx = Callable[..., Any]


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as found:
        yield found


@pytest.fixture
async def start_nginx(folder: Path) -> AsyncIterator[StartNginx]:
    """Starts one for these gateways' ports."""
    with contextlib.ExitStack() as ending:

        async def start(*gateways: int, flood_limits: FloodLimits | None = None, **changed: str) -> Nginx:
            port = free_port()
            conf = folder / "nginx.conf"
            text = localized(folder, port, gateways, **changed)
            conf.write_text(text if flood_limits is None else with_flood_limits(text, flood_limits))
            nginx = Nginx(conf, port, folder / "nginx.log")
            server = server_of(nginx)
            ending.callback(server.stop)
            await server.start()
            return nginx

        yield start


# -- in front of gateways


@pytest.fixture(scope="module")
async def pair(shipped: Shipped) -> AsyncIterator[tuple[Served, Served]]:
    config = Config(redis_url=shipped.redis_url, postgres_url=shipped.gateway_url)
    async with serving(config) as first, serving(replace(config)) as second:
        yield first, second


@pytest.fixture
async def tenant(shipped: Shipped) -> Account:
    async with asyncpg.create_pool(shipped.owner_url, min_size=1, max_size=1) as pool:
        return await open_account(pool)


@pytest.fixture
async def client(
    pair: tuple[Served, Served], tenant: Account, start_nginx: StartNginx
) -> AsyncIterator[httpx.AsyncClient]:
    nginx = await start_nginx(*(each.port for each in pair))
    async with new_client(nginx.url, tenant.admin) as client:
        yield client


async def test_events_are_appended_and_read_through_it(client: httpx.AsyncClient, folder: Path) -> None:
    key = new_id()
    for n in range(20):
        assert (await appended(client, "order", key, "was_noted", {"n": n}))["length"] == n + 1
    assert await length_of(client, key) == 20
    log = await logged(folder, 21)
    assert {each["status"] for each in log} == {201, 200}
    assert len({each["gateway"] for each in log}) == 2, "both gateways have work"
    assert log[0]["path"] == f"/order/{key}/was_noted"


async def logged(folder: Path, count: int) -> list[dict[str, Any]]:
    """The access log, once it has that many lines: they are written after the answers."""
    log = folder / "access.log"

    async def complete() -> bool:
        return len(log.read_text().splitlines()) >= count

    await until(complete)
    return [json.loads(line) for line in log.read_text().splitlines()]


async def test_receipts_of_a_bulk_request_come_while_it_is_still_being_sent(
    pair: tuple[Served, Served], tenant: Account, start_nginx: StartNginx
) -> None:
    nginx = await start_nginx(*(each.port for each in pair))
    line = lines(bulk_line(new_id()))
    head = f"POST /_/bulk HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.write}\r\n"
    head += "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with connected(nginx) as (reader, writer), asyncio.timeout(DEADLINE_S):
        writer.write(head.encode() + chunk(line))
        assert b'"line":1,"status":201' in await reader.readuntil(b"}\n")
        writer.write(chunk(line) + chunk(b""))
        assert b'"line":2,"status":201' in await reader.readuntil(b"}\n")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@contextlib.asynccontextmanager
async def connected(nginx: Nginx) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", nginx.port, ssl=context)
    with contextlib.closing(writer):
        yield reader, writer


async def test_a_follower_sees_events_as_they_come(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted")
    accept = {"accept": "text/event-stream"}
    async with client.stream("GET", f"/order/{key}/events", headers=accept) as response:
        seen = response.aiter_lines()

        async def next_id() -> str:
            async with asyncio.timeout(DEADLINE_S):
                async for line in seen:
                    if line.startswith("id: "):
                        return line.removeprefix("id: ")
            raise AssertionError("the stream has ended")

        assert await next_id() == "1"
        await appended(client, "order", key, "was_noted")
        assert await next_id() == "2"


async def test_a_body_over_the_limit_is_refused_in_the_gateways_words(client: httpx.AsyncClient) -> None:
    key, mib = new_id(), 1024 * 1024
    too_large = await client.post(f"/order/{key}/was_noted", content=b" " * (mib + 1))
    refused(too_large, 413, "too_large")
    at_the_limit = json.dumps(envelope({"x": 1})).encode().ljust(mib)
    headers = {"content-type": "application/json"}
    response = await client.post(f"/order/{key}/was_noted", content=at_the_limit, headers=headers)
    assert response.status_code == 201, response.text


async def test_a_bulk_request_may_be_larger(client: httpx.AsyncClient) -> None:
    key = new_id()
    sent = [bulk_line(key, {"x": "y" * 60_000})] * 25
    assert [each["status"] for each in await bulk(client, *sent)] == [201] * 25


async def test_headers_over_the_limit_are_refused_in_the_gateways_words(client: httpx.AsyncClient) -> None:
    for headers in ({"x": "y" * 70_000}, {f"x-{n}": "y" * 60_000 for n in range(2)}):
        refused(await client.get("/order/global", headers=headers), 431, "bad_request")
    told = await client.get("/order/global", headers={f"x-{n}": "y" for n in range(150)})
    assert "more than 100 headers" in refused(told, 431, "bad_request")["error"], (
        "the gateway itself says this"
    )


async def test_metrics_are_not_for_the_outside(client: httpx.AsyncClient) -> None:
    for path in ("/_/metrics", "/_/%6Detrics", "/_/x/../metrics"):
        refused(await client.get(path), 404, "not_found")


async def test_a_gateway_that_ends_is_passed_over(
    shipped: Shipped, pair: tuple[Served, Served], tenant: Account, start_nginx: StartNginx
) -> None:
    nginx = await start_nginx(free_port(), pair[0].port)
    key = new_id()
    async with new_client(nginx.url, tenant.admin) as client:
        for _ in range(10):
            await appended(client, "order", key, "was_noted")
        assert await length_of(client, key) == 10


async def test_without_any_gateway_no_answer_claims_to_know_what_happened(
    tenant: Account, start_nginx: StartNginx
) -> None:
    nginx = await start_nginx(free_port(), free_port())
    async with new_client(nginx.url, tenant.admin) as client:
        refused(await append(client, "order", new_id(), "was_noted"), 504, "outcome_unknown")
        refused(await client.put("/_/spec", json={}), 504, "outcome_unknown")
        refused(await client.get("/order/global"), 503, "unavailable")


# -- in front of a server that notes down what arrives


@dataclass(slots=True)
class Notebook:
    """`requests` as they came, header and body; `connections` there were."""

    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    answers: bool = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0][15:]) if length else 0)
                self.requests.append(head + body)
                if not self.answers:
                    return
                writer.write(b"HTTP/1.1 200 OK\r\nsluice-api: 1\r\nx-correlation-id: x\r\n")
                writer.write(b"content-length: 2\r\n\r\nok")
                await writer.drain()


@pytest.fixture
async def notebooks() -> AsyncIterator[tuple[Notebook, Notebook]]:
    found = (Notebook(), Notebook())
    with contextlib.ExitStack() as ending:
        for each in found:
            server = await asyncio.start_server(each.serve, "127.0.0.1", 0)
            each.port = server.sockets[0].getsockname()[1]
            ending.callback(server.close)
        yield found


async def exchange(nginx: Nginx, sent: bytes) -> bytes:
    """All that comes back over one connection until nginx ends it, in whichever way."""
    async with connected(nginx) as (reader, writer), asyncio.timeout(DEADLINE_S):
        writer.write(sent)
        with contextlib.suppress(ConnectionResetError):
            return await reader.read()
    return b""


TARGETS = [
    "/order/a%2Fb/was_noted",
    "/order/a%252Fb",
    "/order/%25",
    "/order/100%25%20%c3%a9",
    "/order/x%3Atag",
    "/order//double",
    "/order/./dot/../dots",
    "/order/a;b=c,d&e=f+g",
    "/order/x?q=%2F%25&q=a+b",
    "/order/%ff",
    "/_/bulk?x=%2f",
]


async def test_a_path_arrives_as_it_was_sent(
    notebooks: tuple[Notebook, Notebook], start_nginx: StartNginx
) -> None:
    nginx = await start_nginx(notebooks[0].port)
    for target in TARGETS:
        head = f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        assert (await exchange(nginx, head)).startswith(b"HTTP/1.1 200 ")
    arrived = [each.split(b"\r\n")[0].decode() for each in notebooks[0].requests]
    assert arrived == [f"GET {target} HTTP/1.1" for target in TARGETS]


async def test_what_is_no_path_is_refused_in_the_gateways_words(
    notebooks: tuple[Notebook, Notebook], start_nginx: StartNginx
) -> None:
    nginx = await start_nginx(notebooks[0].port)
    rest = b" HTTP/1.1\r\nHost: x\r\n\r\n"
    smuggled = (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    for sent in (
        b"GET /order/%00" + rest,
        b"GET /../order" + rest,
        b"GET /order/%zz" + rest,
        b"nonsense\r\n\r\n",
        smuggled,
    ):
        head, _, body = (await exchange(nginx, sent)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 "), (sent, head)
        assert b"\r\nSluice-Api: 1" in head
        assert re.search(rb"\r\nX-Correlation-Id: [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", head)
        is_refusal(json.loads(body), "bad_request")
    assert notebooks[0].requests == []


async def test_a_client_can_not_choose_the_address_that_the_gateway_sees(
    notebooks: tuple[Notebook, Notebook], start_nginx: StartNginx
) -> None:
    nginx = await start_nginx(notebooks[0].port)
    async with new_client(nginx.url, "key") as client:
        headers = {"x-forwarded-for": "192.0.2.1", "x-forwarded-host": "evil", "x-forwarded-proto": "http"}
        await client.post("/order/global/was_noted", content=b"{}", headers=headers)
    head = notebooks[0].requests[0].lower()
    assert b"\r\nx-forwarded-for: 127.0.0.1\r\n" in head
    assert b"\r\nx-forwarded-proto: https\r\n" in head
    assert b"evil" not in head
    assert b"\r\nauthorization: bearer key\r\n" in head
    assert b"\r\nconnection:" not in head


async def test_connections_to_a_gateway_are_used_again(
    notebooks: tuple[Notebook, Notebook], start_nginx: StartNginx
) -> None:
    nginx = await start_nginx(notebooks[0].port)
    async with new_client(nginx.url, None) as client:
        for _ in range(20):
            await client.get("/order/global")
    assert (len(notebooks[0].requests), notebooks[0].connections) == (20, 1)


async def test_an_append_that_a_gateway_did_not_answer_is_not_sent_to_another(
    notebooks: tuple[Notebook, Notebook], start_nginx: StartNginx
) -> None:
    for each in notebooks:
        each.answers = False
    nginx = await start_nginx(*(each.port for each in notebooks))
    async with new_client(nginx.url, None) as client:
        told = await client.post("/order/global/was_noted", content=b"{}")
        refused(told, 504, "outcome_unknown")
    assert len(notebooks[0].requests) + len(notebooks[1].requests) == 1


async def test_a_read_that_a_gateway_did_not_answer_is_sent_to_another(
    notebooks: tuple[Notebook, Notebook], start_nginx: StartNginx
) -> None:
    notebooks[0].answers = False
    nginx = await start_nginx(*(each.port for each in notebooks))
    async with new_client(nginx.url, None) as client:
        assert [(await client.get("/order/global")).status_code for _ in range(4)] == [200] * 4
    assert len(notebooks[0].requests) >= 1


async def test_a_client_that_sends_its_header_slowly_is_let_go(
    notebooks: tuple[Notebook, Notebook], start_nginx: StartNginx
) -> None:
    nginx = await start_nginx(notebooks[0].port, client_header_timeout="300ms")
    assert await exchange(nginx, b"GET / HTTP/1.1\r\nHost: x\r\n") == b""
    assert notebooks[0].connections == 0


async def test_it_tells_no_keys_and_no_queries(
    notebooks: tuple[Notebook, Notebook], start_nginx: StartNginx, folder: Path
) -> None:
    nginx = await start_nginx(notebooks[0].port)
    async with new_client(nginx.url, "s3cret-key") as client:
        await client.get("/order/global?q=s3cret-query", headers={"x": "s3cret-header"})
    assert [each["path"] for each in await logged(folder, 1)] == ["/order/global"]
    told = (folder / "access.log").read_text() + (folder / "nginx.log").read_text()
    assert "s3cret" not in told


# -- attacks through it, and what it must not keep to itself


async def test_its_certificate_is_verified_by_the_name_of_the_service(
    shipped: Shipped, pair: tuple[Served, Served], tenant: Account, start_nginx: StartNginx, folder: Path
) -> None:
    """With the operator's own certificate in place of the one that deploy/new-secrets makes."""
    (folder / "tls").mkdir()
    ca, key = certificate("events.example.com", folder / "tls")
    kept = folder / "secrets"
    await start_nginx(pair[0].port)
    (kept / "tls_certificate").write_bytes(ca.read_bytes())
    (kept / "tls_key").write_bytes(key.read_bytes())
    nginx = await start_nginx(pair[0].port)
    context = ssl.create_default_context(cafile=ca)
    for name, fits in (("events.example.com", True), ("other.example.com", False)):
        connecting = asyncio.open_connection("127.0.0.1", nginx.port, ssl=context, server_hostname=name)
        if fits:
            _, writer = await connecting
            assert writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
            writer.close()
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                await connecting


async def test_versions_of_tls_that_are_broken_are_not_spoken(
    notebooks: tuple[Notebook, Notebook], start_nginx: StartNginx
) -> None:
    nginx = await start_nginx(notebooks[0].port)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", nginx.port, ssl=old)


async def test_a_follower_that_takes_gzip_gets_each_event_as_it_comes(
    pair: tuple[Served, Served], tenant: Account, start_nginx: StartNginx
) -> None:
    nginx = await start_nginx(pair[0].port)
    asked = f"GET /_/feed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.read}\r\n"
    asked += "Accept: text/event-stream\r\nAccept-Encoding: gzip\r\n\r\n"
    inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
    async with (
        new_client(nginx.url, tenant.write) as client,
        connected(nginx) as (reader, writer),
        asyncio.timeout(DEADLINE_S),
    ):
        writer.write(asked.encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b"\r\ncontent-encoding: gzip\r\n" in head
        assert b"\r\nvary: authorization, accept-encoding\r\n" in head
        for n in range(3):
            await appended(client, "order", new_id(), "was_noted", {"n": n})
            text = b""
            while b'"n":%d' % n not in text.replace(b" ", b""):
                size = int(await reader.readline(), 16)
                text += inflate.decompress((await reader.readexactly(size + 2))[:size])


async def test_limits_of_an_address_count_the_client_and_not_nginx(
    shipped: Shipped, tenant: Account, start_nginx: StartNginx
) -> None:
    """What a client claims of itself is overwritten: each try counts for one address."""
    config = Config(
        redis_url=shipped.redis_url,
        postgres_url=shipped.gateway_url,
        trusted_proxies=(ip_network("127.0.0.0/8"),),
        unknown_keys_per_min=2,
    )
    async with serving(config) as served:
        nginx = await start_nginx(served.port)
        statuses = []
        async with new_client(nginx.url, None) as client:
            for n in range(4):
                unknown = tokens.mint("a" * tokens.HANDLE_CHARS, secrets.token_bytes)
                headers = {"authorization": f"Bearer {unknown}", "x-forwarded-for": f"192.0.2.{n}"}
                statuses.append(await client.get("/order/global", headers=headers))
    assert [each.status_code for each in statuses] == [401, 401, 429, 429], (
        "another address would have tries of its own"
    )
    assert "127.0.0.1" in statuses[-1].json()["error"]


async def test_a_flood_from_one_address_is_stopped_in_front_in_the_gateways_words(
    pair: tuple[Served, Served], tenant: Account, start_nginx: StartNginx, folder: Path
) -> None:
    """By the lines that the file has for it, with a small rate."""
    nginx = await start_nginx(pair[0].port, flood_limits=FloodLimits("rate=1r/m", burst=2))
    async with new_client(nginx.url, tenant.admin) as client:
        answers = [await client.get("/order/global") for _ in range(5)]
    assert [each.status_code for each in answers] == [200, 200, 200, 429, 429]
    told = answers[-1]
    assert (told.json()["code"], told.headers["retry-after"]) == ("rate_limited", "1")


async def test_connections_of_one_address_are_bounded_in_front_in_the_gateways_words(
    pair: tuple[Served, Served], tenant: Account, start_nginx: StartNginx
) -> None:
    """Those with a request under way, followers among them; by the lines that the file has for it."""
    nginx = await start_nginx(pair[0].port, flood_limits=FloodLimits(connections=2))
    feed, sse = "/_/feed?after=now", {"accept": "text/event-stream"}
    async with new_client(nginx.url, tenant.read) as client:
        async with contextlib.AsyncExitStack() as following:
            for _ in range(2):
                stream = client.stream("GET", feed, headers=sse)
                response = await following.enter_async_context(stream)
                assert response.status_code == 200
            told = await client.get("/order/global")
            assert told.status_code == 429
            assert (told.json()["code"], told.headers["retry-after"]) == ("rate_limited", "1")

        async def passes() -> bool:
            return (await client.get("/order/global")).status_code == 200

        await until(passes)


SMUGGLED = b"GET /order/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
FRAMINGS = {
    "CL.TE": b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%b",
    "TE.CL": b"Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n0\r\n\r\n%b",
    "TE with a blank": b"Transfer-Encoding : chunked\r\nContent-Length: %d\r\n\r\n%b",
    "TE twice": b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\nX: %d\r\n\r\n0\r\n\r\n%b",
    "TE of another name": b"Transfer-Encoding: xchunked\r\nContent-Length: %d\r\n\r\n%b",
    "TE with a tab": b"Transfer-Encoding:\tchunked\r\nContent-Length: %d\r\n\r\n0\r\n\r\n%b",
    "TE folded": b"X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n%b",
    "CL twice": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n%b",
    "CL of a list": b"Content-Length: 0, %d\r\n\r\n%b",
    "CL with a sign": b"Content-Length: +%d\r\n\r\n%b",
    "CL in hex": b"Content-Length: 0x%d\r\n\r\n%b",
    "chunk of a sign": b"Transfer-Encoding: chunked\r\nX: %d\r\n\r\n-1\r\n%b",
    "chunk with a bare LF": b"Transfer-Encoding: chunked\r\nX: %d\r\n\r\n0\n\n%b",
    "chunk extension": b'Transfer-Encoding: chunked\r\nX: %d\r\n\r\n0;a="\n"\r\n\r\n%b',
    "trailer": b"Transfer-Encoding: chunked\r\nX: %d\r\n\r\n0\r\nContent-Length: 9\r\n\r\n%b",
    "whole body": b"Content-Length: %d\r\n\r\n%b",
}


@pytest.mark.parametrize("name", FRAMINGS)
async def test_no_framing_makes_the_gateway_see_a_request_that_nginx_does_not(
    pair: tuple[Served, Served], tenant: Account, start_nginx: StartNginx, folder: Path, name: str
) -> None:
    """nginx logs each request that it sees; the gateway answers each that it sees. A gateway that sees one
    more would answer the next client with it: the answer to a last, plain request tells."""
    nginx = await start_nginx(pair[0].port)
    framed = FRAMINGS[name] % (len(SMUGGLED), SMUGGLED)
    head = f"POST /order/global/was_noted HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.write}\r\n"
    head += "Content-Type: application/json\r\n"
    ended = b"GET /order/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    told = await exchange(nginx, head.encode() + framed + ended)
    answers = told.count(b"HTTP/1.1 ")
    seen = await logged(folder, max(answers, 1))
    assert len(seen) == answers, (told, seen)
    async with new_client(nginx.url, tenant.read) as client:
        for _ in range(3):
            assert (await client.get("/_/spec")).json()["revision"] == 1, "an answer to somebody else"
