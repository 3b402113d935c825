"""Rows of appends to one stream, each decided on the state that the one before it leaves: none is placed
after another one than that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.appends import ANOTHER_HISTORY, ANY_LENGTH, Append, Appended
from gateway.events import Stream
from gateway.log.append.direct_sequencer import DirectSequencer
from gateway.log.append.identities import Claims
from gateway.log.append.pending import Link, Pending, expected_of
from gateway.log.entries import SequencedAppend
from gateway.log.log import Log
from gateway.outcomes import Conflict, Mismatch, Outcome
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import (
    Place,
    append,
    appended,
    hold_commits,
    lane,
    new_stream,
    opened,
    until,
    wipe_partition,
)


def row(stream: Stream, length: int, count: int, first: Link | None = None) -> list[tuple[Append, Link]]:
    """Single events, decided on `length` and what follows."""
    made: list[tuple[Append, Link]] = []
    for n in range(count):
        first = Link(length + n + 1, after=first)
        made.append((append(stream, expected=length + n), first))
    return made


def handed(log: Log, linked: Sequence[tuple[Append, Link]]) -> list[asyncio.Future[Outcome]]:
    loop = asyncio.get_running_loop()
    waiting = []
    for each, link in linked:
        future: asyncio.Future[Outcome] = loop.create_future()
        log.append_linked(each, future, link, loop.time() + 10)
        waiting.append(future)
    return waiting


async def test_a_row_is_committed_in_one_go(log: Log, place: Place) -> None:
    stream = new_stream()
    await opened(log, stream)
    linked = row(stream, 0, 40)
    outcomes = await asyncio.gather(*handed(log, linked))
    assert [each.first_version for each in outcomes if type(each) is Appended] == [*range(1, 41)]
    assert all(link.placed and link.after is None for _, link in linked)
    await check_invariants(place)


async def test_where_another_gateway_was_faster_none_of_a_row_is_placed(
    open_log: OpenLog, place: Place
) -> None:
    log, other, stream = await open_log(), await open_log(), new_stream()
    await asyncio.gather(opened(log, stream), opened(other, stream))
    await appended(other, append(stream, 2))
    outcomes = await asyncio.gather(*handed(log, row(stream, 0, 5)))  # the third asks for 2, which is there
    assert outcomes == [Conflict(2)] * 5
    await check_invariants(place)


async def test_a_row_that_is_sequenced_again_stays_a_row(open_log: OpenLog, place: Place) -> None:
    log, other, stream = await open_log(), await open_log(), new_stream()
    await asyncio.gather(opened(log, stream), opened(other, stream))
    gate, mine, others = hold_commits(log, stream), row(stream, 0, 3), hold_commits(other, stream)
    for each in (log, other):
        each._sweeper._journal.commit = never  # type: ignore[method-assign]
    first = handed(log, mine)
    await until(lambda: all(link.placed for _, link in mine))
    rest = handed(log, row(stream, 3, 3, first=mine[-1][1]))
    await wipe_partition(other, stream)  # what was sequenced is lost, and an epoch begins
    others.open()
    await appended(other, append(stream, 1))
    gate.open()
    outcomes = await asyncio.gather(*first, *rest)
    assert all(type(each) is Conflict for each in outcomes), outcomes
    assert await log.length(stream) == 1
    await check_invariants(place)


async def test_a_row_of_a_lost_epoch_is_none_before_its_gateway_has_given_it_up(
    open_log: OpenLog, place: Place
) -> None:
    log, other, dead, stream = await open_log(), await open_log(), await open_log(), new_stream()
    await asyncio.gather(*(opened(each, stream) for each in (log, other, dead)))
    held = hold_commits(dead, stream)
    committer = lane(log, stream).committer
    for each in (log._sweeper._journal, other._sweeper._journal, dead._sweeper._journal, committer._journal):
        each.commit = never  # type: ignore[method-assign]
    ahead = dead.append(append(new_stream(stream.tenant)))
    await until(lambda: lane(dead, stream).committer.appends)
    ((first, link),) = row(stream, 0, 1)
    (placed,) = handed(log, [(first, link)])
    await until(lambda: link.placed and committer._settled.is_set())  # it can't commit what comes before
    gate = hold_commits(log, stream)
    await gate.arrived()
    await wipe_partition(other, stream)  # what was sequenced is lost, and an epoch begins
    await appended(other, append(stream, 1))
    (after,) = handed(log, row(stream, 1, 1, first=link))
    assert await after == Conflict(1)
    gate.open()
    assert await placed == Conflict(1)
    held.open()
    assert isinstance(await ahead, Appended)
    await check_invariants(place)


async def test_one_that_goes_anywhere_stands_for_no_other_where_its_predecessor_is_gone(
    log: Log, place: Place
) -> None:
    """An append between them that is of no row makes the stream as long as the last one expects it."""
    stream = new_stream()
    await appended(log, append(new_stream(stream.tenant), key=b"k"))
    gone = Link(1)
    free = Link(2, after=gone, free=True)
    mismatching = append(stream, expected=0, key=b"k")
    outcomes = handed(log, [(mismatching, gone), (append(stream), free)])
    between = log.append(append(stream))
    outcomes += handed(log, [(append(stream, expected=2), Link(3, after=free))])
    mismatch, anywhere, last = await asyncio.gather(*outcomes)
    assert type(mismatch) is Mismatch
    assert [each.first_version for each in (anywhere, await between) if type(each) is Appended] == [1, 2]
    assert last == Conflict(2)
    await check_invariants(place)


async def never(*_: object) -> int:
    return 0


async def test_one_whose_predecessor_has_no_place_asks_for_no_length() -> None:
    stream = new_stream()
    (first, one), (second, two) = row(stream, 4, 2)
    pendings = [Pending(each, n, 0, asyncio.Future(), print, link=link)
                for n, (each, link) in enumerate(((first, one), (second, two)))]  # fmt: skip
    assert expected_of(pendings, 1) == [4, 5.5]
    assert expected_of(pendings[1:], 1) == [ANOTHER_HISTORY]
    pendings[0].placed_at(6, 1)  # elsewhere
    assert expected_of(pendings[1:], 1) == [ANOTHER_HISTORY]
    pendings[0].placed_at(5, 1)
    assert expected_of(pendings[1:], 1) == [5]
    pendings[0].reset()
    assert expected_of(pendings[1:], 1) == [ANOTHER_HISTORY]


async def test_one_that_goes_anywhere_is_placed_for_others_only_after_its_predecessor() -> None:
    stream = new_stream()
    first = Link(1)
    free = Link(2, after=first, free=True)
    last = Link(3, after=free)
    pendings = [
        Pending(append(stream, expected=asked), n, 0, asyncio.Future(), print, link=link)
        for n, (asked, link) in enumerate(((0, first), (ANY_LENGTH, free), (2, last)))
    ]
    assert expected_of(pendings, 1) == [0, ANY_LENGTH, 2.5]
    assert expected_of(pendings[1:], 1) == [ANY_LENGTH, ANOTHER_HISTORY]
    pendings[1].placed_at(2, 1)  # behind another gateway's event in the first one's place
    assert not free.placed
    assert expected_of(pendings[2:], 1) == [ANOTHER_HISTORY]
    pendings[0].placed_at(1, 1)
    pendings[1].placed_at(2, 1)
    assert free.placed
    assert expected_of(pendings[2:], 1) == [2]


def test_a_row_is_judged_directly_as_in_redis() -> None:
    stream = new_stream()
    placing = DirectSequencer(3, Claims(1, 7, {}, {}), {stream: 2}, "")
    assert placing.judge(append(stream, expected=1)) == Conflict(2)
    assert placing.judge(append(stream, expected=2), 2.5) == Conflict(2)
    assert isinstance(placing.judge(append(stream, expected=ANY_LENGTH), ANY_LENGTH), SequencedAppend)
    assert isinstance(placing.judge(append(stream, expected=3), 3), SequencedAppend)
    linked = DirectSequencer(3, Claims(1, 7, {}, {}), {stream: 2}, "")
    assert isinstance(linked.judge(append(stream, expected=2), 2), SequencedAppend)
    assert isinstance(linked.judge(append(stream, expected=3), 3.5), SequencedAppend)


async def test_a_long_row_leaves_nothing_in_memory(log: Log) -> None:
    stream = new_stream()
    await opened(log, stream)
    last: Link | None = None
    for n in range(5):
        linked = row(stream, 20 * n, 20, last)
        await asyncio.gather(*handed(log, linked))
        last = linked[-1][1]
    assert last is not None and last.after is None
    assert not lane(log, stream).sequencer.outstanding.unsettled
