"""A Redis that is killed, paused, wiped, demoted, or comes back without its last events."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.appends import Appended
from gateway.log.read.ranges import Range
from gateway.outcomes import NotCommitted
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.log.load import Load
from tests.support.drive import (
    Gate,
    Place,
    Proceed,
    append,
    appended,
    hold_commits,
    hold_help,
    ids,
    interpose,
    lane,
    new_stream,
    opened,
    ready,
    tally,
    time_is_up,
    until,
)
from tests.support.servers import Servers


@pytest.fixture
def place(breakable: Place) -> Place:
    return breakable


async def test_a_replica_is_never_sequenced_on(open_log: OpenLog, place: Place, redis: Redis) -> None:
    log = await open_log()
    stream = new_stream()
    one = append(stream, 2)
    await appended(log, one)
    await redis.replicaof("127.0.0.1", 1)
    late = log.append(append(stream))
    await until(lambda: not lane(log, stream).partition.open)
    time_is_up(log, stream)
    assert isinstance(await late, NotCommitted)
    page = await log.page(Range(stream))
    assert [each.event for each in page.events] == list(one.events)
    await redis.replicaof("NO", "ONE")
    await opened(log, stream)
    (outcome,) = await appended(log, append(stream, expected=2))
    assert (outcome.first_version, log.mode) == (3, "redis")
    await check_invariants(place)


async def test_reads_go_on_while_redis_is_away(
    open_log: OpenLog, place: Place, breakable_servers: Servers
) -> None:
    log = await open_log()
    stream = new_stream()
    one = append(stream, 3)
    await appended(log, one)
    breakable_servers.redis.kill()
    page = await log.page(Range(stream, newest_first=True))
    assert [each.event for each in page.events] == list(one.events[::-1])
    assert await log.ready() is not None
    await breakable_servers.redis.start()
    await appended(log, append(stream))
    await check_invariants(place)


async def test_a_redis_that_restarts_while_no_client_appends_leaves_the_gateway_ready(
    open_log: OpenLog, breakable_servers: Servers
) -> None:
    log = await open_log()
    await until(lambda: ready(log))
    await breakable_servers.redis.restart()
    await until(lambda: ready(log))


async def test_appends_survive_that_redis_is_killed_under_load(
    open_log: OpenLog, place: Place, breakable_servers: Servers
) -> None:
    load = Load([await open_log(), await open_log()])
    async with load.running():
        await load.more(100)
        await breakable_servers.redis.restart()
        await load.more(100)
        breakable_servers.wipe_redis()
        await breakable_servers.redis.start()
        await load.more(100)
    assert set(tally([outcome for *_, outcome in load.outcomes])) == {"Appended"}
    await load.check(load.logs[1])
    await check_invariants(place)


def aof(servers: Servers) -> Path:
    return servers.folder / "redis" / "appendonlydir"


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "uncommitted"])
async def test_a_redis_that_comes_back_without_its_last_events_is_given_up(
    open_log: OpenLog, place: Place, breakable_servers: Servers, committed: bool
) -> None:
    servers = breakable_servers
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream, 3, key=b"old"))
    await check_invariants(place)
    copy = servers.folder / "copy"
    shutil.copytree(aof(servers), copy)
    gate, helped = hold_commits(log, stream), hold_help(log)
    if committed:
        gate.open()
    late = append(stream, 2, key=b"late")
    pending = log.append(late)
    await (pending if committed else gate.arrived())
    servers.redis.kill()
    shutil.rmtree(aof(servers))
    shutil.move(copy, aof(servers))
    await servers.redis.start()
    gate.open()
    helped.open()
    assert await pending == Appended(stream.key, 4, ids(late))
    (outcome,) = await appended(log, append(stream))
    assert outcome.first_version == 6
    assert await log.append(append(stream, 2, key=b"late")) == Appended(stream.key, 4, ids(late), True)
    assert await log.length(stream) == 6
    await check_invariants(place)


async def test_a_redis_that_answers_too_late_makes_nothing_appear_twice(
    open_log: OpenLog, place: Place, breakable_servers: Servers
) -> None:
    """Paused: its connections stay open, and what they carried runs when it wakes up."""
    log = await open_log(redis_timeout_s=0.2)
    stream = new_stream()
    await appended(log, append(stream))
    breakable_servers.redis.pause()
    pending = [log.append(append(stream)) for _ in range(10)]
    partition = lane(log, stream).partition
    await until(lambda: not partition.open)
    breakable_servers.redis.resume()
    outcomes = await asyncio.gather(*pending)
    assert [each.first_version for each in outcomes if isinstance(each, Appended)] == list(range(2, 12))
    await check_invariants(place)


async def test_what_was_proposed_before_redis_lost_its_tail_never_commits_beside_the_new_tail(
    open_log: OpenLog, place: Place, breakable_servers: Servers
) -> None:
    servers = breakable_servers
    slow, quick = await open_log(), await open_log()
    stream = new_stream()
    await appended(slow, append(stream, 3))
    await check_invariants(place)
    await opened(quick, stream)
    copy = servers.folder / "copy"
    shutil.copytree(aof(servers), copy)
    back = asyncio.Event()

    async def once_back(proceed: Proceed) -> Any:
        await back.wait()  # who finds that Redis answers again
        return await proceed()

    interpose(slow._sweeper, "run_once", lambda proceed: Gate().hold())
    interpose(quick._sweeper, "run_once", once_back)
    gate = hold_commits(slow, stream)
    pending = slow.append(append(stream))
    await gate.arrived()
    servers.redis.kill()
    shutil.rmtree(aof(servers))
    shutil.move(copy, aof(servers))
    await servers.redis.start()
    back.set()
    partition = lane(quick, stream).partition
    partition.distrust()
    lane(quick, stream).sequencer.wake()
    await opened(quick, stream)
    gate.open()
    outcome = await pending
    assert isinstance(outcome, Appended)
    assert await quick.length(stream) == outcome.length
    await appended(quick, append(stream, expected=outcome.length))
    await check_invariants(place, settles=False)
