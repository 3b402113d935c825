"""Gateways beside each other: one stops midway, dies, or comes late."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from uuid_utils import uuid7

from gateway.appends import OF_BATCH, OF_SEVERAL, Appended
from gateway.events import Stream
from gateway.log.append import pacing, sequencer, sweeper
from gateway.log.epoch.partition import Partition
from gateway.log.log import Log
from gateway.outcomes import Conflict, Mismatch, OutcomeUnknown
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import (
    STALL_S,
    Gate,
    Place,
    Proceed,
    append,
    appended,
    crash,
    hold_commits,
    hold_help,
    ids,
    interpose,
    lane,
    new_stream,
    opened,
    seal,
    sent_or_gathering,
    tally,
    time_is_up,
    until,
    wipe_partition,
)


async def test_what_a_gateway_sequenced_before_it_died_is_committed_by_another_within_a_second(
    open_log: OpenLog, place: Place
) -> None:
    dead, living = await open_log(), await open_log()
    streams = [new_stream() for _ in range(6)]
    for each in streams:
        await asyncio.gather(opened(dead, each), opened(living, each))
        hold_commits(dead, each)
    for each in (dead, living):
        hold_help(each)
    metas = {lane(dead, each).partition.keys.meta for each in streams}
    for each in streams:
        dead.append(append(each, 3))

    async def sequenced() -> bool:
        return sum([int(await dead._scripts.servers.client.hget(meta, "q")) for meta in metas]) == 18

    await until(sequenced)
    await crash(dead)
    await living.stop(1)
    await open_log()
    begun = time.monotonic()

    async def all_committed() -> bool:
        return await place.committed() == 18

    await until(all_committed)
    assert time.monotonic() - begun < 1 + STALL_S
    await check_invariants(place)


async def test_a_gateway_that_is_killed_leaves_nothing_behind_and_lost_nothing_it_acknowledged(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.log.child", place.postgres_url, place.redis_url,
        stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert child.stdout is not None
    acknowledged = [(await child.stdout.readline()).split() for _ in range(200)]
    child.send_signal(signal.SIGKILL)
    acknowledged += [line.split() for line in (await child.stdout.read()).splitlines(keepends=True)
                     if line.endswith(b"\n")]  # fmt: skip
    await child.wait()
    await check_invariants(place)
    versions = {row["id"].bytes.hex(): row["version"] for row in await place.fetch("SELECT * FROM outbox")}
    for event_id, version in acknowledged:
        assert versions[event_id.decode()] == int(version)
    await appended(log, append(new_stream()))


async def test_a_gateway_commits_what_comes_before_its_own_when_no_other_gateway_does(
    open_log: OpenLog, place: Place
) -> None:
    slow, quick = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(slow, stream), opened(quick, stream))
    gate = hold_commits(slow, stream)
    hold_help(slow)
    first = append(stream, 2)
    pending = slow.append(first)
    await gate.arrived()
    (second,) = await appended(quick, append(stream))
    assert second.first_version == 3
    assert not pending.done()
    gate.open()
    assert await pending == Appended(stream.key, 1, ids(first))
    await check_invariants(place)


async def test_a_commit_of_an_ended_epoch_does_nothing_and_its_append_is_sequenced_again(
    open_log: OpenLog, place: Place
) -> None:
    slow, quick = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(slow, stream), opened(quick, stream))
    gate = hold_commits(slow, stream)
    hold_help(slow)
    help_gate = hold_help(quick)
    one = append(stream)
    pending = slow.append(one)
    await gate.arrived()
    await seal(place, quick, stream)
    help_gate.open()
    (other,) = await appended(quick, append(stream, 2))
    assert other.first_version == 1
    gate.open()
    assert await pending == Appended(stream.key, 3, ids(one))
    await check_invariants(place)


async def test_a_commit_of_an_ended_epoch_is_not_taken_for_another_request_under_the_same_event_id(
    open_log: OpenLog, place: Place
) -> None:
    """The same chosen id stands at the same seq in the next epoch, with other content in another stream."""
    slow, quick = await open_log(), await open_log()
    stream = new_stream()
    other = new_stream(stream.tenant)
    await asyncio.gather(opened(slow, stream), opened(quick, stream))
    gate = hold_commits(slow, stream)
    hold_help(slow)
    hold_help(quick)
    chosen = uuid7().bytes
    pending = slow.append(append(stream, event_ids=(chosen,), body=b"one"))
    await gate.arrived()
    await seal(place, quick, stream)
    await appended(quick, append(other, event_ids=(chosen,), body=b"two"))
    gate.open()
    assert await pending == Mismatch()
    assert await quick.length(stream) == 0
    await check_invariants(place)


async def test_an_append_that_another_gateway_commits_keeps_the_form_of_its_receipt(
    open_log: OpenLog, place: Place
) -> None:
    dead, living = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(dead, stream), opened(living, stream))
    gate = hold_commits(dead, stream)
    await no_sweeping(dead, living)
    sent = [append(stream, key=b"%d" % n, form=form) for n, form in enumerate((None, OF_BATCH, OF_SEVERAL))]
    for each in sent:
        dead.append(each)
    await gate.arrived()
    await crash(dead)
    assert await living._journal.commit(lane(living, stream).partition) == len(sent)
    for n, each in enumerate(sent):
        found = await living.receipt(stream.tenant, each.chosen[0], None)
        assert found is not None
        assert (found.form, found.places) == (each.form, each.committed_at(n + 1).places)
    await check_invariants(place, settles=False)


async def test_partitions_are_helped_at_once_without_getting_in_each_others_way(
    open_log: OpenLog, place: Place
) -> None:
    """Several committers find that another one died before them, in the same moment."""
    dead, living = await open_log(), await open_log()
    streams = [new_stream() for _ in range(24)]
    gates = {}
    for each in streams:
        await asyncio.gather(opened(dead, each), opened(living, each))
        gates[lane(dead, each).partition.number] = hold_commits(dead, each)
    await no_sweeping(dead, living)
    for each in streams:
        dead.append(append(each))
    await asyncio.gather(*(gate.arrived() for gate in gates.values()))
    await crash(dead)
    partitions = [living._lanes[number].partition for number in gates]
    assert len(partitions) > 4
    assert sum(await asyncio.gather(*(living._journal.commit(each) for each in partitions))) == 24
    await appended(living, *(append(each) for each in streams))
    await check_invariants(place, settles=False)


async def test_what_a_gateway_is_committing_itself_is_not_committed_from_the_journal_too(
    open_log: OpenLog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "SWEEP_EVERY_S", 3600)
    log, helped, stream = await open_log(), [], new_stream()

    async def commit(proceed: Proceed, partition: Partition) -> Any:
        helped.append(partition.number)
        return await proceed()

    interpose(log._journal, "commit", commit)
    await opened(log, stream)
    gate = hold_commits(log, stream)
    waiting = log.append(append(stream))
    await gate.arrived()
    for _ in range(sweeper.OWN_LOOKS):
        await log._sweeper.run_once()
        assert not helped
    await log._sweeper.run_once()
    assert helped == [lane(log, stream).partition.number]  # the connection might hang
    gate.open()
    assert isinstance(await waiting, Appended)
    await check_invariants(place)


async def no_sweeping(*logs: Log) -> None:
    """Returns once no sweeper is at work any more, nor will be."""
    for log in logs:
        gate = Gate()
        interpose(log._sweeper, "run_once", lambda proceed, gate=gate: gate.hold())
        await gate.arrived()


async def test_a_conflict_at_a_gateway_that_only_loses_waits_for_nothing_but_the_winner(
    open_log: OpenLog, place: Place
) -> None:
    """It commits nothing, so nothing of its own moves on: it has to ask."""
    winner, loser = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(winner, stream), opened(loser, stream))
    await no_sweeping(winner, loser)
    watch = Gate()

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        if name == "partitions":
            await watch.hold()
        return await proceed()

    interpose(loser._postgres, "fetch", around)
    await watch.arrived()
    gate = hold_commits(winner, stream)
    first = winner.append(append(stream, expected=0))
    await gate.arrived()
    second = loser.append(append(stream, expected=0))
    await until(lambda: not lane(loser, stream).sequencer._queue)
    gate.open()
    assert isinstance(await first, Appended)
    assert await second == Conflict(1)
    watch.open()
    await check_invariants(place)


async def test_a_look_at_postgres_that_began_before_a_partition_was_sealed_does_not_close_it(
    log: Log, place: Place
) -> None:
    """What it tells of the epoch is older than what the gateway knows."""
    stream = new_stream()
    await opened(log, stream)
    looked = Gate()

    async def look(proceed: Proceed, name: str, *args: Any) -> Any:
        found = await proceed()
        if name == "partitions":
            await looked.hold()
        return found

    interpose(log._postgres, "fetch", look)
    await looked.arrived()
    await wipe_partition(log, stream)
    verified = verifications(log, stream)
    begun = log.watch.looked_at
    looked.open()
    await until(lambda: log.watch.looked_at > begun)
    await appended(log, append(stream))
    assert verified == []
    await check_invariants(place)


async def test_a_look_at_redis_that_began_before_a_partition_was_sealed_does_not_close_it(
    log: Log, place: Place
) -> None:
    """Nor does this one; the gateway's other looks go on beside it."""
    stream = new_stream()
    await opened(log, stream)
    looked = Gate()

    async def look(proceed: Proceed) -> Any:
        found = await proceed()
        if asyncio.current_task() is looking:
            await looked.hold()
        return found

    interpose(log._sweeper, "_look", look)
    looking = asyncio.create_task(log._sweeper.run_once())
    await looked.arrived()
    await wipe_partition(log, stream)
    verified = verifications(log, stream)
    looked.open()
    await looking
    await appended(log, append(stream))
    assert verified == []
    await check_invariants(place)


def verifications(log: Log, stream: Stream) -> list[int]:
    """The epochs in which the stream's partition is verified from now on."""
    verified = []

    async def verify(proceed: Proceed, partition: Partition) -> Any:
        if partition is lane(log, stream).partition:
            verified.append(partition.epoch)
        return await proceed()

    interpose(log._verifier, "verify", verify)
    return verified


async def test_a_head_that_postgres_told_in_one_epoch_is_not_used_in_another(
    open_log: OpenLog, place: Place
) -> None:
    """Redis is wiped twice the same way: what was evicted from it is the same in both epochs."""
    slow, quick = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(slow, stream), opened(quick, stream))
    await wipe_partition(quick, stream)
    await until(lambda: lane(slow, stream).partition.open)
    gate = Gate()

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        found = await proceed()
        if name == "heads":
            await gate.hold()
        return found

    interpose(slow._postgres, "fetch", around)
    pending = slow.append(append(stream))
    await gate.arrived()
    await appended(quick, append(stream, 2))
    await wipe_partition(quick, stream)
    await until(lambda: not lane(slow, stream).partition.open)
    gate.open()
    outcome = await pending
    assert isinstance(outcome, Appended), outcome
    assert outcome.first_version == 3
    await check_invariants(place)


async def test_verifying_beside_a_busy_gateway_raises_no_alarm(open_log: OpenLog, place: Place) -> None:
    """Between the look at Postgres and the look at Redis others commit, and the watermark moves."""
    busy = await open_log()
    stream = new_stream()
    await appended(busy, append(stream))
    late = await open_log()
    looks = 0

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        nonlocal looks
        if name == "inspect" and looks < 4:
            looks += 1
            await appended(busy, append(stream))
        return await proceed()

    interpose(late._scripts, "run", around)
    await opened(late, stream)
    assert all(each.partition.halted is None for each in late._lanes)
    await appended(late, append(stream))
    await check_invariants(place)


@pytest.mark.parametrize(("large", "carried"), [(7, [1, 1]), (8, [2])])
async def test_beside_another_gateway_a_call_after_a_large_one_waits_for_more(
    open_log: OpenLog, place: Place, monkeypatch: pytest.MonkeyPatch, large: int, carried: list[int]
) -> None:
    monkeypatch.setattr(pacing, "_GATHER_S", 1.0)
    one, other = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(one, stream), opened(other, stream))
    for log in (one, other):
        await appended(log, append(stream))
    await appended(one, *(append(stream) for _ in range(large)))
    runs: list[int] = []

    async def around(proceed: Proceed, *args: Any) -> Any:
        runs.append(len(args[4]))
        return await proceed()

    interpose(lane(one, stream).connection, "swap", around)
    first = one.append(append(stream))
    await until(lambda: sent_or_gathering(lane(one, stream)))
    await appended(one, append(stream))
    assert isinstance(await first, Appended)
    assert runs == carried
    await check_invariants(place)


async def test_beside_another_gateway_commits_are_told_with_the_next_call_but_an_answer_asks_at_once(
    open_log: OpenLog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "_WATERMARK_LAG_S", 0.0)
    monkeypatch.setattr(sequencer, "_BUSY_WATERMARK_LAG_S", 60.0)
    one, other = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(one, stream), opened(other, stream))
    await no_sweeping(one, other)
    for log in (one, other, one):
        await appended(log, append(stream))
    calls: list[int] = []

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        if name == "sequence":
            calls.append(lane(one, stream).sequencer._pace.calling)
        return await proceed()

    interpose(one._scripts, "run", around)
    for log in (other, one, other):
        await appended(log, append(stream))
    assert calls == [1]
    lane(other, stream).sequencer._pace.shared = False  # so it tells Redis of its commit
    gate = hold_commits(other, stream)
    first = other.append(append(stream, expected=6))
    await gate.arrived()
    second = one.append(append(stream, expected=6))
    await until(lambda: calls.count(1) == 2)
    gate.open()
    assert isinstance(await first, Appended)
    assert await second == Conflict(7)
    await check_invariants(place)


async def test_many_gateways_that_boot_at_once_agree_on_one_epoch(open_log: OpenLog, place: Place) -> None:
    logs = await asyncio.gather(*(open_log() for _ in range(4)))
    stream = new_stream()
    outcomes = await asyncio.gather(*(each.append(append(stream)) for each in logs for _ in range(8)))
    assert tally(outcomes) == {"Appended": 32}
    assert all(each.partition.halted is None for log in logs for each in log._lanes)
    await check_invariants(place)


async def test_a_stopped_gateway_that_wakes_up_much_later_changes_nothing(
    open_log: OpenLog, place: Place
) -> None:
    """All that it was about to do is stopped midway: a commit, a help, an install."""
    asleep, awake = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(asleep, stream), opened(awake, stream))
    gates = [hold_commits(asleep, stream), hold_help(asleep)]
    first = append(stream, key=b"k")
    pending = asleep.append(first)
    await gates[0].arrived()
    (replayed,) = await appended(awake, append(stream, key=b"k"))
    assert replayed == Appended(stream.key, 1, ids(first), replayed=True)
    await seal(place, awake, stream)
    await appended(awake, *(append(stream) for _ in range(20)))
    time_is_up(asleep, stream)
    assert await pending in (OutcomeUnknown(first.append_id), Appended(stream.key, 1, ids(first)))
    for gate in gates:
        gate.open()
    (last,) = await appended(asleep, append(stream))
    assert last.first_version == 22
    await check_invariants(place)
