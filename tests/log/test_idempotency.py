"""One identity, at most one set of rows, and always the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from uuid_utils import uuid7

from gateway.appends import Append, Appended
from gateway.events import Stream
from gateway.log.log import Log
from gateway.outcomes import Conflict, Mismatch, Outcome
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import (
    Place,
    append,
    appended,
    crash,
    hold_commits,
    hold_help,
    ids,
    lane,
    new_stream,
    opened,
    seal,
    until,
)

E1, E2, E3 = (uuid7().bytes for _ in range(3))


def replay_of(original: Appended) -> Appended:
    return replace(original, replayed=True)


async def test_the_same_key_and_request_is_answered_with_the_original_receipt(log: Log, place: Place) -> None:
    stream = new_stream()
    original = append(stream, 3, key=b"k")
    (first,) = await appended(log, original)
    (second,) = await appended(log, append(stream, 3, key=b"k"))
    assert second == replay_of(first)
    assert second.event_ids == ids(original)
    assert await log.length(stream) == 3
    await check_invariants(place)


@pytest.mark.parametrize(
    "other",
    [
        lambda stream: append(stream, key=b"k", body=b"other"),
        lambda stream: append(stream, key=b"k", expected=1),
        lambda stream: append(new_stream(stream.tenant), key=b"k"),
    ],
    ids=["body", "version", "path"],
)
async def test_the_same_key_with_another_request_is_a_mismatch(
    log: Log, place: Place, other: Callable[[Stream], Append]
) -> None:
    stream = new_stream()
    await appended(log, append(stream, key=b"k"))
    assert await log.append(other(stream)) == Mismatch()
    assert len(await place.fetch("SELECT FROM outbox")) == 1
    await check_invariants(place)


async def test_the_key_is_looked_at_before_the_version(log: Log, place: Place) -> None:
    stream = new_stream()
    (first,) = await appended(log, append(stream, expected=0, key=b"k"))
    await appended(log, append(stream))
    assert await log.append(append(stream, expected=0, key=b"k")) == replay_of(first)
    assert await log.append(append(stream, expected=1, key=b"k")) == Mismatch()
    await check_invariants(place)


async def test_of_many_requests_at_once_with_one_key_one_is_written(open_log: OpenLog, place: Place) -> None:
    logs = [await open_log(), await open_log()]
    stream = new_stream()
    outcomes = await asyncio.gather(*(logs[n % 2].append(append(stream, key=b"k")) for n in range(20)))
    assert all(isinstance(each, Appended) for each in outcomes)
    assert len({each.event_ids for each in outcomes if isinstance(each, Appended)}) == 1
    assert sum(not each.replayed for each in outcomes if isinstance(each, Appended)) == 1
    assert await log_length(logs[0], stream) == 1
    await check_invariants(place)


async def log_length(log: Log, stream: Stream) -> int:
    return await log.length(stream)


async def test_a_chosen_event_id_protects_like_a_key(log: Log, place: Place) -> None:
    stream = new_stream()
    (first,) = await appended(log, append(stream, event_ids=(E1,)))
    assert await log.append(append(stream, event_ids=(E1,))) == replay_of(first)
    assert await log.append(append(stream, event_ids=(E1,), body=b"other")) == Mismatch()
    assert await log.append(append(new_stream(stream.tenant), event_ids=(E1,))) == Mismatch()
    assert await log.append(append(stream, 2, event_ids=(E2, E1))) == Mismatch()
    assert await log.length(stream) == 1
    await check_invariants(place)


async def test_a_batch_is_recognized_by_the_ids_that_were_chosen_among_minted_ones(
    log: Log, place: Place
) -> None:
    stream = new_stream()
    (first,) = await appended(log, append(stream, event_ids=(None, E1, None)))
    assert await log.append(append(stream, event_ids=(None, E1, None))) == replay_of(first)
    assert await log.append(append(stream, event_ids=(None, E1, E2))) == Mismatch()
    await check_invariants(place)


SUBSETS = [
    # what the original chose: key and event ids; what the next one chooses; whether that is a retry
    (b"k", (E1,), b"k", (E1,), True),
    (b"k", (E1,), None, (E1,), True),
    (b"k", (E1,), b"k", (None,), False),
    (b"k", (E1,), b"other", (E1,), False),
    (b"k", (E1,), b"k", (E2,), False),
    (None, (E1,), b"k", (E1,), False),
    (b"k", (None,), b"k", (E1,), False),
    (b"k", (E1, E2), b"k", (E1, E2), True),
    (b"k", (E1, E2), None, (E1, E2), True),
    (b"k", (E1, E2), None, (E1, E3), False),
    (None, (None, E2), None, (E1, E2), False),
]


@pytest.mark.parametrize(("key", "event_ids", "next_key", "next_ids", "is_retry"), SUBSETS)
@pytest.mark.parametrize("committed", [True, False], ids=["by Postgres", "by Redis"])
async def test_an_append_is_a_retry_when_all_that_it_claims_is_of_one_append(
    log: Log, place: Place, key: bytes, event_ids: tuple, next_key: bytes, next_ids: tuple, is_retry: bool,
    committed: bool,
) -> None:  # fmt: skip
    """Postgres judges what is committed, Redis what is not: both by the same rule."""
    stream = new_stream()
    await opened(log, stream)
    gate = hold_commits(log, stream)
    if committed:
        gate.open()
    first = log.append(append(stream, key=key, event_ids=event_ids))
    await (first if committed else gate.arrived())
    second = log.append(append(stream, key=next_key, event_ids=next_ids))
    if not committed:
        await until(lambda: not lane(log, stream).sequencer._queue)
        assert not second.done()
        gate.open()
    original = await first
    assert isinstance(original, Appended)
    assert await second == (replay_of(original) if is_retry else Mismatch())
    assert await log.length(stream) == len(event_ids)
    await check_invariants(place)


async def test_a_minted_id_that_a_client_sends_back_after_a_timeout_settles_what_happened(
    log: Log, place: Place
) -> None:
    """A 504 names the event id: sent back as a chosen one, it says that the event is there."""
    stream = new_stream()
    lost = append(stream)
    await appended(log, lost)
    assert await log.append(append(stream, event_ids=ids(lost))) == Mismatch()
    never = uuid7().bytes
    (outcome,) = await appended(log, append(stream, event_ids=(never,)))
    assert outcome.first_version == 2
    await check_invariants(place)


async def test_a_minted_id_sent_back_while_its_event_is_uncommitted_waits_for_the_commit(
    log: Log, place: Place
) -> None:
    stream = new_stream()
    await opened(log, stream)
    gate = hold_commits(log, stream)
    lost = append(stream)
    first = log.append(lost)
    await gate.arrived()
    second = log.append(append(stream, event_ids=ids(lost)))
    await until(lambda: not lane(log, stream).sequencer._queue)
    assert not second.done()
    gate.open()
    assert await second == Mismatch()
    assert isinstance(await first, Appended)
    await check_invariants(place)


async def test_an_id_that_was_minted_inside_a_batch_can_not_be_chosen_later(log: Log, place: Place) -> None:
    stream = new_stream()
    batch = append(stream, 3)
    await appended(log, batch)
    for event_id in ids(batch):
        assert await log.append(append(stream, event_ids=(event_id,))) == Mismatch()
    await check_invariants(place)


async def test_a_refused_append_does_not_burn_its_key(log: Log, place: Place) -> None:
    stream = new_stream()
    assert await log.append(append(stream, expected=5, key=b"k", event_ids=(E1,))) == Conflict(0)
    (outcome,) = await appended(log, append(stream, expected=0, key=b"k", event_ids=(E1,)))
    assert not outcome.replayed
    await check_invariants(place)


async def test_a_replay_is_answered_once_the_original_is_committed(log: Log, place: Place) -> None:
    stream = new_stream()
    await opened(log, stream)
    gate = hold_commits(log, stream)
    first = log.append(append(stream, key=b"k"))
    await gate.arrived()
    second = log.append(append(stream, key=b"k"))
    await until(lambda: not lane(log, stream).sequencer._queue)
    assert not second.done()
    gate.open()
    original = await first
    assert isinstance(original, Appended)
    assert await second == replay_of(original)
    await check_invariants(place)


async def test_a_replay_is_told_as_one_although_the_original_chose_its_event_id_and_is_uncommitted(
    log: Log, place: Place
) -> None:
    stream = new_stream()
    await opened(log, stream)
    gate = hold_commits(log, stream)
    first = log.append(append(stream, event_ids=(E1,)))
    await gate.arrived()
    second = log.append(append(stream, event_ids=(E1,)))
    await until(lambda: not lane(log, stream).sequencer._queue)
    gate.open()
    original = await first
    assert isinstance(original, Appended)
    assert not original.replayed
    assert await second == replay_of(original)
    await check_invariants(place)


async def test_a_replay_at_another_gateway_waits_for_the_gateway_that_commits_the_original(
    open_log: OpenLog, place: Place
) -> None:
    first_log, second_log = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(first_log, stream), opened(second_log, stream))
    gate, help_gate = hold_commits(first_log, stream), hold_help(second_log)
    hold_help(first_log)
    first = first_log.append(append(stream, key=b"k"))
    await gate.arrived()
    second = second_log.append(append(stream, key=b"k"))
    await until(lambda: not lane(second_log, stream).sequencer._queue)
    assert not second.done()
    gate.open()
    original = await first
    assert isinstance(original, Appended)
    assert await second == replay_of(original)
    help_gate.open()
    await check_invariants(place)


async def test_a_replay_is_answered_although_the_gateway_of_the_original_died(
    open_log: OpenLog, place: Place
) -> None:
    first_log, second_log = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(first_log, stream), opened(second_log, stream))
    gate = hold_commits(first_log, stream)
    hold_help(first_log)
    original = append(stream, 2, key=b"k")
    first_log.append(original)
    await gate.arrived()
    await crash(first_log)
    outcome = await second_log.append(append(stream, 2, key=b"k"))
    assert outcome == Appended(stream.key, 1, ids(original), replayed=True)
    await check_invariants(place)


async def test_a_replay_outlives_the_identities_that_redis_remembers(open_log: OpenLog, place: Place) -> None:
    log = await open_log(identity_window=4)
    stream = new_stream()
    keyed = [append(stream, key=b"k%d" % n) for n in range(20)]
    first = [(await appended(log, each))[0] for each in keyed]
    for n, original in enumerate(first):
        assert await log.append(append(stream, key=b"k%d" % n)) == replay_of(original)
        assert await log.append(append(stream, key=b"k%d" % n, body=b"other")) == Mismatch()
    assert await log.length(stream) == 20
    await check_invariants(place)


async def test_a_replay_outlives_the_epoch(log: Log, place: Place) -> None:
    stream = new_stream()
    (first,) = await appended(log, append(stream, key=b"k", event_ids=(E1,)))
    await seal(place, log, stream)
    assert await log.append(append(stream, key=b"k", event_ids=(E1,))) == replay_of(first)
    assert await log.append(append(stream, key=b"k", event_ids=(E2,))) == Mismatch()
    await check_invariants(place)


async def test_a_replay_of_what_an_ended_epoch_never_committed_is_sequenced_again(
    open_log: OpenLog, place: Place
) -> None:
    """The original's gateway died with its epoch: no commit of it is possible any more."""
    dead, living = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(dead, stream), opened(living, stream))
    gate, help_gate = hold_commits(dead, stream), hold_help(living)
    hold_help(dead)
    dead.append(append(stream, key=b"k"))
    await gate.arrived()
    await crash(dead)
    retry = append(stream, key=b"k")
    waiting = living.append(retry)
    await until(lambda: lane(living, stream).partition._waiters)
    await seal(place, living, stream)
    help_gate.open()
    assert await waiting == Appended(stream.key, 1, ids(retry), replayed=False)
    await check_invariants(place)


async def test_what_is_settled_already_is_found_without_an_append(log: Log, place: Place) -> None:
    stream = new_stream()
    original = append(stream, 2, key=b"k", event_ids=(E1, None))
    assert await log.settled(original.retry) is None
    (first,) = await appended(log, original)
    assert await log.settled(append(stream, 2, key=b"k", event_ids=(E1, None)).retry) == replay_of(first)
    assert await log.settled(append(stream, key=b"k", body=b"other").retry) == Mismatch()
    assert await log.settled(append(stream, event_ids=(first.event_ids[1],)).retry) == Mismatch()
    assert await log.settled(append(stream).retry) is None
    await check_invariants(place)


async def test_replays_and_new_appends_of_one_call_are_told_apart(log: Log, place: Place) -> None:
    stream = new_stream()
    (first,) = await appended(log, append(stream, key=b"k"))
    outcomes: list[Outcome] = await asyncio.gather(
        log.append(append(stream)),
        log.append(append(stream, key=b"k")),
        log.append(append(stream, key=b"k", body=b"other")),
        log.append(append(stream, key=b"new")),
        log.append(append(stream, key=b"new")),
    )
    assert outcomes[1:3] == [replay_of(first), Mismatch()]
    versions = [each.first_version for each in outcomes if isinstance(each, Appended)]
    assert versions == [2, 1, 3, 3]
    await check_invariants(place)
