"""What a request may be: media type, coding, and every limit, by default and as it is set."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from gateway.config import Config
from tests.http.raw import ask, request
from tests.support.accounts import Account
from tests.support.calls import (
    DEADLINE_S,
    JSON,
    NDJSON,
    append,
    appended,
    batch,
    bulk,
    bulk_line,
    envelope,
    events_of,
    length_of,
    lines,
    new_client,
    new_id,
    refused,
)
from tests.support.serving import Served, serving


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
    ],
)
async def test_json_is_accepted(client: httpx.AsyncClient, content_type: str) -> None:
    sent = json.dumps(envelope()).encode()
    response = await client.post(
        "/order/global/was_noted", content=sent, headers={"content-type": content_type}
    )
    assert response.status_code == 201


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "text/json",
        "application/jsonx",
        "application/x-ndjson",
        "application/vnd.api+json",
        "application/json; charset=utf-16",
        "application/json; charset=latin1",
        "application/x-www-form-urlencoded",
        "application/json, application/json",
    ],
)
async def test_any_other_media_type_is_a_415(client: httpx.AsyncClient, content_type: str | None) -> None:
    sent = json.dumps(envelope()).encode()
    headers = {} if content_type is None else {"content-type": content_type}
    response = await client.post("/order/global/was_noted", content=sent, headers=headers)
    refused(response, 415, "unsupported_media_type", "Content-Type")


async def test_two_different_content_types_are_a_415(client: httpx.AsyncClient) -> None:
    headers = [("content-type", "application/json"), ("content-type", "text/plain")]
    for order in (headers, headers[::-1]):
        response = await client.post(
            "/order/global/was_noted", content=json.dumps(envelope()).encode(), headers=order
        )
        refused(response, 415, "unsupported_media_type", "Content-Type")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity", "zstd", "", "GZIP"])
async def test_any_content_encoding_is_a_415(client: httpx.AsyncClient, coding: str) -> None:
    response = await append(client, "order", "global", "was_noted", None, {"content-encoding": coding})
    refused(response, 415, "unsupported_media_type", "Content-Encoding")


async def test_a_body_over_a_mebibyte_is_a_413(client: httpx.AsyncClient) -> None:
    empty = json.dumps(envelope()).encode()
    fits = empty + b" " * (1024 * 1024 - len(empty))
    url = "/order/global/was_noted"

    async def in_chunks(body: bytes):  # type: ignore[no-untyped-def]
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    assert (await client.post(url, content=fits, headers=JSON)).status_code == 201
    assert (await client.post(url, content=in_chunks(fits), headers=JSON)).status_code == 201
    refused(await client.post(url, content=fits + b" ", headers=JSON), 413, "too_large")
    refused(await client.post(url, content=in_chunks(fits + b" "), headers=JSON), 413, "too_large")
    assert await length_of(client, "global") == 2


async def test_event_data_over_256_kib_is_a_413(client: httpx.AsyncClient) -> None:
    fits = "x" * (256 * 1024 - 2)
    await appended(client, "order", "global", "was_noted", fits)
    refused(await append(client, "order", "global", "was_noted", fits + "x"), 413, "too_large", "data")
    [event] = await events_of(client, "order", "global")
    assert event["data"] == fits


async def test_at_most_a_hundred_headers_of_64_kib(gateway: Served, tenant: Account) -> None:
    for headers, status in (
        ([(b"X-%d" % n, b"x") for n in range(98)], 200),
        ([(b"X-%d" % n, b"x") for n in range(99)], 431),
        ([(b"X", b"x" * 60_000)], 200),
        ([(b"X", b"x" * 66_000)], 431),
        ([(b"X-%d" % n, b"x" * 1000) for n in range(70)], 431),
    ):
        answer = await ask(gateway.port, request("GET", "/order/global", tenant.read, headers=headers))
        assert answer is not None
        assert answer.status == status
        if status == 431:
            assert answer.code == "bad_request"


async def test_a_connection_continues_after_a_body_that_was_too_large(client: httpx.AsyncClient) -> None:
    for size in (1_048_577, 1_500_000, 3_000_000):
        response = await client.post("/order/global/was_noted", content=b" " * size, headers=JSON)
        refused(response, 413, "too_large")
        await appended(client, "order", "global", "was_noted")


@pytest.mark.parametrize(
    ("path", "known", "status"),
    [
        ("/order/global/was_noted", False, 401),
        ("/a/b/c/d/e", True, 404),
        ("/order/global/was_noted", True, 413),
    ],
)
async def test_a_refusal_is_seen_behind_a_large_body_on_a_connection_that_closes(
    gateway: Served, tenant: Account, path: str, known: bool, status: int
) -> None:
    key = tenant.write if known else "unknown"
    sent = request("POST", path, key, b"x" * 3_000_000, [(b"Connection", b"close")])
    for _ in range(8):
        answer = await asyncio.to_thread(sent_whole_and_then_read, gateway.port, sent)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"\r\nconnection: close\r\n" in answer


def sent_whole_and_then_read(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as client, client.makefile("rb") as reader:
        client.sendall(data)
        return reader.read()


@pytest.fixture
async def narrow(own_config: Config, own_tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    limits = {
        "event_bytes_max": 100,
        "body_bytes_max": 1000,
        "bulk_bytes_max": 2000,
        "headers_max": 20,
        "header_bytes_max": 2048,
    }
    async with (
        serving(replace(own_config, **limits)) as served,
        new_client(served.url, own_tenant.admin) as client,
    ):
        yield client


async def test_every_limit_is_a_setting(narrow: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(narrow, "order", key, "was_noted", "x" * 98)
    refused(await append(narrow, "order", key, "was_noted", "x" * 99), 413, "too_large", "data")
    several = batch(("was_noted", 1), ("was_noted", "x" * 99))
    refused(await narrow.post(f"/order/{key}", json=several), 413, "too_large", "events[1].data")
    refused(await append(narrow, "order", key, "was_noted", extra={"x": "x" * 900}), 413, "too_large")
    refused(await narrow.put("/_/spec", content=b" " * 1001, headers=JSON), 413, "too_large")
    told = await bulk(narrow, bulk_line(key, "x" * 98), bulk_line(key, "x" * 99), b" " * 1001)
    assert [answer["status"] for answer in told] == [201, 413, 413]
    response = await narrow.post("/_/bulk", content=lines(bulk_line(key)) + b" " * 2000, headers=NDJSON)
    refused(response, 413, "too_large")
    assert (await narrow.get("/order/global", headers={f"x-{n}": "x" for n in range(30)})).status_code == 431
    assert (await narrow.get("/order/global", headers={"x": "x" * 3000})).status_code == 431
    assert await length_of(narrow, key) == 2


async def test_a_streamed_bulk_request_is_told_where_it_grew_too_large(narrow: httpx.AsyncClient) -> None:
    key = new_id()

    async def growing() -> AsyncIterator[bytes]:
        yield lines(*[bulk_line(key, n) for n in range(4)])
        yield b" " * 2000

    response = await narrow.post("/_/bulk", content=growing(), headers=NDJSON)
    told = [json.loads(line) for line in response.content.splitlines()]
    assert [answer["status"] for answer in told] == [201, 201, 201, 201, 413]
    assert (told[4]["line"], told[4]["code"]) == (5, "too_large")
    assert await length_of(narrow, key) == 4
