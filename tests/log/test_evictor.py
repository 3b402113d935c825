"""What leaves Redis: streams and journals by age, never what is not committed; the keys of old epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.appends import Append, Appended, next_chain, pack_event
from gateway.events import Stream
from gateway.log.entries import stream_entry
from gateway.log.limits import Limits
from gateway.log.log import Log
from gateway.log.read import evictor as module
from gateway.log.read.evictor import BOUND_WITHOUT_MAXMEMORY, CommitTimes, Evictor, Look
from gateway.log.read.ranges import Range
from gateway.log.redis.keys import partition_keys
from gateway.log.redis.scripts import NotRun, Scripts
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.log.scripted import Partition
from tests.support.drive import (
    LIMITS,
    Gate,
    Place,
    Proceed,
    append,
    appended,
    event,
    interpose,
    lane,
    new_stream,
    new_tenant,
    open_gateway,
    opened,
    seal,
    until,
)

MEMORY = 8 << 20
PAYLOAD = b'"%b"' % (b"x" * 4094)

# -- the scripts by themselves


@pytest.fixture
async def partition(redis: Redis) -> Partition:
    made = Partition(redis, Scripts(redis))
    assert await made.install() == b"OK"
    return made


async def evict(
    partition: Partition, *streams: Stream, told: tuple[int, str] = (0, ""), journal_from: int = 0,
    least_s: int = 0, most: int = 100,
) -> list[Any]:  # fmt: skip
    keys = partition.keys
    names = [keys.meta, keys.journal, keys.heads, *keys.tags, *map(keys.stream, streams)]
    args = (partition.epoch, *told, journal_from, least_s, most)
    return await partition.scripts.run("evict", names, args)


def chain_of(appends: Sequence[Append], versions: Sequence[int]) -> str:
    chain = ""
    for one, version in zip(appends, versions, strict=True):
        chain = next_chain(chain, version, one.digests)
    return chain


async def test_a_stream_that_is_committed_goes_with_its_head(partition: Partition) -> None:
    stream, other = new_stream(), new_stream()
    one, two = append(stream, 2), append(other)
    await partition.answers(one, two)
    told = (3, chain_of((one, two), (1, 1)))
    assert await evict(partition, stream, told=told) == [b"OK", 0, 1, 0]
    assert await partition.redis.exists(partition.keys.stream(stream)) == 0
    assert (await partition.meta())["e"] == "2"
    assert await partition.answers(append(stream), append(other), hints=["", ""]) == [b"X", 2]


async def test_a_stream_that_is_not_all_committed_stays(partition: Partition) -> None:
    stream = new_stream()
    one, two = append(stream), append(stream)
    await partition.answers(one, two)
    assert await evict(partition, stream, told=(1, chain_of((one,), (1,)))) == [b"OK", 0, 0, 0]
    assert (await partition.meta())["e"] == "0"
    assert await partition.answers(append(stream, expected=2), hints=[""]) == [3]


async def test_the_head_of_a_stream_that_an_operator_deleted_stays(partition: Partition) -> None:
    stream = new_stream()
    one = append(stream)
    await partition.answers(one)
    await partition.redis.delete(partition.keys.stream(stream))
    assert await evict(partition, stream, told=(1, chain_of((one,), (1,)))) == [b"OK", 0, 0, -1]
    assert await partition.answers(append(stream, expected=1), hints=[""]) == [2]


async def test_a_stream_that_was_touched_lately_stays_and_so_do_some_of_the_old_ones(
    partition: Partition,
) -> None:
    streams = [new_stream() for _ in range(4)]
    appends = [append(each) for each in streams]
    await partition.answers(*appends)
    told = (4, chain_of(appends, (1, 1, 1, 1)))
    assert (await evict(partition, *streams, told=told, least_s=5))[2] == 0
    assert (await evict(partition, *streams, told=told, most=3))[2] == 3


async def test_what_postgres_said_before_an_eviction_is_asked_again(partition: Partition) -> None:
    """Postgres knew nothing of the stream then; an event was sequenced, committed and evicted since."""
    stream, other = new_stream(), new_stream()
    first = append(other)
    await partition.answers(first)
    as_of = "1.1"
    one = append(stream)
    await partition.answers(one)
    told = (2, chain_of((first, one), (1, 1)))
    assert (await evict(partition, stream, told=told))[2] == 1
    assert await partition.answers(append(stream), hints=[f"{as_of}:0"]) == [b"X"]
    keys = partition.keys
    filled = (1, as_of, "", 7, 100, pack_event(event()))
    names = (keys.meta, keys.stream(new_stream()), keys.heads)
    assert await partition.scripts.run("fill", names, filled) == [b"STALE"]
    assert await partition.answers(append(stream), hints=["1.2:1"]) == [2]


async def test_an_eviction_leaves_hints_that_are_younger_than_what_went(partition: Partition) -> None:
    stream, cold = new_stream(), new_stream()
    one, two = append(stream), append(new_stream())
    await partition.answers(one, two)
    told = (2, chain_of((one, two), (1, 1)))
    assert (await evict(partition, stream, told=told))[2] == 1
    assert await partition.answers(append(cold), hints=["1.1:6"]) == [7]


async def test_the_journal_is_trimmed_below_a_seq_and_never_of_what_is_not_committed(
    partition: Partition,
) -> None:
    stream, chain = new_stream(), ""
    for n in range(1, 301):
        one = append(stream)
        await partition.answers(one, told=(min(n - 1, 270), chain))
        chain = next_chain(chain, n, one.digests) if n <= 270 else chain
    for journal_from, first in ((250, 250), (300, 271)):
        assert (await evict(partition, journal_from=journal_from))[1] > 0
        left = [int(each[0][:-2]) for each in await partition.entries(partition.keys.journal)]
        assert left[0] <= first
        assert left == list(range(left[0], 301))
        assert len(left) < 301 - first + 8


async def test_evicting_in_another_epoch_than_the_server_is_in_does_nothing(partition: Partition) -> None:
    stream = new_stream()
    await partition.answers(append(stream))
    partition.epoch = 2
    assert await evict(partition, stream) == [b"FENCED", b"epoch"]


async def test_a_full_server_lets_go_of_what_is_committed(place: Place, breakable: Place) -> None:
    redis = Redis.from_url(breakable.redis_url, protocol=2)
    full = Partition(redis, Scripts(redis))
    await full.install()
    stream = new_stream()
    one = append(stream)
    await full.answers(one)
    await redis.config_set("maxmemory", 1)
    refused = append(stream)
    try:
        with pytest.raises(NotRun):
            await full.answers(refused, told=(1, chain_of((one,), (1,))))
        # It can't even note that all is committed before it has begun to free memory.
        assert (await evict(full, stream, told=(1, chain_of((one,), (1,)))))[2] == 1
    finally:
        await redis.config_set("maxmemory", 0)
        await redis.aclose()
    assert await full.answers(refused, hints=["1.1:1"]) == [2]


# -- keys of old epochs


async def test_the_keys_of_an_epoch_that_ended_are_unlinked(open_log: OpenLog, place: Place) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, *(append(Stream(stream.tenant, "order", str(n))) for n in range(700)))
    old = lane(log, stream).partition.keys
    for _ in range(3):
        await seal(place, log, stream)
    kept = append(stream)
    await appended(log, kept)
    redis = log._scripts.servers.client

    async def left() -> list[bytes]:
        return [key async for key in redis.scan_iter(match=f"{old.prefix}*", count=1000)]

    async def cleared() -> bool:
        return await redis.hget(old.meta, "old") == b"" and await left() == [old.journal.encode()]

    await until(cleared)
    look = await log._scripts.run("look", (old.meta, old.journal, old.heads), (0, 0))
    assert len(Look.from_reply(look).old_journals) == 4
    log._evictor._journal_keep_s = 0

    async def all_gone() -> bool:
        return await redis.hget(old.meta, "journals") == b"" and not await left()

    await until(all_gone)
    assert await log.length(stream) == 1
    assert await redis.exists(lane(log, stream).partition.keys.stream(stream)) == 1
    await check_invariants(place)


async def test_the_keys_of_the_epoch_that_a_server_is_in_are_not_cleared(partition: Partition) -> None:
    stream, keys = new_stream(), partition.keys
    await partition.answers(append(stream))
    for epoch in (1, 2):
        names = (keys.meta, keys.heads, keys.stream(stream))
        assert await partition.scripts.run("clear", names, (epoch, "streams")) == [b"STALE"]
    assert await partition.answers(append(stream, expected=1), hints=[""]) == [2]


async def test_a_server_remembers_which_epochs_it_has_to_clear(partition: Partition) -> None:
    assert await partition.install(epoch=2) == b"OK"
    assert await partition.install(epoch=5) == b"OK"
    keys = partition.keys
    looks = [
        Look.from_reply(
            await partition.scripts.run("look", (keys.meta, keys.journal, keys.heads), (0, keep_s))
        )
        for keep_s in (0, 600)
    ]
    assert [each.old_epochs for each in looks] == [(0, 1, 2)] * 2
    assert [each.old_journals for each in looks] == [(0, 1, 2), ()]
    old = partition_keys(partition.instance, 3, 1)
    for what in ("old", "journals"):
        assert await partition.scripts.run("clear", (old.meta, old.heads, old.journal), (1, what)) == [b"OK"]
    meta = await partition.meta()
    assert meta["old"] == " 0 2"
    assert [each.split(":")[0] for each in meta["journals"].split()] == ["0", "2"]


async def test_while_postgres_is_away_or_a_loss_is_undecided_no_journal_goes(
    open_log: OpenLog, place: Place
) -> None:
    """It may come back with less, and is repaired from there."""
    log = await open_log(journal_retention_s=0)
    stream = new_stream()
    partition = lane(log, stream).partition
    redis, evictor = log._scripts.servers.client, log._evictor
    await opened(log, stream)
    for lasting in ("_in_touch", "open"):
        log._evictor._in_touch = lambda: False
        await appended(log, append(stream))
        await until(lambda: partition.watermark == partition.committed_seq)
        if lasting == "open":
            log._evictor._in_touch = lambda: True
            partition.distrust()
        evictor._commits[partition.number].note(0, partition.committed_seq)
        assert await evictor._trim(partition, 0) == 0
        assert await redis.xlen(partition.keys.journal) > 0
    log._evictor._in_touch = log.watch.in_touch
    await appended(log, append(stream))

    async def trimmed() -> bool:
        return not await redis.xlen(partition.keys.journal)

    await until(trimmed)
    await check_invariants(place)


async def test_a_commit_that_redis_does_not_know_of_yet_leaves_the_journal_later(open_log: OpenLog) -> None:
    log = await open_log(journal_retention_s=0)
    stream = new_stream()
    partition, evictor = lane(log, stream).partition, log._evictor
    await opened(log, stream)
    await until(lambda: partition.watermark == partition.committed_seq)
    evictor._in_touch = lambda: False  # its own looks trim nothing
    told = partition.watermark
    await appended(log, append(stream))
    await until(lambda: partition.watermark == partition.committed_seq)
    evictor._commits[partition.number].note(0, partition.committed_seq)
    evictor._in_touch = lambda: True
    committed, partition.watermark = partition.watermark, told  # as before Redis was told
    await evictor._trim(partition, 0)
    partition.watermark = committed
    assert evictor._commits[partition.number].by(math.inf) == committed

    async def trimmed() -> bool:
        return not await log._scripts.servers.client.xlen(partition.keys.journal)

    await until(trimmed)


async def test_it_rests_while_nothing_is_committed_and_there_is_room_and_begins_again(log: Log) -> None:
    evictor, stream = log._evictor, new_stream()
    await opened(log, stream)
    await until(lambda: evictor._pause_s() > module.LOOK_EVERY_S)
    assert evictor._pause_s() == module.REST_MOST_S
    evictor._room = dict.fromkeys(evictor._room, module.FILLED_A_SECOND // 2)
    assert evictor._pause_s() == 0.5
    evictor._room = dict.fromkeys(evictor._room, -1)
    assert evictor._pause_s() == module.LOOK_EVERY_S
    await appended(log, append(stream))
    await until(lambda: evictor._quiet == 0)


# -- a gateway


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages are told to the second: here a stream is old at once."""
    monkeypatch.setattr(module, "_OLD", 0.0)
    monkeypatch.setattr(module, "_OLD_IN_A_HURRY", 0.0)


async def test_near_its_bound_a_gateway_evicts_and_appends_and_reads_go_on(
    open_log: OpenLog, place: Place, quick: None
) -> None:
    """The bound is below what an empty Redis takes: eviction never ends."""
    logs = [await open_log(redis_bytes_max=1 << 20, journal_retention_s=600) for _ in range(2)]
    tenant = new_tenant()
    streams = [new_stream(tenant) for _ in range(20)]
    for n in range(10):
        for log in logs:
            await appended(log, *(append(each) for each in streams))
        for each in streams[:4]:
            page = await logs[n % 2].page(Range(each))
            assert (page.length, len(page.events)) == (2 * n + 2, 2 * n + 2)
    evicted = sum(log._metrics.streams_evicted._value.get() for log in logs)
    assert evicted > 0
    await check_invariants(place)


async def test_an_append_whose_stream_is_evicted_between_its_look_and_its_call_looks_again(
    open_log: OpenLog, place: Place, quick: None
) -> None:
    slow, other = await open_log(), await open_log(redis_bytes_max=1 << 20)
    stream = new_stream()
    await appended(other, append(stream))
    gate = Gate()

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        found = await proceed()
        if name == "heads":
            await gate.hold()
        return found

    redis, partition = slow._scripts.servers.client, lane(other, stream).partition

    async def gone() -> bool:
        return not await redis.hexists(partition.keys.heads, partition.keys.stream(stream))

    await until(gone)
    interpose(slow._postgres, "fetch", around)
    pending = slow.append(append(stream))
    await gate.arrived()
    await appended(other, append(stream))
    await until(gone)
    gate.open()
    outcome = await pending
    assert isinstance(outcome, Appended), outcome
    assert outcome.first_version == 3
    await check_invariants(place)


async def test_streams_that_are_used_stay_and_those_that_are_not_go(log: Log) -> None:
    tenant = new_tenant()
    used, unused = ([new_stream(tenant) for _ in range(60)] for _ in range(2))
    await appended(log, *(append(each) for each in (*used, *unused)))
    partition, redis = lane(log, used[0]).partition, log._scripts.servers.client
    limits = Limits(**LIMITS | {"redis_bytes_max": 1 << 20})
    evictor = Evictor(
        log._scripts, [each.partition for each in log._lanes], limits, log._metrics, lambda: True
    )

    async def old() -> bool:
        for each in used:
            await log.page(Range(each))
        idle = await redis.object("idletime", partition.keys.stream(unused[0]))
        return bool(idle >= 3)

    await until(old)
    evictor._ages.extend([0] * 60 + [3] * 60)  # as of former steps
    assert await evictor.evict(partition) == 1  # the journal of the epoch before
    assert await evictor.evict(partition) == 60
    heads = set(await redis.hkeys(partition.keys.heads)) - {b""}
    assert heads == {partition.keys.stream(each).encode() for each in used}


async def test_new_aggregates_of_one_call_cost_one_look_at_postgres(log: Log) -> None:
    tenant = new_tenant()
    await appended(log, append(new_stream(tenant)))
    asked: list[int] = []

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        if name == "heads":
            asked.append(len(args[2]))
        return await proceed()

    interpose(log._postgres, "fetch", around)
    await appended(log, *(append(new_stream(tenant)) for _ in range(90)))
    assert sum(asked) == 90
    assert len(asked) <= 2  # the first of them may have been sequenced before the others came


async def test_a_long_stream_is_here_with_its_tail_and_read_whole(open_log: OpenLog, place: Place) -> None:
    log = await open_log(stream_tail=16)
    stream = new_stream()
    for _ in range(10):
        await appended(log, append(stream, 20))
    partition, redis = lane(log, stream).partition, log._scripts.servers.client
    entries = "return redis.call('XRANGE', KEYS[1], '-', '+')"
    key = partition.keys.stream(stream)
    held = [stream_entry(each)[0] for each in await redis.eval(entries, 1, key)]
    assert held[-1] == 200
    assert len(held) < 60
    page = await log.page(Range(stream))
    assert [each.version for each in page.events] == list(range(1, 201))
    page = await log.page(Range(stream, first=190, limit=3))
    assert [each.version for each in page.events] == [190, 191, 192]
    page = await log.page(Range(stream, last=10, limit=3, newest_first=True))
    assert [each.version for each in page.events] == [10, 9, 8]
    await check_invariants(place)

    await redis.delete(key)
    assert (await log.page(Range(stream))).length == 200

    async def filled() -> bool:
        return bool(await redis.xlen(key))

    await until(filled)
    held = [stream_entry(each)[0] for each in await redis.eval(entries, 1, key)]
    assert held == list(range(185, 201))
    await check_invariants(place)


# -- what is told of time and memory


def test_commit_times_tell_what_was_committed_by_when_and_how_old_the_journal_is() -> None:
    times = CommitTimes(60)
    assert (times.by(100), times.front_s(100)) == (0, 0)
    for now, seq in ((10, 5), (10.5, 7), (12, 9), (14, 9), (15, 20)):
        times.note(now, seq)
    assert [times.by(then) for then in (9, 10, 11.9, 12, 14.9, 99)] == [0, 5, 5, 9, 9, 20]
    assert times.front_s(30) == 20
    times.trimmed(9)
    assert times.front_s(30) == 15
    times.note(31, 3)  # a rewind
    assert times.by(99) == 0
    times.note(32, 6)
    assert times.by(99) == 6


@pytest.mark.parametrize(
    ("maxmemory", "bytes_max", "full"),
    [(0, None, 100 / BOUND_WITHOUT_MAXMEMORY), (200, None, 0.5), (200, 400, 0.25), (0, 50, 2.0)],
)
def test_the_bound_is_the_setting_or_the_servers_own_or_a_gibibyte(
    maxmemory: int, bytes_max: int | None, full: float
) -> None:
    look = Look(used=100, maxmemory=maxmemory, journal=0, streams=0, old_epochs=(), old_journals=(), named=())
    assert look.fullness(bytes_max) == full


async def test_ten_times_as_many_events_as_redis_has_memory_for(breakable: Place) -> None:
    """Appends to any stream and reads of it go on, and no request is refused."""
    redis = Redis.from_url(breakable.redis_url, protocol=2)
    used = (await redis.info("memory"))["used_memory"]
    await redis.config_set("maxmemory", used + MEMORY)
    gateway = await open_gateway(breakable)
    try:
        tenants = [new_tenant() for _ in range(3)]
        streams = [new_stream(tenants[n % 3]) for n in range(600)]
        for n in range(10 * MEMORY // (len(PAYLOAD) * 240)):
            batch = [streams[(24 * n + k) % len(streams)] for k in range(24)]
            await appended(gateway.log, *(_ten_events(each) for each in batch))
        for each in streams:
            page = await gateway.log.page(Range(each))
            assert [one.version for one in page.events] == list(range(1, page.length + 1))
            assert all(one.event.payload == PAYLOAD for one in page.events)
            await appended(gateway.log, append(each, expected=page.length))
        assert await breakable.committed() * len(PAYLOAD) >= 9 * MEMORY
    finally:
        await gateway.close()
        await redis.config_set("maxmemory", 0)
        await redis.aclose()
    await check_invariants(breakable, settles=False)


def _ten_events(stream: Stream) -> Append:
    return append(stream, events=tuple(event(None, PAYLOAD) for _ in range(10)))
