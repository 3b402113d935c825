"""First reads of streams that Redis does not have, while none is there that is asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from uuid_utils import uuid7

from gateway.events import Joined, Page, Stream, revised
from gateway.log.log import Log
from gateway.log.read import cold
from gateway.log.read.ranges import Narrow, Range
from tests.support.drive import (
    Place,
    Proceed,
    append,
    appended,
    event,
    interpose,
    lane,
    new_stream,
    opened,
    seal,
)

NONE = Narrow()
APART = Narrow(frozenset({"was_placed", "was_paid"}))
"""Each event in its place: a fold may look at all that the narrow form has."""


def noted(log: Log) -> list[str]:
    """The statements and scripts of reads, in their order."""
    asked: list[str] = []

    async def note(proceed: Proceed, name: str, *args: Any) -> Any:
        if name in ("read", "fill", "streams", "streams_narrow", "stream_asc"):
            asked.append(name)
        return await proceed()

    async def note_read(proceed: Proceed, _tenant: bytes, name: str, *args: Any) -> Any:
        return await note(proceed, name)

    interpose(log._reads, "fetch_for", note_read)
    interpose(log._scripts, "run", note)
    return asked


async def looked(log: Log, stream: Stream, **changed: Any) -> Page | None:
    told: asyncio.Future[Page | None] = asyncio.get_running_loop().create_future()
    log.look(Range(stream, **changed), told.set_result)
    return await told


async def pass_by(log: Log, stream: Stream) -> None:
    """As if many streams in a row had been looked for in Redis in vain."""
    await opened(log, stream)
    for _ in range(cold._MISSES):
        lane(log, stream).reader.cold.note(miss=True)


async def test_after_many_misses_streams_are_read_without_redis_but_one_in_some(
    log: Log, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant_stream = new_stream()
    monkeypatch.setattr(cold, "_LOOK_EVERY", 64)
    streams = [replace(tenant_stream, key=new_stream().key) for _ in range(cold._LOOK_EVERY)]
    for stream in streams:
        await appended(log, append(stream, 2))
    await seal(place, log, streams[0])
    await pass_by(log, streams[0])
    asked = noted(log)
    for stream in streams:
        page = await looked(log, stream, narrow=NONE)
        assert page is not None
        assert page.length == 2
    assert asked.count("streams_narrow") == cold._LOOK_EVERY - 1
    assert asked.count("read") == asked.count("streams") == 1


async def test_a_stream_that_is_in_redis_ends_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold, "_LOOK_EVERY", 64)
    stream = new_stream()
    await appended(log, append(stream, 2))
    await pass_by(log, stream)
    asked = noted(log)
    for _ in range(cold._LOOK_EVERY + 3):
        assert (await looked(log, stream, narrow=NONE)) is not None
    assert asked == ["streams_narrow"] * (cold._LOOK_EVERY - 1) + ["read"] * 4


async def test_the_narrow_form_has_what_a_fold_takes(log: Log) -> None:
    stream = new_stream()
    given = (
        event(payload='{"é":1e100000}'.encode(), recorded_at_ms=1),
        event(payload=b"0", recorded_at_ms=4_102_444_800_123),
        event(payload=b"{}"),
    )
    await appended(log, append(stream, events=given))
    await pass_by(log, stream)
    page = await looked(log, stream, narrow=APART)
    assert page is not None
    assert (page.length, page.joined) == (3, None)
    assert [
        (each.version, each.event.type, each.event.recorded_at_ms, each.event.payload, each.event.revision)
        for each in page.events
    ] == [(n, each.type, each.recorded_at_ms, each.payload, 1) for n, each in enumerate(given, 1)]
    assert {each.stream for each in page.events} == {stream}
    joined = await looked(log, stream, narrow=NONE)
    data = b"\0".join([each.payload for each in given if each.payload])
    assert joined == Page(3, (), Joined(3, 1, given[2].recorded_at_ms, data))
    whole = await looked(log, stream)
    assert whole is not None
    assert [each.event for each in whole.events] == list(given)


async def test_a_stream_with_an_event_that_was_erased_is_read_in_the_whole_form(log: Log) -> None:
    stream = new_stream()
    given = (event(), event(payload=None), event(type="was_paid"))
    await appended(log, append(stream, events=given))
    await pass_by(log, stream)
    for narrow in (NONE, APART):
        asked = noted(log)
        page = await looked(log, stream, narrow=narrow)
        assert page is not None
        assert [each.event for each in page.events] == list(given)
        assert asked == ["streams_narrow", "streams"]


async def test_events_of_other_streams_do_not_keep_a_stream_from_being_joined(log: Log) -> None:
    stream = new_stream()
    other = replace(stream, key=new_stream().key)
    given = (event(), event(type="was_paid"))
    await appended(log, append(stream, 2), append(other, events=given))
    await pass_by(log, stream)
    told: list[Page | None] = []
    for each in (stream, other):
        log.look(Range(each, narrow=Narrow(frozenset({"was_paid"}))), told.append)
    await looked(log, stream, narrow=NONE)
    first, second = told
    assert first is not None and first.joined is not None and not first.events
    assert second is not None and second.joined is None
    assert [each.event.type for each in second.events] == [each.type for each in given]


async def test_what_was_read_while_history_was_given_up_is_not_told(log: Log) -> None:
    stream = new_stream()
    sent, answered = await held_up(log, stream)
    (told,) = await read_at_once(log, stream, 1)
    lane(log, stream).partition.forget()
    answered.set()
    assert (await told, sent) == (None, ["streams_narrow of 1"])


async def test_of_some_types_the_narrow_form_has_the_metadata_too(log: Log) -> None:
    stream = new_stream()
    full = event(
        type="was_paid", extra=b'{"note":1}', causation_id=uuid7().bytes, target_type="order", target_id="A"
    )
    given = (event(extra=b"1"), full, event(type="was_paid"))
    await appended(log, append(stream, events=given))
    await pass_by(log, stream)
    asked = noted(log)
    paid = frozenset({"was_paid"})
    page = await looked(log, stream, narrow=Narrow(paid, paid))
    assert page is not None
    first, *others = [each.event for each in page.events]
    assert (first.actor_id, first.extra, first.payload) == ("", None, given[0].payload)
    assert [replace(each, id=b"", spec_rev=0) for each in others] == [
        replace(each, id=b"", spec_rev=0) for each in given[1:]
    ]
    assert asked == ["streams_narrow"]


async def test_events_of_several_revisions_keep_theirs_in_the_narrow_form(log: Log) -> None:
    stream = new_stream()
    given = (event(), revised(event(), 3), event(type="was_paid"), revised(event(), 2))
    await appended(log, append(stream, events=given))
    await pass_by(log, stream)
    asked = noted(log)
    page = await looked(log, stream, narrow=APART)
    assert page is not None
    assert [(each.event.revision, each.event.type) for each in page.events] == [
        (1, given[0].type),
        (3, given[1].type),
        (1, "was_paid"),
        (2, given[3].type),
    ]
    assert asked == ["streams_narrow"]


@pytest.mark.parametrize(
    ("size", "count", "asked_for"),
    [
        (cold._NARROW_BYTES_MAX, cold._EVENTS_MAX, ["streams_narrow"]),
        (cold._NARROW_BYTES_MAX + 1, 2, ["streams_narrow", "streams"]),
    ],
)
async def test_a_stream_with_long_data_is_read_in_the_whole_form(
    log: Log, size: int, count: int, asked_for: list[str]
) -> None:
    stream = new_stream()
    given = tuple([event(payload=b'"%b"' % (b"x" * (size - 2))) for _ in range(count)])
    await appended(log, append(stream, events=given))
    await pass_by(log, stream)
    asked = noted(log)
    page = await looked(log, stream, narrow=APART)
    assert page is not None
    assert [each.event.payload for each in page.events] == [each.payload for each in given]
    assert asked == asked_for


@pytest.mark.parametrize("count", [0, cold._EVENTS_MAX + 1])
async def test_of_an_empty_stream_and_of_a_longer_one_nothing_is_told(log: Log, count: int) -> None:
    stream = new_stream()
    if count:
        await appended(log, append(stream, count))
    await pass_by(log, stream)
    assert await looked(log, stream, narrow=NONE) is None
    assert (await log.page(Range(stream))).length == count


async def test_a_stream_with_a_gap_is_told_in_no_form(log: Log, place: Place) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))
    await pass_by(log, stream)
    await place.execute("DELETE FROM outbox WHERE aggregate_id = $1 AND version = 2", stream.key)
    asked = noted(log)
    assert await looked(log, stream, narrow=NONE) is None
    assert asked == ["streams_narrow", "streams"]


async def test_many_are_read_by_one_statement_each_with_its_own_events(log: Log) -> None:
    tenant_stream = new_stream()
    appends = [append(replace(tenant_stream, key=new_stream().key), n % 4 + 1) for n in range(20)]
    await appended(log, *appends)
    await pass_by(log, tenant_stream)
    reader = lane(log, tenant_stream).reader
    reader.cold._passed = 0
    asked = noted(log)
    told: list[asyncio.Future[Page | None]] = []
    loop = asyncio.get_running_loop()
    for each in appends[:15]:
        told.append(loop.create_future())
        log.look(Range(each.stream, narrow=APART), told[-1].set_result)
    pages = await asyncio.gather(*told)
    for each, page in zip(appends[:15], pages, strict=True):
        assert page is not None
        assert [one.event.payload for one in page.events] == [one.payload for one in each.events]
    assert asked == ["streams_narrow"]


async def held_up(log: Log, stream: Stream) -> tuple[list[str], asyncio.Event]:
    """The statements that were sent, none of which is answered before the event."""
    await appended(log, append(stream, 2))
    await pass_by(log, stream)
    lane(log, stream).reader.cold._passed = 0
    sent, answered = [], asyncio.Event()

    async def hold(proceed: Proceed, name: str, *args: Any) -> Any:
        sent.append(f"{name} of {len(args[0].splitlines())}")
        await answered.wait()
        return await proceed()

    interpose(log._reads, "fetch", hold)
    return sent, answered


async def read_at_once(
    log: Log, stream: Stream, count: int, narrow: Narrow | None = NONE
) -> list[asyncio.Future[Page | None]]:
    """Asked for, and as far as they go by themselves."""
    loop = asyncio.get_running_loop()
    told: list[asyncio.Future[Page | None]] = [loop.create_future() for _ in range(count)]
    for each in told:
        log.look(Range(stream, narrow=narrow), each.set_result)
    for _ in range(5):
        await asyncio.sleep(0)
    return told


async def test_reads_wait_for_the_statement_under_way_and_share_the_next(log: Log) -> None:
    stream = new_stream()
    sent, answered = await held_up(log, stream)
    told = await read_at_once(log, stream, 1)
    for _ in range(3):
        told += await read_at_once(log, stream, 2)
    assert sent == ["streams_narrow of 1"]
    answered.set()
    assert {page.length for page in await asyncio.gather(*told) if page} == {2}
    assert sent == ["streams_narrow of 1", "streams_narrow of 6"]


async def test_many_waiting_reads_begin_a_second_statement_beside_the_first(log: Log) -> None:
    stream = new_stream()
    sent, answered = await held_up(log, stream)
    told = await read_at_once(log, stream, 1)
    told += await read_at_once(log, stream, cold._BESIDE)
    told += await read_at_once(log, stream, cold._BESIDE)
    assert sent == ["streams_narrow of 1", f"streams_narrow of {cold._BESIDE}"]
    answered.set()
    assert {page.length for page in await asyncio.gather(*told) if page} == {2}
    assert len(sent) == 3


async def test_answers_are_made_while_postgres_has_the_next_statement(log: Log) -> None:
    stream = new_stream()
    sent, answered = await held_up(log, stream)
    seen: list[int] = []
    log.look(Range(stream, narrow=NONE), lambda _: seen.append(len(sent)))
    await read_at_once(log, stream, 0)
    more = await read_at_once(log, stream, 2)
    answered.set()
    await asyncio.gather(*more)
    assert seen == [2]


async def test_no_form_waits_for_more_than_a_statement_of_the_other(log: Log) -> None:
    stream = new_stream()
    sent, answered = await held_up(log, stream)
    lane(log, stream).reader.cold._passed = 0
    told = await read_at_once(log, stream, 1)
    told += await read_at_once(log, stream, 2 * cold._AT_A_TIME, narrow=None)
    told += await read_at_once(log, stream, 1)
    answered.set()
    await asyncio.gather(*told)
    whole = f"streams of {cold._AT_A_TIME}"
    assert sent == ["streams_narrow of 1", whole, "streams_narrow of 1", whole]


async def test_a_read_that_waits_to_be_settled_holds_up_no_other(log: Log) -> None:
    stream = new_stream()
    await appended(log, append(stream, 2))
    await pass_by(log, stream)
    lane(log, stream).reader.cold._passed = 0
    lane(log, stream).partition.committed_seq = 0
    settled, waiting = asyncio.Event(), asyncio.Event()

    async def first_waits(proceed: Proceed, *args: Any) -> Any:
        if not waiting.is_set():
            waiting.set()
            await settled.wait()
        return await proceed()

    interpose(log._settling, "found", first_waits)
    first = asyncio.ensure_future(looked(log, stream, narrow=NONE))
    await waiting.wait()
    other = await looked(log, stream, narrow=NONE)
    assert other is not None and not first.done()
    settled.set()
    assert await first == other
