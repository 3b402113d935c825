"""Answers that clients ask for and do not read: bounded in time and in memory, unnoticed by other clients."""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from gateway.app import gateway
from gateway.config import Config
from gateway.http.bounds import Limited
from gateway.http.request import Message
from gateway.http.unread import LARGE_BYTES, Unread
from gateway.setting_rows import MIB
from gateway.telemetry.metrics import Metrics
from tests.http.raw import Connection, connected
from tests.http.test_bulk import resident_kb
from tests.support.accounts import Account
from tests.support.calls import append, appended, new_client, new_id, refused, until
from tests.support.serving import Served, child_serving, serving
from tests.telemetry.scrape import scrape

TOKEN = "for-the-tests"
ASKED = 16  # on one connection: more than what sockets take
CLIENTS = 8


async def large(client: httpx.AsyncClient) -> str:
    """An aggregate of some MB."""
    key = new_id()
    for _ in range(24):
        await appended(client, "order", key, "was_noted", {"text": "x" * 250_000})
    return key


def asking(path: str, token: str, *more: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *more]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


async def limited(served: Served, limit: str) -> float:
    async with new_client(served.url, TOKEN) as operator:
        return (await scrape(operator))("sluice_limited_total", limit=limit)


# -- against real sockets


@pytest.fixture(scope="module")
async def impatient(config: Config) -> AsyncIterator[Served]:
    settings = {"write_timeout_s": 1.0, "key_unread_bytes_max": 4 * MIB, "metrics_token": TOKEN}
    async with serving(replace(config, **settings)) as served:
        yield served


@pytest.mark.parametrize(
    "form",
    ["", "Accept: application/x-ndjson", "Accept: text/event-stream", "Connection: close"],
    ids=["pages", "ndjson", "sse", "closed"],
)
async def test_a_client_that_reads_nothing_is_ended(
    impatient: Served, client: httpx.AsyncClient, tenant: Account, form: str
) -> None:
    key = await large(client)
    before = await limited(impatient, "write_timeout")
    more = (form,) if form else ()
    page = asking(f"/order/{key}/events", tenant.read)
    last = asking(f"/order/{key}/events", tenant.read, *more)
    async with connected(impatient.port) as connection:
        connection.read_no_more()
        await connection.send(page * ASKED + last if form != "Accept: text/event-stream" else page * 6 + last)

        async def ended() -> bool:
            return await limited(impatient, "write_timeout") > before

        await until(ended)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError, AssertionError)):
            connection.read_again()
            for _ in range(ASKED + 1):
                assert await connection.answer() is not None


async def test_a_client_that_reads_slowly_is_not_ended(
    impatient: Served, client: httpx.AsyncClient, tenant: Account
) -> None:
    key = await large(client)
    before = await limited(impatient, "write_timeout")
    async with connected(impatient.port) as connection:
        connection.read_no_more()
        await connection.send(asking(f"/order/{key}/events", tenant.read) * ASKED)
        for _ in range(ASKED):
            connection.read_again()
            answer = await connection.answer()
            assert answer is not None and answer.status in (200, 429)
            connection.read_no_more()
    assert await limited(impatient, "write_timeout") == before


@pytest.mark.parametrize("path", ["/order/{key}/events", "/_/feed"])
@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/event-stream"])
async def test_what_a_slow_client_has_not_taken_is_in_its_write_buffer_only(
    config: Config, client: httpx.AsyncClient, tenant: Account, path: str, accept: str
) -> None:
    """Against the application itself: `send` is a connection whose client has stopped to read."""
    key, waits = await large(client), asyncio.Event()
    written: list[bytes] = []
    held: list[int] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body" and not waits.is_set():
            if message["body"]:
                written.append(message["body"])
            else:
                held.append(sys.getrefcount(written[-1]))
                waits.set()
                await asyncio.Event().wait()

    async def receive() -> Message:
        return await asyncio.Event().wait() or {}

    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "path": path.format(key=key),
        "raw_path": path.format(key=key).encode(), "query_string": b"", "client": ("127.0.0.1", 1),
        "headers": [(b"authorization", f"Bearer {tenant.read}".encode()), (b"accept", accept.encode())],
    }  # fmt: skip
    async with gateway(config, asyncio.Event()) as edge:
        asking_for = asyncio.ensure_future(edge.application(scope, receive, send))
        async with asyncio.timeout(10):
            await waits.wait()
        asking_for.cancel()
        await asyncio.wait({asking_for})
    assert len(written[-1]) > LARGE_BYTES
    assert held == [2], "by this list, and by the question itself"


async def test_memory_stays_within_what_settings_say_and_others_notice_nothing(
    config: Config, client: httpx.AsyncClient, tenant: Account, tmp_path: Path
) -> None:
    key = await large(client)
    settings = {"SLUICE_WRITE_TIMEOUT_S": "3", "SLUICE_METRICS_TOKEN": TOKEN}
    async with (
        child_serving(config.postgres_url, config.redis_url, tmp_path, **settings) as child,
        new_client(child.served.url, tenant.write) as victim,
        AsyncExitStack() as open_ones,
    ):
        await victim.get(f"/order/{key}/events?limit=1000")
        before_kb = resident_kb(child)
        for _ in range(CLIENTS):
            connection: Connection = await open_ones.enter_async_context(connected(child.served.port))
            connection.read_no_more()
            await connection.send(asking(f"/order/{key}/events?limit=1000", tenant.read) * ASKED)
        took = []
        loop = asyncio.get_running_loop()
        while await limited(child.served, "write_timeout") < CLIENTS:
            begun = loop.time()
            assert (await append(victim, "order", new_id(), "was_noted")).status_code == 201
            took.append(loop.time() - begun)
        # Of the slowest ones, a few wait for the machine's disk, which others share.
        assert statistics.quantiles(took, n=20)[-1] < 1.0
        # An answer in the buffer and the next one ready, a little more than a MiB each, and what made them.
        assert resident_kb(child, "VmHWM") - before_kb < CLIENTS * 6 * 1024
        assert "limit_reached" in child.log


async def test_a_key_that_does_not_read_gets_no_further_large_answers_and_all_small_ones(
    config: Config, client: httpx.AsyncClient, tenant: Account
) -> None:
    key = await large(client)
    settings = {"key_unread_bytes_max": MIB, "metrics_token": TOKEN}
    async with (
        serving(replace(config, **settings)) as served,
        new_client(served.url, tenant.read) as reader,
        new_client(served.url, tenant.write) as other,
        AsyncExitStack() as open_ones,
    ):

        async def is_full() -> bool:
            connection: Connection = await open_ones.enter_async_context(connected(served.port))
            connection.read_no_more()
            await connection.send(asking(f"/order/{key}/events", tenant.read) * ASKED)
            response = await reader.get(f"/order/{key}/events")
            if response.status_code == 200:
                return False
            told = refused(response, 429, "rate_limited")
            assert told["error"].startswith("This key has 1048576 bytes of unread answers.")
            assert response.headers["retry-after"] == "1"
            return True

        await until(is_full)
        for path in (f"/order/{key}/events?limit=100&order=desc", "/_/feed", f"/order/{key}/events"):
            response = await reader.get(path)
            assert response.status_code == 429, path
        assert (await reader.get(f"/order/{key}/length")).status_code == 200
        assert (await other.get(f"/order/{key}/events")).status_code == 200
        assert await limited(served, "unread") > 0


# -- the sums


@dataclass(eq=False)
class Buffer:
    size: int
    aborted: bool = False

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.aborted = True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def unread(clock: Clock) -> Unread:
    config = Config(redis_url="redis://r", postgres_url="postgresql://p")
    config = replace(config, key_unread_bytes_max=100, unread_bytes_max=250)
    return Unread(config, Limited(Metrics(CollectorRegistry())), lambda _: "", clock)


def begun(unread: Unread, holder: str, size: int) -> Buffer:
    buffer = Buffer(size)
    unread.begin(buffer, buffer, holder)
    return buffer


async def test_what_is_unread_is_what_began_and_was_not_taken(unread: Unread) -> None:
    one, two = begun(unread, "a", 60), begun(unread, "b", 30)
    assert unread.total == 90
    unread.begin(one, one, "a")  # it is counted already
    assert unread.total == 90
    assert (unread.has_room("a", 40), unread.has_room("a", 41), unread.has_room("c", 10**9)) == (
        True,
        False,
        True,
    )
    for each in (one, two, one):
        unread.end(each)
    assert unread.total == 0
    assert unread.has_room("a", 10**9)


async def test_beyond_its_share_a_key_loses_what_took_nothing_for_longest(
    unread: Unread, clock: Clock
) -> None:
    old, reading = begun(unread, "a", 40), begun(unread, "a", 40)
    other = begun(unread, "b", 90)
    clock.now += 5
    reading.size = 30
    new = begun(unread, "a", 90)
    assert [each.aborted for each in (old, reading, new, other)] == [True, False, False, False]
    assert unread.total == 30 + 90 + 90


async def test_beyond_the_sum_of_all_the_greediest_key_makes_room(unread: Unread) -> None:
    buffers = [begun(unread, holder, size) for holder, size in (("a", 90), ("b", 80), ("c", 70), ("d", 60))]
    assert [each.aborted for each in buffers] == [True, False, False, False]
    assert unread.total == 210
