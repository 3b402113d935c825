"""A Postgres with a standby: nothing that was told rests on only one server, and what a fail-over lost is
noticed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.appends import Appended
from gateway.events import Stream
from gateway.log.epoch.settling import settling_without_log
from gateway.log.log import Log
from gateway.log.postgres import Postgres, open_pool
from gateway.log.read.ranges import Range
from gateway.outcomes import Conflict, Mismatch, NotCommitted
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.outbox import Filter, Outbox
from gateway.relay.position import START
from tests.log.conftest import _DATABASE, OpenLog, _prepare
from tests.log.invariants import check_invariants
from tests.support.drive import (
    STALL_S,
    Place,
    append,
    appended,
    hold_commits,
    hold_fetch,
    lane,
    new_stream,
    until,
)
from tests.support.servers import open_folder, servers_in
from tests.support.standby import Pair, open_pair

ALARM_S = 5.0 + STALL_S


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Servers of the test's own: a fail-over can't be taken back."""
    with open_folder() as folder:
        servers = servers_in(folder)
        with contextlib.closing(servers):
            await servers.start()
            await _prepare(servers)
            made = await open_pair(servers)
            with contextlib.closing(made):
                await until(made.replicates)
                yield made


@pytest.fixture
def place(pair: Pair) -> Place:
    return Place(pair.url(_DATABASE), pair.servers.redis_url)


async def all_open(*logs: Log) -> None:
    await until(lambda: all(lane.partition.open for log in logs for lane in log._lanes))


async def only_on_the_primary(pair: Pair, place: Place, log: Log, stream: Stream, **asked: Any) -> None:
    """An append of the gateway is committed there and visible, and its wait for the standby was ended."""
    await pair.require_standby("*")
    await pair.cut_off()
    before = await place.committed()
    log.append(append(stream, **asked))
    waiting = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    hold_commits(log, stream)

    async def stands() -> bool:
        await place.fetch(waiting)
        return await place.committed() > before

    await until(stands)


# -- what is told is settled


async def told_once_it_is_settled(
    pair: Pair, place: Place, open_log: OpenLog, asks: Any, *, direct: bool = False
) -> Any:
    """What a second gateway is asked about an append that stands only on the primary: it answers only when
    the standby is back."""
    one, other = await open_log(), await open_log()
    stream = new_stream()
    await all_open(one, other)
    await appended(one, append(stream))
    await until(pair.replicates)
    await only_on_the_primary(pair, place, one, stream, key=b"k")
    asked = asyncio.ensure_future(asks(other, stream))
    done, _ = await asyncio.wait((asked,), timeout=1.0)
    assert not done, asked
    await pair.standby.start()
    return await asked


async def test_a_replay_waits_for_the_standby(pair: Pair, place: Place, open_log: OpenLog) -> None:
    outcome = await told_once_it_is_settled(
        pair, place, open_log, lambda log, stream: log.append(append(stream, key=b"k"))
    )
    assert isinstance(outcome, Appended)
    assert outcome.replayed


async def test_a_receipt_that_is_looked_up_waits_for_the_standby(
    pair: Pair, place: Place, open_log: OpenLog
) -> None:
    async def settled(log: Log, stream: Stream) -> Any:
        return await log.settled(append(stream, key=b"k").retry)

    assert isinstance(await told_once_it_is_settled(pair, place, open_log, settled), Appended)


async def test_a_mismatch_waits_for_the_standby(pair: Pair, place: Place, open_log: OpenLog) -> None:
    outcome = await told_once_it_is_settled(
        pair, place, open_log, lambda log, stream: log.append(append(stream, key=b"k", body=b"other"))
    )
    assert isinstance(outcome, Mismatch)


async def test_a_conflict_waits_for_the_standby(pair: Pair, place: Place, open_log: OpenLog) -> None:
    outcome = await told_once_it_is_settled(
        pair, place, open_log, lambda log, stream: log.append(append(stream, expected=1))
    )
    assert outcome == Conflict(2)


@pytest.mark.parametrize("strong", [True, False], ids=["from Postgres", "from Redis"])
async def test_a_read_waits_for_the_standby(
    pair: Pair, place: Place, open_log: OpenLog, *, strong: bool
) -> None:
    async def read(log: Log, stream: Stream) -> Any:
        return await log.page(Range(stream), strong=strong)

    page = await told_once_it_is_settled(pair, place, open_log, read)
    assert page.length == 2


@asynccontextmanager
async def outbox_of(log: Log, place: Place, *, relay: bool) -> AsyncIterator[Outbox]:
    """As a gateway's feed reads, or a relay that is a process of its own."""
    pool = await open_pool(place.postgres_url, 2, 10.0)
    async with pool:
        postgres = Postgres(pool, 10.0)
        async with settling_without_log(place.postgres_url, postgres, 10.0) as settling:
            settled = settling.stands if relay else log.stands
            yield Outbox(postgres, log.instance.partitions, settled)


@pytest.mark.parametrize("relay", [False, True], ids=["a gateway's", "a relay's"])
async def test_a_page_of_the_outbox_waits_for_the_standby(
    pair: Pair, place: Place, open_log: OpenLog, *, relay: bool
) -> None:
    async def read(log: Log, stream: Stream) -> tuple[int, bool]:
        async with outbox_of(log, place, relay=relay) as outbox:
            page = await outbox.page(Filter(stream.tenant), START, 10)
            return len(page.entries), page.caught_up

    assert await told_once_it_is_settled(pair, place, open_log, read) == (2, True)


@pytest.mark.parametrize("relay", [False, True], ids=["a gateway's", "a relay's"])
async def test_a_position_waits_for_the_standby(
    pair: Pair, place: Place, open_log: OpenLog, *, relay: bool
) -> None:
    """At the end, or behind what a filter passed over."""

    async def read(log: Log, stream: Stream) -> bool:
        async with outbox_of(log, place, relay=relay) as outbox:
            nothing = Filter(stream.tenant, event_types=frozenset({"no such"}))
            passed_over = (await outbox.page(nothing, START, 10)).position
            return passed_over == await outbox.end(stream.tenant)

    assert await told_once_it_is_settled(pair, place, open_log, read)


async def test_a_page_of_the_outbox_that_is_settled_needs_no_standby(
    pair: Pair, place: Place, open_log: OpenLog
) -> None:
    one = await open_log()
    stream = new_stream()
    await all_open(one)
    await appended(one, append(stream), append(stream))
    await until(pair.replicates)
    async with outbox_of(one, place, relay=True) as outbox:
        first = await outbox.page(Filter(stream.tenant), START, 1)
        await pair.require_standby("*")
        await pair.cut_off()
        second = await outbox.page(Filter(stream.tenant), first.position, 1)
        assert [len(first.entries), len(second.entries)] == [1, 1]
        assert (await outbox.page(Filter(stream.tenant), second.position, 1)).entries == ()


async def test_a_read_says_so_when_the_standby_stays_away(
    pair: Pair, place: Place, open_log: OpenLog
) -> None:
    one, other = await open_log(), await open_log(read_deadline_s=STALL_S)
    stream = new_stream()
    await all_open(one, other)
    await appended(one, append(stream))
    await until(pair.replicates)
    await other.page(Range(stream), strong=True)
    await only_on_the_primary(pair, place, one, stream)
    with pytest.raises(PostgresTrouble, match="standby"):
        await other.page(Range(stream), strong=True)
    elsewhere = new_stream(stream.tenant)
    assert (await other.page(Range(elsewhere), strong=True)).length == 0
    await pair.standby.start()
    assert (await other.page(Range(stream), strong=True)).length == 2


async def test_what_was_never_told_may_be_lost_and_halts_no_partition(
    pair: Pair, place: Place, open_log: OpenLog
) -> None:
    """A fail-over to a synchronous standby loses what stood only on the primary: no answer, no read and no
    gateway's memory rests on it, so every partition continues."""
    one, other = await open_log(append_deadline_s=20.0), await open_log(append_deadline_s=20.0)
    stream = new_stream()
    await all_open(one, other)
    await appended(one, append(stream))
    await until(pair.replicates)
    await only_on_the_primary(pair, place, one, stream, key=b"k")
    asked = other.append(append(stream, key=b"k"))
    await pair.fail_over()
    outcome = await asked
    assert isinstance(outcome, Appended), outcome
    assert lane(other, stream).partition.halted is None
    assert await other.length(stream) == 2
    await check_invariants(place)


# -- a loss is noticed by the chain


async def test_an_asynchronous_fail_over_s_loss_in_direct_mode_raises_the_alarm(
    pair: Pair, place: Place, open_log: OpenLog
) -> None:
    """Others have committed more than was lost by the time that the gateway looks: its numbers fit."""
    one, other = await open_log(), await open_log()
    stream = new_stream()
    await all_open(one, other)
    await appended(one, append(stream))
    pair.servers.redis.kill()
    await until(lambda: one.mode == other.mode == "direct" and lane(one, stream).partition.open)
    await all_open(one, other)
    await appended(one, append(stream))
    await until(pair.replicates)
    await pair.cut_off()
    await appended(one, append(stream))
    assert await one.length(stream) == 3
    looks = [hold_fetch(one, name) for name in ("partitions", "partition")]
    await pair.fail_over()
    await appended(other, append(stream, 3))
    for each in looks:
        each.open()
    partition = lane(one, stream).partition
    await until(lambda: partition.halted is not None, ALARM_S)
    assert "does not continue what this gateway saw" in str(partition.halted)
    assert isinstance(await one.append(append(stream)), NotCommitted)
    assert await place.fetch("SELECT FROM partition_trail WHERE what = 'alarm'")
