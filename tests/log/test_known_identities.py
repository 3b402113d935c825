"""A key that is certainly new costs no look-up; every other one is looked up as ever."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from gateway.appends import Appended
from gateway.events import Stream
from gateway.log.append import known_identities
from gateway.log.append.identity_filter import BITS_EACH, Budget, IdentityFilter
from gateway.log.append.known_identities import KnownIdentities
from gateway.log.log import Log
from gateway.outcomes import Mismatch
from gateway.postgres.errors import PostgresTrouble
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.log.test_commit import placed
from tests.log.test_idempotency import replay_of
from tests.log.test_look_ups import count_look_ups
from tests.support.drive import (
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
    seal,
    until,
)

MIB = 1 << 20


def known_of(log: Log, stream: Stream) -> KnownIdentities:
    return lane(log, stream).sequencer.look_ups.known


async def caught_up(log: Log, stream: Stream) -> None:
    """All that is committed is known."""
    known, partition = known_of(log, stream), lane(log, stream).partition
    known._work.set()
    await until(lambda: known._seq == partition.committed_seq and known._from <= known._seq)


async def test_a_new_key_costs_no_look_up(open_log: OpenLog, place: Place) -> None:
    log = await open_log(identity_filter_bytes_max=MIB)
    stream = new_stream()
    answered = count_look_ups(log)
    await appended(log, append(stream, key=b"before"))
    await caught_up(log, stream)
    answered.clear()
    await appended(log, *[append(stream, key=b"k%d" % n) for n in range(50)])
    assert answered == []
    await check_invariants(place)


async def test_a_key_is_known_though_redis_has_forgotten_it(open_log: OpenLog, place: Place) -> None:
    log = await open_log(identity_filter_bytes_max=MIB, identity_window=8)
    stream = new_stream()
    first = await appended(log, *[append(stream, key=b"k%d" % n) for n in range(100)])
    await caught_up(log, stream)
    for n in (0, 50, 99):
        assert await log.append(append(stream, key=b"k%d" % n)) == replay_of(first[n])
        assert await log.append(append(stream, key=b"k%d" % n, body=b"other")) == Mismatch()
    await check_invariants(place)


async def test_a_gateway_that_starts_reads_all_page_after_page(
    open_log: OpenLog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one append together, also where a page ends among them."""
    monkeypatch.setattr(known_identities, "PAGE", 3)
    before = await open_log()
    stream = new_stream()
    ids = [bytes((1, *[0] * 5, 0x70, n, 0x80, *[0] * 7)) for n in range(8)]
    (several,) = await appended(before, append(stream, 8, key=b"k", event_ids=tuple(ids)))
    originals = await appended(before, *[append(stream, key=b"k%d" % n) for n in range(20)])
    after = await open_log(identity_filter_bytes_max=MIB, identity_window=8)
    await opened(after, stream)
    await caught_up(after, stream)
    known = known_of(after, stream)
    assert known.absent(append(stream, key=b"new")) == 28
    for key in (b"k", *[b"k%d" % n for n in range(20)]):
        assert known.absent(append(stream, key=key)) is None
    assert await after.append(append(stream, 8, key=b"k", event_ids=tuple(ids))) == replay_of(several)
    assert await after.append(append(stream, key=b"k19")) == replay_of(originals[19])
    await check_invariants(place)


async def test_what_another_gateway_committed_since_is_found(open_log: OpenLog, place: Place) -> None:
    """By Redis where it remembers it, else in Postgres."""
    mine = await open_log(identity_filter_bytes_max=MIB, identity_window=8)
    other = await open_log(identity_window=8)
    stream = new_stream()
    await opened(mine, stream)
    await caught_up(mine, stream)
    (near,) = await appended(other, append(stream, key=b"near"))
    assert await mine.append(append(stream, key=b"near")) == replay_of(near)
    (far,) = await appended(other, append(stream, key=b"far"))
    for _ in range(4):
        await appended(other, append(stream, 8))
    assert await mine.append(append(stream, key=b"far")) == replay_of(far)
    await check_invariants(place)


async def test_what_was_committed_at_the_end_of_an_epoch_is_found_in_the_next(
    open_log: OpenLog, place: Place
) -> None:
    """Redis begins the next one without identities, and this gateway had not read it yet."""
    mine, other = await open_log(identity_filter_bytes_max=MIB), await open_log()
    stream = new_stream()
    await appended(mine, append(stream, key=b"first"))
    await caught_up(mine, stream)
    (last,) = await appended(other, append(stream, key=b"last"))
    await seal(place, mine, stream)
    await appended(mine, append(stream))
    assert known_of(mine, stream).absent(append(stream, key=b"new")) is None
    assert await mine.append(append(stream, key=b"last")) == replay_of(last)
    await caught_up(mine, stream)
    assert known_of(mine, stream).absent(append(stream, key=b"new")) is not None
    await check_invariants(place)


async def test_an_append_that_waits_at_the_end_of_an_epoch_is_asked_for_again(
    open_log: OpenLog, place: Place
) -> None:
    mine, other = await open_log(identity_filter_bytes_max=MIB), await open_log()
    stream = new_stream()
    await appended(mine, append(stream, key=b"first"))
    await caught_up(mine, stream)
    call = hold_script(mine, "sequence")
    carried = mine.append(append(stream))
    await call.arrived()
    retry = mine.append(append(stream, key=b"k"))
    assert lane(mine, stream).sequencer._queue[0].looked_up is not None
    (original,) = await appended(other, append(stream, key=b"k"))
    await place.execute("UPDATE partition_log SET epoch = epoch + 1")
    call.open()
    assert type(await carried) is Appended
    assert await retry == replay_of(original)
    await check_invariants(place)


async def test_nothing_is_known_once_history_was_given_up(open_log: OpenLog) -> None:
    log = await open_log(identity_filter_bytes_max=MIB)
    stream = new_stream()
    await appended(log, append(stream, key=b"first"))
    await caught_up(log, stream)
    known, partition = known_of(log, stream), lane(log, stream).partition
    assert known.absent(append(stream, key=b"new")) is not None
    seq, chain = partition.committed_seq, partition.committed_chain
    partition.forget()
    assert known.absent(append(stream, key=b"new")) is None
    known.committed([placed(append(stream, key=b"last"), 2, seq + 1)])
    assert known._seq == seq
    partition.known(seq, chain)
    await until(lambda: known.absent(append(stream, key=b"new")) == seq)
    assert known.absent(append(stream, key=b"first")) is None


def count_reads(log: Log) -> list[str]:
    reads: list[str] = []

    async def counting(proceed: Proceed, name: str, *_: Any) -> Any:
        if name == "identities":
            reads.append(name)
        return await proceed()

    interpose(log._postgres, "fetch", counting)
    return reads


async def test_keys_of_own_commits_are_known_without_a_read(open_log: OpenLog, place: Place) -> None:
    log = await open_log(identity_filter_bytes_max=MIB, identity_window=8)
    stream = new_stream()
    reads = count_reads(log)
    originals = await appended(log, *[append(stream, key=b"k%d" % n) for n in range(100)])
    known = known_of(log, stream)
    assert (known._seq, reads) == (100, [])
    assert all(known.absent(append(stream, key=b"k%d" % n)) is None for n in range(100))
    assert await log.append(append(stream, key=b"k3")) == replay_of(originals[3])
    await check_invariants(place)


async def test_own_commits_count_once_what_another_gateway_committed_before_was_read(
    open_log: OpenLog, place: Place
) -> None:
    mine = await open_log(identity_filter_bytes_max=MIB)
    other = await open_log()
    stream = new_stream()
    await appended(mine, append(stream, key=b"first"))
    await appended(other, append(stream, key=b"other"))
    known, partition = known_of(mine, stream), lane(mine, stream).partition
    held = hold_fetch(mine, "identities")
    await until(lambda: partition.committed_seq == 2)
    known._work.set()
    await held.arrived()
    await appended(mine, append(stream, key=b"own"))
    assert known._seq == 1
    held.open()
    await until(lambda: known._seq == 3)
    assert known.absent(append(stream, key=b"new")) == 3
    assert [known.absent(append(stream, key=key)) for key in (b"first", b"other", b"own")] == [None] * 3
    await check_invariants(place)


async def test_what_was_read_while_redis_was_verified_counts_for_nothing(open_log: OpenLog) -> None:
    before, stream = await open_log(), new_stream()
    await appended(before, append(stream, key=b"first"))
    log = await open_log(identity_filter_bytes_max=MIB)
    await opened(log, stream)
    known = known_of(log, stream)

    async def verified_meanwhile(proceed: Proceed, name: str, *_: Any) -> Any:
        rows = await proceed()
        if name == "identities":
            known.verified()
        return rows

    interpose(log._postgres, "fetch", verified_meanwhile)
    assert not await known._read_on()
    assert known._seq == 0
    assert known.absent(append(stream, key=b"new")) is None


async def test_a_postgres_that_stands_further_back_is_not_believed(open_log: OpenLog) -> None:
    log = await open_log(identity_filter_bytes_max=MIB)
    stream = new_stream()
    await appended(log, append(stream, key=b"first"))
    known, partition = known_of(log, stream), lane(log, stream).partition
    partition.committed_seq += 1
    assert not await known._read_on()
    assert known._seq == 1


async def test_event_ids_that_a_client_chose_are_looked_up(open_log: OpenLog, place: Place) -> None:
    """One of them may be that of an event whose id a gateway minted."""
    log = await open_log(identity_filter_bytes_max=MIB, identity_window=8)
    stream = new_stream()
    (minted,) = await appended(log, append(stream))
    for _ in range(4):
        await appended(log, append(stream, 8))
    await caught_up(log, stream)
    retry = append(stream, key=b"k", event_ids=minted.event_ids)
    assert type(await log.append(retry)) is Mismatch
    await check_invariants(place)


async def test_without_room_all_keys_are_looked_up(open_log: OpenLog, place: Place) -> None:
    log = await open_log(identity_filter_bytes_max=1)
    stream = new_stream()
    answered = count_look_ups(log)
    await appended(log, append(stream, key=b"first"))
    known = known_of(log, stream)
    known._work.set()
    await until(lambda: not known._enabled)
    answered.clear()
    await appended(log, append(stream, key=b"second"))
    assert len(answered) == 1
    await check_invariants(place)


async def test_a_postgres_that_fails_is_asked_again(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_identities, "_RETRY_S", 0.01)
    before, stream = await open_log(), new_stream()
    await appended(before, append(stream, key=b"first"))
    log = await open_log(identity_filter_bytes_max=MIB)
    failing = iter([True, True])

    async def fails_twice(proceed: Proceed, name: str, *_: Any) -> Any:
        if name == "identities" and next(failing, False):
            raise PostgresTrouble("away")
        return await proceed()

    interpose(log._postgres, "fetch", fails_twice)
    await opened(log, stream)
    await caught_up(log, stream)
    assert next(failing, None) is None


def identities(*numbers: int) -> list[bytes]:
    return [hashlib.sha256(b"%d" % n).digest() for n in numbers]


def test_a_filter_has_all_that_was_added_and_little_else() -> None:
    budget = Budget(4 * MIB, filters=1)
    known = IdentityFilter(budget)
    first_layer = 128 * 1024 * 8 // BITS_EACH
    inside = identities(*range(first_layer + 20_000))
    assert known.add(b"".join(inside))
    assert known.bytes_held == (128 + 512) * 1024
    assert all(each in known for each in inside)
    taken = sum(each in known for each in identities(*range(10**6, 10**6 + 20_000)))
    assert taken < 20_000 * 0.03
    known.empty()
    assert known.bytes_held == 0
    assert not any(each in known for each in inside)


def test_a_filter_without_room_says_so() -> None:
    budget = Budget(192 * 1024, filters=2)
    mine, other = IdentityFilter(budget), IdentityFilter(budget)
    assert mine.add(b"".join(identities(1, 2)))
    assert not other.add(b"".join(identities(3)))
    mine.empty()
    assert other.add(b"".join(identities(3)))


def test_half_of_the_memory_is_shared_out() -> None:
    """Keys of one partition take all that is not another's own, and no more."""
    budget = Budget(4 * MIB, filters=2)
    greedy, other = IdentityFilter(budget), IdentityFilter(budget)
    while greedy._grow():
        pass
    assert greedy.bytes_held == (128 + 512 + 2048) * 1024
    assert other._grow()
    assert other._grow()
    assert not other._grow()
    assert other.bytes_held == (128 + 512) * 1024
    greedy.empty()
    assert other._grow()


async def test_a_filter_is_read_beside_appends(open_log: OpenLog, place: Place) -> None:
    """Many come while it is: each key is one append, however often it is sent."""
    log = await open_log(identity_filter_bytes_max=MIB, identity_window=40)
    stream = new_stream()
    for turn in range(5):
        asked = [append(stream, key=b"%d" % (n % 60)) for n in range(turn, 300 + turn)]
        outcomes = await asyncio.gather(*[log.append(each) for each in asked])
        assert {type(each) for each in outcomes} == {Appended}
    assert await log.length(stream) == 60
    await check_invariants(place)
