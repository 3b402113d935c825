"""What is said when time is up: never more than is known."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.appends import Appended
from gateway.log.log import Log
from gateway.log.redis.scripts import RedisTrouble
from gateway.outcomes import NotCommitted, OutcomeUnknown
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
    lose_replies,
    new_stream,
    opened,
    time_is_up,
    until,
)


def sequenced(log: Log) -> list[None]:
    """An entry for each call that sequences from now on, once it is over."""
    calls: list[None] = []

    async def around(proceed: Proceed, name: str, *_: Any) -> Any:
        try:
            return await proceed()
        finally:
            if name == "sequence":
                calls.append(None)

    interpose(log._scripts, "run", around)
    return calls


async def test_what_was_never_sequenced_is_not_committed_and_never_appears(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    gate = hold_script(log, "inspect")
    stream = new_stream()
    late = log.append(append(stream))
    await gate.arrived()
    time_is_up(log, stream)
    assert isinstance(await late, NotCommitted)
    gate.open()
    (outcome,) = await appended(log, append(stream))
    assert outcome.first_version == 1
    assert await place.committed() == 1
    await check_invariants(place)


async def test_what_waits_behind_a_full_window_is_not_committed_and_never_appears(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log(inflight_events_max=1)
    stream = new_stream()
    await opened(log, stream)
    commit, helped = hold_commits(log, stream), hold_help(log)
    sequenced, waiting = log.append(append(stream)), log.append(append(stream))
    await commit.arrived()
    sequencer = lane(log, stream).sequencer
    # It is tried again and again: while a call with it is under way, it may be sequenced.
    _, behind = sequencer.outstanding
    await until(lambda: not behind.in_doubt)
    time_is_up(log, stream)
    sequencer.expire(asyncio.get_running_loop().time())
    assert isinstance(await sequenced, OutcomeUnknown)
    assert isinstance(await waiting, NotCommitted)
    commit.open()
    helped.open()
    (outcome,) = await appended(log, append(stream))
    assert outcome.first_version == 2
    assert await place.committed() == 2
    await check_invariants(place)


async def test_the_outcome_of_a_commit_that_takes_too_long_is_unknown_and_the_commit_continues(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    commit, helped = hold_commits(log, stream), hold_help(log)
    late = append(stream, key=b"k")
    pending = log.append(late)
    await commit.arrived()
    time_is_up(log, stream)
    assert await pending == OutcomeUnknown(late.append_id)
    commit.open()
    helped.open()
    (outcome,) = await appended(log, append(stream, key=b"k"))
    assert outcome == Appended(stream.key, 1, ids(late), replayed=True)
    await check_invariants(place)


async def test_the_outcome_of_a_call_that_was_carried_out_unanswered_is_unknown(
    open_log: OpenLog, place: Place
) -> None:
    """Its second try finds the first one sequenced: by then it must not say that nothing was written."""
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    hold_commits(log, stream)
    helps = False

    async def around(proceed: Proceed, *args: Any) -> Any:
        """A help that waited would keep the sweeper from finding out that Redis answers."""
        return await proceed() if helps else 0

    interpose(log._sweeper, "_help", around)
    lose_replies(log, "sequence")
    tries = sequenced(log)
    late = append(stream)
    pending = log.append(late)
    await until(lambda: len(tries) >= 2)
    time_is_up(log, stream)
    assert await pending == OutcomeUnknown(late.append_id)
    helps = True
    await until(lambda: log.event(stream.tenant, late.append_id))
    await check_invariants(place)


async def test_the_outcome_of_a_call_that_redis_never_answers_is_unknown(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    answers = False

    async def around(proceed: Proceed, *args: Any) -> Any:
        if answers:
            return await proceed()
        raise RedisTrouble("no answer")

    interpose(log._scripts, "run", around)
    tries = sequenced(log)
    late = append(stream)
    pending = log.append(late)
    await until(lambda: tries)
    time_is_up(log, stream)
    assert await pending == OutcomeUnknown(late.append_id)
    answers = True
    await opened(log, stream)
    (outcome,) = await appended(log, append(stream))
    assert outcome.first_version == 1
    await check_invariants(place)


async def test_the_outcome_of_a_commit_without_an_answer_is_unknown_and_it_is_there_once(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    lose_commit_replies(lane(log, stream).connection, times=1000)
    late = append(stream)
    pending = log.append(late)
    await until(place.committed)
    time_is_up(log, stream)
    assert await pending in (OutcomeUnknown(late.append_id), Appended(stream.key, 1, ids(late)))
    assert await place.committed() == 1
    await check_invariants(place)


async def test_a_conflict_with_what_is_uncommitted_is_not_answered_as_a_conflict_in_time(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    commit, helped = hold_commits(log, stream), hold_help(log)
    winner, loser = log.append(append(stream, expected=0)), log.append(append(stream, expected=0))
    await commit.arrived()
    time_is_up(log, stream)
    assert isinstance(await loser, NotCommitted)
    assert isinstance(await winner, OutcomeUnknown)
    commit.open()
    helped.open()
    await until(lambda: place.committed())
    await check_invariants(place)


async def test_not_committed_speaks_of_only_the_request_not_of_the_original_that_it_repeats(
    open_log: OpenLog, place: Place
) -> None:
    first, second = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(first, stream), opened(second, stream))
    commit = hold_commits(first, stream)
    helped = [hold_help(first), hold_help(second)]
    original = append(stream, key=b"k")
    pending = first.append(original)
    await commit.arrived()
    tries = sequenced(second)
    again = second.append(append(stream, key=b"k"))
    await until(lambda: tries)
    for each in (first, second):
        time_is_up(each, stream)
    assert isinstance(await again, NotCommitted)
    assert isinstance(await pending, OutcomeUnknown)
    commit.open()
    for gate in helped:
        gate.open()
    (outcome,) = await appended(second, append(stream, key=b"k"))
    assert outcome == Appended(stream.key, 1, ids(original), replayed=True)
    await check_invariants(place)


async def test_what_was_sequenced_in_an_ended_epoch_too_late_to_be_sequenced_again_never_appears(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    commit, helped, inspect = hold_commits(log, stream), hold_help(log), hold_script(log, "inspect")
    pending = log.append(append(stream))
    await commit.arrived()
    number = lane(log, stream).partition.number
    await place.execute("UPDATE partition_log SET epoch = epoch + 1 WHERE p = $1", number)
    commit.open()
    helped.open()
    (waiting,) = lane(log, stream).sequencer.outstanding
    await until(lambda: not waiting.in_doubt)
    time_is_up(log, stream)
    assert isinstance(await pending, NotCommitted)
    inspect.open()
    (outcome,) = await appended(log, append(stream))
    assert outcome.first_version == 1
    assert await place.committed() == 1
    await check_invariants(place)


async def test_what_was_answered_in_time_is_not_held_while_commits_stand_still(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    gate = hold_script(log, "inspect")
    stream = new_stream()
    late = [log.append(append(stream, key=key)) for key in (None, b"k", None)]
    await gate.arrived()
    sequencer = lane(log, stream).sequencer
    assert sequencer.waiting[0] == 3
    time_is_up(log, stream)
    outcomes = await asyncio.gather(*late)
    assert all(isinstance(each, NotCommitted) for each in outcomes)
    await until(lambda: sequencer.waiting == (0, 0) and not sequencer.look_ups._waiting)
    assert log._backlog.size_bytes == 0 and not sequencer.outstanding
    gate.open()
    (outcome,) = await appended(log, append(stream))
    assert outcome.first_version == 1
    await check_invariants(place)
