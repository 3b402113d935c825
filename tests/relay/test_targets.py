"""Every target there is, held to the contract."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from gateway.relay.pull import Claim
from gateway.relay.targets.contract import SEND_TIMEOUT_S, Failed, Target
from gateway.relay.targets.redis_stream import RedisStreamTarget
from gateway.relay.targets.webhook import WebhookTarget
from spec.targets.redis_stream import RedisStream
from spec.targets.webhook import Webhook
from tests.http.lag import holds_up_no_other
from tests.relay.conftest import Bench, until
from tests.relay.contract import DeliveryContract, TargetContract, failing, parcel
from tests.relay.receivers import SECRET, Answer, Door, WebReceiver, door, web_receiver
from tests.support.calls import new_id

RETRY_S = [0.05] * 50


class Web:
    """A web server."""

    secret = SECRET

    def __init__(self, server: WebReceiver) -> None:
        self.server = server

    @property
    def document(self) -> dict[str, Any]:
        return {"type": "webhook", "url": self.server.url, "secret": SECRET, "retry_s": RETRY_S}

    async def arrived(self) -> list[tuple[str, bytes]]:
        return [(each.id, each.body) for each in self.server.accepted]

    def fail(self, part: float) -> None:
        self.server.answer = lambda _: Answer(500 if failing(part) else 204, body=b"")

    def hang(self) -> None:
        self.server.answer = lambda _: Answer(hang=True)

    def target(self, timeout_s: float = SEND_TIMEOUT_S, *, allow_private: bool = True) -> Target:
        declared = Webhook(self.server.url, SECRET)
        return WebhookTarget(declared, {}, allow_private=allow_private, timeout_s=timeout_s)


class Stream:
    """A real Redis behind a door that can be shut."""

    secret = "s3cret-of-redis"

    def __init__(self, redis: Redis, entry: Door) -> None:
        self._redis = redis
        self._door = entry
        self.key = f"orders:{new_id()}"

    @property
    def document(self) -> dict[str, Any]:
        url = f"redis://127.0.0.1:{self._door.port}/0"
        return {"type": "redis_stream", "url": url, "stream": self.key, "retry_s": RETRY_S}

    async def entries(self) -> list[dict[bytes, bytes]]:
        return [each for _, each in await self._redis.xrange(self.key)]

    async def arrived(self) -> list[tuple[str, bytes]]:
        return [(each[b"id"].decode(), each[b"event"]) for each in await self.entries()]

    def fail(self, part: float) -> None:
        self._door.failing = part
        if part == 1.0:
            self._door.cut()

    def hang(self) -> None:
        self._door.silent = True

    def target(self, timeout_s: float = SEND_TIMEOUT_S, *, allow_private: bool = True) -> Target:
        url = f"redis://default:{self.secret}@127.0.0.1:{self._door.port}/0"
        declared = RedisStream(url, self.key)
        return RedisStreamTarget(declared, allow_private=allow_private, timeout_s=timeout_s)


class Consumer:
    """Claims and acks all the while, as several workers do. What it fails at is soon claimed again."""

    secret = ""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._failing = 0.0
        self._arrived: list[tuple[str, bytes]] = []
        self._tasks = [asyncio.create_task(self._work()) for _ in range(3)]

    async def arrived(self) -> list[tuple[str, bytes]]:
        return [*self._arrived]

    def fail(self, part: float) -> None:
        self._failing = part

    @property
    def document(self) -> dict[str, Any]:
        return {"type": "pull", "lease_s": 60.0, "attempts_max": 100}

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        bench = self._bench
        while True:
            for name in ("all", "new"):
                fails = failing(self._failing)
                claim = await bench.pull.claim(bench.tenant, name, 7, lease_s=0.5 if fails else None)
                if isinstance(claim, Claim) and claim.id is not None and not fails:
                    self._arrived += [(json.loads(each)["id"], each) for each in claim.events]
                    await bench.pull.ack(bench.tenant, name, [claim.id], [])
            await asyncio.sleep(0.01)


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with web_receiver() as server:
        yield Web(server)


@pytest.fixture
async def stream(redis_url: str) -> AsyncIterator[Stream]:
    redis = Redis.from_url(redis_url)
    async with door(str(Path(urlsplit(redis_url).path))) as entry:
        made = Stream(redis, entry)
        yield made
        await redis.delete(made.key)
    await redis.aclose()


@pytest.fixture
async def consumer(bench: Bench) -> AsyncIterator[Consumer]:
    made = Consumer(bench)
    yield made
    await made.close()


class TestWebhook(TargetContract):
    @pytest.fixture
    def receiver(self, web: Web) -> Web:
        return web


class TestRedisStream(TargetContract):
    @pytest.fixture
    def receiver(self, stream: Stream) -> Stream:
        return stream


class TestWebhooksDelivered(DeliveryContract):
    @pytest.fixture
    def receiver(self, web: Web) -> Web:
        return web


class TestRedisStreamsDelivered(DeliveryContract):
    @pytest.fixture
    def receiver(self, stream: Stream) -> Stream:
        return stream


class TestPulled(DeliveryContract):
    @pytest.fixture
    def receiver(self, consumer: Consumer) -> Consumer:
        return consumer


async def test_a_stream_is_trimmed_to_the_length_asked_for(stream: Stream, bench: Bench) -> None:
    await bench.put("all", {**stream.document, "maxlen": 7})
    async with bench.relaying():
        await bench.append([new_id() for _ in range(20)])

        async def all_sent() -> bool:
            return (await bench.stands("all"))["lag_events"] == 0

        await until(all_sent)
    assert len(await stream.arrived()) == 7


async def test_an_entry_of_a_stream_has_no_key_where_an_alias_stands_for_it(
    stream: Stream,
) -> None:
    target = stream.target()
    await target.send(replace(parcel(), key=None))
    await target.send(parcel(2))
    await target.close()
    without, with_key = await stream.entries()
    assert {*with_key} - {*without} == {b"key"}


HOSTILE = {
    "a list without end": b"*500000000\r\n",
    "lists in lists": b"*1\r\n" * 5_000,
    "a text of 1 GB": b"$1000000000\r\n" + bytes(1_000_000),
    "a text of no length": b"$-7\r\n",
    "a text of many digits": b"$" + b"9" * 5_000 + b"\r\n",
    "no number": b":x\r\n",
    "a long line": b"+" + b"x" * 1_000_000,
    "a map": b"%7\r\n",
    "no Redis": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an error": b"-ERR \xff no\r\n",
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
async def test_what_a_redis_answers_holds_up_nothing_and_takes_no_memory(answer: bytes) -> None:
    """It is the tenant's own, and may say anything."""

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                replies = data.count(b"SETINFO") * b"+OK\r\n"
                writer.write(replies + (answer if b"XADD" in data else b""))
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(answering, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        declared = RedisStream(f"redis://127.0.0.1:{port}/", "orders")

        async def sending() -> None:
            target = RedisStreamTarget(declared, allow_private=True, timeout_s=1)
            try:
                assert isinstance(await target.send(parcel()), Failed)
            finally:
                await target.close()

        await holds_up_no_other(sending)
