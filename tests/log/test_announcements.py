"""Commits told from gateway to gateway: heard where a gateway wants to, and a hint at most."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from gateway.log.redis.announcements import Announcements
from gateway.log.redis.keys import announcement_channel
from gateway.log.redis.servers import connect
from gateway.tasks import ended
from tests.support.drive import until
from tests.support.servers import Servers

INSTANCE = uuid.uuid4()


@pytest.fixture
async def clients(redis_url: str) -> AsyncIterator[Callable[[], Redis]]:
    opened: list[Redis] = []

    def open_one() -> Redis:
        opened.append(connect(redis_url, 2, 8))
        return opened[-1]

    yield open_one
    for each in opened:
        await each.aclose()


@asynccontextmanager
async def running(redis: Redis, instance: uuid.UUID = INSTANCE) -> AsyncIterator[Announcements]:
    one = Announcements(redis, instance)
    tasks = [asyncio.create_task(loop()) for loop in (one.run_telling, one.run_listening)]
    try:
        yield one
    finally:
        await ended(tasks)


async def hears(told: Announcements, heard: list[int | None], partition: int) -> None:
    """Until what is told is heard: a listener that has just come may not be there for the first."""

    async def there() -> bool:
        told.committed(partition)
        return partition in heard

    await until(there)


async def test_what_one_commits_others_of_the_instance_hear(clients: Callable[[], Redis]) -> None:
    here: list[int | None] = []
    there: list[int | None] = []
    elsewhere: list[int | None] = []
    async with (
        running(clients()) as one,
        running(clients()) as other,
        running(clients(), uuid.uuid4()) as stranger,
    ):
        with one.hearing(here.append), other.hearing(there.append), stranger.hearing(elsewhere.append):
            await hears(one, there, 3)
            await hears(one, there, 11)
            await hears(other, here, 5)
    assert set(here) == {None, 5}
    assert set(there) == {None, 3, 11}
    assert set(elsewhere) == {None}


async def test_a_gateway_listens_only_where_it_wants_to(clients: Callable[[], Redis]) -> None:
    redis = clients()

    async def subscribers() -> int:
        return int((await redis.pubsub_numsub(announcement_channel(INSTANCE)))[0][1])

    async def none() -> bool:
        return await subscribers() == 0

    async with running(clients()) as one:
        heard: list[int | None] = []
        with one.hearing(heard.append):

            async def some() -> bool:
                return await subscribers() == 1 and heard == [None]

            await until(some)
        await until(none)


async def test_other_messages_are_no_announcement(clients: Callable[[], Redis]) -> None:
    redis = clients()
    async with running(clients()) as one, running(clients()) as other:
        heard: list[int | None] = []
        with one.hearing(heard.append):
            await hears(other, heard, 1)
            for junk in (b"", b"x", b"x -1 y 2.5", b"\xff \xff", b"1" * 100):
                await redis.publish(announcement_channel(INSTANCE), junk)
            await hears(other, heard, 2)
    assert set(heard) == {None, 1, 2}


async def test_after_an_outage_it_is_heard_that_anything_may_have_been_committed(
    start_servers: Callable[[], AsyncIterator[Servers]],
) -> None:
    servers = await start_servers()
    clients = [connect(servers.redis_url, 2, 8) for _ in range(2)]
    async with running(clients[0]) as one, running(clients[1]) as other:
        heard: list[int | None] = []
        with one.hearing(heard.append):
            await hears(other, heard, 1)
            heard.clear()
            await servers.redis.restart()

            async def again() -> bool:
                return None in heard

            await until(again)
            await hears(other, heard, 2)
    for each in clients:
        await each.aclose()


def test_a_forged_announcement_is_passed_over(clients: Callable[[], Redis]) -> None:
    here: list[int | None] = []
    one = Announcements(clients(), INSTANCE)
    with one.hearing(here.append):
        one._heed(b"somebody %b x 7" % (b"9" * 5000))
    assert here == [7]


@pytest.mark.bug
async def test_a_bug_of_what_hears_is_logged_and_the_others_hear(
    clients: Callable[[], Redis], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: int | None) -> None:
        raise RuntimeError("a bug")

    heard: list[int | None] = []
    async with running(clients()) as told, running(clients()) as other:
        with other.hearing(broken), other.hearing(heard.append):
            await hears(told, heard, 3)
            await hears(told, heard, 4)
    logged = {getattr(record, "partition", None) for record in caplog.records if record.levelname == "ERROR"}
    assert logged >= {3, 4}
    assert {record.msg for record in caplog.records} == {"commit_tap_failed"}
