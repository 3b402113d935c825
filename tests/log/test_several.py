"""Appends to several streams: all of their events or none, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.appends import Appended
from gateway.events import Stream
from gateway.log.log import Log
from gateway.log.read.ranges import Range
from gateway.outcomes import Conflict
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import (
    Place,
    append,
    append_to_all,
    appended,
    crash,
    hold_commits,
    hold_help,
    lane,
    new_stream,
    new_tenant,
    opened,
    seal,
    until,
    wipe_partition,
)


@pytest.fixture
def streams() -> tuple[Stream, Stream, Stream]:
    tenant = new_tenant()
    return new_stream(tenant), new_stream(tenant), new_stream(tenant)


async def versions(log: Log, stream: Stream) -> list[bytes]:
    return [each.event.id for each in (await log.page(Range(stream, 1, 100))).events]


async def test_each_event_has_its_place_in_its_stream(
    log: Log, streams: tuple[Stream, ...], place: Place
) -> None:
    one, two, three = streams
    await appended(log, append(two, 2))
    moved = append_to_all([one, two, one, three, two], {one: 0, two: 2}, key=b"k")
    (done,) = await appended(log, moved)
    assert done.places == ((one, 1), (two, 3), (one, 2), (three, 1), (two, 4))
    ids = done.event_ids
    assert await versions(log, one) == [ids[0], ids[2]]
    assert (await versions(log, two))[2:] == [ids[1], ids[4]]
    assert await versions(log, three) == [ids[3]]
    (again,) = await appended(log, append_to_all([one, two, one, three, two], {one: 0, two: 2}, key=b"k"))
    assert again.replayed
    assert (again.places, again.event_ids, again.last) == (done.places, done.event_ids, done.last)
    await check_invariants(place)


async def test_one_stream_of_another_length_refuses_all(log: Log, streams: tuple[Stream, ...]) -> None:
    one, two, three = streams
    await appended(log, append(two, 2))
    refused = append_to_all([one, two, three], {one: 0, two: 3, three: 1})
    assert await log.append(refused) == Conflict(2, 1)
    assert [await log.length(each) for each in streams] == [0, 2, 0]


async def test_streams_that_redis_does_not_have_are_looked_up_together(
    log: Log, streams: tuple[Stream, ...], place: Place
) -> None:
    one, two, three = streams
    await appended(log, append(one, 1), append(two, 2))
    await wipe_partition(log, one)
    (done,) = await appended(log, append_to_all([three, two, one], {one: 1, two: 2, three: 0}))
    assert [version for _, version in done.places] == [1, 3, 2]
    await seal(place, log, one)
    assert await log.append(append_to_all([one, two], {two: 2})) == Conflict(3, 1)
    await check_invariants(place)


async def test_a_gateway_that_died_leaves_whole_appends_to_another(
    open_log: OpenLog, place: Place, streams: tuple[Stream, ...]
) -> None:
    dead, living = await open_log(), await open_log()
    await asyncio.gather(opened(dead, streams[0]), opened(living, streams[0]))
    hold_commits(dead, streams[0])
    for each in (dead, living):
        hold_help(each)
    dead.append(append_to_all([streams[0], streams[1], streams[0], streams[2]]))
    dead.append(append_to_all([streams[1], streams[2]], {streams[1]: 1}))
    meta = lane(dead, streams[0]).partition.keys.meta

    async def sequenced() -> bool:
        return int(await dead._scripts.servers.client.hget(meta, "q")) == 6

    await until(sequenced)
    await crash(dead)
    await living.stop(1)
    log = await open_log()
    await until(lambda: log.committed_seq(streams[0].tenant) == 6)
    assert [await log.length(each) for each in streams] == [2, 2, 2]
    await check_invariants(place)


async def test_many_at_two_gateways_over_lost_epochs_leave_equal_streams(
    open_log: OpenLog, place: Place, streams: tuple[Stream, ...]
) -> None:
    """Every append goes to all three streams, so they are equally long at every look."""
    logs = [await open_log(), await open_log()]
    await asyncio.gather(*(opened(log, streams[0]) for log in logs))
    writing = True

    async def write(n: int) -> int:
        order, done = list(streams), 0
        while writing:
            random.Random(n).shuffle(order)
            outcome = await logs[n % 2].append(append_to_all(order))
            done += type(outcome) is Appended
        return done

    async def read() -> int:
        looks = 0
        while writing:
            first, second = (random.choice(streams) for _ in range(2))
            seen = await random.choice(logs).length(first)
            assert await random.choice(logs).length(second) >= seen, "half of an append was shown"
            looks += 1
        return looks

    tasks = [asyncio.create_task(write(n)) for n in range(8)]
    readers = [asyncio.create_task(read()) for _ in range(2)]
    for more in (40, 80, 120):
        await until(lambda more=more: logs[0].committed_seq(streams[0].tenant) > more)
        await seal(place, logs[0], streams[0])
    writing = False
    done = sum(await asyncio.gather(*tasks))
    assert min(await asyncio.gather(*readers)) > 0
    assert done > 0
    assert [await logs[0].length(each) for each in streams] == [done] * 3
    await check_invariants(place)
