"""Direct mode: Redis is away, appends go on through Postgres, and then back; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest

from gateway.appends import AT_LEAST_ONE, Appended
from gateway.log.epoch.commit_evidence import contains
from gateway.log.log import Log
from gateway.log.postgres import Postgres
from gateway.log.read.ranges import Range
from gateway.outcomes import ConditionFailed, Conflict, Mismatch
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.log.load import Load
from tests.log.test_conditions import item, tagged, unless
from tests.support.drive import (
    Place,
    Proceed,
    append,
    append_to_all,
    appended,
    claiming,
    crash,
    hold_fetch,
    ids,
    interpose,
    lane,
    lose_commit_replies,
    lose_fetches,
    new_stream,
    new_tenant,
    open_gateway,
    opened,
    ready,
    tally,
    until,
)
from tests.support.servers import Servers


@pytest.fixture
def place(breakable: Place) -> Place:
    return breakable


@pytest.fixture
async def redis_away(breakable_servers: Servers, place: Place) -> AsyncIterator[Servers]:
    """Killed before the test's gateways open."""
    breakable_servers.redis.kill()
    yield breakable_servers


async def back(*logs: Log) -> None:
    await until(
        lambda: all(log.mode == "redis" and each.partition.open for log in logs for each in log._lanes)
    )


def no_redis(place: Place) -> Place:
    """The same database, for a gateway that reaches no Redis."""
    return Place(place.postgres_url, "redis://127.0.0.1:1")


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_appends_of_two_gateways_go_on_while_redis_is_away(
    open_log: OpenLog, place: Place, breakable_servers: Servers, how: str
) -> None:
    logs = [await open_log(redis_timeout_s=0.5), await open_log(redis_timeout_s=0.5)]
    load, redis = Load(logs), breakable_servers.redis
    async with load.running():
        await load.more(100)
        redis.kill() if how == "killed" else redis.pause()
        await until(lambda: all(log.mode == "direct" for log in logs))
        await load.more(500)
        await redis.start() if how == "killed" else redis.resume()
        await back(*logs)
        await load.more(100)
    assert set(tally([outcome for *_, outcome in load.outcomes])) == {"Appended"}
    for log in logs:
        await load.check(log)
    await check_invariants(place)


async def test_a_redis_that_hangs_holds_no_append_up_for_longer_than_one_that_is_gone(
    open_log: OpenLog, breakable_servers: Servers
) -> None:
    """Calls are under way, which nothing but their own deadline would end."""
    log = await open_log(redis_timeout_s=30, direct_after_s=1)
    stream = new_stream()
    await appended(log, append(stream))
    breakable_servers.redis.pause()
    began = time.monotonic()
    page, _ = await asyncio.gather(log.page(Range(stream)), appended(log, append(stream)))
    assert time.monotonic() - began < 20
    assert (page.length, log.mode) in ((1, "direct"), (2, "direct"))
    breakable_servers.redis.resume()
    await back(log)


async def test_a_back_off_ends_when_redis_is_done_without(
    open_log: OpenLog, breakable_servers: Servers
) -> None:
    log = await open_log(direct_after_s=1)
    stream = new_stream()
    await appended(log, append(stream))
    sequencer = lane(log, stream).sequencer
    sequencer._retry_s = 60
    breakable_servers.redis.kill()
    await appended(log, append(stream))
    assert log.mode == "direct"


async def test_one_look_at_redis_that_fails_is_not_told_as_its_loss(open_log: OpenLog) -> None:
    log = await open_log()
    looks, failing = 0, 1

    async def some_fail(proceed: Proceed) -> object:
        nonlocal looks
        looks += 1
        if looks <= failing:
            raise TimeoutError("no answer")
        return await proceed()

    interpose(log._sweeper, "run_once", some_fail)
    await until(lambda: looks > 3)
    assert not log._redis_outage.lasts
    failing = looks + 2
    await until(lambda: log._redis_outage.lasts)


async def test_a_gateway_that_starts_without_redis_takes_appends(
    redis_away: Servers, open_log: OpenLog
) -> None:
    log = await open_log()
    stream = new_stream()
    (outcome,) = await appended(log, append(stream, 2))
    assert (outcome.first_version, log.mode) == (1, "direct")
    assert await log.length(stream) == 2

    await until(lambda: ready(log))


async def test_what_was_sequenced_and_not_committed_when_redis_left_is_appended_once(
    open_log: OpenLog, place: Place, breakable_servers: Servers
) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    lose_commit_replies(lane(log, stream).connection, 3, run=False)
    pending = log.append(append(stream, 2))
    breakable_servers.redis.kill()
    assert isinstance(await pending, Appended)
    assert await log.length(stream) == 3
    await breakable_servers.redis.start()
    await back(log)
    await appended(log, append(stream, expected=3))
    await check_invariants(place)


async def test_the_way_back_reads_nothing_of_what_was_appended_meanwhile(
    open_log: OpenLog, place: Place, breakable_servers: Servers
) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream, 20))
    breakable_servers.redis.kill()
    await until(lambda: log.mode == "direct")
    for _ in range(20):
        await appended(log, append(stream, 50))
    looks: list[int] = []

    async def count(proceed: Proceed, name: str, *args: object) -> object:
        rows = await proceed()
        if name == "roll":
            looks.append(len(rows))
        return rows

    interpose(log._postgres, "fetch", count)
    await breakable_servers.redis.start()
    await back(log)
    assert sum(looks) <= 20, looks
    await appended(log, append(stream, expected=1020))
    await check_invariants(place)


async def test_a_redis_of_an_old_file_is_compared_up_to_the_next_mark(
    open_log: OpenLog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.log.watch.MARK_EVERY", 100)
    monkeypatch.setattr("gateway.log.watch.LOOK_FOR_MARKS_EVERY_S", 0.05)
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream, 5))
    partition = lane(log, stream).partition
    old = partition.memory
    marks = "SELECT seq, chain FROM partition_mark WHERE p = $1 ORDER BY seq"
    for _ in range(6):
        await appended(log, append(stream, 100))
        stood = partition.committed_seq

        async def marked(stood: int = stood) -> bool:
            rows = await place.fetch(marks.replace("$1", str(partition.number)))
            return bool(rows) and rows[-1]["seq"] >= stood - 100

        await until(marked)
    row = await log._postgres.partition(partition.number)
    read: list[int] = []

    async def count(proceed: Proceed, name: str, *args: object) -> object:
        rows = await proceed()
        if name == "roll":
            read.append(len(rows))
        return rows

    interpose(log._postgres, "fetch", count)
    assert await contains(log._postgres, partition.number, row, old)
    assert sum(read) <= 200
    assert not await contains(log._postgres, partition.number, row, replace(old, chain="0" * 40))
    assert await contains(log._postgres, partition.number, row, partition.memory)


# -- judged as Redis would


async def test_conflicts_are_decided_on_what_postgres_holds(redis_away: Servers, open_log: OpenLog) -> None:
    log = await open_log()
    stream, other = new_stream(), new_stream()
    await appended(log, append(stream, 2, expected=0))
    outcomes = await asyncio.gather(
        log.append(append(stream, expected=1)),
        log.append(append(stream, expected=2)),
        log.append(append(stream, expected=2)),
        log.append(append(stream, expected=3)),
        log.append(append(other, expected=AT_LEAST_ONE)),
    )
    assert [type(each) for each in outcomes] == [Conflict, Appended, Conflict, Appended, Conflict]
    assert [each.length for each in outcomes if isinstance(each, Conflict)] == [2, 3, 0]


async def test_retries_find_their_original_across_both_ways(
    open_log: OpenLog, place: Place, breakable_servers: Servers
) -> None:
    log = await open_log()
    stream = new_stream()

    def keyed(body: bytes = b"body") -> object:
        return append(stream, key=b"the key", body=body)

    (first,) = await appended(log, keyed())
    breakable_servers.redis.kill()
    await until(lambda: log.mode == "direct")
    again, other = await asyncio.gather(log.append(keyed()), log.append(keyed(b"another")))
    assert again == Appended(first.key, first.first_version, first.event_ids, replayed=True)
    assert other == Mismatch()
    new = [append(stream, key=b"in one batch", body=body) for body in (b"1", b"1", b"2")]
    done, replayed, refused = await asyncio.gather(*(log.append(each) for each in new))
    assert isinstance(done, Appended)
    assert replayed == Appended(done.key, done.first_version, done.event_ids, replayed=True)
    assert refused == Mismatch()
    await breakable_servers.redis.start()
    await back(log)
    replayed = await log.append(append(stream, key=b"in one batch", body=b"1"))
    assert replayed == Appended(done.key, done.first_version, done.event_ids, replayed=True)
    await check_invariants(place)


async def test_an_event_id_is_taken_once_in_a_batch(redis_away: Servers, open_log: OpenLog) -> None:
    log = await open_log()
    stream = new_stream()
    minted = append(stream)
    chosen = append(new_stream(stream.tenant), event_ids=ids(minted))
    outcomes = await asyncio.gather(log.append(minted), log.append(chosen))
    assert [type(each) for each in outcomes] == [Appended, Mismatch]


# -- answers that get lost


@pytest.mark.parametrize("run", [True, False])
async def test_a_commit_whose_answer_was_lost_is_found(
    redis_away: Servers, open_log: OpenLog, run: bool
) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    lose_commit_replies(lane(log, stream).connection, 2, run=run)
    (outcome,) = await appended(log, append(stream, 2))
    assert outcome.first_version == 2
    assert await log.length(stream) == 3


async def test_a_look_that_is_not_answered_is_repeated(redis_away: Servers, open_log: OpenLog) -> None:
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    lose_fetches(log, "look_directly", 3)
    await appended(log, append(stream))


async def test_gateways_that_overtake_each_other_both_get_their_turns(
    redis_away: Servers, open_log: OpenLog
) -> None:
    logs = [await open_log(), await open_log()]
    tenant = new_tenant()
    streams = [new_stream(tenant) for _ in logs]
    for log, stream in zip(logs, streams, strict=True):
        await opened(log, stream)
    outcomes = await asyncio.gather(
        *(
            appended(log, *(append(stream) for _ in range(300)))
            for log, stream in zip(logs, streams, strict=True)
        )
    )
    for each in outcomes:
        assert sorted(one.first_version for one in each) == list(range(1, 301))
    for stream in streams:
        assert [await log.length(stream) for log in logs] == [300, 300]


# -- gateways that disagree


async def all_direct(*logs: Log) -> None:
    await until(
        lambda: all(each.partition.direct and each.partition.open for log in logs for each in log._lanes)
    )


async def test_a_gateway_without_redis_takes_all_along_and_no_gateway_goes_back_before_it_does(
    open_log: OpenLog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.log.watch.REACH_KEPT_S", 3.0)  # longer than all stands still now and then
    well, cut_off = await open_log(), await open_gateway(no_redis(place))
    stream = new_stream()
    try:
        await all_direct(well, cut_off.log)
        since = time.monotonic()
        epoch = lane(well, stream).partition.epoch
        length = 0
        while time.monotonic() < since + 4:
            for each in (well, cut_off.log):
                (outcome,) = await appended(each, append(stream, expected=length))
                length = outcome.length
                assert [await well.length(stream), await cut_off.log.length(stream)] == [length, length]
        assert lane(cut_off.log, stream).partition.epoch == epoch, "they drive each other out"
    finally:
        await cut_off.close()
    await back(well)
    await appended(well, append(stream, expected=length))
    await well.stop(5)
    await check_invariants(place, settles=False)


async def test_a_gateway_that_died_without_redis_keeps_no_gateway_from_it_for_long(
    open_log: OpenLog, place: Place
) -> None:
    well, cut_off = await open_log(), await open_gateway(no_redis(place))
    try:
        await all_direct(well, cut_off.log)
        await crash(cut_off.log)
        await back(well)
    finally:
        await cut_off.close()


async def test_readers_that_wait_are_woken_by_looking(open_log: OpenLog, redis_away: Servers) -> None:
    log, other = await open_log(), await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    waiting = asyncio.ensure_future(other.reached(stream, 2, 5))
    await appended(log, append(stream))
    assert await waiting
    page = await other.page(Range(stream))
    assert (page.length, len(page.events)) == (2, 2)


async def test_the_mode_is_told_to_all_that_watch(open_log: OpenLog, breakable_servers: Servers) -> None:
    log = await open_log()
    await back(log)

    def direct() -> set[float]:
        return {each.value for each in log.readings() if each.metric == "sluice_direct_mode"}

    assert direct() == {0}
    breakable_servers.redis.kill()
    await until(lambda: direct() == {1})
    await breakable_servers.redis.start()
    await back(log)
    assert direct() == {0}


async def test_a_conflict_is_never_told_of_a_redis_that_appends_have_left(
    open_log: OpenLog, place: Place
) -> None:
    """Between the swap of another gateway and this one's next look at Postgres."""
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    await opened(log, stream)
    partition = lane(log, stream).partition
    gate = hold_fetch(log, "partition")
    asking = asyncio.ensure_future(log.append(append(stream, expected=7)))
    await gate.arrived()
    swap = "UPDATE partition_log SET epoch = epoch + 1, mode = 'direct' WHERE p = $1"
    await place.execute(swap, partition.number)
    gate.open()
    assert await asking == Conflict(1)
    assert partition.direct, "it was told in the epoch that it was decided in"


async def test_a_gateway_that_was_seen_in_the_future_keeps_no_gateway_from_redis(
    place: Place, log: Log
) -> None:
    """Postgres failed over to a server whose clock is behind: a gateway that ended before is gone."""
    partitions, sides = [0, 1], {"ended": "1 hour", "lives": "-1 second"}
    for gateway, ahead in sides.items():
        await place.execute(
            "INSERT INTO redis_unreachable (gateway, partitions, seen) "
            "VALUES ($1, $2, clock_timestamp() + $3::text::interval)",
            gateway, partitions, ahead,
        )  # fmt: skip
    pool = await asyncpg.create_pool(place.postgres_url, min_size=1, max_size=1)
    try:
        rows = await Postgres(pool).fetch("reach", "mine", [], 5.0)
    finally:
        await pool.close()
        await place.execute("DELETE FROM redis_unreachable")
    assert sides.keys() & {row["gateway"] for row in rows} == {"lives"}


async def test_appends_to_several_streams_are_judged_on_what_postgres_holds(
    redis_away: Servers, open_log: OpenLog
) -> None:
    log, tenant = await open_log(), new_tenant()
    one, two, three = new_stream(tenant), new_stream(tenant), new_stream(tenant)
    await appended(log, append(two))
    asked = append_to_all([one, two, one]), append_to_all([one, two], {two: 1}), append_to_all([three, one])
    outcomes = await asyncio.gather(*(log.append(each) for each in asked))
    assert [each.places for each in outcomes if type(each) is Appended] == [
        ((one, 1), (two, 2), (one, 2)),
        ((three, 1), (one, 3)),
    ]
    assert outcomes[1] == Conflict(2, 1)
    assert [await log.length(each) for each in (one, two, three)] == [3, 2, 1]


async def test_a_unique_value_is_one_aggregates_while_redis_is_away(
    redis_away: Servers, open_log: OpenLog, place: Place
) -> None:
    logs = [await open_log(redis_timeout_s=0.5, direct_after_s=0.5) for _ in range(2)]
    tenant = new_tenant()
    streams = [new_stream(tenant) for _ in range(10)]
    for text in ("a", "b"):
        asked = [logs[n % 2].append(claiming(stream, text)) for n, stream in enumerate(streams)]
        assert tally(await asyncio.gather(*asked)) == {"Appended": 1, "NotUnique": 9}
    owner = next(row["aggregate_id"] for row in await place.fetch("SELECT aggregate_id FROM unique_claim"))
    (stream,) = [each for each in streams if each.key == owner]
    await appended(logs[0], claiming(stream, None), claiming(new_stream(tenant), "a"))
    assert {log.mode for log in logs} == {"direct"}


async def test_conditions_are_judged_on_what_postgres_holds_and_on_the_batch(
    redis_away: Servers, open_log: OpenLog
) -> None:
    logs, tenant = [await open_log(), await open_log()], new_tenant()
    (first,) = await appended(logs[0], tagged(new_stream(tenant), "a:1"))
    asked = [
        tagged(new_stream(tenant), f"seat:{n % 3}", condition=unless(item(f"seat:{n % 3}"), after=first))
        for n in range(24)
    ]
    outcomes = await asyncio.gather(*(logs[n % 2].append(each) for n, each in enumerate(asked)))
    done = [each for each in outcomes if type(each) is Appended]
    assert len(done) == 3
    assert {each for each in outcomes if type(each) is ConditionFailed} == {
        ConditionFailed(each.last.seq) for each in done
    }
    refused = tagged(new_stream(tenant), condition=unless(item("a:1")))
    assert await logs[1].append(refused) == ConditionFailed(first.last.seq)
