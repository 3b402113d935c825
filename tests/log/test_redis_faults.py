"""Whatever Redis forgets or brings back, Postgres decides: nothing acknowledged is lost, appends go on."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.appends import Appended
from gateway.events import Stream
from gateway.log.log import Log
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
    crash,
    hold_commits,
    hold_help,
    hold_script,
    ids,
    interpose,
    lane,
    new_stream,
    opened,
    tally,
    time_is_up,
    until,
)


@pytest.fixture
def place(breakable: Place) -> Place:
    return breakable


async def test_appends_survive_that_redis_is_flushed_under_load(
    open_log: OpenLog, place: Place, redis: Redis
) -> None:
    load = Load([await open_log(), await open_log()])
    async with load.running():
        for _ in range(3):
            await load.more(100)
            await redis.flushall()
        await load.more(100)
    assert set(tally([outcome for *_, outcome in load.outcomes])) == {"Appended"}
    await load.check(load.logs[0])
    await check_invariants(place)


async def test_reads_after_a_flush_show_all_that_was_acknowledged(
    open_log: OpenLog, place: Place, redis: Redis
) -> None:
    logs = [await open_log(), await open_log()]
    stream = new_stream()
    one = append(stream, 5)
    await appended(logs[0], one)
    await redis.flushall()
    for log in logs:
        page = await log.page(Range(stream))
        assert [each.event for each in page.events] == list(one.events)
    await appended(logs[1], append(stream, expected=5))
    for log in logs:
        assert await log.length(stream) == 6
    await check_invariants(place)


async def test_identities_survive_a_flush(open_log: OpenLog, place: Place, redis: Redis) -> None:
    log = await open_log()
    stream = new_stream()
    one = append(stream, 2, key=b"k")
    await appended(log, one)
    await redis.flushall()
    outcome = await log.append(append(stream, 2, key=b"k"))
    assert outcome == Appended(stream.key, 1, ids(one), replayed=True)
    await check_invariants(place)


@pytest.mark.parametrize("fields", [None, {"torn": "1"}, {"epoch": "1"}], ids=["deleted", "torn", "older"])
async def test_a_partition_whose_meta_hash_is_not_right_continues_in_a_new_epoch(
    open_log: OpenLog, place: Place, redis: Redis, fields: dict[str, str] | None
) -> None:
    logs = [await open_log(), await open_log()]
    stream = new_stream()
    await appended(logs[0], append(stream, 3))
    partition = lane(logs[0], stream).partition
    epoch = partition.epoch
    await (redis.hset(partition.keys.meta, mapping=fields) if fields else redis.delete(partition.keys.meta))
    outcomes = await asyncio.gather(*(log.append(append(stream)) for log in logs))
    assert tally(outcomes) == {"Appended": 2}
    await until(lambda: partition.epoch > epoch)
    assert await logs[1].length(stream) == 5
    await check_invariants(place)


@pytest.mark.bug
async def test_an_unforeseen_error_of_a_call_loses_none_of_its_appends(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    failures = iter([RuntimeError("before it was sent"), RuntimeError("after its reply")])

    async def around(proceed: Proceed, name: str, *_: Any) -> Any:
        failure = next(failures, None) if name == "sequence" else None
        if failure is None:
            return await proceed()
        if "after" in str(failure):
            await proceed()
        raise failure

    interpose(lane(log, stream).sequencer._scripts, "run", around)
    outcomes = await asyncio.gather(*(log.append(append(stream)) for _ in range(5)))
    assert tally(outcomes) == {"Appended": 5}
    assert await log.length(stream) == 6
    await check_invariants(place)


async def test_a_half_written_call_is_never_committed(open_log: OpenLog, place: Place, redis: Redis) -> None:
    """A script that fails between its writes leaves events in a stream that the journal does not know."""
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    keys = lane(log, stream).partition.keys
    orphan = append(stream)
    await redis.hset(keys.meta, "torn", "1")
    await redis.xadd(keys.stream(stream), {"2": orphan.packed[0]}, "2-0")
    assert await log.length(stream) == 1
    (outcome,) = await appended(log, append(stream))
    assert outcome.first_version == 2
    assert await log.event(stream.tenant, orphan.append_id) is None
    await check_invariants(place)


async def test_a_fence_that_does_not_match_is_verified_and_appends_go_on(
    open_log: OpenLog, place: Place, redis: Redis
) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    gate, helped = hold_commits(log, stream), hold_help(log)
    pending = log.append(append(stream, 2))
    await gate.arrived()
    meta = lane(log, stream).partition.keys.meta
    await redis.hset(meta, "fence", "0" * 40)
    gate.open()
    helped.open()
    (outcome,) = await appended(log, append(stream))
    assert isinstance(await pending, Appended)
    assert outcome.first_version == 4
    await check_invariants(place)


async def test_a_later_epoch_in_redis_than_in_postgres_is_sealed_beyond_where_no_event_is_missing(
    open_log: OpenLog, place: Place, redis: Redis
) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    partition = lane(log, stream).partition
    await until(lambda: partition.watermark == 1)
    await redis.hset(partition.keys.meta, "epoch", "99")
    await until(lambda: partition.open and partition.epoch == 100)
    await appended(log, append(stream))
    assert partition.halted is None
    await check_invariants(place)


async def test_a_deleted_stream_is_cold(open_log: OpenLog, place: Place, redis: Redis) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream, 3))
    await redis.delete(lane(log, stream).partition.keys.stream(stream))
    assert await log.length(stream) == 3
    (outcome,) = await appended(log, append(stream, expected=3))
    assert outcome.first_version == 4
    await check_invariants(place)


@pytest.mark.parametrize("head_too", [False, True])
async def test_a_stream_deleted_with_uncommitted_events_harms_nothing_that_was_acknowledged(
    open_log: OpenLog, place: Place, redis: Redis, head_too: bool
) -> None:
    """Its head is known without it. What is sequenced on a wrong head is refused by Postgres; the partition
    continues without it."""
    log, other = await open_log(), await open_log()
    stream, beside = new_stream(), None
    beside = new_stream(stream.tenant)
    await asyncio.gather(opened(log, stream), opened(other, stream))
    gate = hold_commits(log, stream)
    helping = [hold_help(each) for each in (log, other)]
    first = log.append(append(stream, 2))
    await gate.arrived()
    keys = lane(log, stream).partition.keys
    await redis.delete(keys.stream(stream))
    if head_too:
        await redis.hdel(keys.heads, keys.stream(stream))
    second, good = other.append(append(stream)), other.append(append(beside))
    await until(lambda: redis.exists(keys.stream(stream)))
    for each in (gate, *helping):
        each.open()
    outcomes = tally([await first, await second, await good])
    assert outcomes == ({"Appended": 2, "Quarantined": 1} if head_too else {"Appended": 3})
    length = await log.length(stream)
    assert length == (2 if head_too else 3)
    (outcome,) = await appended(other, append(stream))
    assert outcome.first_version == length + 1
    await check_invariants(place)


async def test_lost_heads_end_the_epoch_and_appends_go_on(
    open_log: OpenLog, place: Place, redis: Redis
) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream, 2))
    partition = lane(log, stream).partition
    epoch = partition.epoch
    await redis.delete(partition.keys.heads)
    (outcome,) = await appended(log, append(stream, expected=2))
    assert outcome.first_version == 3
    assert partition.epoch > epoch
    await check_invariants(place)


async def test_a_journal_that_was_deleted_ends_the_epoch_and_nothing_waits_without_end(
    open_log: OpenLog, place: Place, redis: Redis
) -> None:
    dead, living = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(dead, stream), opened(living, stream))
    await appended(living, append(stream))
    gate, looking = hold_commits(dead, stream), hold_script(living, "journal")
    hold_help(dead)
    dead.append(append(stream))
    await gate.arrived()
    await crash(dead)
    await redis.delete(lane(living, stream).partition.keys.journal)
    looking.open()
    (outcome,) = await appended(living, append(stream))
    assert outcome.first_version == 2
    await check_invariants(place)


async def test_a_journal_with_a_hole_ends_the_epoch_and_nothing_waits_without_end(
    open_log: OpenLog, place: Place, redis: Redis
) -> None:
    dead, living = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(dead, stream), opened(living, stream))
    gate, looking = hold_commits(dead, stream), hold_script(living, "journal")
    hold_help(dead)
    for _ in range(2):
        dead.append(append(stream))
        await gate.arrived()
        await until(lambda: not lane(dead, stream).sequencer._queue)
    await crash(dead)
    partition = lane(living, stream).partition
    await redis.xdel(partition.keys.journal, "1-0")
    looking.open()
    (outcome,) = await appended(living, append(stream))
    assert outcome.first_version == 1
    await check_invariants(place)


async def test_bytes_that_changed_in_the_journal_are_never_committed(
    open_log: OpenLog, place: Place, redis: Redis
) -> None:
    dead, living = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(dead, stream), opened(living, stream))
    gate, looking = hold_commits(dead, stream), hold_script(living, "journal")
    hold_help(dead)
    one = append(stream)
    dead.append(one)
    await gate.arrived()
    await crash(dead)
    journal = lane(living, stream).partition.keys.journal
    await redis.eval(
        """local e = redis.call('XRANGE', KEYS[1], '-', '+')[1][2]
        redis.call('DEL', KEYS[1])
        return redis.call('XADD', KEYS[1], '1-0', e[1], (string.gsub(e[2], 'was_placed', 'was_places')))""",
        1, journal,
    )  # fmt: skip
    looking.open()
    (outcome,) = await appended(living, append(stream))
    assert outcome.first_version == 1
    assert await living.length(stream) == 1
    await check_invariants(place)


async def test_scripts_are_loaded_again_where_the_server_forgot_them(
    open_log: OpenLog, place: Place, redis: Redis
) -> None:
    load = Load([await open_log()])
    async with load.running(4):
        for _ in range(3):
            await load.more(20)
            await redis.script_flush()
    assert set(tally([outcome for *_, outcome in load.outcomes])) == {"Appended"}
    await check_invariants(place)


async def test_two_verifiers_that_meet_after_a_flush_end_with_one_epoch(
    open_log: OpenLog, place: Place, redis: Redis
) -> None:
    """One seals and is stopped before it installs; the other continues; the first one's install is stale."""
    slow, quick = await open_log(), await open_log()
    stream = new_stream()
    await appended(slow, append(stream))
    await opened(quick, stream)
    partition = lane(quick, stream).partition
    gate, counter = Gate(), itertools.count()

    async def around(proceed: Proceed, name: str, keys: list[str], *args: object) -> object:
        if name == "install" and keys[0] == partition.keys.meta and next(counter) == 0:
            await gate.hold()
        return await proceed()

    interpose(slow._scripts, "run", around)
    hold = hold_verify(quick, partition.number)
    await redis.delete(partition.keys.meta)
    await gate.arrived()
    hold.open()
    (outcome,) = await appended(quick, append(stream))
    assert outcome.first_version == 2
    gate.open()
    (outcome,) = await appended(slow, append(stream))
    assert outcome.first_version == 3
    await check_invariants(place)


def hold_verify(log: Log, number: int) -> Gate:
    """The gateway's next verifications of a partition wait before they look."""
    gate = Gate()

    async def around(proceed: Proceed, partition: object) -> object:
        if getattr(partition, "number", None) == number:
            await gate.hold()
        return await proceed()

    interpose(log._verifier, "verify", around)
    return gate


# -- a Redis that is set back within one life, and what another release has written


async def _set_back(redis: Redis, log: Log, stream: Stream, by: int) -> None:
    """Meta, journal and stream as they were some appends ago, on the same server in the same life."""
    keys = lane(log, stream).partition.keys
    await redis.hdel(keys.heads, keys.stream(stream))
    entries = await redis.xrange(keys.journal)
    for entry_id, _ in entries[-by:]:
        await redis.xdel(keys.journal, entry_id)
    index = next(iter(entries[-by - 1][1]))
    seq, _, chain = index.split(b" ")[-1].split(b":")
    for version, _ in (await redis.xrange(keys.stream(stream)))[-by:]:
        await redis.xdel(keys.stream(stream), version)
    await redis.hset(keys.heads, keys.stream(stream), seq)
    past = {"q": seq, "h": chain, "c": seq, "ch": chain, "past": ""}
    await redis.hset(keys.meta, mapping=past)


@pytest.mark.parametrize("first", ["a read", "an append"])
async def test_a_redis_that_was_set_back_is_not_believed_by_who_knows_more_committed(
    log: Log, place: Place, redis: Redis, first: str
) -> None:
    stream = new_stream()
    await opened(log, stream)
    for _ in range(6):
        await appended(log, append(stream))
    partition = lane(log, stream).partition
    await until(lambda: partition.watermark == partition.committed_seq)
    epoch = partition.epoch
    hold_script(log, "journal")
    await _set_back(redis, log, stream, by=3)
    if first == "a read":
        assert await log.length(stream) == 6
    assert isinstance(await log.append(append(stream, expected=6)), Appended)
    assert await log.length(stream) == 7
    assert partition.epoch > epoch
    await check_invariants(place)


async def test_what_a_newer_release_has_begun_is_refused_and_left_as_it_is(
    open_log: OpenLog, place: Place, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    await appended(log, append(stream))
    partition = lane(log, stream).partition
    keys, epoch = partition.keys, partition.epoch
    await redis.hset(keys.meta, "format", "3")
    pending = log.append(append(stream))
    await until(lambda: not partition.open)
    assert (await log.page(Range(stream))).length == 1
    await until(lambda: any("in format 3" in getattr(each, "reason", "") for each in caplog.records))
    time_is_up(log, stream)
    assert isinstance(await pending, NotCommitted)
    (row,) = await place.fetch("SELECT epoch FROM partition_log WHERE p = $1", partition.number)
    assert row["epoch"] == epoch == int(await redis.hget(keys.meta, "epoch") or 0)
    await redis.hset(keys.meta, "format", "2")
    await until(lambda: partition.open)
    await appended(log, append(stream))
    await check_invariants(place)


@pytest.mark.parametrize("written", ["1", None])
async def test_an_epoch_of_an_older_release_is_followed_by_one_of_this_release(
    log: Log, place: Place, redis: Redis, written: str | None
) -> None:
    """An epoch that names no format is of the first one."""
    stream = new_stream()
    await opened(log, stream)
    await appended(log, append(stream))
    partition = lane(log, stream).partition
    meta, epoch = partition.keys.meta, partition.epoch
    if written is None:
        await redis.hdel(meta, "format")
    else:
        await redis.hset(meta, "format", written)
    await appended(log, append(stream))
    assert partition.epoch == epoch + 1
    assert await redis.hget(meta, "format") == b"2"
    assert await log.length(stream) == 2
    await check_invariants(place)


async def test_a_journal_that_can_t_be_read_holds_up_no_other_append(
    open_log: OpenLog, place: Place, redis: Redis
) -> None:
    dead, living = await open_log(), await open_log()
    stream, elsewhere = new_stream(), new_stream()
    while lane(living, elsewhere).partition is lane(living, stream).partition:
        elsewhere = new_stream()
    await asyncio.gather(*(opened(log, each) for log in (dead, living) for each in (stream, elsewhere)))
    await appended(living, append(stream), append(elsewhere))
    gates = [hold_commits(dead, each) for each in (stream, elsewhere)]
    helped = hold_help(living)
    hold_help(dead)
    left = append(elsewhere)
    dead.append(append(stream))
    dead.append(left)
    for each in gates:
        await each.arrived()
    await crash(dead)
    journal = lane(living, stream).partition.keys.journal
    (last, entry) = (await redis.xrevrange(journal, count=1))[0]
    await redis.delete(journal)
    await redis.xadd(journal, dict.fromkeys(entry, b"\xc1"), id=last)
    helped.open()
    await until(lambda: living.event(elsewhere.tenant, left.append_id))
    await appended(living, append(stream), append(elsewhere))
    assert await living.length(stream) == 2
    await check_invariants(place)
