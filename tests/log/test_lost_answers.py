"""Answers that are lost between the gateway and its servers: what was done counts once, and is told right."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.appends import Appended
from gateway.log.redis.scripts import RedisTrouble
from gateway.outcomes import Conflict
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import (
    Place,
    Proceed,
    append,
    appended,
    hold_commits,
    hold_help,
    hold_script,
    ids,
    interpose,
    lane,
    lose_commit_replies,
    lose_fetches,
    lose_replies,
    new_stream,
    new_tenant,
    opened,
    tally,
    until,
    wipe_partition,
)


async def test_an_unanswered_call_may_run_late_but_never_after_a_later_one(
    open_log: OpenLog, place: Place
) -> None:
    """A call hangs in the network; its appends are sent again, and one of them is answered 409."""
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    await appended(log, append(stream))
    hung: list[Proceed] = []

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        if name == "sequence" and not hung:
            hung.append(proceed)
            raise RedisTrouble("no answer yet")
        return await proceed()

    interpose(log._scripts, "run", around)
    (outcome,) = await appended(log, append(stream, expected=1))
    assert await hung[0]() == [b"FENCED", b"late"]
    assert outcome.first_version == 2
    assert await log.length(stream) == 2
    await check_invariants(place)


async def test_a_call_that_was_carried_out_unanswered_writes_once_and_is_answered_right(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    tenant = new_tenant()
    streams = [new_stream(tenant) for _ in range(10)]
    await appended(log, *(append(each) for each in streams))
    lose_replies(log, "sequence", times=3)
    appends = [append(each, 2) for each in streams] + [append(each, key=b"k" + each.key.encode())
                                                      for each in streams]  # fmt: skip
    outcomes = await asyncio.gather(*(log.append(each) for each in appends))
    for one, outcome in zip(appends, outcomes, strict=True):
        assert isinstance(outcome, Appended)
        assert outcome.event_ids == ids(one)
        assert not outcome.replayed
    assert await place.committed() == 40
    await check_invariants(place)


async def test_a_call_that_was_never_carried_out_is_sent_again(open_log: OpenLog, place: Place) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    lose_replies(log, "sequence", times=3, run=False)
    outcomes = await appended(log, *(append(stream) for _ in range(10)))
    assert [each.first_version for each in outcomes] == list(range(2, 12))
    await check_invariants(place)


async def test_a_commit_whose_answer_was_lost_is_acknowledged_once_it_is_found(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    hold_help(log)
    for carried_out in (True, False):
        lose_commit_replies(lane(log, stream).connection, 2, run=carried_out)
        outcomes = await appended(log, *(append(stream, 2) for _ in range(5)))
        assert not any(each.replayed for each in outcomes)
    assert await log.length(stream) == 20
    await check_invariants(place, settles=False)


async def test_a_failing_look_at_the_partition_loses_no_append(open_log: OpenLog, place: Place) -> None:
    """Postgres fails just as a committer asks it what became of its run."""
    slow, quick = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(slow, stream), opened(quick, stream))
    gate = hold_commits(slow, stream)
    for each in (slow, quick):
        hold_help(each)
    pending = slow.append(append(stream))
    await gate.arrived()
    lose_fetches(quick, "partition", 5)
    behind = quick.append(append(stream))
    await until(lambda: not lane(quick, stream).sequencer._queue)
    gate.open()
    assert tally([await pending, await behind]) == {"Appended": 2}
    await check_invariants(place, settles=False)


async def test_an_append_that_another_gateway_committed_in_an_ended_epoch_is_not_sequenced_again(
    open_log: OpenLog, place: Place
) -> None:
    """Its call was carried out unanswered; by the time that it is sent again, Redis knows nothing of it."""
    cut_off, living = await open_log(), await open_log()
    stream = new_stream()
    await appended(cut_off, append(stream))
    await opened(living, stream)
    inspect = hold_script(cut_off, "inspect")
    lose_replies(cut_off, "sequence")
    one = append(stream, 2)
    pending = cut_off.append(one)
    await until(lambda: living.event(stream.tenant, one.append_id))
    await wipe_partition(living, stream)
    inspect.open()
    assert await pending == Appended(stream.key, 2, ids(one), replayed=False)
    assert await living.length(stream) == 3
    await check_invariants(place)


@pytest.mark.bug
async def test_conflicts_are_answered_after_a_bug(
    open_log: OpenLog, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """The look whether a conflict's epoch still stands fails, as by asyncpg's AttributeError of a connection
    that ends between a statement and its arguments. Neither this conflict nor a later one waits for its
    deadline."""
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    bugs = iter([AttributeError("bind_execute")])

    async def around(proceed: Proceed, name: str, *_: Any) -> Any:
        for bug in bugs if name == "partition" else ():
            raise bug
        return await proceed()

    interpose(log._postgres, "fetch", around)
    for _ in range(2):
        assert await log.append(append(stream, expected=0)) == Conflict(1)
    assert "task_restarted" in caplog.messages
    await check_invariants(place)
