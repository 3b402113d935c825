"""Reads: everything that was acknowledged, nothing that may yet vanish, wherever Redis stands."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace
from uuid_utils import uuid7

from gateway.appends import Appended, event_identity
from gateway.events import Event, Page, Stream
from gateway.log.log import Log
from gateway.log.read.ranges import VERSION_MAX, Range
from gateway.log.redis.scripts import RedisTrouble
from gateway.postgres.errors import PostgresTrouble
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import (
    Place,
    Proceed,
    append,
    appended,
    event,
    hold_commits,
    hold_help,
    hold_script,
    interpose,
    lane,
    new_stream,
    new_tenant,
    opened,
    seal,
    until,
    wipe_partition,
)

FIRSTS, LASTS, LIMITS = (1, 2, 7, 8, 9, 12, 13, 20), (0, 1, 7, 8, 12, 40), (0, 1, 3, 1000)
BOTH_WAYS = list(itertools.product(FIRSTS, LASTS, LIMITS, (False, True)))


async def everything(log: Log, stream: Stream, **changed: Any) -> list[Event]:
    return [each.event for each in (await log.page(Range(stream, **changed))).events]


async def entries_in_redis(log: Log, stream: Stream) -> int:
    return await log._scripts.servers.client.xlen(lane(log, stream).partition.keys.stream(stream))


def no_fill(log: Log) -> None:
    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        if name == "fill":
            raise RedisTrouble("not filled, for the test")
        return await proceed()

    interpose(log._scripts, "run", around)


async def test_a_stream_that_was_never_written_is_empty(log: Log) -> None:
    stream = new_stream()
    await opened(log, stream)
    page = await log.page(Range(stream))
    assert (page.length, page.events) == (0, ())
    assert await log.length(stream) == 0


async def test_events_come_back_as_they_were_handed_over(log: Log, place: Place) -> None:
    stream = new_stream()
    full = event(
        payload='{"é":1e100000,"é":"\\u0000"}'.encode(),
        extra=b'{"note":1}',
        causation_id=uuid7().bytes,
        target_type="order",
        target_id="ABC",
        recorded_at_ms=1,
    )
    empty = event(payload=None, recorded_at_ms=4_102_444_800_123)
    await appended(log, append(stream, events=(full, empty)))
    hot = await log.page(Range(stream))
    assert [each.event for each in hot.events] == [full, empty]
    assert [each.version for each in hot.events] == [1, 2]
    assert {each.stream for each in hot.events} == {stream}
    assert await log.page(Range(stream), strong=True) == hot
    await check_invariants(place)


async def test_the_uncommitted_is_shown_by_no_gateway(open_log: OpenLog, place: Place) -> None:
    logs = [await open_log(), await open_log()]
    stream = new_stream()
    await asyncio.gather(*(opened(each, stream) for each in logs))
    old = append(stream, 3)
    await appended(logs[0], old)
    gate = hold_commits(logs[0], stream)
    for each in logs:
        hold_help(each)
    new = append(stream, 2)
    pending = logs[0].append(new)
    await gate.arrived()
    for each in logs:
        page = await each.page(Range(stream))
        assert (page.length, [one.event for one in page.events]) == (3, list(old.events))
        assert await everything(each, stream, newest_first=True, limit=2) == list(old.events[:0:-1])
        assert await each.length(stream) == 3
    gate.open()
    await pending
    for each in logs:
        assert await everything(each, stream) == [*old.events, *new.events]
    await check_invariants(place, settles=False)


async def test_a_stream_whose_first_event_is_uncommitted_is_still_empty(
    open_log: OpenLog, place: Place
) -> None:
    logs = [await open_log(), await open_log()]
    stream = new_stream()
    await asyncio.gather(*(opened(each, stream) for each in logs))
    gate = hold_commits(logs[0], stream)
    for each in logs:
        hold_help(each)
    pending = logs[0].append(append(stream, 40))
    await gate.arrived()
    for each in logs:
        assert await each.length(stream) == 0
        assert await everything(each, stream) == []
    gate.open()
    await pending
    assert await logs[1].length(stream) == 40
    await check_invariants(place, settles=False)


async def test_an_append_is_visible_at_every_gateway_once_it_was_acknowledged(
    open_log: OpenLog, place: Place
) -> None:
    logs = [await open_log(), await open_log()]
    stream = new_stream()
    for n in range(1, 41):
        await appended(logs[n % 2], append(stream))
        assert await logs[0].length(stream) == n
        assert len(await everything(logs[1], stream)) == n
    await check_invariants(place)


async def test_an_acknowledged_append_is_visible_although_the_watermark_lags(
    open_log: OpenLog, place: Place
) -> None:
    logs = [await open_log(), await open_log()]
    stream = new_stream()
    await asyncio.gather(*(opened(each, stream) for each in logs))
    await appended(logs[0], append(stream, 2))
    commit = hold_commits(logs[0], stream)
    pending = logs[0].append(append(stream, 70))
    await commit.arrived()
    gates = [hold_script(each, "sequence") for each in logs]
    commit.open()
    assert isinstance(await pending, Appended)
    assert await logs[1].length(stream) == 72
    assert len(await everything(logs[1], stream)) == 72
    for gate in gates:
        gate.open()
    await check_invariants(place)


@pytest.mark.parametrize("state", ["hot", "cold", "half"])
async def test_pages_of_every_range_both_ways(open_log: OpenLog, place: Place, state: str) -> None:
    """`half`: Redis holds the last events only, as after a restart."""
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    no_fill(log)
    early, late = append(stream, 7), append(stream, 5)
    await appended(log, early)
    if state == "half":
        await seal(place, log, stream)
    await appended(log, late)
    if state == "cold":
        await seal(place, log, stream)
    assert await entries_in_redis(log, stream) == {"hot": 12, "half": 5, "cold": 0}[state]
    events = [*early.events, *late.events]
    pages = await asyncio.gather(
        *(log.page(Range(stream, first, last, limit, way)) for first, last, limit, way in BOTH_WAYS)
    )
    for (first, last, limit, way), page in zip(BOTH_WAYS, pages, strict=True):
        wanted = events[first - 1 : last] if last else []
        wanted = (wanted[::-1] if way else wanted)[:limit]
        assert page.length == 12
        assert [each.event for each in page.events] == wanted, (first, last, limit, way)
    await check_invariants(place)


@pytest.mark.parametrize("count", [3, 300])
async def test_reading_a_cold_stream_fills_it(log: Log, place: Place, count: int) -> None:
    stream = new_stream()
    old = append(stream, count)
    await appended(log, old)
    await seal(place, log, stream)
    assert await everything(log, stream) == list(old.events)
    kept = min(count, 256)

    async def filled() -> bool:
        return await entries_in_redis(log, stream) == kept

    await until(filled)
    assert await everything(log, stream) == list(old.events)
    (outcome,) = await appended(log, append(stream, expected=count))
    assert outcome.first_version == count + 1
    await check_invariants(place)


async def test_a_cold_stream_is_read_and_filled_by_one_statement(log: Log, place: Place) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))
    await seal(place, log, stream)
    asked = []

    async def noted(proceed: Proceed, name: str, *args: Any) -> Any:
        asked.append(name)
        return await proceed()

    async def noted_read(proceed: Proceed, _tenant: bytes, name: str, *args: Any) -> Any:
        return await noted(proceed, name)

    interpose(log._postgres, "fetch", noted)
    interpose(log._reads, "fetch_for", noted_read)
    assert len(await everything(log, stream)) == 3

    async def filled() -> bool:
        return await entries_in_redis(log, stream) == 3

    await until(filled)
    assert [name for name in asked if name not in ("partition", "partitions")] == ["stream_asc"]


async def test_reading_a_half_filled_stream_fills_it_in_front(log: Log, place: Place) -> None:
    stream = new_stream()
    await appended(log, append(stream, 6))
    await seal(place, log, stream)
    await appended(log, append(stream, 2))
    before = await everything(log, stream)

    async def filled() -> bool:
        return await entries_in_redis(log, stream) == 8

    await until(filled)
    assert await everything(log, stream) == before
    await check_invariants(place)


async def test_a_stream_is_filled_while_it_is_written(log: Log, place: Place) -> None:
    stream = new_stream()
    await appended(log, append(stream, 20))
    for _ in range(3):
        await seal(place, log, stream)
        writes = [log.append(append(stream)) for _ in range(20)]
        reads = [log.page(Range(stream)) for _ in range(20)]
        for page in await asyncio.gather(*reads):
            assert [each.version for each in page.events] == list(range(1, page.length + 1))
        await asyncio.gather(*writes)
    assert await log.length(stream) == 80
    await check_invariants(place)


async def test_pages_are_read_without_a_gap_while_the_stream_grows(open_log: OpenLog, place: Place) -> None:
    logs = [await open_log(), await open_log()]
    stream = new_stream()
    done = False

    async def write() -> None:
        nonlocal done
        for _ in range(60):
            await appended(logs[0], append(stream, 2))
        done = True

    async def read(log: Log) -> None:
        longest = 0
        while not done:
            page = await log.page(Range(stream))
            assert [each.version for each in page.events] == list(range(1, page.length + 1))
            assert page.length >= longest
            assert page.length % 2 == 0, "half of an append is visible"
            longest = page.length

    await asyncio.gather(write(), read(logs[0]), read(logs[1]))
    await check_invariants(place)


async def test_a_strong_read_asks_redis_nothing(log: Log) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        assert name != "read"
        return await proceed()

    interpose(log._scripts, "run", around)
    page = await log.page(Range(stream, 2, VERSION_MAX, 1), strong=True)
    assert (page.length, [each.version for each in page.events]) == (3, [2])


async def test_slow_reads_leave_connections_to_what_looks_after_the_log(log: Log, place: Place) -> None:
    streams = [new_stream() for _ in range(2)]
    for each in streams:
        await appended(log, append(each, 3))
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    connection = await asyncpg.connect(place.postgres_url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE outbox")
            wanted = [Range(each) for each in streams * 3]
            reads = [asyncio.create_task(log.page(each, strong=True)) for each in wanted]

            async def begun() -> bool:
                return len(await place.fetch(waiting)) == 2

            await until(begun)
            await log._postgres.fetch("partitions")
            assert not any(each.done() for each in reads), "it waited for the end of one"
    finally:
        await connection.close()
    assert [page.length for page in await asyncio.gather(*reads)] == [3] * 6


async def test_a_lost_reply_makes_a_read_ask_postgres(log: Log) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        if name == "read":
            raise RedisTrouble("the reply was lost")
        return await proceed()

    interpose(log._scripts, "run", around)
    assert await log.length(stream) == 3


async def test_an_event_is_found_by_its_id_by_only_its_own_tenant(log: Log) -> None:
    stream = new_stream()
    one = append(stream, 2)
    await appended(log, one)
    found = await log.event(stream.tenant, one.events[1].id)
    assert found is not None
    assert (found.stream, found.version, found.event) == (stream, 2, one.events[1])
    assert await log.event(new_stream().tenant, one.events[1].id) is None
    assert await log.event(stream.tenant, uuid7().bytes) is None


async def test_the_version_at_a_time_is_the_last_one_recorded_by_then(log: Log) -> None:
    stream = new_stream()
    await appended(log, append(stream, events=tuple(event(recorded_at_ms=ms) for ms in (1000, 2000, 2000))))
    assert [await log.version_at(stream, ms) for ms in (999, 1000, 1999, 2000, 9999)] == [0, 1, 1, 3, 3]


async def test_a_reader_waits_for_a_length_that_any_gateway_may_bring(open_log: OpenLog) -> None:
    logs = [await open_log(), await open_log()]
    stream = new_stream()
    waiting = [asyncio.ensure_future(each.reached(stream, 2, 5)) for each in logs]
    await appended(logs[0], append(stream))
    assert not any(each.done() for each in waiting)
    await appended(logs[0], append(stream))
    assert await asyncio.gather(*waiting) == [True, True]
    assert await logs[0].reached(stream, 3, 0.05) is False


async def test_a_stream_that_nothing_came_to_is_not_looked_at_and_stays_in_use(log: Log) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))
    redis: Any = log._scripts.servers.client
    key = lane(log, stream).partition.keys.stream(stream)
    await redis.restore(key, 0, await redis.dump(key), replace=True, idletime=1000)
    known = Range(stream, 4, known=3)

    async def in_use() -> bool:
        assert await log.page(known) == Page(3)
        return bool(await redis.object("idletime", key) < 1000)

    await until(in_use)
    await redis.delete(key)
    assert await log.page(known) == Page(3)
    await appended(log, append(stream, 2))
    page = await log.page(known)
    assert (page.length, [each.version for each in page.events]) == (5, [4, 5])


async def test_what_is_known_may_be_behind_ahead_and_uncommitted(log: Log, place: Place) -> None:
    """Whatever is said of the past, a read shows what is committed."""
    stream = new_stream()
    await appended(log, append(stream, 4))
    for known in range(4):
        assert (await log.page(Range(stream, known + 1, known=known))).length == 4
    held = hold_commits(log, stream)
    writing = log.append(append(stream))
    await held.arrived()
    assert (await log.page(Range(stream, 5, known=4))) == Page(4)
    held.open()
    await writing
    assert (await log.page(Range(stream, 5, known=4))).length == 5


async def test_one_call_brings_no_more_than_about_a_thousand_events(log: Log) -> None:
    tenant = new_stream().tenant
    asked = [Stream(tenant, "order", str(n)) for n in range(6)]
    for each in asked:
        await appended(log, append(each, 400))
    calls = []

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        reply = await proceed()
        if name == "read":
            calls.append([0 if each is None else len(each[2]) for each in reply[3:]])
        return reply

    interpose(log._scripts, "run", around)
    pages = await asyncio.gather(*(log.page(Range(each)) for each in asked))
    assert [len(page.events) for page in pages] == [400] * 6
    assert [page.events[0].stream for page in pages] == asked
    assert calls == [[400, 400, 400, 0, 0, 0], [400, 400, 400]]


async def test_a_look_tells_what_redis_has_and_nothing_else(log: Log) -> None:
    stream, never = new_stream(), new_stream()
    await appended(log, append(stream, 2))
    await opened(log, never)
    told: asyncio.Queue[Page | None] = asyncio.Queue()
    for each in (stream, never):
        log.look(Range(each), told.put_nowait)
    found = [await told.get(), await told.get()]
    assert await log.page(Range(stream)) in found
    assert None in found


@pytest.mark.bug
async def test_a_look_that_fails_keeps_no_reader_waiting(log: Log) -> None:
    stream = new_stream()
    await appended(log, append(stream, 2))

    def broken(_page: Page | None) -> None:
        raise RuntimeError("a bug")

    log.look(Range(stream), broken)
    assert (await log.page(Range(stream))).length == 2


SIZES = (10, 10, 5000, 10, 300, 300, 300, 300, 300, 10, 10, 3000)


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("state", ["hot", "cold", "half"])
async def test_pages_end_by_bytes_and_lead_through_all(
    open_log: OpenLog, place: Place, state: str, newest_first: bool
) -> None:
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    no_fill(log)
    events = [event(payload=b"%0*d" % (size, n)) for n, size in enumerate(SIZES)]
    await appended(log, append(stream, events=tuple(events[:7])))
    if state == "half":
        await seal(place, log, stream)
    await appended(log, append(stream, events=tuple(events[7:])))
    if state == "cold":
        await seal(place, log, stream)
    wanted = Range(stream, newest_first=newest_first, bytes_max=1000)
    sizes, seen = [], []
    while wanted.first <= min(wanted.last, len(SIZES)):
        page = await log.page(wanted)
        assert page.length == len(SIZES)
        seen += [each.event for each in page.events]
        sizes.append([len(each.event.payload or b"") for each in page.events])
        reached = page.events[-1].version
        wanted = replace(wanted, last=reached - 1) if newest_first else replace(wanted, first=reached + 1)
    assert seen == (events[::-1] if newest_first else events)
    assert all(sum(each[:-1]) < 1000 for each in sizes)
    assert len(sizes) <= 7
    if state == "half" and not newest_first:
        assert len((await log.page(Range(stream, 7, bytes_max=601))).events) == 3  # of both servers


async def test_a_call_brings_about_a_mebibyte_and_no_more_of_large_events(log: Log) -> None:
    tenant = new_stream().tenant
    asked = [Stream(tenant, "order", str(n)) for n in range(4)]
    for each in asked:
        await appended(log, append(each, events=tuple(event(payload=b"1" * 100_000) for _ in range(15))))
    calls = []

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        reply = await proceed()
        if name == "read":
            calls.append([0 if each is None else len(each[2]) for each in reply[3:]])
        return reply

    interpose(log._scripts, "run", around)
    pages = await asyncio.gather(*(log.page(Range(each)) for each in asked))
    assert [len(page.events) for page in pages] == [11] * 4
    assert calls == [[11, 0, 0, 0], [11, 0, 0], [11, 0], [11]]


@pytest.mark.parametrize("count", [31, 32, 33, 64, 65, 200])
async def test_pages_of_as_many_events_as_a_script_reads_at_once(log: Log, count: int) -> None:
    stream = new_stream()
    wanted = append(stream, count)
    await appended(log, wanted)
    assert await everything(log, stream) == list(wanted.events)
    assert await everything(log, stream, newest_first=True) == list(wanted.events)[::-1]
    assert await everything(log, stream, limit=count - 1) == list(wanted.events)[:-1]


async def test_a_receipt_takes_a_connection_of_those_for_reads(log: Log) -> None:
    """Appends wait for none that only ask what was done."""
    stream = new_stream()
    (done,) = await appended(log, append(stream))
    asked = (stream.tenant, event_identity(stream.tenant, done.event_ids[0]), done.event_ids[0])
    found = await log.receipt(*asked)
    assert found is not None
    assert found.event_ids == done.event_ids
    log._reads._deadline_s = 0.05
    await log._reads._turns.begin(stream.tenant)
    with pytest.raises(PostgresTrouble, match="other reads took all connections"):
        await log.receipt(*asked)
    await appended(log, append(stream))


async def test_short_streams_that_redis_does_not_have_are_read_together(log: Log) -> None:
    tenant = new_tenant()
    streams = [new_stream(tenant) for _ in range(4)]
    for n, each in enumerate(streams, 1):
        await appended(log, append(each, n))
    long, never = new_stream(tenant), new_stream(tenant)
    await appended(log, append(long, 40))
    await wipe_partition(log, long)
    loop, told = asyncio.get_running_loop(), []
    for each in (*streams, long, never):
        told.append(loop.create_future())
        log.look(Range(each), told[-1].set_result)
    pages = await asyncio.gather(*told)
    assert [page and (page.length, len(page.events)) for page in pages] == [
        (1, 1), (2, 2), (3, 3), (4, 4), None, None,
    ]  # fmt: skip
    assert [each.version for each in pages[3].events] == [1, 2, 3, 4]
    assert pages[3].events == (await log.page(Range(streams[3]), strong=True)).events
