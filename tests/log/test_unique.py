"""Unique values in the log: whichever gateway commits them, and whichever way appends take."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.appends import ANY_LENGTH, Append, Appended, make_append, make_retry
from gateway.events import Claim, Spread, Stream
from gateway.log.append import look_ups
from gateway.log.entries import SequencedAppend, claim_columns
from gateway.log.log import Log
from gateway.names.unique import Holders
from gateway.outcomes import NotUnique, Outcome
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import (
    Place,
    claiming,
    crash,
    event,
    hold_commits,
    lane,
    new_stream,
    new_tenant,
    opened,
    seal,
    unique_value,
    until,
    wipe_partition,
)


async def outcome(log: Log, one: Append) -> Outcome:
    return await log.append(one)


async def held(place: Place) -> dict[bytes, str]:
    return {row["value"]: row["aggregate_id"] for row in await place.fetch("SELECT * FROM unique_claim")}


async def test_what_a_gateway_sequenced_before_it_died_is_claimed(open_log: OpenLog, place: Place) -> None:
    first, second = await open_log(), await open_log()
    tenant = new_tenant()
    ada, bob = new_stream(tenant), new_stream(tenant)
    await asyncio.gather(opened(first, ada), opened(second, ada))
    hold_commits(first, ada)
    first.append(claiming(ada, "a"))
    await until(lambda: lane(first, ada).committer.appends > 0)
    await crash(first)
    assert await outcome(second, claiming(bob, "a")) == NotUnique("data", "order", ada.key)
    assert await held(place) == {unique_value("a"): ada.key}
    await check_invariants(place)


async def test_a_value_is_found_taken_in_a_new_epoch(open_log: OpenLog, place: Place) -> None:
    log = await open_log()
    tenant = new_tenant()
    ada, bob = new_stream(tenant), new_stream(tenant)
    assert isinstance(await outcome(log, claiming(ada, "a")), Appended)
    await seal(place, log, ada)
    assert isinstance(await outcome(log, claiming(bob, "a")), NotUnique)
    assert isinstance(await outcome(log, claiming(ada, None)), Appended)
    assert isinstance(await outcome(log, claiming(bob, "a")), Appended)
    await check_invariants(place)


async def test_a_claim_that_is_lost_with_its_epoch_is_not_waited_for(
    open_log: OpenLog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_ups, "_COMMITTED_S", 60.0)
    log, dead = await open_log(), await open_log()
    tenant = new_tenant()
    ada, bob = new_stream(tenant), new_stream(tenant)
    await asyncio.gather(opened(log, ada), opened(dead, ada))
    for each in (log, dead):
        each._sweeper._journal.commit = never  # type: ignore[method-assign]
    hold_commits(dead, ada)
    dead.append(claiming(ada, "a"))
    await until(lambda: lane(dead, ada).committer.appends > 0)
    waiting = log.append(claiming(bob, "a"))
    await until(lambda: lane(log, bob).sequencer.outstanding[0].beyond)
    await crash(dead)
    await wipe_partition(log, ada)
    assert isinstance(await waiting, Appended)
    await check_invariants(place)


async def never(*_: object) -> int:
    return 0


async def test_gateways_that_change_ways_hold_each_value_once(open_log: OpenLog, place: Place) -> None:
    """Sealed again and again meanwhile: each time all that is under way is judged again."""
    logs = [await open_log(), await open_log()]
    tenant, chance = new_tenant(), random.Random(3)
    streams = [new_stream(tenant) for _ in range(6)]

    async def change(log: Log, stream: Stream) -> list[Outcome]:
        texts = [chance.choice(("a", "b", "c", None)) for _ in range(25)]
        return [await outcome(log, claiming(stream, text)) for text in texts]

    async def seal_now_and_then() -> None:
        for _ in range(4):
            await asyncio.sleep(0.05)
            await seal(place, logs[0], streams[0])

    told, *_ = await asyncio.gather(
        asyncio.gather(*(change(logs[n % 2], stream) for n, stream in enumerate(streams))),
        seal_now_and_then(),
    )
    assert {type(each).__name__ for row in told for each in row} <= {"Appended", "NotUnique"}
    await check_invariants(place)


# ---- the pure judge ----

STREAMS = tuple(Stream(bytes(16), "order", f"{n}") for n in range(3))
CHANGES = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", "c", None])), min_size=1, max_size=4),
    max_size=12,
)


def spread(changes: list[tuple[int, str | None]]) -> Append:
    claims = tuple(
        Claim(n, "email", b"", None if text is None else unique_value(text))
        for n, (_, text) in enumerate(changes)
    )
    events = tuple(event(None, b"{}") for _ in changes)
    return make_append(
        STREAMS[0],
        events,
        ANY_LENGTH,
        make_retry(bytes(16), None, (), b""),
        spread=Spread(STREAMS, tuple(which for which, _ in changes)),
        others=(ANY_LENGTH,) * 2,
        claims=claims,
        claim_paths=tuple(str(n) for n in range(len(changes))),
    )


@given(CHANGES)
def test_appends_are_judged_one_by_one_on_what_each_leaves(
    appends: list[list[tuple[int, str | None]]],
) -> None:
    """And what the commit of those that are taken leaves in the table is the same."""
    holders, owner = Holders({}), dict[str, int]()
    placed: list[SequencedAppend] = []
    for changes in appends:
        after, at_fault = dict(owner), None
        for n, (which, text) in enumerate(changes):
            if text is not None and after.get(text, which) != which:
                at_fault = NotUnique(str(n), "order", STREAMS[after[text]].key)
                break
            after = {each: has for each, has in after.items() if has != which}
            if text is not None:
                after[text] = which
        one = spread(changes)
        assert holders.judge(one) == at_fault
        if at_fault is None:
            holders.take(one)
            owner = after
            placed.append(
                SequencedAppend(
                    one.stream,
                    one.append_id,
                    one.events,
                    one.digests,
                    (),
                    b"",
                    1,
                    10,
                    (),
                    one.spread,
                    (),
                    one.claims,
                )
            )
    columns = claim_columns(placed)
    rows = dict(zip(columns[5], columns[8], strict=True)) if columns else {}
    assert rows == {unique_value(text): STREAMS[which].key for text, which in owner.items()}
