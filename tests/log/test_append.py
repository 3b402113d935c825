"""Appends: their order, their versions, all of an append or nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.appends import AT_LEAST_ONE, Append, Appended
from gateway.events import Stream
from gateway.log.append import pacing, sequencer
from gateway.log.log import Log
from gateway.log.read.ranges import Range
from gateway.outcomes import Conflict, NotCommitted, Outcome
from gateway.postgres.errors import PostgresTrouble
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import (
    Place,
    Proceed,
    append,
    appended,
    hold_commits,
    ids,
    interpose,
    lane,
    new_stream,
    new_tenant,
    opened,
    partition_number,
    ready,
    sent_or_gathering,
    tally,
    until,
)

WRITERS = 64
OTHER_KEYS = 6
"""Of a call of sequence.lua, beside a stream for each append."""


async def test_the_first_event_of_a_stream_has_version_1(log: Log, place: Place) -> None:
    one = append(new_stream())
    (outcome,) = await appended(log, one)
    assert (outcome.first_version, outcome.length, outcome.event_ids) == (1, 1, ids(one))
    assert not outcome.replayed
    await check_invariants(place)


async def test_concurrent_writers_of_any_length_are_all_accepted_in_one_order(log: Log, place: Place) -> None:
    stream = new_stream()
    outcomes = await appended(log, *(append(stream) for _ in range(WRITERS)))
    assert sorted(each.first_version for each in outcomes) == list(range(1, WRITERS + 1))
    await check_invariants(place)


async def test_concurrent_writers_through_two_gateways_share_one_order(
    open_log: OpenLog, place: Place
) -> None:
    logs = [await open_log(), await open_log()]
    stream = new_stream()
    outcomes: list[Appended] = []

    async def write(n: int) -> None:
        for _ in range(4):
            outcomes.extend(await appended(logs[n % 2], append(stream)))

    await asyncio.gather(*(write(n) for n in range(WRITERS)))
    assert sorted(each.first_version for each in outcomes) == list(range(1, 4 * WRITERS + 1))
    await check_invariants(place)


async def test_an_append_is_at_the_version_that_its_receipt_names(open_log: OpenLog, place: Place) -> None:
    logs = [await open_log(), await open_log()]
    stream = new_stream()
    appends = [append(stream, 1 + n % 3) for n in range(20)]
    outcomes = await asyncio.gather(
        *(logs[n % 2].append(each) for n, each in enumerate(appends)),
    )
    page = await logs[0].page(Range(stream))
    by_version = {each.version: each.event for each in page.events}
    for one, outcome in zip(appends, outcomes, strict=True):
        assert isinstance(outcome, Appended)
        there = tuple(by_version[outcome.first_version + n] for n in range(len(one.events)))
        assert there == one.events
    await check_invariants(place)


@pytest.mark.parametrize("gateways", [1, 2])
async def test_an_expected_length_has_one_winner_a_version(
    open_log: OpenLog, place: Place, gateways: int
) -> None:
    logs = [await open_log() for _ in range(gateways)]
    stream = new_stream()
    for length in range(3):
        outcomes: list[Outcome] = await asyncio.gather(
            *(logs[n % gateways].append(append(stream, expected=length)) for n in range(WRITERS))
        )
        assert tally(outcomes) == {"Appended": 1, "Conflict": WRITERS - 1}
        assert {each.length for each in outcomes if isinstance(each, Conflict)} == {length + 1}
    await check_invariants(place)


async def test_a_conflict_names_the_length_of_a_stream_that_is_shorter_or_longer(
    log: Log, place: Place
) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))
    assert await log.append(append(stream, expected=0)) == Conflict(3)
    assert await log.append(append(stream, expected=2)) == Conflict(3)
    assert await log.append(append(stream, expected=4)) == Conflict(3)
    assert await log.append(append(new_stream(stream.tenant), expected=1)) == Conflict(0)
    await check_invariants(place)


async def test_a_conflict_is_answered_once_its_winner_is_committed(log: Log, place: Place) -> None:
    stream = new_stream()
    await opened(log, stream)
    gate = hold_commits(log, stream)
    winner = log.append(append(stream, expected=0))
    loser = log.append(append(stream, expected=0))
    await gate.arrived()
    assert not winner.done()
    assert not loser.done()
    gate.open()
    assert isinstance(await winner, Appended)
    assert await loser == Conflict(1)
    await check_invariants(place)


async def test_at_least_one_event_is_a_condition_that_an_empty_stream_fails(log: Log, place: Place) -> None:
    stream = new_stream()
    assert await log.append(append(stream, expected=AT_LEAST_ONE)) == Conflict(0)
    await appended(log, append(stream, expected=0))
    (outcome,) = await appended(log, append(stream, expected=AT_LEAST_ONE))
    assert outcome.first_version == 2
    await check_invariants(place)


async def test_conditions_hold_among_appends_that_one_script_call_carries(log: Log, place: Place) -> None:
    """Each is judged on what the ones before it leave, not on what Redis held before the call."""
    stream = new_stream()
    outcomes = await asyncio.gather(
        log.append(append(stream, expected=AT_LEAST_ONE)),
        log.append(append(stream, 2, expected=0)),
        log.append(append(stream, expected=0)),
        log.append(append(stream, expected=2)),
        log.append(append(stream, expected=AT_LEAST_ONE)),
    )
    match outcomes:
        case (Conflict(4), Appended(first_version=1), Conflict(4), Appended(first_version=3), last):
            assert isinstance(last, Appended)
            assert last.first_version == 4
        case _:
            # The head that a conflict names is the one that it was decided on.
            assert isinstance(outcomes[0], Conflict)
            assert outcomes[0].length == 0
            assert isinstance(outcomes[2], Conflict)
            assert outcomes[2].length == 2
            assert [each.first_version for each in outcomes if isinstance(each, Appended)] == [1, 3, 4]
    await check_invariants(place)


async def test_a_batch_is_contiguous_whatever_is_written_beside_it(open_log: OpenLog, place: Place) -> None:
    logs = [await open_log(), await open_log()]
    tenant = new_tenant()
    streams = [new_stream(tenant) for _ in range(3)]
    appends = [append(streams[n % 3], 1 + n % 7) for n in range(48)]
    outcomes = await asyncio.gather(*(logs[n % 2].append(each) for n, each in enumerate(appends)))
    taken: dict[Stream, list[int]] = {stream: [] for stream in streams}
    for one, outcome in zip(appends, outcomes, strict=True):
        assert isinstance(outcome, Appended)
        taken[one.stream].extend(range(outcome.first_version, outcome.length + 1))
    for versions in taken.values():
        assert sorted(versions) == list(range(1, len(versions) + 1))
    await check_invariants(place)


async def test_a_refused_batch_leaves_nothing_of_itself(log: Log, place: Place) -> None:
    stream = new_stream()
    await appended(log, append(stream))
    assert await log.append(append(stream, 5, expected=0)) == Conflict(1)
    assert await log.length(stream) == 1
    assert len(await place.fetch("SELECT FROM outbox")) == 1
    await check_invariants(place)


async def test_a_batch_of_a_thousand_events_is_one_append(log: Log, place: Place) -> None:
    stream = new_stream()
    (outcome,) = await appended(log, append(stream, 1000, expected=0))
    assert (outcome.first_version, outcome.length) == (1, 1000)
    assert (await appended(log, append(stream)))[0].first_version == 1001
    await check_invariants(place)


async def test_an_append_larger_than_the_window_is_admitted_when_nothing_is_uncommitted(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log(inflight_events_max=10)
    stream = new_stream()
    outcomes = await appended(log, *(append(stream, 25) for _ in range(4)))
    assert sorted(each.first_version for each in outcomes) == [1, 26, 51, 76]
    await check_invariants(place)


async def test_a_full_window_makes_appends_wait_and_none_is_lost(open_log: OpenLog, place: Place) -> None:
    log = await open_log(inflight_events_max=4)
    tenant = new_tenant()
    streams = [new_stream(tenant) for _ in range(8)]
    outcomes = await appended(log, *(append(streams[n % 8], 1 + n % 3) for n in range(80)))
    assert len(outcomes) == 80
    await check_invariants(place)


async def test_small_calls_and_small_commits_change_nothing_but_speed(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log(sequence_appends_max=3, sequence_bytes_max=400, commit_rows_max=2)
    stream = new_stream()
    outcomes = await appended(log, *(append(stream, 1 + n % 4) for n in range(30)))
    assert [each.first_version for each in outcomes] == sorted(each.first_version for each in outcomes)
    await check_invariants(place)


async def test_half_of_what_is_under_way_is_sequenced_while_the_other_half_commits(
    log: Log, place: Place
) -> None:
    stream = new_stream()
    await opened(log, stream)
    await appended(log, append(stream))
    runs: list[int] = []

    async def around(proceed: Proceed, *args: Any) -> Any:
        runs.append(len(args[4]))
        return await proceed()

    interpose(lane(log, stream).connection, "swap", around)
    await appended(log, *(append(stream) for _ in range(64)))
    assert runs == [32, 32]
    runs.clear()
    await appended(log, *(append(stream) for _ in range(16)))
    assert runs == [16], "few are not worth two calls"


@pytest.mark.parametrize(("appends", "carried"), [(20, 16), (60, 30), (300, 96), (600, 150), (2_000, 250)])
async def test_a_call_carries_half_of_what_is_under_way_and_of_very_much_a_quarter(
    log: Log, place: Place, appends: int, carried: int
) -> None:
    stream = new_stream()
    await appended(log, append(stream))
    runs: list[int] = []

    async def around(proceed: Proceed, *args: Any) -> Any:
        runs.append(len(args[4]))
        return await proceed()

    interpose(lane(log, stream).connection, "swap", around)
    await appended(log, *[append(stream) for _ in range(appends)])
    assert (runs[0], sum(runs)) == (carried, appends)


def calls_of(log: Log) -> list[int]:
    """Grows by the number of keys of each call of sequence.lua that is made from now on."""
    calls: list[int] = []

    async def around(proceed: Proceed, name: str, names: Any, args: Any) -> Any:
        if name == "sequence":
            calls.append(len(names))
        return await proceed()

    interpose(log._scripts, "run", around)
    return calls


async def test_no_call_without_appends_goes_before_the_next_append_of_who_was_just_answered(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "_WATERMARK_LAG_S", 60.0)
    monkeypatch.setattr(sequencer, "_BUSY_WATERMARK_LAG_S", 60.0)
    stream = new_stream()
    await opened(log, stream)
    await appended(log, append(stream))
    calls = calls_of(log)
    for _ in range(5):
        await appended(log, append(stream))
    assert len(calls) == 5


async def test_a_call_that_asks_postgres_first_takes_along_what_each_turn_of_the_loop_brings(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "_WATERMARK_LAG_S", 60.0)  # no call without appends goes before it
    monkeypatch.setattr(sequencer, "_BUSY_WATERMARK_LAG_S", 60.0)
    stream = new_stream()
    await opened(log, stream)
    await appended(log, append(stream))
    calls, pendings = calls_of(log), list[asyncio.Future[Outcome]]()

    def submit() -> None:
        pendings.append(log.append(append(stream, key=b"%d" % len(pendings))))
        if len(pendings) < 9:
            asyncio.get_running_loop().call_soon(submit)

    submit()
    await pendings[0]
    assert set(map(type, await asyncio.gather(*pendings))) == {Appended}
    assert calls[0] == OTHER_KEYS + 9


async def test_while_other_partitions_keep_the_gateway_busy_a_small_call_waits_for_more(
    log: Log, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "_GATHER_S", 1.0)
    stream, busy = new_stream(), new_stream()
    while partition_number(log, busy) == partition_number(log, stream):
        busy = new_stream()
    await asyncio.gather(opened(log, stream), opened(log, busy))
    await appended(log, append(stream), append(busy))
    runs: list[int] = []

    async def around(proceed: Proceed, *args: Any) -> Any:
        runs.append(len(args[4]))
        return await proceed()

    async def runs_of_two(few: int = 1) -> list[int]:
        """Of an append, or a few, and of another that comes once these are on their way, or wait for more."""
        runs.clear()
        first = [log.append(append(stream)) for _ in range(few)]
        await until(lambda: sent_or_gathering(lane(log, stream)))
        await appended(log, append(stream))
        await asyncio.gather(*first)
        return runs

    interpose(lane(log, stream).connection, "swap", around)
    assert await runs_of_two() == [1, 1]
    gate = hold_commits(log, busy)
    elsewhere = [log.append(append(busy)) for _ in range(15)]
    await gate.arrived()
    assert await runs_of_two() == [1, 1], "elsewhere is little to do"
    elsewhere.append(log.append(append(busy)))
    await until(lambda: lane(log, busy).committer.appends == 16)
    assert await runs_of_two() == [2]
    assert await runs_of_two(20) == [21]
    gate.open()
    await asyncio.gather(*elsewhere)
    one = lane(log, stream)
    await until(lambda: not one.partition.curious and one.sequencer._pace._gathered.is_set())
    assert await runs_of_two() == [1, 1]
    await check_invariants(place)


async def test_one_gateway_keeps_the_order_in_which_appends_to_a_stream_were_handed_over(
    log: Log, place: Place
) -> None:
    stream = new_stream()
    outcomes = await appended(log, *(append(stream) for _ in range(200)))
    assert [each.first_version for each in outcomes] == list(range(1, 201))
    await check_invariants(place)


async def test_a_queue_that_is_full_refuses_and_says_that_nothing_was_written(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log(queue_bytes_max=100_000)
    stream = new_stream()
    outcomes = await asyncio.gather(*(log.append(append(stream)) for _ in range(50)))
    refused = sum(isinstance(each, NotCommitted) for each in outcomes)
    assert 0 < refused < 50
    assert await log.length(stream) == 50 - refused
    await check_invariants(place)


async def test_queues_of_all_partitions_share_one_bound_and_leave_nothing_counted(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log(queue_bytes_max=200_000)
    streams = [new_stream() for _ in range(40)]
    outcomes = await asyncio.gather(*(log.append(append(stream)) for stream in streams for _ in range(10)))
    accepted = sum(isinstance(each, Appended) for each in outcomes)
    assert 200_000 // (8 * 1024) < accepted <= 200_000 // (3 * 1024) + 1
    assert log._backlog.size_bytes == 0
    await check_invariants(place)


async def test_an_append_whose_request_was_cancelled_disturbs_no_other(log: Log, place: Place) -> None:
    stream = new_stream()
    await opened(log, stream)
    gate = hold_commits(log, stream)
    sequenced = log.append(append(stream))
    await gate.arrived()
    queued = log.append(append(stream))
    sequenced.cancel()
    queued.cancel()
    gate.open()
    (outcome,) = await appended(log, append(stream))
    assert outcome.first_version in (2, 3)
    assert await log.length(stream) == outcome.first_version
    await check_invariants(place)


async def test_tenants_share_nothing_but_the_partition(open_log: OpenLog, place: Place) -> None:
    log = await open_log()
    streams = [Stream(new_tenant(), "order", "global") for _ in range(40)]
    appends: list[Append] = [append(stream, key=b"same") for stream in streams]
    outcomes = await appended(log, *appends)
    assert {each.first_version for each in outcomes} == {1}
    assert not any(each.replayed for each in outcomes)
    used = await place.fetch("SELECT p, seq FROM partition_log WHERE seq > 0")
    assert sum(each["seq"] for each in used) == 40
    await check_invariants(place)


async def test_stopping_settles_what_was_accepted(open_log: OpenLog, place: Place) -> None:
    log = await open_log()
    stream = new_stream()
    pending = [log.append(append(stream)) for _ in range(100)]
    await log.stop(5)
    assert all(each.done() for each in pending)
    assert len(await place.fetch("SELECT FROM outbox")) == 100
    await check_invariants(place, settles=False)


async def test_ready_says_when_an_append_could_commit(open_log: OpenLog) -> None:
    log = await open_log()
    assert "not open" in (await log.ready() or "")

    await until(lambda: ready(log))
    assert all(each.partition.open for each in [lane(log, new_stream())])


async def test_stopping_ends_a_task_that_lost_its_cancellation(log: Log) -> None:
    """A wait that ends as its task is cancelled may swallow that: asyncpg's does on Python 3.11."""
    entered, swallowed = asyncio.Event(), asyncio.Event()

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        if name != "partitions" or swallowed.is_set():
            return await proceed()
        entered.set()
        try:
            return await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
            raise PostgresTrouble("in place of the cancellation") from None

    interpose(log._postgres, "fetch", around)
    await entered.wait()
    async with asyncio.timeout(40):
        await log.stop(1)
    assert swallowed.is_set()
