"""Postgres that dies, hangs, refuses rows or lost some: it decides, and is never contradicted."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from gateway.appends import Append, Appended
from gateway.events import Stream
from gateway.log.append.journal import CannotHelp
from gateway.log.commit_connection import CommitConnection
from gateway.log.epoch.chain import roll
from gateway.log.log import Log
from gateway.log.read.ranges import Range
from gateway.outcomes import NotCommitted, Outcome, OutcomeUnknown, Quarantined
from gateway.postgres.errors import PostgresTrouble
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.log.load import Load
from tests.support.drive import (
    STALL_S,
    Gate,
    Place,
    Proceed,
    append,
    appended,
    crash,
    event,
    hold_commits,
    hold_help,
    interpose,
    lane,
    lose_fetches,
    new_stream,
    opened,
    tally,
    time_is_up,
    until,
)
from tests.support.servers import Servers

POISONS = {"a value out of range": {"spec_rev": 2**40}, "a character that text can't hold": {"type": "a\0b"}}


@pytest.fixture
def place(breakable: Place) -> Place:
    return breakable


def poisoned(stream: Stream, poison: str = "a value out of range", **identity: Any) -> Append:
    return append(stream, events=(event(**POISONS[poison]),), **identity)


# -- servers that are killed or hang


async def test_appends_survive_that_postgres_is_killed_under_load(
    open_log: OpenLog, place: Place, breakable_servers: Servers
) -> None:
    load = Load([await open_log(append_deadline_s=20), await open_log(append_deadline_s=20)])
    async with load.running():
        for _ in range(2):
            await load.more(100)
            await breakable_servers.postgres.restart()
        await load.more(100)
    assert set(tally([outcome for *_, outcome in load.outcomes])) == {"Appended"}
    await load.check(load.logs[0])
    await check_invariants(place)


async def test_while_postgres_is_away_nothing_is_acknowledged(
    open_log: OpenLog, place: Place, breakable_servers: Servers
) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    breakable_servers.postgres.kill()
    pending = [log.append(append(stream)) for _ in range(5)]
    await until(lambda: not lane(log, stream).sequencer.waiting[0])
    time_is_up(log, stream)
    outcomes = await asyncio.gather(*pending)
    assert set(tally(outcomes)) <= {"OutcomeUnknown", "NotCommitted"}
    with pytest.raises(PostgresTrouble):
        await log.page(Range(stream), strong=True)
    assert await log.ready() is not None
    await breakable_servers.postgres.start()
    await appended(log, append(stream))
    unknown = sum(isinstance(each, OutcomeUnknown) for each in outcomes)
    assert await log.length(stream) == 2 + unknown
    await check_invariants(place)


async def test_while_commits_fail_nothing_more_is_sequenced_and_it_is_back_within_5_s(
    open_log: OpenLog, place: Place, breakable_servers: Servers, redis: Redis
) -> None:
    """What was on its way is of unknown outcome; what came later was never sequenced, and never appears."""
    log = await open_log(sequence_appends_max=4)
    stream = new_stream()
    await appended(log, append(stream))
    keys = lane(log, stream).partition.keys
    breakable_servers.postgres.kill()
    made, outcomes, lengths = list[Append](), list[Outcome](), list[int]()
    for _ in range(3):
        made += (more := [append(stream) for _ in range(8)])
        pending = [log.append(each) for each in more]
        await until(lambda: lane(log, stream).sequencer.waiting[0] <= 4 or lengths)
        await asyncio.wait(pending, timeout=0.5)  # nothing is sequenced meanwhile
        time_is_up(log, stream)
        outcomes += await asyncio.gather(*pending)
        lengths.append(int(await redis.hget(keys.meta, "q") or 0))
    told = tally(outcomes)
    assert told["NotCommitted"] >= 16
    assert told.get("OutcomeUnknown", 0) <= 8
    assert lengths[0] == lengths[2] <= 1 + 8
    await breakable_servers.postgres.start()
    async with asyncio.timeout(5 + STALL_S):
        while not isinstance(await log.append(append(stream)), Appended):
            pass
    await check_invariants(place)
    for one, outcome in zip(made, outcomes, strict=True):
        if isinstance(outcome, NotCommitted):
            assert await log.event(stream.tenant, one.append_id) is None


async def test_a_commit_that_hangs_is_sent_again_and_counts_once(open_log: OpenLog, place: Place) -> None:
    """Another session holds the partition's row: the statement that was dropped is carried out later."""
    log = await open_log(commit_timeout_s=0.2)
    stream = new_stream()
    await appended(log, append(stream))
    blocker = await asyncpg.connect(place.postgres_url)
    transaction = blocker.transaction()
    await transaction.start()
    number = lane(log, stream).partition.number
    await blocker.execute("SELECT FROM partition_log WHERE p = $1 FOR UPDATE", number)
    pending = log.append(append(stream, 2))

    async def two_wait() -> bool:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return (await place.fetch(waiting))[0][0] >= 2

    await until(two_wait)
    await transaction.commit()
    await blocker.close()
    outcome = await pending
    assert isinstance(outcome, Appended)
    assert outcome.first_version == 2
    assert await log.length(stream) == 3
    await check_invariants(place)


async def test_a_connection_that_ends_between_a_statement_and_its_arguments_is_made_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = asyncpg.Connection._get_statement

    async def too_late(connection: asyncpg.Connection, *args: Any, **more: Any) -> Any:
        statement = await prepare(connection, *args, **more)
        connection.terminate()
        return statement

    commits = CommitConnection(place.postgres_url, 5)
    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "_get_statement", too_late)
        with pytest.raises(PostgresTrouble):
            await commits.settle([0], [0])
    await commits.settle([0], [0])
    commits.drop()


async def test_a_connection_that_an_operator_ends_is_made_again(open_log: OpenLog, place: Place) -> None:
    load = Load([await open_log()])
    ends = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'sluice' AND pid <> pg_backend_pid()"""
    async with load.running(8):
        for _ in range(4):
            await load.more(20)
            await place.execute(ends)
        await load.more(20)
    assert set(tally([outcome for *_, outcome in load.outcomes])) == {"Appended"}
    await load.check(load.logs[0])
    await check_invariants(place)


async def test_a_look_up_after_its_connection_was_ended_takes_another_one(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    (first,) = await appended(log, append(stream, key=b"k"))
    await until(lambda: log._postgres._kept)
    kept = log._postgres._kept

    def has_ended() -> bool:
        try:
            return bool(kept.is_closed())
        except asyncpg.InterfaceError:
            return True

    await place.execute("SELECT pg_terminate_backend($1)", kept.get_server_pid())
    await until(has_ended)
    assert await log.settled(append(stream, key=b"k").retry) == replace(first, replayed=True)


async def test_a_statement_that_an_operator_cancels_is_sent_again(open_log: OpenLog, place: Place) -> None:
    load = Load([await open_log()])
    cancels = """SELECT pg_cancel_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'sluice' AND state = 'active' AND pid <> pg_backend_pid()"""
    async with load.running(8):
        for _ in range(20):
            await load.more(5)
            await place.execute(cancels)
    assert set(tally([outcome for *_, outcome in load.outcomes])) == {"Appended"}
    await check_invariants(place)


async def test_what_is_perhaps_not_on_the_standby_is_acknowledged_only_after_a_write_that_is(
    open_log: OpenLog, place: Place
) -> None:
    """An operator cancels a commit that waits for a synchronous standby: it stands, on only this server."""
    log = await open_log(append_deadline_s=20)
    stream = new_stream()
    await appended(log, append(stream))
    await until(lambda: all(each.partition.open for each in log._lanes))  # no seal waits beside it
    await place.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    await place.execute("SELECT pg_reload_conf()")
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query {} '%INTO outbox%'"
    pending, count = log.append(append(stream)), 2
    try:
        while not await place.fetch(waiting.format("LIKE")):
            if pending.done():  # Postgres had not taken notice of the setting yet
                pending, count = log.append(append(stream)), count + 1
        await place.fetch(waiting.format("LIKE").replace("pid", "pg_cancel_backend(pid)", 1))
        await until(lambda: place.fetch(waiting.format("NOT LIKE")))
        assert await place.committed() == count
        assert not pending.done()
    finally:
        await place.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await place.execute("SELECT pg_reload_conf()")
    outcome = await pending
    assert isinstance(outcome, Appended)
    assert outcome.first_version == count
    await check_invariants(place)


async def test_a_replay_whose_original_postgres_lost_meanwhile_is_decided_again(
    open_log: OpenLog, place: Place
) -> None:
    log, stream = await open_log(), new_stream()
    (done,) = await appended(log, append(stream, 2, key=b"once"))
    looks = 0

    async def half_lost(proceed: Proceed, called: str, *args: Any) -> Any:
        nonlocal looks
        rows = await proceed()
        if called == "receipt":
            looks += 1
            return rows[: looks - 1]
        return rows

    interpose(log._postgres, "fetch", half_lost)
    (again,) = await appended(log, append(stream, 2, key=b"once"))
    assert again == replace(done, replayed=True)
    assert looks == 3


async def test_an_unforeseen_error_is_waited_out(open_log: OpenLog, place: Place) -> None:
    """A table is away for a while: neither the commit, nor the look at what became of it, can be answered."""
    slow, quick = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(*(appended(each, append(stream)) for each in (slow, quick)))
    await place.execute("ALTER TABLE partition_log RENAME TO away")
    pending = [each.append(append(stream, key=b"%d" % n)) for n, each in enumerate((slow, quick) * 5)]
    with pytest.raises(PostgresTrouble):
        await slow.settled(append(stream, key=b"0").retry)
    await place.execute("ALTER TABLE away RENAME TO partition_log")
    outcomes = await asyncio.gather(*pending)
    assert tally(outcomes) == {"Appended": 10}
    assert not any(each.replayed for each in outcomes if isinstance(each, Appended))
    await check_invariants(place)


# -- rows that Postgres refuses


@pytest.mark.parametrize("poison", POISONS)
async def test_an_append_that_postgres_refuses_is_quarantined_by_itself(
    open_log: OpenLog, place: Place, poison: str
) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    before = [append(stream) for _ in range(7)]
    after = [append(stream) for _ in range(9)]
    bad = poisoned(stream, poison)
    outcomes = await asyncio.gather(*(log.append(each) for each in [*before, bad, *after]))
    assert isinstance(outcomes[7], Quarantined)
    assert tally(outcomes) == {"Appended": 16, "Quarantined": 1}
    versions = [each.first_version for each in outcomes if isinstance(each, Appended)]
    assert versions == list(range(2, 18))
    kept = await place.fetch("SELECT * FROM quarantined_append")
    assert [each["entry"] for each in kept] == [bad.packed[0]]
    await check_invariants(place)


async def test_several_refused_appends_of_one_call_are_quarantined_each(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    appends = [poisoned(stream) if n in (0, 5, 6, 11) else append(stream) for n in range(12)]
    outcomes = await asyncio.gather(*(log.append(each) for each in appends))
    assert [n for n, each in enumerate(outcomes) if isinstance(each, Quarantined)] == [0, 5, 6, 11]
    assert tally(outcomes) == {"Appended": 8, "Quarantined": 4}
    assert await log.length(stream) == 9
    await check_invariants(place)


async def test_a_conflicting_row_that_was_never_sequenced_is_loud_and_stops_only_its_own_append(
    open_log: OpenLog, place: Place
) -> None:
    """An operator wrote into the outbox by hand, where the stream's next version belongs."""
    log = await open_log()
    stream = new_stream()
    beside = new_stream(stream.tenant)
    await appended(log, append(stream))
    await place.execute("""
        INSERT INTO outbox SELECT 1, version + 1, recorded_at, gen_random_uuid(), tenant, correlation_id,
            causation_id, 1000 + p, spec_rev, append_id, digest, aggregate_type, aggregate_id, type,
            actor_type, actor_id, target_type, target_id, extra, payload FROM outbox""")
    refused, fine = await asyncio.gather(log.append(append(stream)), log.append(append(beside)))
    assert isinstance(refused, Quarantined)
    assert isinstance(fine, Appended)
    await place.execute("DELETE FROM outbox WHERE p >= 1000")
    (outcome,) = await appended(log, append(stream))
    assert outcome.first_version == 2
    await check_invariants(place)


async def test_what_a_dead_gateway_sequenced_and_postgres_refuses_is_quarantined_by_another(
    open_log: OpenLog, place: Place
) -> None:
    dead, living = await open_log(), await open_log()
    stream = new_stream()
    await asyncio.gather(opened(dead, stream), opened(living, stream))
    await appended(living, append(stream))
    gate, helped = hold_commits(dead, stream), hold_help(living)
    hold_help(dead)
    good = [append(stream) for _ in range(3)]
    for each in [*good, poisoned(stream), append(stream)]:
        dead.append(each)
    await gate.arrived()
    await until(lambda: not lane(dead, stream).sequencer._queue)
    await crash(dead)
    helped.open()
    await until(lambda: place.fetch("SELECT FROM quarantined_append"))
    (outcome,) = await appended(living, append(stream))
    assert outcome.first_version == 5
    for each in good:
        assert await living.event(stream.tenant, each.append_id) is not None
    await check_invariants(place)


async def test_what_another_commits_before_it_is_quarantined_is_not_called_not_committed(
    open_log: OpenLog, place: Place
) -> None:
    """Postgres refuses a row for a cause that is gone a moment later; meanwhile the gateway stands still."""
    slow, quick = await open_log(), await open_log()
    stream = new_stream()
    await appended(quick, append(stream))
    await opened(slow, stream)
    gate = Gate()

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        if name == "quarantine":
            await gate.hold()
        return await proceed()

    interpose(slow._postgres, "fetch", around)
    helped = hold_help(quick)
    await place.execute("""
        INSERT INTO outbox SELECT 2, 1, recorded_at, gen_random_uuid(), tenant, correlation_id, causation_id,
            p, spec_rev, append_id, digest, aggregate_type, 'by hand', type, actor_type, actor_id,
            target_type, target_id, extra, payload FROM outbox""")
    pending = slow.append(one := append(stream))
    await gate.arrived()
    await place.execute("DELETE FROM outbox WHERE aggregate_id = 'by hand'")
    helped.open()
    await until(lambda: quick.event(stream.tenant, one.append_id))
    gate.open()
    outcome = await pending
    assert isinstance(outcome, Appended)
    assert (outcome.first_version, outcome.event_ids) == (2, (one.append_id,))
    await check_invariants(place)


async def test_a_quarantine_that_postgres_interrupts_is_finished(open_log: OpenLog, place: Place) -> None:
    log = await open_log()
    stream = new_stream()
    await appended(log, append(stream))
    lose_fetches(log, "quarantine", 2)
    outcomes = await asyncio.gather(
        log.append(append(stream)), log.append(poisoned(stream)), log.append(append(stream))
    )
    assert [type(each) for each in outcomes] == [Appended, Quarantined, Appended]
    await check_invariants(place)


# -- a Postgres that lost commits


class Rewound:
    """The outbox as it was some appends ago, and what is missing."""

    def __init__(self, place: Place, number: int) -> None:
        self._place, self._number = place, number

    async def lose(self, after: int) -> None:
        await self._place.execute(
            f"CREATE TABLE pristine.lost AS SELECT * FROM outbox WHERE p = {self._number} AND seq > {after}"
        )
        await self._place.execute("CREATE TABLE pristine.row_before AS SELECT * FROM partition_log")
        rows = await self._place.fetch(
            "SELECT seq, version, append_id, digest FROM outbox WHERE p = $1 AND seq <= $2 ORDER BY seq",
            self._number, after,
        )  # fmt: skip
        chain = roll("", rows, after)
        await self._place.execute("DELETE FROM outbox WHERE p = $1 AND seq > $2", self._number, after)
        await self._place.execute(
            "UPDATE partition_log SET seq = $2, chain = $3 WHERE p = $1", self._number, after, chain
        )

    async def bring_back(self) -> None:
        """As a person does who finds the missing commits."""
        await self._place.execute("INSERT INTO outbox SELECT * FROM pristine.lost")
        await self._place.execute(
            """UPDATE partition_log l SET seq = b.seq, chain = b.chain, alarm = NULL
            FROM pristine.row_before b WHERE l.p = b.p AND l.p = $1""",
            self._number,
        )
        await self._place.execute("DROP TABLE pristine.lost, pristine.row_before")

    async def seq(self) -> int:
        return (await self._place.fetch("SELECT seq FROM partition_log WHERE p = $1", self._number))[0][0]


async def halted(log: Log, stream: Stream) -> None:
    partition = lane(log, stream).partition
    await until(lambda: partition.halted is not None)
    refused = await log.append(append(stream))
    assert isinstance(refused, NotCommitted)
    assert "Postgres is at" in refused.reason


async def test_a_postgres_that_lost_commits_stops_the_partition_and_is_not_written_to(
    open_log: OpenLog, place: Place
) -> None:
    """Its gateway knows what it saw committed; one that boots learns it from Redis."""
    log = await open_log()
    stream = new_stream()
    for _ in range(5):
        await appended(log, append(stream))
    await check_invariants(place)
    rewound = Rewound(place, lane(log, stream).partition.number)
    await rewound.lose(after=3)
    first = log.append(append(stream))
    await halted(log, stream)
    time_is_up(log, stream)
    assert isinstance(await first, OutcomeUnknown | NotCommitted)
    assert "is refused" in (await log.ready() or "") or "Postgres is at" in (await log.ready() or "")
    new = await open_log()
    await halted(new, stream)
    assert await rewound.seq() == 3
    await rewound.bring_back()
    for each in (log, new):
        await until(lambda each=each: lane(each, stream).partition.halted is None)
        await appended(each, append(stream))
    await check_invariants(place)


async def test_what_postgres_lost_is_not_committed_again_from_the_journal_in_silence(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    for _ in range(4):
        await appended(log, append(stream))
    await check_invariants(place)
    partition = lane(log, stream).partition
    epoch = partition.epoch
    rewound = Rewound(place, partition.number)
    await rewound.lose(after=2)
    with pytest.raises(CannotHelp):
        await log._journal.commit(partition)
    await halted(log, stream)
    assert await rewound.seq() == 2
    assert await place.fetch("SELECT FROM partition_log WHERE p = $1 AND epoch = $2", partition.number, epoch)
    await rewound.bring_back()
    await until(lambda: partition.halted is None)
    await check_invariants(place)


async def test_a_postgres_that_goes_back_while_a_partition_idles_is_not_repaired_in_silence(
    open_log: OpenLog, place: Place
) -> None:
    """A gateway that boots sees in Redis that more was committed, and adopts neither history."""
    log = await open_log()
    stream = new_stream()
    for _ in range(4):
        await appended(log, append(stream))
    await check_invariants(place)
    rewound = Rewound(place, lane(log, stream).partition.number)
    await log.stop(1)
    await rewound.lose(after=2)
    for _ in range(2):
        await halted(await open_log(), stream)
    assert await rewound.seq() == 2
    await rewound.bring_back()
    await appended(await open_log(), append(stream, expected=4))
    await check_invariants(place)


async def test_another_history_in_postgres_than_redis_saw_committed_stops_the_partition(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    for _ in range(3):
        await appended(log, append(stream))
    await check_invariants(place)
    number = lane(log, stream).partition.number
    await log.stop(1)
    right = (await place.fetch("SELECT chain FROM partition_log WHERE p = $1", number))[0][0]
    update = "UPDATE partition_log SET chain = $2, alarm = NULL WHERE p = $1"
    await place.execute(update, number, "0" * 40)
    stopped = await open_log()
    await until(lambda: lane(stopped, stream).partition.halted is not None)
    assert isinstance(await stopped.append(append(stream)), NotCommitted)
    await place.execute(update, number, right)
    await until(lambda: lane(stopped, stream).partition.halted is None)
    await appended(stopped, append(stream))
    await check_invariants(place)
