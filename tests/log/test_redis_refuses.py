"""A Redis that answers and refuses writes counts as away, whatever its reason, until it writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gateway.log.log import Log
from gateway.outcomes import NotCommitted
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import Place, append, appended, lane, new_stream, ready, until

Change = Callable[[Redis], Awaitable[object]]


@pytest.fixture
def place(breakable: Place) -> Place:
    return breakable


async def _no_replicas(redis: Redis) -> None:
    await redis.config_set("min-replicas-to-write", 1)


async def _no_disk(redis: Redis) -> None:
    """The file that a snapshot is written to can't be put in its place: it is a folder."""
    await redis.config_set("stop-writes-on-bgsave-error", "yes")
    await redis.config_set("save", "3600 1000000")
    folder = (await redis.config_get("dir"))["dir"]
    file = Path(folder) / (await redis.config_get("dbfilename"))["dbfilename"]
    file.unlink(missing_ok=True)
    file.mkdir()
    await redis.bgsave()

    async def failed() -> bool:
        return (await redis.info("persistence"))["rdb_last_bgsave_status"] == "err"

    await until(failed)


async def _no_xadd(redis: Redis) -> None:
    await redis.execute_command("ACL", "SETUSER", "default", "-xadd")


async def _no_scripts(redis: Redis) -> None:
    await redis.execute_command("ACL", "SETUSER", "default", "-evalsha")


async def _no_memory(redis: Redis) -> None:
    await redis.config_set("maxmemory", 1)


async def _writes_pause(redis: Redis) -> None:
    await redis.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")


async def _well(redis: Redis) -> None:
    """All of it undone."""
    await redis.execute_command("CLIENT", "UNPAUSE")
    await redis.execute_command("ACL", "SETUSER", "default", "+@all")
    await redis.config_set("maxmemory", 0)
    await redis.config_set("min-replicas-to-write", 0)
    await redis.config_set("stop-writes-on-bgsave-error", "no")
    await redis.config_set("save", "")
    folder = (await redis.config_get("dir"))["dir"]
    file = Path(folder) / (await redis.config_get("dbfilename"))["dbfilename"]
    if file.is_dir():
        file.rmdir()


@pytest.fixture
async def admin(breakable: Place) -> AsyncIterator[Redis]:
    async with Redis.from_url(breakable.redis_url, protocol=2) as client:
        yield client
        await _well(client)


REFUSALS = [_no_replicas, _no_disk, _no_xadd, _no_scripts, _no_memory, _writes_pause]


def _mode(log: Log, mode: str) -> Callable[[], bool]:
    return lambda: log.mode == mode and all(each.partition.open for each in log._lanes)


@pytest.mark.parametrize("refuse", REFUSALS, ids=lambda each: each.__name__.removeprefix("_"))
async def test_appends_go_on_without_a_redis_that_refuses_writes(
    open_log: OpenLog, place: Place, admin: Redis, refuse: Change
) -> None:
    logs = [await open_log(append_deadline_s=20), await open_log(append_deadline_s=20)]
    stream = new_stream()
    for log in logs:
        await appended(log, append(stream))
        await until(_mode(log, "redis"))
    epoch = lane(logs[0], stream).partition.epoch
    await refuse(admin)

    await asyncio.gather(*(appended(log, append(stream)) for log in logs))
    assert {log.mode for log in logs} == {"direct"}
    assert lane(logs[0], stream).partition.epoch <= epoch + 2, "sealed again and again"
    epoch = lane(logs[0], stream).partition.epoch
    # For longer than a Redis that is back has to be steady.
    until_s = asyncio.get_running_loop().time() + 3
    while asyncio.get_running_loop().time() < until_s:
        await asyncio.gather(*(appended(log, append(stream)) for log in logs))
    assert lane(logs[0], stream).partition.epoch == epoch, "goes back to a Redis that refuses writes"
    for log in logs:
        await until(lambda log=log: ready(log))

    await _well(admin)
    for log in logs:
        await until(_mode(log, "redis"))
    await asyncio.gather(*(appended(log, append(stream)) for log in logs))
    await check_invariants(place)


@pytest.mark.parametrize("refuse", [_no_replicas, _no_disk, _writes_pause], ids=["replicas", "disk", "pause"])
async def test_a_gateway_without_appends_notices_that_writes_are_refused(
    open_log: OpenLog, admin: Redis, refuse: Change
) -> None:
    log = await open_log()
    await until(_mode(log, "redis"))
    await refuse(admin)
    await until(_mode(log, "direct"))


@pytest.mark.parametrize("refuse", [_no_replicas, _no_disk, _no_scripts, _no_memory])
async def test_a_call_that_is_refused_before_its_first_write_has_not_run(
    open_log: OpenLog, admin: Redis, refuse: Change
) -> None:
    """So an append whose time is up then is known never to appear."""
    log = await open_log(append_deadline_s=1, direct_after_s=60)
    stream = new_stream()
    await appended(log, append(stream))
    await refuse(admin)
    assert isinstance(await log.append(append(stream)), NotCommitted)
