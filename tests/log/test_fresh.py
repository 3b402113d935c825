"""Streams whose keys were made for the append at random: Postgres is not asked whether they have events."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.appends import Append, Appended
from gateway.events import Stream
from gateway.log.append.pending import Pending
from gateway.log.append.sequencer import Sequencer
from gateway.log.log import Log
from gateway.outcomes import Quarantined
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import (
    Place,
    append,
    append_to_all,
    appended,
    hold_script,
    ids,
    lane,
    lose_replies,
    new_stream,
    new_tenant,
    opened,
    until,
    wipe_partition,
)


def fresh(of: Append, *which: int) -> Append:
    return msgspec.structs.replace(of, fresh=which)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Stream]:
    """The streams of appends for which Postgres was asked."""
    streams: list[Stream] = []
    warm = Sequencer._warm

    async def told(self: Sequencer, cold: list[Pending], as_of: str) -> None:
        streams.extend(stream for each in cold for stream in each.append.streams)
        await warm(self, cold, as_of)

    monkeypatch.setattr(Sequencer, "_warm", told)
    return streams


async def test_postgres_is_asked_for_the_others_only(
    open_log: OpenLog, place: Place, asked: list[Stream]
) -> None:
    log, tenant = await open_log(), new_tenant()
    one, two, three, four = (new_stream(tenant) for _ in range(4))
    await opened(log, one)
    await appended(log, fresh(append(one, expected=0), 0), fresh(append_to_all([two, three, two]), 0, 1))
    assert asked == []
    await appended(log, fresh(append_to_all([four, new_stream(tenant)]), 1), append(one), append(three))
    assert asked[0] == four
    assert len(asked) == 2
    assert [await log.length(each) for each in (one, two, three, four)] == [2, 2, 2, 1]
    await check_invariants(place)


async def test_an_append_that_may_have_been_sequenced_is_fresh_no_more(
    open_log: OpenLog, place: Place
) -> None:
    """Its call was carried out unanswered; by the time that it is sent again, Redis knows nothing of it."""
    cut_off, living = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(cut_off, stream), opened(living, stream))
    inspect = hold_script(cut_off, "inspect")
    lose_replies(cut_off, "sequence")
    one = fresh(append(stream, 2, expected=0), 0)
    pending = cut_off.append(one)
    await until(lambda: living.event(stream.tenant, one.append_id))
    await wipe_partition(living, stream)
    inspect.open()
    assert await pending == Appended(stream.key, 1, ids(one), replayed=False)
    assert await living.length(stream) == 2
    await check_invariants(place)


def a_pending(of: Append, **more: Any) -> Pending:
    return Pending(of, 0, 0.0, asyncio.get_running_loop().create_future(), lambda _: None, **more)


async def test_only_the_first_call_says_so() -> None:
    one, several = fresh(append(new_stream()), 0), append_to_all([new_stream(new_tenant())] * 2)
    assert a_pending(one).hint_in(7) == "7.9007199254740992:0"
    assert a_pending(one, hint="7.3:1").hint_in(7) == "7.3:1"
    assert a_pending(several).hint_in(7) == ""
    again = a_pending(one)
    again.reset()
    assert again.hint_in(8) == ""


async def test_a_key_that_is_an_aggregate_s_already_is_refused_by_postgres(log: Log, place: Place) -> None:
    """It takes a random UUID that comes twice."""
    stream = new_stream()
    await appended(log, append(stream))
    await wipe_partition(log, stream)
    outcome = await log.append(fresh(append(stream, expected=0), 0))
    assert isinstance(outcome, Quarantined)
    assert [each.first_version for each in await appended(log, append(stream))] == [2]
    assert lane(log, stream).partition.halted is None
