"""Identities are looked up beside the call before, and nothing is believed of them for too long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.appends import Appended
from gateway.events import Stream
from gateway.log.log import Log
from gateway.outcomes import NotCommitted, Outcome
from gateway.postgres.errors import PostgresTrouble
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import (
    Gate,
    Place,
    Proceed,
    append,
    appended,
    hold_fetch,
    hold_script,
    interpose,
    lane,
    new_stream,
    opened,
    until,
)

LOOK_UP = "look_up_identities"


def count_look_ups(log: Log) -> list[Any]:
    """The arguments of each, as they are answered."""
    answered: list[Any] = []

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        rows = await proceed()
        if name == LOOK_UP:
            answered.append(args)
        return rows

    interpose(log._postgres, "fetch", around)
    return answered


def looked_up(log: Log, stream: Stream) -> list[int | None]:
    return [pending.looked_up for pending in lane(log, stream).sequencer._queue]


async def looked_up_behind_a_call(
    log: Log, stream: Stream
) -> tuple[Gate, asyncio.Future[Outcome], asyncio.Future[Outcome]]:
    """A call that is held, the append that it carries, and one with the key "k", looked up beside it."""
    await opened(log, stream)
    call = hold_script(log, "sequence")
    carried = log.append(append(stream))
    await call.arrived()
    keyed = log.append(append(stream, key=b"k"))
    await until(lambda: looked_up(log, stream) == [0])
    return call, carried, keyed


async def test_an_identity_is_looked_up_while_a_call_is_under_way(log: Log, place: Place) -> None:
    answered = count_look_ups(log)
    call, first, second = await looked_up_behind_a_call(log, new_stream())
    assert not first.done()
    call.open()
    assert [type(await each) for each in (first, second)] == [Appended, Appended]
    assert len(answered) == 1
    await check_invariants(place)


async def test_what_came_first_is_sequenced_first_though_it_is_looked_up(log: Log, place: Place) -> None:
    stream = new_stream()
    await opened(log, stream)
    look = hold_fetch(log, LOOK_UP)
    keyed = log.append(append(stream, key=b"k"))
    plain = log.append(append(stream))
    await look.arrived()
    look.open()
    versions = [outcome.first_version for outcome in (await keyed, await plain) if type(outcome) is Appended]
    assert versions == [1, 2]
    await check_invariants(place)


async def test_a_look_up_in_an_epoch_that_has_ended_is_made_again(log: Log, place: Place) -> None:
    """In that epoch's last moments, another gateway may have committed the same request."""
    answered = count_look_ups(log)
    call, waits, keyed = await looked_up_behind_a_call(log, new_stream())
    await place.execute("UPDATE partition_log SET epoch = epoch + 1")
    call.open()
    assert type(await waits) is type(await keyed) is Appended
    assert len(answered) >= 2
    await check_invariants(place)


async def test_a_look_up_under_way_at_a_verification_is_not_believed(log: Log, place: Place) -> None:
    stream = new_stream()
    await opened(log, stream)
    gates = [Gate(), Gate()]
    arriving = iter(gates)

    async def late(proceed: Proceed, name: str, *_: Any) -> Any:
        rows = await proceed()
        if name == LOOK_UP:
            await next(arriving).hold()
        return rows

    interpose(log._postgres, "fetch", late)
    keyed = log.append(append(stream, key=b"k"))
    await gates[0].arrived()
    partition = lane(log, stream).partition
    partition.distrust()
    lane(log, stream).sequencer.wake()
    await until(lambda: partition.open)
    gates[0].open()
    await gates[1].arrived()
    assert looked_up(log, stream) == [None]
    gates[1].open()
    assert type(await keyed) is Appended
    await check_invariants(place)


async def test_a_retry_that_was_looked_up_too_early_finds_its_original(
    open_log: OpenLog, place: Place
) -> None:
    """The original is committed between the look-up and the call: the script knows it."""
    mine, other = await open_log(), await open_log()
    stream = new_stream()
    call, waits, retry = await looked_up_behind_a_call(mine, stream)
    (original,) = await appended(other, append(stream, key=b"k"))
    call.open()
    outcome = await retry
    assert type(outcome) is Appended
    assert outcome.replayed
    assert outcome.event_ids == original.event_ids
    assert type(await waits) is Appended
    await check_invariants(place)


async def test_what_was_looked_up_before_redis_forgot_is_looked_up_again(
    open_log: OpenLog, place: Place
) -> None:
    """Its original is committed after the look-up, and so many events after it that Redis has forgotten."""
    mine, other = await open_log(identity_window=8), await open_log(identity_window=8)
    stream = new_stream()
    answered = count_look_ups(mine)
    call, waits, retry = await looked_up_behind_a_call(mine, stream)
    (original,) = await appended(other, append(stream, key=b"k"))
    for _ in range(4):
        await appended(other, append(stream, 8))
    call.open()
    outcome = await retry
    assert type(outcome) is Appended
    assert outcome.event_ids == original.event_ids
    assert len(answered) >= 2
    assert type(await waits) is Appended
    await check_invariants(place)


@pytest.mark.bug
async def test_a_look_up_that_a_bug_breaks_is_made_again(log: Log, place: Place) -> None:
    stream = new_stream()
    await opened(log, stream)
    broken = iter([True])

    async def breaks_once(proceed: Proceed, name: str, *_: Any) -> Any:
        if name == LOOK_UP and next(broken, False):
            raise RuntimeError("a bug")
        return await proceed()

    interpose(log._postgres, "fetch", breaks_once)
    outcomes = await asyncio.gather(log.append(append(stream, key=b"k")), log.append(append(stream)))
    assert [type(each) for each in outcomes] == [Appended, Appended]
    await check_invariants(place)


async def test_an_append_that_can_not_be_looked_up_in_time_holds_up_no_other_append(
    log: Log, place: Place
) -> None:
    stream = new_stream()
    await opened(log, stream)

    async def refused(proceed: Proceed, name: str, *_: Any) -> Any:
        if name == LOOK_UP:
            raise PostgresTrouble("no look-ups today")
        return await proceed()

    interpose(log._postgres, "fetch", refused)
    keyed, plain = log.append(append(stream, key=b"k")), log.append(append(stream))
    head = lane(log, stream).sequencer.outstanding[0]
    head.deadline = 0.0
    assert type(await keyed) is NotCommitted
    assert type(await plain) is Appended
    await check_invariants(place)
